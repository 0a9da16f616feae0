//! One driver allocation per block, of a kind that is the host's memory.

use parking_lot::Mutex;

use super::live_blocks::LiveBlocks;
use super::upstream::aligned;
use super::{AllocError, FreeError, OutOfMemory, Usage};
use crate::driver::{Counted, DevicePtr, Driver, DriverResult};

/// Blocks that are driver allocations of their own, up to a limit.
///
/// `usage.reserved_bytes = Σ live blocks`, but for blocks on their way to or from the driver.
#[derive(Debug)]
pub(super) struct EachBlock {
    pub(super) driver: Counted,
    maximum_bytes: usize,
    books: Mutex<Books>,
    alloc: fn(&Counted, usize) -> DriverResult<DevicePtr>,
    free: fn(&Counted, DevicePtr) -> DriverResult<()>,
}

#[derive(Debug, Default)]
struct Books {
    live: LiveBlocks<()>,
    reserved: Usage,
}

impl EachBlock {
    pub(super) fn new(
        driver: Counted,
        maximum_bytes: Option<usize>,
        alloc: fn(&Counted, usize) -> DriverResult<DevicePtr>,
        free: fn(&Counted, DevicePtr) -> DriverResult<()>,
    ) -> EachBlock {
        let maximum_bytes = maximum_bytes.unwrap_or(usize::MAX);
        EachBlock { driver, maximum_bytes, books: Mutex::default(), alloc, free }
    }

    pub(super) fn allocate(&self, bytes: usize) -> Result<DevicePtr, AllocError> {
        if bytes == 0 {
            return Ok(DevicePtr::NULL);
        }
        aligned(bytes)?;
        // Reserved first, so that of two threads only one gets what is left.
        let fits = {
            let Books { reserved, .. } = &mut *self.books.lock();
            let fits = bytes <= self.maximum_bytes - reserved.reserved_bytes;
            if fits {
                reserved.reserved_bytes += bytes;
            }
            fits
        };
        if !fits {
            return Err(self.explain(bytes));
        }
        match (self.alloc)(&self.driver, bytes) {
            Ok(ptr) => {
                let Books { live, reserved } = &mut *self.books.lock();
                live.insert(ptr, bytes, ());
                reserved.peak_reserved_bytes =
                    reserved.peak_reserved_bytes.max(live.usage().live_bytes);
                Ok(ptr)
            }
            Err(error) => {
                self.books.lock().reserved.returned(bytes);
                Err(match error.is_out_of_memory() {
                    true => AllocError::OutOfHostMemory {
                        requested_bytes: bytes,
                        live_bytes: self.usage().live_bytes,
                    },
                    false => error.into(),
                })
            }
        }
    }

    #[cold]
    fn explain(&self, bytes: usize) -> AllocError {
        let usage = self.usage();
        AllocError::OutOfMemory(Box::new(OutOfMemory {
            requested_bytes: bytes,
            live_bytes: usage.live_bytes,
            reserved_bytes: usage.reserved_bytes,
            device_free_bytes: self.driver.memory_info().map_or(0, |info| info.free_bytes),
            ..OutOfMemory::default()
        }))
    }

    pub(super) fn deallocate(&self, ptr: DevicePtr, bytes: usize) -> Result<(), FreeError> {
        if ptr.is_null() {
            return Ok(());
        }
        // Held over the driver's call: once it has freed the block, its address may be the next one's.
        let Books { live, reserved } = &mut *self.books.lock();
        live.check(ptr, bytes)?;
        (self.free)(&self.driver, ptr)?;
        live.remove(ptr);
        reserved.returned(bytes);
        Ok(())
    }

    pub(super) fn usage(&self) -> Usage {
        let Books { live, reserved } = &*self.books.lock();
        Usage {
            reserved_bytes: reserved.reserved_bytes,
            peak_reserved_bytes: reserved.peak_reserved_bytes,
            driver_calls: self.driver.calls(),
            ..live.usage()
        }
    }
}

impl Drop for EachBlock {
    /// Blocks still held go back to the driver: nobody can free them any more.
    fn drop(&mut self) {
        for (ptr, ..) in self.books.get_mut().live.iter() {
            // A driver that fails here has lost the memory; there is nobody left to tell.
            let _ = (self.free)(&self.driver, ptr);
        }
    }
}
