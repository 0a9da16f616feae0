//! Millpond's resources, each on a device of its own with two streams.

use std::num::NonZeroU64;
use std::sync::Arc;

use anyhow::Result;
use millpond::driver::{DevicePtr, Driver, Stream, StreamFlags};
use millpond::resource::{AllocError, Resource};

use super::subject::{StreamNumber, Subject, give_up};

/// A resource and the streams that the workloads use it on.
pub(crate) struct OnStreams<R> {
    name: Arc<str>,
    resource: Arc<R>,
    streams: [Stream; 2],
    /// Why it allocated nothing the last time that it did not.
    refusal: Option<AllocError>,
}

// Not derived: that would ask for a resource that can be copied.
impl<R> Clone for OnStreams<R> {
    fn clone(&self) -> Self {
        OnStreams {
            name: Arc::clone(&self.name),
            resource: Arc::clone(&self.resource),
            streams: self.streams,
            refusal: None,
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
        Ok(OnStreams {
            name: name.into(),
            resource: Arc::new(make(driver)?),
            streams,
            refusal: None,
        })
    }

    /// An address, which is never null here: no workload asks for zero bytes.
    ///
    /// The only place where the resource is asked for blocks, so that the compiler takes what it does in here whole.
    #[inline(never)]
    fn try_allocate(&mut self, bytes: usize, stream: StreamNumber) -> Option<NonZeroU64> {
        match self.resource.allocate(bytes, self.streams[stream as usize]) {
            Ok(ptr) => NonZeroU64::new(ptr.0),
            Err(error) => {
                self.refusal = Some(error);
                None
            }
        }
    }
}

impl<R: Resource> Subject for OnStreams<R> {
    type Block = NonZeroU64;

    #[inline]
    fn allocate(&mut self, bytes: usize, stream: StreamNumber) -> NonZeroU64 {
        match self.try_allocate(bytes, stream) {
            Some(block) => block,
            None => give_up(&self.name, self.refusal.as_ref().expect("null is for zero bytes")),
        }
    }

    fn has_blocks_of(&mut self, bytes: usize) -> bool {
        let block = self.try_allocate(bytes, StreamNumber::Zero);
        block.inspect(|block| self.free(*block, bytes, StreamNumber::Zero)).is_some()
    }

    #[inline(never)]
    fn free(&mut self, block: NonZeroU64, bytes: usize, stream: StreamNumber) {
        let ptr = DevicePtr(block.get());
        if let Err(error) = self.resource.deallocate(ptr, bytes, self.streams[stream as usize]) {
            give_up(&self.name, &error);
        }
    }
}
