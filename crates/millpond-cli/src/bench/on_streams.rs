//! Millpond's resources, each on a device of its own with two streams.

use std::num::NonZeroU64;
use std::sync::Arc;

use anyhow::Result;
use millpond::driver::{DevicePtr, Driver, Stream, StreamFlags};
use millpond::resource::Resource;

use super::subject::{StreamNumber, Subject, give_up};

/// A resource and the streams that the workloads use it on.
pub(crate) struct OnStreams<R> {
    name: Arc<str>,
    resource: Arc<R>,
    streams: [Stream; 2],
}

// Not derived: that would ask for a resource that can be copied.
impl<R> Clone for OnStreams<R> {
    fn clone(&self) -> Self {
        OnStreams {
            name: Arc::clone(&self.name),
            resource: Arc::clone(&self.resource),
            streams: self.streams,
        }
    }
}

impl<R: Resource> OnStreams<R> {
    /// The resource that `make` makes on this driver.
    pub(crate) fn new(
        name: &str,
        driver: Arc<dyn Driver>,
        make: impl FnOnce(Arc<dyn Driver>) -> Result<R>,
    ) -> Result<OnStreams<R>> {
        let stream = || driver.create_stream(StreamFlags::NON_BLOCKING);
        let streams = [stream()?, stream()?];
        Ok(OnStreams { name: name.into(), resource: Arc::new(make(driver)?), streams })
    }
}

impl<R: Resource> Subject for OnStreams<R> {
    /// An address, which is never null here: no workload asks for zero bytes.
    type Block = NonZeroU64;

    #[inline(never)]
    fn allocate(&mut self, bytes: usize, stream: StreamNumber) -> NonZeroU64 {
        match self.resource.allocate(bytes, self.streams[stream as usize]) {
            Ok(ptr) => NonZeroU64::new(ptr.0).expect("null is for zero bytes"),
            Err(error) => give_up(&self.name, &error),
        }
    }

    fn has_blocks_of(&mut self, bytes: usize) -> bool {
        let stream = self.streams[0];
        let Ok(ptr) = self.resource.allocate(bytes, stream) else { return false };
        self.resource.deallocate(ptr, bytes, stream).is_ok()
    }

    #[inline(never)]
    fn free(&mut self, block: NonZeroU64, bytes: usize, stream: StreamNumber) {
        let ptr = DevicePtr(block.get());
        if let Err(error) = self.resource.deallocate(ptr, bytes, self.streams[stream as usize]) {
            give_up(&self.name, &error);
        }
    }
}
