//! The pool: device memory at the speed of `malloc`, with little held beyond what is used.
//!
//! A request goes down from tier to tier until one has a block. A freed block stops at the first tier that keeps it. The files are to be
//! read in that order:
//!
//! ```text
//!   tier                     what it has                                                       files
//!   ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
//!   fast path                what this thread used last, found by two comparisons              fast_path; from C: by_handle
//!       │
//!   thread cache             one per thread and stream: no lock, no atomic read-modify-write   thread_cache, shelves, caches
//!       │  batches of 16, both ways
//!   global cache, reserve    free blocks of all threads by stream and size; set aside          central
//!       │
//!   slabs                    64–256 KiB of blocks of one class; larger ones go past them       slabs
//!       │
//!   stream order             whose memory a stream may have, and what it must wait for         streams
//!       │
//!   page backend             best fit in addresses, memory with several addresses              back
//!       │
//!   driver
//! ```
//!
//! `tiers` holds them together: the journey of an allocation, of a free, and of what caches give up. A hit reads in `fast_path`,
//! `thread_cache` and `shelves`; a miss goes on in `tiers/allocate`, `central`, `slabs`, `tiers/memory`, `streams` and `back`. Beside the journey stand
//! `regions`, which are tiers of their own, `background`, which looks after pools from time to time, `notes` on blocks of which more is known,
//! and `statistics`.
//!
//! Device memory cannot hold what is known of it. Blocks are described on the host: `sizes` says which kind of block serves a request, and
//! `blocks` finds a block's header by its address, and in it the word that says what the block is at the moment. So a bad free is told from
//! a right one at full speed. What threads do to one block or one cache at the same time is in `lock_free`, which loom tries.
//!
//! ```text
//!   a block is in one place      a user's │ a thread's cache │ an outbox or inbox │ global cache, reserve or slab
//!   and its word says which      Live     │ Cached           │ Remote             │ Free
//!
//!   allocations = hits of thread caches + global hits + reserve hits + reuse hits + device allocations
//!   live bytes  = Σ threads: bytes allocated − bytes freed
//!   used bytes of the back = live + kept in caches + set aside + left over in slabs and by rounding
//! ```
//!
//! The last two are sums over threads that go on meanwhile; the others hold at every moment, but for a block that is on its way.

mod back;
mod background;
#[allow(unsafe_code)]
mod blocks;
#[allow(unsafe_code)]
mod by_handle;
#[allow(unsafe_code)]
mod caches;
mod central;
mod config;
#[allow(unsafe_code)]
mod fast_path;
#[allow(unsafe_code)]
mod lock_free;
mod notes;
mod regions;
#[allow(unsafe_code)]
mod shelves;
mod sizes;
mod slabs;
mod statistics;
mod streams;
mod sync;
#[allow(unsafe_code)]
mod thread_cache;
mod tiers;

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use self::background::Watch;
pub use self::by_handle::{ByHandle, Remembered};
pub use self::config::{ConfigError, PoolConfig};
pub use self::notes::{TagScope, TagUsage, tag};
use self::regions::BelongsTo;
pub use self::regions::{Region, RegionOptions};
pub use self::statistics::PoolStats;
use self::tiers::{Tiers, TiersOptions};
use crate::driver::{
    Access, CaptureId, Counted, DevicePtr, Driver, DriverError, PhysicalProperties, Stream,
};
use crate::fork::{LeftToParent, PerProcess};
use crate::resource::{AllocError, FreeError, Recoverable, Resource, Usage};
use crate::trace::Snapshot;

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
    /// Dropped first: while the background looks, the pool is there.
    watch: Option<Arc<Watch>>,
    tiers: LeftToParent<Arc<Tiers>>,
}

impl Pool {
    /// A pool on a device, with the default settings.
    ///
    /// # Errors
    /// The driver has no addresses left.
    pub fn new(driver: Arc<dyn Driver>) -> Result<Pool, DriverError> {
        Pool::make(driver, PoolConfig::default())
    }

    /// A pool on a device, with settings of its own.
    ///
    /// # Errors
    /// A setting makes no sense, or the driver has no addresses left.
    pub fn with_config(driver: Arc<dyn Driver>, config: PoolConfig) -> Result<Pool, OpenError> {
        let config = config.in_place_of(&PoolConfig::default());
        config.check()?;
        Ok(Pool::make(driver, config)?)
    }

    fn make(driver: Arc<dyn Driver>, config: PoolConfig) -> Result<Pool, DriverError> {
        let options = TiersOptions {
            belongs_to: BelongsTo::Pool,
            parent: Weak::new(),
            properties: PhysicalProperties::default(),
            access: Access::ReadWrite,
            config,
        };
        sync::register_barriers();
        fast_path::forget_in_children();
        let tiers = LeftToParent::new(Arc::new(Tiers::new(Counted::new(driver), options)?));
        Ok(Pool { watch: background::watch(&tiers).map(Arc::new), tiers })
    }

    /// The pool of the whole process, made by whoever asks first. A forked child has its own.
    ///
    /// # Errors
    /// As `make`; whoever asks next tries again.
    pub fn instance<E>(make: impl FnOnce() -> Result<Pool, E>) -> Result<Pool, E> {
        static INSTANCE: PerProcess<Mutex<Option<Pool>>> = PerProcess::new();
        let mut instance = INSTANCE.get().lock();
        match &*instance {
            Some(pool) => Ok(pool.clone()),
            None => Ok(instance.insert(make()?).clone()),
        }
    }

    /// How the pool behaves.
    pub fn config(&self) -> PoolConfig {
        self.tiers.settings.get()
    }

    /// Changes how the pool behaves, from now on. Threads' caches are emptied into the global cache, which keeps what it has
    /// beyond new bounds until that is used or trimmed. A `batch_alloc_count` that stays the same is lowered to a new
    /// `thread_cache_max_blocks`.
    ///
    /// # Errors
    /// A setting that makes no sense, named. Nothing has changed then.
    pub fn set_config(&self, config: PoolConfig) -> Result<(), ConfigError> {
        if self.tiers.has_forked() {
            return config.check();
        }
        let config = config.in_place_of(&self.config());
        config.check()?;
        self.tiers.set_config(&config);
        if self.watch.is_some() {
            background::reschedule(&self.tiers);
        }
        Ok(())
    }

    /// What the pool has done since the statistics were reset.
    pub fn stats(&self) -> PoolStats {
        self.tiers.stats()
    }

    /// Counts anew from here. What is held at the moment still is.
    pub fn reset_stats(&self) {
        self.tiers.reset_stats();
    }

    /// What is left of [`allocate`](Resource::allocate) for those who have tried [`allocate_by_handle`](Self::allocate_by_handle).
    ///
    /// # Errors
    /// As [`Resource::allocate`].
    #[inline]
    pub fn allocate_uncached(&self, bytes: usize, stream: Stream) -> Result<DevicePtr, AllocError> {
        self.tiers.allocate_slow(bytes, stream)
    }

    /// What is left of [`deallocate`](Resource::deallocate) for those who have tried
    /// [`deallocate_last_by_handle`](Self::deallocate_last_by_handle) and what that has remembered.
    ///
    /// # Errors
    /// As [`Resource::deallocate`].
    #[inline]
    pub fn deallocate_uncached(
        &self,
        ptr: DevicePtr,
        bytes: usize,
        stream: Stream,
    ) -> Result<(), FreeError> {
        self.tiers.deallocate_slow(ptr, Some(bytes), stream)
    }

    /// Takes a block back whose size the caller does not know.
    ///
    /// # Errors
    /// As [`Resource::deallocate`].
    pub fn deallocate_unsized(&self, ptr: DevicePtr, stream: Stream) -> Result<(), FreeError> {
        self.tiers.deallocate(ptr, None, stream)
    }

    /// Takes a block back, with any size that it holds: what was asked for, rounded up.
    ///
    /// # Errors
    /// As [`Resource::deallocate`], of a size beyond that.
    pub fn deallocate_within(
        &self,
        ptr: DevicePtr,
        bytes: usize,
        stream: Stream,
    ) -> Result<(), FreeError> {
        if ptr.is_null() {
            return Ok(());
        }
        self.check_within(ptr, bytes)?;
        self.deallocate_unsized(ptr, stream)
    }

    /// Whether a block holds so many bytes.
    ///
    /// # Errors
    /// As [`deallocate_within`](Self::deallocate_within).
    pub fn check_within(&self, ptr: DevicePtr, bytes: usize) -> Result<(), FreeError> {
        let allocated_bytes = self.bytes_of(ptr)?;
        if bytes <= allocated_bytes.max(self.tiers.held_bytes(ptr)) {
            return Ok(());
        }
        Err(FreeError::WrongSize { ptr, given_bytes: bytes, allocated_bytes })
    }

    /// What a block was asked for with.
    ///
    /// # Errors
    /// As [`Resource::deallocate`], of an address where no block begins.
    pub fn bytes_of(&self, ptr: DevicePtr) -> Result<usize, FreeError> {
        self.tiers.bytes_of(ptr)
    }

    /// A block that can be had at once, or an error: for requests that must wait neither for the driver nor for another stream.
    ///
    /// # Errors
    /// [`AllocError::WouldWait`], besides those of [`Resource::allocate`].
    pub fn allocate_now(&self, bytes: usize, stream: Stream) -> Result<DevicePtr, AllocError> {
        self.tiers.allocate_now(bytes, stream)
    }

    /// Says that a block is used on another stream, too: when it is freed, its memory waits for what that stream has been
    /// given by then.
    ///
    /// # Errors
    /// As [`Resource::deallocate`], of an address where no block begins.
    pub fn record_stream(&self, ptr: DevicePtr, stream: Stream) -> Result<(), FreeError> {
        self.tiers.record_stream(ptr, stream)
    }

    /// Sets `count` blocks for requests of `bytes` aside, for any stream: all of them, or none.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn preallocate(&self, bytes: usize, count: usize) -> Result<(), AllocError> {
        self.tiers.preallocate(bytes, count)
    }

    /// A part of the pool for a purpose of its own.
    ///
    /// # Errors
    /// There is not enough memory for what is to be dedicated, or the driver has no addresses left.
    pub fn region(&self, options: &RegionOptions) -> Result<Region, AllocError> {
        Region::new(self, options)
    }

    /// Captures that have memory of this pool and were not released. Without those of a [region](RegionOptions) that has them share it.
    pub fn captures(&self) -> Vec<CaptureId> {
        self.tiers.captures()
    }

    /// Gives up the memory that was allocated while a stream was captured. Until then it serves that capture alone, since
    /// its graph can be launched again and again. The graph must not be launched any more, and what was launched must be ordered
    /// before this point of `stream`. Blocks still held stay until they are freed.
    ///
    /// # Errors
    /// The stream is none of this device.
    pub fn release_capture(&self, capture: CaptureId, stream: Stream) -> Result<(), DriverError> {
        self.tiers.release_capture(capture, stream)
    }

    /// What is live by the name of the [scope](tag) that allocated it, the largest first.
    pub fn live_by_tag(&self) -> Vec<TagUsage> {
        self.tiers.live_by_tag()
    }

    /// Empties the caches of all threads and the global cache. Their memory stays with the pool, where it can merge.
    pub fn trim_cache(&self) {
        self.tiers.drain();
    }

    /// Merges what caches keep, and gives back what nobody has needed since the background last looked. Waits for nothing.
    /// Returns the bytes given back.
    pub fn defragment(&self) -> usize {
        background::defragment(&self.tiers)
    }

    /// Gives back everything that nobody holds, preallocated blocks too, and counts anew. A held block is not touched. Returns
    /// the bytes given back.
    pub fn release_all(&self) -> usize {
        let released = self.trim();
        self.reset_stats();
        released
    }

    /// Does what the background does once an interval: for a program that has the background switched off and knows its own quiet
    /// moments, and for tests, which must not depend on a clock.
    pub fn interval_has_passed(&self) {
        background::interval_has_passed(&self.tiers);
    }

    /// Does what the background does once the pool has grown, if it is to [grow ahead](PoolConfig::grow_ahead). Returns how many bytes the
    /// driver has created.
    pub fn grow_ahead(&self) -> usize {
        background::grow_ahead(&self.tiers)
    }

    /// What stands in the pool's memory now, in the form that PyTorch's memory viewer reads.
    pub fn snapshot(&self) -> Snapshot {
        self.tiers.snapshot()
    }

    /// Checks everything that must hold between calls. Slow: for tests.
    ///
    /// # Panics
    /// If something does not hold.
    pub fn assert_valid(&self) {
        self.tiers.assert_valid();
    }
}

/// Why a pool could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A setting makes no sense.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The driver refused.
    #[error(transparent)]
    Driver(#[from] DriverError),
}

impl Resource for Pool {
    #[inline]
    fn allocate(&self, bytes: usize, stream: Stream) -> Result<DevicePtr, AllocError> {
        self.tiers.allocate(bytes, stream)
    }

    #[inline]
    fn deallocate(&self, ptr: DevicePtr, bytes: usize, stream: Stream) -> Result<(), FreeError> {
        self.tiers.deallocate(ptr, Some(bytes), stream)
    }

    fn usage(&self) -> Usage {
        self.tiers.usage()
    }

    fn trim(&self) -> usize {
        self.tiers.trim()
    }

    fn recoverable(&self) -> Recoverable {
        self.tiers.recoverable()
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.tiers.back.driver().driver()
    }
}
