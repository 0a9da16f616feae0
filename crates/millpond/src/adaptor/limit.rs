//! A bound on what is live.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::driver::{DevicePtr, Driver, Stream};
use crate::resource::{AllocError, FreeError, OverLimit, Recoverable, Resource, Usage};

/// Refuses what would make more than a [`Budget`] live.
///
/// A request takes its bytes from the budget first and asks the wrapped resource then, so that threads together never
/// exceed it, not even for a moment. Bytes count as they were asked for. Clones share the budget, and so can limits of
/// different resources:
///
/// ```
/// use std::sync::Arc;
/// use millpond::adaptor::{Budget, Limit};
/// use millpond::{Driver, Resource, Stream, resource::Direct};
/// use millpond_sim::{Profile, SimGpu};
///
/// let gpu: Arc<dyn Driver> = Arc::new(SimGpu::new(Profile::named("a100-80g")?));
/// let budget = Budget::new(1000);
/// let one = Limit::new(Direct::new(Arc::clone(&gpu)), budget.clone());
/// let other = Limit::new(Direct::new(gpu), budget.clone());
///
/// let block = one.allocate(600, Stream::LEGACY)?;
/// assert_eq!(
///     other.allocate(500, Stream::LEGACY).unwrap_err().to_string(),
///     "out of memory: 500 bytes asked for, 600 of the limit's 1000 are live: free blocks or raise the limit"
/// );
/// one.deallocate(block, 600, Stream::LEGACY)?;
/// assert_eq!(budget.used_bytes(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Promises what the wrapped resource does, but for being OOM-complete: memory is out here while the device may have some. That
/// is what a limit is for. Costs one atomic exchange per call.
#[derive(Clone, Debug)]
pub struct Limit<R> {
    resource: R,
    budget: Budget,
}

/// Bytes that may be live, and how many of them are. Clones are the same budget.
///
/// `used_bytes ≤ limit_bytes` at all times.
#[derive(Clone, Debug)]
pub struct Budget {
    limit_bytes: usize,
    used_bytes: Arc<AtomicUsize>,
}

impl Budget {
    /// So many bytes, none of them used.
    pub fn new(limit_bytes: usize) -> Budget {
        Budget { limit_bytes, used_bytes: Arc::default() }
    }

    /// What may be live.
    pub fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    /// What is live, and what is being asked for.
    pub fn used_bytes(&self) -> usize {
        // Relaxed, here and below: the count guards no other memory.
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that can still be had.
    pub fn left_bytes(&self) -> usize {
        self.limit_bytes - self.used_bytes()
    }

    fn take(&self, bytes: usize) -> Result<(), OverLimit> {
        let take = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= self.limit_bytes);
        match self.used_bytes.try_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(_) => Ok(()),
            Err(live_bytes) => {
                Err(OverLimit { requested_bytes: bytes, live_bytes, limit_bytes: self.limit_bytes })
            }
        }
    }

    fn give_back(&self, bytes: usize) {
        self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl<R> Limit<R> {
    /// Lets `resource` have at most `budget` live.
    pub fn new(resource: R, budget: Budget) -> Limit<R> {
        Limit { resource, budget }
    }

    /// What may be live, and what is.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// What is wrapped.
    pub fn inner(&self) -> &R {
        &self.resource
    }
}

impl<R: Resource> Resource for Limit<R> {
    fn allocate(&self, bytes: usize, stream: Stream) -> Result<DevicePtr, AllocError> {
        self.budget.take(bytes).map_err(AllocError::OverLimit)?;
        self.resource.allocate(bytes, stream).inspect_err(|_| self.budget.give_back(bytes))
    }

    fn deallocate(&self, ptr: DevicePtr, bytes: usize, stream: Stream) -> Result<(), FreeError> {
        self.resource.deallocate(ptr, bytes, stream)?;
        if !ptr.is_null() {
            self.budget.give_back(bytes);
        }
        Ok(())
    }

    fn usage(&self) -> Usage {
        let usage = self.resource.usage();
        let largest_free_bytes = usage.largest_free_bytes.min(self.budget.left_bytes());
        Usage { largest_free_bytes, ..usage }
    }

    fn trim(&self) -> usize {
        self.resource.trim()
    }

    fn recoverable(&self) -> Recoverable {
        self.resource.recoverable()
    }

    fn reserved_bytes(&self) -> usize {
        self.resource.reserved_bytes()
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.resource.driver()
    }
}
