//! Memory of any resource as a slice of the `cudarc` crate.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream, DeviceRepr, ValidAsZeroBits};
use millpond::driver::{DriverError, Stream};
use millpond::{AllocError, DevicePtr, Resource};

use crate::gpu::CudaGpu;

/// Why there is no such slice.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CudarcSliceError {
    /// The stream is not of this device's primary context, so that memory of the one means nothing in the other.
    #[error(
        "the stream is of another context: make it with CudaContext::new, for the device that was opened"
    )]
    OtherContext,
    /// The resource's memory is another device's.
    #[error("the resource has its memory from {resource}, and the stream is of {device}")]
    OtherDevice {
        /// The device of the resource.
        resource: String,
        /// The device of the stream.
        device: String,
    },
    /// So many elements are more than there can be bytes.
    #[error("{0} elements are more than there can be")]
    TooLong(usize),
    /// There is no memory.
    #[error(transparent)]
    Alloc(#[from] AllocError),
    /// The driver refused.
    #[error(transparent)]
    Driver(#[from] DriverError),
}

/// A [`CudaSlice`] whose memory comes from a resource, and goes back there when it is dropped.
///
/// It is used like the slice itself, in copies and launches. Its memory is freed on its stream, after the work that cudarc knows to
/// use it.
///
/// ```no_run
/// use std::sync::Arc;
/// use cudarc::driver::CudaContext;
/// use millpond::{Driver, Resource, pool::Pool};
/// use millpond_cuda::{CudaGpu, CudarcSlice};
///
/// let context = CudaContext::new(0)?;
/// let stream = context.new_stream()?;
/// let gpu = Arc::new(CudaGpu::open(0)?);
/// let pool: Arc<dyn Resource> = Arc::new(Pool::new(gpu.clone())?);
///
/// let mut numbers = CudarcSlice::<f32>::zeros(&gpu, pool, &stream, 1000)?;
/// stream.memcpy_htod(&[1.0; 1000], &mut *numbers)?;
/// assert_eq!(stream.clone_dtoh(&*numbers)?, [1.0; 1000]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct CudarcSlice<T> {
    /// `Some` until dropped.
    slice: Option<CudaSlice<T>>,
    ptr: DevicePtr,
    bytes: usize,
    stream: Stream,
    resource: Arc<dyn Resource>,
}

impl CudaGpu {
    /// Makes a stream of cudarc's known to this device, so that resources take it. It stays alive until
    /// [`destroy_stream`](millpond::Driver::destroy_stream) here, which does not destroy the stream itself.
    ///
    /// A capture that cudarc begins or ends on it is to be told with [`streams_have_changed`](Self::streams_have_changed).
    ///
    /// # Errors
    /// The stream is of another context.
    pub fn lend_cudarc_stream(&self, stream: &Arc<CudaStream>) -> Result<Stream, CudarcSliceError> {
        if stream.context().cu_ctx() != self.context.raw() {
            return Err(CudarcSliceError::OtherContext);
        }
        let keep = Arc::clone(stream);
        // SAFETY: of this context, as just seen, and alive while cudarc's stream is, which is kept.
        Ok(unsafe { self.lend_stream(stream.cu_stream() as u64, keep) })
    }
}

impl<T: DeviceRepr + ValidAsZeroBits> CudarcSlice<T> {
    /// `len` zeros, on a stream of the device that the resource has its memory from.
    ///
    /// # Errors
    /// The stream is of another context or the resource of another device, there is no memory, or the driver refused.
    pub fn zeros(
        gpu: &CudaGpu,
        resource: Arc<dyn Resource>,
        stream: &Arc<CudaStream>,
        len: usize,
    ) -> Result<CudarcSlice<T>, CudarcSliceError> {
        let on = gpu.lend_cudarc_stream(stream)?;
        let (resources, gpus) = (&resource.driver().device().name, &gpu.description().info.name);
        if resources != gpus {
            let (resource, device) = (resources.clone(), gpus.clone());
            return Err(CudarcSliceError::OtherDevice { resource, device });
        }
        let bytes = len.checked_mul(size_of::<T>()).ok_or(CudarcSliceError::TooLong(len))?;
        let ptr = resource.allocate(bytes, on)?;
        // SAFETY: so many bytes were just allocated there for this stream; nobody else frees them, since the slice is leaked before it
        // would. Zeros are a value of `T`, and get there before anything that is queued on the stream later.
        let slice = unsafe { stream.upgrade_device_ptr(ptr.0, len) };
        let made = CudarcSlice { slice: Some(slice), ptr, bytes, stream: on, resource };
        made.resource.driver().memset(ptr, 0, bytes, on)?;
        Ok(made)
    }
}

impl<T> Deref for CudarcSlice<T> {
    type Target = CudaSlice<T>;

    fn deref(&self) -> &CudaSlice<T> {
        self.slice.as_ref().expect("there until dropped")
    }
}

impl<T> DerefMut for CudarcSlice<T> {
    fn deref_mut(&mut self) -> &mut CudaSlice<T> {
        self.slice.as_mut().expect("there until dropped")
    }
}

impl<T> Drop for CudarcSlice<T> {
    fn drop(&mut self) {
        if let Some(slice) = self.slice.take() {
            // Makes the stream wait for the work of others that cudarc knows of, and frees nothing.
            slice.leak();
        }
        // A block that cannot be given back stays with the resource, whose usage tells.
        let _ = self.resource.deallocate(self.ptr, self.bytes, self.stream);
    }
}

impl<T> std::fmt::Debug for CudarcSlice<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CudarcSlice")
            .field("ptr", &self.ptr)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}
