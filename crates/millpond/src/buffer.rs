//! Typed device memory over any resource.

use std::marker::PhantomData;

use bytemuck::{NoUninit, Pod, Zeroable};

use crate::driver::{DevicePtr, DriverError, Stream};
use crate::resource::{ALIGNMENT, AllocError, FreeError, Resource};

/// So many `T` in device memory, of any resource: a value, a reference, an `Arc`.
///
/// Everything it does is queued on its stream, in the order in which it is called: copies, growth, and the free when it is
/// dropped. Work of other streams that uses the memory must be ordered before that by whoever queues it.
///
/// ```
/// use std::sync::Arc;
/// use millpond::{DeviceBuffer, Driver, Resource, Stream, pool::Pool};
/// use millpond_sim::{Profile, SimGpu};
///
/// let gpu: Arc<dyn Driver> = Arc::new(SimGpu::new(Profile::named("a100-80g")?));
/// let pool = Pool::new(gpu)?;
///
/// let mut weights = DeviceBuffer::from_slice(&pool, &[1.0_f32, 2.0, 3.0], Stream::LEGACY)?;
/// weights.resize(5)?;
/// assert_eq!(weights.to_vec()?, [1.0, 2.0, 3.0, 0.0, 0.0]);
/// weights.write(3, &[4.0, 5.0])?;
/// assert_eq!(weights.to_vec()?, [1.0, 2.0, 3.0, 4.0, 5.0]);
/// drop(weights);
/// assert_eq!(pool.usage().live_bytes, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct DeviceBuffer<T, R: Resource> {
    resource: R,
    ptr: DevicePtr,
    len: usize,
    /// `ptr` is a block of this many elements. `len ≤ capacity`
    capacity: usize,
    stream: Stream,
    elements: PhantomData<T>,
}

/// Why something could not be done with a buffer. It is as it was before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BufferError {
    /// There is no memory for it.
    #[error(transparent)]
    Alloc(#[from] AllocError),
    /// The memory it has outgrown could not be given back.
    #[error(transparent)]
    Free(#[from] FreeError),
    /// A copy was refused.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// There are no such elements.
    #[error(
        "{count} elements from number {start} on are not in a buffer of {len}: resize it, or copy fewer"
    )]
    OutOfBounds {
        /// The first.
        start: usize,
        /// How many.
        count: usize,
        /// What the buffer has.
        len: usize,
    },
}

impl<T: Pod, R: Resource> DeviceBuffer<T, R> {
    /// What a `T` must be for its bytes to mean the same on the device.
    const FITS: () = assert!(
        size_of::<T>() > 0 && align_of::<T>() <= ALIGNMENT,
        "elements have a size, and need no more alignment than every block has"
    );

    /// `len` elements of which nothing is known: whatever the memory held before.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn unfilled(resource: R, len: usize, stream: Stream) -> Result<Self, BufferError> {
        let () = Self::FITS;
        let ptr = resource.allocate(bytes_of::<T>(len)?, stream)?;
        Ok(DeviceBuffer { resource, ptr, len, capacity: len, stream, elements: PhantomData })
    }

    /// `len` zeros.
    ///
    /// # Errors
    /// There is no memory for it, or the device refused.
    pub fn zeroed(resource: R, len: usize, stream: Stream) -> Result<Self, BufferError> {
        let buffer = DeviceBuffer::unfilled(resource, len, stream)?;
        buffer.zero(0, len)?;
        Ok(buffer)
    }

    /// A copy of `elements`, which may change again as soon as this returns.
    ///
    /// # Errors
    /// There is no memory for it, or the device refused.
    pub fn from_slice(resource: R, elements: &[T], stream: Stream) -> Result<Self, BufferError> {
        let mut buffer = DeviceBuffer::unfilled(resource, elements.len(), stream)?;
        buffer.write(0, elements)?;
        Ok(buffer)
    }

    /// Copies `elements` in, from element number `start` on.
    ///
    /// # Errors
    /// They are more than the buffer has, or the device refused.
    pub fn write(&mut self, start: usize, elements: &[T]) -> Result<(), BufferError> {
        let at = self.place(start, elements.len())?;
        if elements.is_empty() {
            return Ok(());
        }
        Ok(self.resource.driver().copy_to_device(at, as_bytes(elements), self.stream)?)
    }

    /// Copies elements out, from number `start` on, after everything queued on the stream; waits for that.
    ///
    /// # Errors
    /// They are more than the buffer has, or the device refused.
    pub fn read(&self, start: usize, elements: &mut [T]) -> Result<(), BufferError> {
        let at = self.place(start, elements.len())?;
        if elements.is_empty() {
            return Ok(());
        }
        let bytes = bytemuck::cast_slice_mut(elements);
        Ok(self.resource.driver().copy_to_host(bytes, at, self.stream)?)
    }

    /// All elements, after everything queued on the stream; waits for that.
    ///
    /// # Errors
    /// The device refused.
    pub fn to_vec(&self) -> Result<Vec<T>, BufferError> {
        let mut elements = vec![T::zeroed(); self.len];
        self.read(0, &mut elements)?;
        Ok(elements)
    }

    /// Makes it `len` elements long: those that were there stay, new ones are zero.
    ///
    /// Within the capacity nothing moves. Otherwise it gets another block, and the old one is freed on the stream after the copy.
    ///
    /// # Errors
    /// There is no memory for it, or the device refused.
    pub fn resize(&mut self, len: usize) -> Result<(), BufferError> {
        if len > self.capacity {
            self.move_to(len)?;
        }
        if len > self.len {
            self.zero(self.len, len - self.len)?;
        }
        self.len = len;
        Ok(())
    }

    /// Gives back what it has beyond its elements.
    ///
    /// # Errors
    /// There is no memory for the smaller block, or the device refused.
    pub fn shrink_to_fit(&mut self) -> Result<(), BufferError> {
        if self.len < self.capacity { self.move_to(self.len) } else { Ok(()) }
    }

    /// Moves what is kept into a block of `capacity` elements.
    fn move_to(&mut self, capacity: usize) -> Result<(), BufferError> {
        let (old_bytes, new_bytes) = (bytes_of::<T>(self.capacity)?, bytes_of::<T>(capacity)?);
        let ptr = self.resource.allocate(new_bytes, self.stream)?;
        let kept_bytes = bytes_of::<T>(self.len.min(capacity))?;
        let moved = match kept_bytes {
            0 => Ok(()),
            _ => self.resource.driver().copy(ptr, self.ptr, kept_bytes, self.stream),
        };
        let freed = moved
            .map_err(BufferError::from)
            .and_then(|()| Ok(self.resource.deallocate(self.ptr, old_bytes, self.stream)?));
        if let Err(error) = freed {
            // The old block is still there, and so is what it holds; the new one goes, unless the device is lost anyway.
            let _ = self.resource.deallocate(ptr, new_bytes, self.stream);
            return Err(error);
        }
        (self.ptr, self.capacity) = (ptr, capacity);
        Ok(())
    }

    fn zero(&self, start: usize, count: usize) -> Result<(), BufferError> {
        if count == 0 {
            return Ok(());
        }
        let at = self.ptr.offset(bytes_of::<T>(start)?);
        Ok(self.resource.driver().memset(at, 0, bytes_of::<T>(count)?, self.stream)?)
    }

    /// The address of element number `start`, if there are `count` from there on.
    fn place(&self, start: usize, count: usize) -> Result<DevicePtr, BufferError> {
        match start.checked_add(count) {
            Some(end) if end <= self.len => Ok(self.ptr.offset(bytes_of::<T>(start)?)),
            _ => Err(BufferError::OutOfBounds { start, count, len: self.len }),
        }
    }
}

impl<T, R: Resource> DeviceBuffer<T, R> {
    /// How many elements it has.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many elements it can have without moving.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Where the elements are; null if it never had any.
    pub fn ptr(&self) -> DevicePtr {
        self.ptr
    }

    /// What its elements take.
    pub fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    /// The stream that everything it does is queued on.
    pub fn stream(&self) -> Stream {
        self.stream
    }

    /// Uses another stream from now on. What was queued on the old one must be ordered before what will be on the new one, the allocation too:
    /// make the new one wait for an event of the old one, even if nothing was queued there.
    pub fn set_stream(&mut self, stream: Stream) {
        self.stream = stream;
    }

    /// Where its memory is from.
    pub fn resource(&self) -> &R {
        &self.resource
    }

    /// Frees it, on its stream, and says whether that worked; dropping it does the same and cannot say.
    ///
    /// # Errors
    /// The resource refused; the memory is lost to the program.
    pub fn free(mut self) -> Result<(), FreeError> {
        self.give_back()
    }

    fn give_back(&mut self) -> Result<(), FreeError> {
        let ptr = std::mem::replace(&mut self.ptr, DevicePtr::NULL);
        self.resource.deallocate(ptr, self.capacity * size_of::<T>(), self.stream)
    }
}

impl<T, R: Resource> Drop for DeviceBuffer<T, R> {
    fn drop(&mut self) {
        // There is nobody to tell. Who wants to know calls `free`.
        let _ = self.give_back();
    }
}

fn as_bytes<T: NoUninit>(elements: &[T]) -> &[u8] {
    bytemuck::cast_slice(elements)
}

fn bytes_of<T: Zeroable>(len: usize) -> Result<usize, AllocError> {
    len.checked_mul(size_of::<T>()).ok_or(AllocError::TooLarge { bytes: usize::MAX })
}
