//! Where a resource takes its memory from: another resource.

use std::sync::Arc;

use super::ordered::Ordered;
use super::{ALIGNMENT, AllocError, FreeError, OutOfMemory, Recoverable, Resource, Usage};
use crate::driver::{Counted, DevicePtr, Driver, Stream};

/// Another resource, and the driver below it whose calls are counted.
///
/// What is reserved is the upstream's own account, down to the driver's. If others use the same upstream, it is what all of
/// them have reserved together.
pub(super) struct Upstream {
    resource: Arc<dyn Resource>,
    /// For streams and events; memory comes from the resource.
    pub(super) driver: Counted,
}

impl Upstream {
    pub(super) fn new(resource: Arc<dyn Resource>) -> Upstream {
        let driver = Counted::new(Arc::clone(resource.driver()));
        Upstream { resource, driver }
    }

    /// Memory that work queued on `stream` from now on may use.
    pub(super) fn take(&self, bytes: usize, stream: Stream) -> Result<DevicePtr, AllocError> {
        self.resource.allocate(bytes, stream)
    }

    /// Gives memory back. All use of it must be ordered before this point of `stream`.
    pub(super) fn give(
        &self,
        ptr: DevicePtr,
        bytes: usize,
        stream: Stream,
    ) -> Result<(), FreeError> {
        self.resource.deallocate(ptr, bytes, stream)
    }

    /// Tells it to give back what nobody holds.
    pub(super) fn trim(&self) -> usize {
        self.resource.trim()
    }

    pub(super) fn reserved_bytes(&self) -> usize {
        self.resource.reserved_bytes()
    }

    /// Gives everything back when a resource goes: nobody can free what is still held.
    pub(super) fn close(
        &self,
        held: impl Iterator<Item = (DevicePtr, usize)>,
        live: Usage,
        ordered: &mut Ordered,
    ) {
        // Work that uses blocks which were never freed is known to nobody.
        let is_known = live.live_blocks == 0;
        let has_run = is_known && ordered.wait_for_all(&self.driver).is_ok()
            || self.driver.synchronize_device().is_ok();
        // Memory that work may still use is better lost than given to others.
        for (ptr, bytes) in held.filter(|_| has_run) {
            // Who refuses here has lost the memory; there is nobody left to tell.
            let _ = self.give(ptr, bytes, Stream::LEGACY);
        }
        ordered.close(&self.driver);
    }

    /// The account of a resource with these live blocks above this upstream.
    pub(super) fn usage(&self, live: Usage, largest_free_bytes: usize) -> Usage {
        let below = self.resource.usage();
        Usage {
            reserved_bytes: below.reserved_bytes,
            peak_reserved_bytes: below.peak_reserved_bytes,
            largest_free_bytes,
            driver_calls: self.driver.calls() + below.driver_calls,
            ..live
        }
    }

    /// What a resource says that could serve a request neither from what it has nor from here.
    #[cold]
    pub(super) fn out_of_memory(
        &self,
        requested_bytes: usize,
        live: Usage,
        largest_free_bytes: usize,
        release: usize,
    ) -> AllocError {
        AllocError::OutOfMemory(Box::new(OutOfMemory {
            requested_bytes,
            live_bytes: live.live_bytes,
            reserved_bytes: self.reserved_bytes(),
            largest_free_bytes,
            device_free_bytes: self.driver.memory_info().map_or(0, |info| info.free_bytes),
            recoverable: Recoverable { release, ..Recoverable::default() },
            snapshot: None,
        }))
    }

    pub(super) fn driver(&self) -> &Arc<dyn Driver> {
        self.driver.driver()
    }
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upstream").field("driver", &self.driver).finish_non_exhaustive()
    }
}

/// A size in whole steps of the alignment, if any device could have so much.
#[inline]
pub(super) fn aligned(bytes: usize) -> Result<usize, AllocError> {
    if bytes > isize::MAX as usize - ALIGNMENT {
        return Err(AllocError::TooLarge { bytes });
    }
    Ok(bytes.next_multiple_of(ALIGNMENT))
}
