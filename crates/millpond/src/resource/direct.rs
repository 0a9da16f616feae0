//! Plain driver memory, one driver allocation per block.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{AllocError, FreeError, OutOfMemory, Resource, Usage};
use crate::driver::{Counted, DevicePtr, Driver, DriverError, Stream};

/// Every block is its own plain driver allocation: the baseline that pools are measured against.
///
/// Stream order is the driver's: its free waits for all queued work, so streams do not matter here.
///
/// Promises: coalesces and returns upstream (the driver does), reuses across streams. Not OOM-complete:
/// the driver packs small allocations into pages that it cannot take apart again.
#[derive(Debug)]
pub struct Direct {
    driver: Counted,
    books: Mutex<Books>,
}

/// `usage.live_blocks = blocks.len()`, `usage.live_bytes = Σ blocks`,
/// `usage.reserved_bytes = Σ rounded(blocks)` but for blocks on their way to or from the driver.
#[derive(Debug, Default)]
struct Books {
    blocks: BTreeMap<DevicePtr, usize>,
    usage: Usage,
}

impl Direct {
    /// Allocates from `driver`.
    pub fn new(driver: Arc<dyn Driver>) -> Direct {
        Direct { driver: Counted::new(driver), books: Mutex::default() }
    }

    /// The block that an address is in, and its size.
    pub(crate) fn block_around(&self, ptr: DevicePtr) -> Option<(DevicePtr, usize)> {
        self.books.lock().around(ptr)
    }

    fn reserved_for(&self, bytes: usize) -> Option<usize> {
        bytes.checked_next_multiple_of(self.driver.device().plain_granularity_bytes)
    }

    #[cold]
    fn explain(&self, bytes: usize, error: DriverError) -> AllocError {
        if !error.is_out_of_memory() {
            return error.into();
        }
        let usage = self.books.lock().usage;
        AllocError::OutOfMemory(Box::new(OutOfMemory {
            requested_bytes: bytes,
            live_bytes: usage.live_bytes,
            reserved_bytes: usage.reserved_bytes,
            device_free_bytes: self.driver.memory_info().map_or(0, |info| info.free_bytes),
            ..OutOfMemory::default()
        }))
    }
}

impl Resource for Direct {
    fn allocate(&self, bytes: usize, _stream: Stream) -> Result<DevicePtr, AllocError> {
        if bytes == 0 {
            return Ok(DevicePtr::NULL);
        }
        let reserved = self.reserved_for(bytes).ok_or(AllocError::TooLarge { bytes })?;
        let answer = self.driver.alloc(bytes);
        let mut books = self.books.lock();
        match answer {
            Ok(ptr) => {
                books.blocks.insert(ptr, bytes);
                books.usage.block_allocated(bytes);
                books.usage.reserved(reserved);
                Ok(ptr)
            }
            Err(error) => {
                drop(books);
                Err(self.explain(bytes, error))
            }
        }
    }

    fn deallocate(&self, ptr: DevicePtr, bytes: usize, _stream: Stream) -> Result<(), FreeError> {
        if ptr.is_null() {
            return Ok(());
        }
        // The block leaves the books before the driver can hand its address out again, and comes
        // back to them if the driver keeps it.
        self.books.lock().take(ptr, bytes)?;
        let answer = self.driver.free(ptr);
        let mut books = self.books.lock();
        match answer {
            Ok(()) => {
                books.usage.block_freed(bytes);
                let reserved = self.reserved_for(bytes).expect("was rounded when allocated");
                books.usage.returned(reserved);
                Ok(())
            }
            Err(error) => {
                books.blocks.insert(ptr, bytes);
                Err(error.into())
            }
        }
    }

    fn usage(&self) -> Usage {
        Usage { driver_calls: self.driver.calls(), ..self.books.lock().usage }
    }

    /// Holds nothing that is not in use.
    fn trim(&self) -> usize {
        0
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.driver.driver()
    }
}

impl Books {
    fn around(&self, ptr: DevicePtr) -> Option<(DevicePtr, usize)> {
        let (&block, &bytes) = self.blocks.range(..=ptr).next_back()?;
        (ptr < block.offset(bytes)).then_some((block, bytes))
    }

    fn take(&mut self, ptr: DevicePtr, bytes: usize) -> Result<(), FreeError> {
        match self.around(ptr) {
            None => Err(FreeError::Foreign { ptr }),
            Some((block, _)) if block != ptr => Err(FreeError::Interior { ptr, block }),
            Some((_, allocated_bytes)) if allocated_bytes != bytes => {
                Err(FreeError::WrongSize { ptr, given_bytes: bytes, allocated_bytes })
            }
            Some(_) => {
                self.blocks.remove(&ptr);
                Ok(())
            }
        }
    }
}

impl Drop for Direct {
    /// Blocks still held go back to the driver: nobody can free them any more.
    fn drop(&mut self) {
        for &ptr in self.books.get_mut().blocks.keys() {
            // A driver that fails here has lost the memory; there is nobody left to tell.
            let _ = self.driver.free(ptr);
        }
    }
}
