//! Managed memory that is on the device before it is first used.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::driver::{Counted, DevicePtr, Driver, DriverErrorKind, Location, Stream};
use crate::resource::{AllocError, FreeError, Recoverable, Resource, Usage};

/// Brings every managed block to the device when it is allocated, on the stream it is allocated on: a copy over the link instead
/// of a fault for every piece.
///
/// Other memory is left alone: a resource hands out one kind of memory, so the driver's answer to the first prefetch decides
/// whether there are more. A prefetch is a hint; one that fails is counted, and the block is served all the same.
///
/// Promises what the wrapped resource does. Costs one driver call per allocation of managed memory.
#[derive(Debug)]
pub struct Prefetch<R> {
    resource: R,
    driver: Counted,
    /// A [`Memory`].
    memory: AtomicU8,
    failed: AtomicU64,
}

/// What the driver has said of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Memory {
    NotAsked,
    Managed,
    Other,
}

impl<R: Resource> Prefetch<R> {
    /// Prefetches what `resource` allocates.
    pub fn new(resource: R) -> Prefetch<R> {
        Prefetch {
            driver: Counted::new(Arc::clone(resource.driver())),
            resource,
            memory: AtomicU8::new(Memory::NotAsked as u8),
            failed: AtomicU64::default(),
        }
    }

    /// Prefetches that the driver refused, for another reason than the kind of memory.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// What is wrapped.
    pub fn inner(&self) -> &R {
        &self.resource
    }

    // Relaxed throughout: threads that do not know yet ask once more.

    fn prefetch(&self, ptr: DevicePtr, bytes: usize, stream: Stream) {
        if self.memory.load(Ordering::Relaxed) == Memory::Other as u8 {
            return;
        }
        match self.driver.prefetch(ptr, bytes, Location::Device, stream) {
            Ok(()) => self.memory.store(Memory::Managed as u8, Ordering::Relaxed),
            // Of memory that is known to be managed this is a failure like another.
            Err(error)
                if error.kind == DriverErrorKind::InvalidValue
                    && self.memory.load(Ordering::Relaxed) == Memory::NotAsked as u8 =>
            {
                self.memory.store(Memory::Other as u8, Ordering::Relaxed);
            }
            Err(_) => {
                self.failed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

impl<R: Resource> Resource for Prefetch<R> {
    fn allocate(&self, bytes: usize, stream: Stream) -> Result<DevicePtr, AllocError> {
        let ptr = self.resource.allocate(bytes, stream)?;
        if !ptr.is_null() {
            self.prefetch(ptr, bytes, stream);
        }
        Ok(ptr)
    }

    fn deallocate(&self, ptr: DevicePtr, bytes: usize, stream: Stream) -> Result<(), FreeError> {
        self.resource.deallocate(ptr, bytes, stream)
    }

    fn usage(&self) -> Usage {
        let usage = self.resource.usage();
        Usage { driver_calls: usage.driver_calls + self.driver.calls(), ..usage }
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
