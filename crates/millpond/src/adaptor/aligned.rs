//! Blocks at rounder addresses than the resource gives.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::driver::{DevicePtr, Driver, Stream};
use crate::resource::{ALIGNMENT, AllocError, FreeError, OverLimit, Recoverable, Resource, Usage};

/// Aligns blocks to more than [`ALIGNMENT`], over any resource: asks for more and hands out the part that is aligned.
///
/// ```text
///   ┌─ what the resource gave ────────────────────────┐
///   │ front │ the user's block, aligned      │ behind │      front + behind = alignment − 256
///   └───────┴────────────────────────────────┴────────┘
/// ```
///
/// ```
/// use std::sync::Arc;
/// use millpond::adaptor::Aligned;
/// use millpond::{Driver, Resource, Stream, resource::Direct};
/// use millpond_sim::{Profile, SimGpu};
///
/// let gpu: Arc<dyn Driver> = Arc::new(SimGpu::new(Profile::named("a100-80g")?));
/// let resource = Aligned::new(Direct::new(gpu), 64 << 10)?;
/// let block = resource.allocate(1000, Stream::LEGACY)?;
/// assert!(block.is_aligned_to(64 << 10));
/// resource.deallocate(block, 1000, Stream::LEGACY)?;
/// assert!(Aligned::new(resource, 1000).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Promises what the wrapped resource does, but for being OOM-complete: what lies in front and behind is lost. Costs that memory, and
/// a lock and a map of its blocks. [`PoolConfig::alignment`](crate::pool::PoolConfig::alignment) does the same for less where the
/// resource is a pool.
#[derive(Debug)]
pub struct Aligned<R> {
    resource: R,
    alignment: usize,
    threshold_bytes: usize,
    books: Mutex<Books>,
}

/// An alignment that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an alignment of {0} bytes: must be a power of two from 256 to 1073741824")]
pub struct NotAnAlignment(pub usize);

/// The largest alignment: what lies in front of a block should be less than a device has.
const MOST_ALIGNMENT: usize = 1 << 30;

/// `live_bytes = Σ blocks.bytes`, but for blocks on their way back.
#[derive(Debug, Default)]
struct Books {
    blocks: BTreeMap<DevicePtr, Padded>,
    live_bytes: usize,
    peak_live_bytes: usize,
}

/// A block, by the address its user has.
#[derive(Clone, Copy, Debug)]
struct Padded {
    /// Where the resource's own block begins.
    start: DevicePtr,
    bytes: usize,
    /// What the resource's block has beyond that.
    padding: usize,
}

impl<R: Resource> Aligned<R> {
    /// Aligns every block to `alignment` bytes.
    ///
    /// # Errors
    /// No power of two, below [`ALIGNMENT`], or too large.
    pub fn new(resource: R, alignment: usize) -> Result<Aligned<R>, NotAnAlignment> {
        Aligned::above(resource, alignment, 0)
    }

    /// Aligns blocks of at least `threshold_bytes`; smaller ones stay as they are.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn above(
        resource: R,
        alignment: usize,
        threshold_bytes: usize,
    ) -> Result<Aligned<R>, NotAnAlignment> {
        if !alignment.is_power_of_two() || !(ALIGNMENT..=MOST_ALIGNMENT).contains(&alignment) {
            return Err(NotAnAlignment(alignment));
        }
        Ok(Aligned { resource, alignment, threshold_bytes, books: Mutex::default() })
    }

    /// What is wrapped.
    pub fn inner(&self) -> &R {
        &self.resource
    }

    /// What is asked for beyond the user's bytes.
    fn padding_of(&self, bytes: usize) -> usize {
        if bytes < self.threshold_bytes { 0 } else { self.alignment - ALIGNMENT }
    }

    fn allocate_padded(&self, bytes: usize, stream: Stream) -> Result<DevicePtr, AllocError> {
        let padding = self.padding_of(bytes);
        let whole = bytes.checked_add(padding).ok_or(AllocError::TooLarge { bytes })?;
        let start =
            self.resource.allocate(whole, stream).map_err(|error| self.of_request(error, bytes))?;
        let mask = padding as u64 + ALIGNMENT as u64 - 1;
        let ptr = DevicePtr((start.0 + mask) & !mask);
        let mut books = self.books.lock();
        books.blocks.insert(ptr, Padded { start, bytes, padding });
        books.live_bytes += bytes;
        books.peak_live_bytes = books.peak_live_bytes.max(books.live_bytes);
        Ok(ptr)
    }

    /// The error as the user asked, without what lies in front and behind.
    #[cold]
    fn of_request(&self, error: AllocError, bytes: usize) -> AllocError {
        match error {
            AllocError::OutOfMemory(mut details) => {
                details.requested_bytes = bytes;
                details.live_bytes = self.books.lock().live_bytes;
                AllocError::OutOfMemory(details)
            }
            AllocError::OverLimit(limit) => {
                AllocError::OverLimit(OverLimit { requested_bytes: bytes, ..limit })
            }
            AllocError::TooLarge { .. } => AllocError::TooLarge { bytes },
            AllocError::WouldWait { .. } => AllocError::WouldWait { bytes },
            other => other,
        }
    }
}

impl Books {
    fn take(&mut self, ptr: DevicePtr, bytes: usize) -> Result<Padded, FreeError> {
        let (&block, &padded) =
            self.blocks.range(..=ptr).next_back().ok_or(FreeError::Foreign { ptr })?;
        if ptr >= block.offset(padded.bytes) {
            return Err(FreeError::Foreign { ptr });
        }
        if ptr != block {
            return Err(FreeError::Interior { ptr, block });
        }
        if padded.bytes != bytes {
            return Err(FreeError::WrongSize {
                ptr,
                given_bytes: bytes,
                allocated_bytes: padded.bytes,
            });
        }
        self.blocks.remove(&block);
        Ok(padded)
    }
}

impl<R: Resource> Resource for Aligned<R> {
    fn allocate(&self, bytes: usize, stream: Stream) -> Result<DevicePtr, AllocError> {
        if bytes == 0 {
            return Ok(DevicePtr::NULL);
        }
        self.allocate_padded(bytes, stream)
    }

    fn deallocate(&self, ptr: DevicePtr, bytes: usize, stream: Stream) -> Result<(), FreeError> {
        if ptr.is_null() {
            return Ok(());
        }
        // Out of the books before its address can be another's, and back if the resource refuses.
        let block = self.books.lock().take(ptr, bytes)?;
        let answer = self.resource.deallocate(block.start, bytes + block.padding, stream);
        let mut books = self.books.lock();
        match answer {
            Ok(()) => books.live_bytes -= bytes,
            Err(_) => drop(books.blocks.insert(ptr, block)),
        }
        answer
    }

    fn usage(&self) -> Usage {
        let usage = self.resource.usage();
        let books = self.books.lock();
        Usage {
            live_bytes: books.live_bytes,
            peak_live_bytes: books.peak_live_bytes,
            largest_free_bytes: usage
                .largest_free_bytes
                .saturating_sub(self.padding_of(usage.largest_free_bytes)),
            ..usage
        }
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
