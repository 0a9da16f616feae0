//! A second chance for requests that fail.

use std::sync::Arc;

use crate::driver::{DevicePtr, Driver, Stream};
use crate::resource::{AllocError, FreeError, Recoverable, Resource, Usage};

/// Asks a callback when a request has failed, and tries again for as long as that says so.
///
/// The callback gets the error and how often this request was tried, and may do anything that helps: drop caches of its own,
/// trim, wait. It may also use the resource, since no lock is held meanwhile.
///
/// ```
/// use std::sync::Arc;
/// use millpond::adaptor::{Budget, Limit, OnFailure};
/// use millpond::{Driver, Resource, Stream, resource::Direct};
/// use millpond_sim::{Profile, SimGpu};
///
/// let gpu: Arc<dyn Driver> = Arc::new(SimGpu::new(Profile::named("a100-80g")?));
/// let limited = Arc::new(Limit::new(Direct::new(gpu), Budget::new(1000)));
/// let cached = limited.allocate(800, Stream::LEGACY)?;
/// let resource = OnFailure::new(Arc::clone(&limited), move |error, tries| {
///     error.is_out_of_memory() && tries == 1 && limited.deallocate(cached, 800, Stream::LEGACY).is_ok()
/// });
/// let block = resource.allocate(500, Stream::LEGACY)?;
/// # resource.deallocate(block, 500, Stream::LEGACY)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Promises what the wrapped resource does. Costs nothing until something fails.
#[derive(Clone, Debug)]
pub struct OnFailure<R, F> {
    resource: R,
    try_again: F,
}

impl<R, F: Fn(&AllocError, u32) -> bool + Send + Sync> OnFailure<R, F> {
    /// `try_again` is called with the error and the number of tries so far, at least 1; `true` tries once more.
    pub fn new(resource: R, try_again: F) -> OnFailure<R, F> {
        OnFailure { resource, try_again }
    }

    /// What is wrapped.
    pub fn inner(&self) -> &R {
        &self.resource
    }

    #[cold]
    fn allocate_again(
        &self,
        mut error: AllocError,
        bytes: usize,
        stream: Stream,
    ) -> Result<DevicePtr, AllocError>
    where
        R: Resource,
    {
        let mut tries = 1_u32;
        while (self.try_again)(&error, tries) {
            match self.resource.allocate(bytes, stream) {
                Ok(ptr) => return Ok(ptr),
                Err(next) => error = next,
            }
            tries = tries.saturating_add(1);
        }
        Err(error)
    }
}

impl<R: Resource, F: Fn(&AllocError, u32) -> bool + Send + Sync> Resource for OnFailure<R, F> {
    fn allocate(&self, bytes: usize, stream: Stream) -> Result<DevicePtr, AllocError> {
        self.resource
            .allocate(bytes, stream)
            .or_else(|error| self.allocate_again(error, bytes, stream))
    }

    fn deallocate(&self, ptr: DevicePtr, bytes: usize, stream: Stream) -> Result<(), FreeError> {
        self.resource.deallocate(ptr, bytes, stream)
    }

    fn usage(&self) -> Usage {
        self.resource.usage()
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
