//! Streams that others have made, taken on somebody's word.

use std::any::Any;
use std::sync::Arc;

use millpond::driver::Stream;

use crate::error::OpenError;
use crate::gpu::CudaGpu;
use crate::libcuda_ffi::StreamHandle;

impl CudaGpu {
    /// Opens a device for a program whose streams are made by others: any stream handle is taken for a stream.
    ///
    /// What is known of a stream cannot be kept then, so that allocations ask the driver for it each time.
    ///
    /// # Safety
    /// Every [`Stream`] that is ever given to this value, be it through a resource, is a default stream, or one of this device's primary
    /// context that is alive, and stays so until a resource that was given it needs it no more: until everything freed on it has
    /// passed and the resource was trimmed, or is gone. On drivers before CUDA 12.0, which do not tell a new stream from an old one
    /// with the same handle, it stays alive as long as this value.
    pub unsafe fn open_for_foreign_streams(number: u32) -> Result<CudaGpu, OpenError> {
        CudaGpu::with_streams(number, true)
    }

    /// Takes a stream of somebody else's among those that it knows, until it is destroyed here, which leaves the stream itself as it is.
    ///
    /// # Safety
    /// It is a stream of this device's primary context, and alive while `keep` is.
    pub(crate) unsafe fn lend_stream(&self, raw: u64, keep: Arc<dyn Any + Send + Sync>) -> Stream {
        let stream = Stream::from_raw(raw);
        if stream != Stream::LEGACY
            && stream != Stream::PER_THREAD
            && self.streams.get(raw).is_none()
        {
            // SAFETY: as the caller promises.
            let handle = unsafe { StreamHandle::kept(&self.context, raw, keep) };
            self.streams.insert(raw, handle);
            self.streams_have_changed();
        }
        stream
    }
}
