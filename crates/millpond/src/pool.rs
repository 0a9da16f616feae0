//! The pool: device memory at the speed of `malloc`, with little held beyond what is used.
//!
//! ```text
//!   thread cache      one per thread and stream; no lock, no atomic read-modify-write       thread_cache, attached
//!        │  batches of 16, both ways
//!   global cache      free blocks of all threads, by stream and class                       middle
//!        │
//!   slabs             64–256 KiB of blocks of one class; larger blocks go past them         middle, size_class
//!        │
//!   back              best fit in addresses, physical pages that move                       back, heap, pages, points
//!        │
//!   driver
//! ```
//!
//! Blocks are described on the host, by `headers` that `page_map` finds by address; that is how a bad free is told from a
//! right one at full speed.

mod attached;
mod back;
mod bins;
mod config;
#[allow(unsafe_code)]
mod handshake;
mod headers;
mod heap;
mod inbox;
mod inner;
mod membarrier;
mod middle;
#[allow(unsafe_code)]
mod page_map;
mod pages;
mod points;
mod size_class;
mod stats;
mod sync;
#[allow(unsafe_code)]
mod thread_cache;
mod word;

use std::sync::Arc;

pub use self::config::{ConfigError, PoolConfig};
use self::inner::{Inner, Keep};
pub use self::stats::PoolStats;
use crate::driver::{DevicePtr, Driver, DriverError, Stream};
use crate::resource::{AllocError, FreeError, Resource, Usage};

/// A pool of device memory.
///
/// ```
/// use std::sync::Arc;
/// use millpond::driver::{Driver, StreamFlags};
/// use millpond::pool::Pool;
/// use millpond::{FreeError, Resource};
/// use millpond_sim::{Profile, SimGpu};
///
/// let gpu: Arc<dyn Driver> = Arc::new(SimGpu::new(Profile::named("a100-80g")?));
/// let stream = gpu.create_stream(StreamFlags::NON_BLOCKING)?;
/// let pool = Pool::new(gpu)?;
///
/// let block = pool.allocate(3000, stream)?;
/// assert_eq!(pool.usage().live_bytes, 3000);
/// // A bad free is an error and changes nothing.
/// assert!(matches!(pool.deallocate(block, 4000, stream), Err(FreeError::WrongSize { .. })));
/// pool.deallocate(block, 3000, stream)?;
/// assert!(matches!(pool.deallocate(block, 3000, stream), Err(FreeError::AlreadyFree { .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Promises: coalesces, returns upstream, reuses across streams, OOM-complete. Clones are the same pool. Caches of threads
/// that end go back; the pool may be dropped before or after its threads end.
#[derive(Clone, Debug)]
pub struct Pool {
    inner: Arc<Inner>,
}

impl Pool {
    /// A pool on a device, with the default settings.
    ///
    /// # Errors
    /// The driver has no addresses left, or no virtual memory management.
    pub fn new(driver: Arc<dyn Driver>) -> Result<Pool, DriverError> {
        Ok(Pool { inner: Arc::new(Inner::new(driver)?) })
    }

    /// How the pool behaves.
    pub fn config(&self) -> PoolConfig {
        self.inner.settings.get(self.inner.back.slack())
    }

    /// Changes how the pool behaves, from now on. Threads' caches are emptied into the global cache, which keeps what it has
    /// beyond new bounds until that is used or trimmed.
    ///
    /// # Errors
    /// A setting that makes no sense, named. Nothing has changed then.
    pub fn set_config(&self, config: PoolConfig) -> Result<(), ConfigError> {
        config.check()?;
        self.inner.settings.set(&config);
        self.inner.drain_caches(Keep::Yes);
        self.inner.back.set_slack(config.slack);
        Ok(())
    }

    /// What the pool has done since the statistics were reset.
    pub fn stats(&self) -> PoolStats {
        self.inner.stats()
    }

    /// Counts anew from here. What is held at the moment still is.
    pub fn reset_stats(&self) {
        self.inner.reset_stats();
    }

    /// Takes a block back whose size the caller does not know.
    ///
    /// # Errors
    /// As [`Resource::deallocate`].
    pub fn deallocate_unsized(&self, ptr: DevicePtr, stream: Stream) -> Result<(), FreeError> {
        self.inner.deallocate(ptr, None, stream)
    }

    /// Empties the caches of all threads and the global cache. Their memory stays with the pool, where it can merge.
    pub fn trim_cache(&self) {
        self.inner.drain();
    }

    /// Gives back everything that nobody holds, and counts anew. A held block is not touched. Returns the bytes given back.
    pub fn release_all(&self) -> usize {
        let released = self.trim();
        self.reset_stats();
        released
    }

    /// Checks everything that must hold between calls. Slow: for tests.
    ///
    /// # Panics
    /// If something does not hold.
    pub fn assert_valid(&self) {
        self.inner.back.assert_valid();
    }
}

impl Resource for Pool {
    #[inline]
    fn allocate(&self, bytes: usize, stream: Stream) -> Result<DevicePtr, AllocError> {
        self.inner.allocate(bytes, stream)
    }

    #[inline]
    fn deallocate(&self, ptr: DevicePtr, bytes: usize, stream: Stream) -> Result<(), FreeError> {
        self.inner.deallocate(ptr, Some(bytes), stream)
    }

    fn usage(&self) -> Usage {
        self.inner.usage()
    }

    fn trim(&self) -> usize {
        self.inner.drain();
        self.inner.back.trim() as usize
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.inner.back.driver().driver()
    }
}
