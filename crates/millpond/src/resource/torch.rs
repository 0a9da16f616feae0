//! PyTorch's caching allocator.
//!
//! ```text
//!   allocate ──► blocks that other streams have done with are freed
//!       │
//!       ├── best fit among the stream's free blocks of the pool ──► split ──► block
//!       │
//!       └── old segments go (garbage collection) ──► a new segment, or pages under an expandable one
//!             │ out of memory
//!             ├── unsplittable blocks go ──► again
//!             └── wait for other streams, everything unused goes ──► again ──► out of memory
//! ```
//!
//! The policy and its constants are those of PyTorch 2.10 (`c10/cuda/CUDACachingAllocator.cpp`, `c10/core/AllocatorConfig.cpp`),
//! down to the addresses: given PyTorch's segment addresses, it hands out PyTorch's block addresses. Different are:
//!
//! - Streams are told apart by id, not by handle: PyTorch's are never destroyed, others' handles are recycled.
//! - A free on another stream than the block's counts as use on that stream. In PyTorch a free has no stream.
//! - Blocks are in one tree by address instead of linked lists, so that a bad free is told from a good one; free blocks are in a tree
//!   for each stream instead of one that has the stream in its order.
//! - A driver call that fails in the middle of growing an expandable segment leaves nothing behind and can be tried again.
//! - There are no private pools, so nothing for captured graphs.

mod allocator;
mod block;
mod books;
mod config;
mod events;
mod release;
mod segment;
mod sizes;
mod stream_ids;
#[cfg(debug_assertions)]
mod valid;

use std::sync::Arc;

use parking_lot::Mutex;

use self::allocator::Allocator;
pub use self::config::{TorchConfig, TorchConfigError};
use super::{AllocError, FreeError, Recoverable, Resource, Usage};
use crate::driver::{Counted, DevicePtr, Driver, Stream};

/// PyTorch's caching allocator: what it reserves on a program is what PyTorch would.
///
/// Small and large blocks come from segments of their own for each stream, best fit first; what is freed stays cached for its stream. One
/// lock, as in PyTorch.
///
/// Promises: coalesces (within a segment), returns upstream (`trim` is `torch.cuda.empty_cache`). Does not reuse across streams, and is not
/// OOM-complete: a segment with one live block is never given back, nor lent to another stream.
///
/// ```
/// use std::sync::Arc;
/// use millpond::{Driver, Resource, Stream, resource::PyTorchCaching};
/// use millpond_sim::{Profile, SimGpu};
///
/// let gpu: Arc<dyn Driver> = Arc::new(SimGpu::new(Profile::named("a100-80g")?));
/// let torch = PyTorchCaching::with_config(gpu, "max_split_size_mb:128".parse()?)?;
/// let block = torch.allocate(3 << 20, Stream::LEGACY)?;
/// assert_eq!(torch.usage().reserved_bytes, 20 << 20);
/// torch.deallocate(block, 3 << 20, Stream::LEGACY)?;
/// assert_eq!(torch.trim(), 20 << 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct PyTorchCaching {
    driver: Counted,
    allocator: Mutex<Allocator>,
}

impl PyTorchCaching {
    /// Allocates from `driver` as PyTorch does by default.
    pub fn new(driver: Arc<dyn Driver>) -> PyTorchCaching {
        PyTorchCaching::on(driver, TorchConfig::default())
    }

    /// Allocates from `driver`.
    ///
    /// # Errors
    /// A setting makes no sense.
    pub fn with_config(
        driver: Arc<dyn Driver>,
        config: TorchConfig,
    ) -> Result<PyTorchCaching, TorchConfigError> {
        config.check()?;
        Ok(PyTorchCaching::on(driver, config))
    }

    fn on(driver: Arc<dyn Driver>, config: TorchConfig) -> PyTorchCaching {
        let driver = Counted::new(driver);
        let allocator = Mutex::new(Allocator::new(driver.clone(), config));
        PyTorchCaching { driver, allocator }
    }

    /// Tells that work queued on `stream` uses a block of another stream. Once freed, the block is not reused before the work that is
    /// queued there at that time is done. Null is fine.
    ///
    /// # Errors
    /// No block begins there, or the driver does not know the stream.
    pub fn record_stream(&self, ptr: DevicePtr, stream: Stream) -> Result<(), FreeError> {
        if ptr.is_null() {
            return Ok(());
        }
        let mut allocator = self.allocator.lock();
        allocator.books.live(ptr)?;
        let stream = allocator.stream(stream)?;
        allocator.use_on(ptr, stream);
        Ok(())
    }
}

impl Resource for PyTorchCaching {
    fn allocate(&self, bytes: usize, stream: Stream) -> Result<DevicePtr, AllocError> {
        if bytes == 0 {
            return Ok(DevicePtr::NULL);
        }
        self.allocator.lock().allocate(bytes, stream)
    }

    fn deallocate(&self, ptr: DevicePtr, bytes: usize, stream: Stream) -> Result<(), FreeError> {
        if ptr.is_null() {
            return Ok(());
        }
        self.allocator.lock().deallocate(ptr, bytes, stream)
    }

    fn usage(&self) -> Usage {
        let mut allocator = self.allocator.lock();
        allocator.end_recent();
        #[cfg(debug_assertions)]
        allocator.assert_valid();
        Usage {
            largest_free_bytes: allocator.books.largest_request(&allocator.config),
            driver_calls: self.driver.calls(),
            ..allocator.usage
        }
    }

    /// Waits for other streams' use of freed blocks, and gives every segment back that nobody has a block of; of expandable ones
    /// every page.
    fn trim(&self) -> usize {
        let mut allocator = self.allocator.lock();
        let before = allocator.usage.reserved_bytes;
        allocator.release_cached();
        before - allocator.usage.reserved_bytes
    }

    fn recoverable(&self) -> Recoverable {
        self.allocator.lock().recoverable()
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.driver.driver()
    }
}

impl Drop for PyTorchCaching {
    fn drop(&mut self) {
        self.allocator.get_mut().abandon();
    }
}
