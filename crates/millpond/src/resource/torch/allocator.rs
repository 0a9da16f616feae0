//! Where a block comes from: a free one, or new memory.

use std::collections::BTreeMap;

use super::TorchConfig;
use super::block::{Block, BlockState, StreamUse};
use super::books::Books;
use super::events::Events;
use super::segment::{Expandable, Refused, Segment};
use super::sizes::{PoolKind, TOO_LARGE_BYTES, segment_bytes};
use super::stream_ids::StreamIds;
use crate::driver::{Counted, DevicePtr, Driver, DriverResult, Stream, StreamId};
use crate::resource::recent::Recent;
use crate::resource::{AllocError, FreeError, OutOfMemory, Recoverable, Usage};

/// Everything behind the lock.
///
/// `usage.reserved_bytes = Σ plain segments + Σ pages with memory`, `usage.live_bytes = Σ requested_bytes of live blocks`.
#[derive(Debug)]
pub(super) struct Allocator {
    pub(super) driver: Counted,
    pub(super) config: TorchConfig,
    pub(super) books: Books,
    /// By first address.
    pub(super) segments: BTreeMap<DevicePtr, Segment>,
    pub(super) events: Events,
    pub(super) usage: Usage,
    /// The most that may be reserved, where less than all was asked for.
    pub(super) allowed_bytes: Option<usize>,
    streams: StreamIds,
    recent: Recent<Found>,
}

/// A block that was the best fit.
#[derive(Clone, Copy, Debug)]
struct Found {
    ptr: DevicePtr,
    /// What was looked for.
    bytes: usize,
    stream: StreamId,
}

/// What is looked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    /// Rounded.
    pub(super) bytes: usize,
    pub(super) pool: PoolKind,
    pub(super) stream: StreamUse,
}

impl Allocator {
    pub(super) fn new(driver: Counted, mut config: TorchConfig) -> Allocator {
        let device = driver.device();
        config.expandable_segments &= device.virtual_memory
            && PoolKind::Small.page_bytes().is_multiple_of(device.granularity_bytes);
        let allowed = |share: f64| (share * device.capacity_bytes as f64) as usize;
        Allocator {
            allowed_bytes: config.memory_fraction.filter(|share| *share < 1.0).map(allowed),
            streams: StreamIds::new(&driver),
            driver,
            config,
            books: Books::default(),
            segments: BTreeMap::new(),
            events: Events::default(),
            usage: Usage::default(),
            recent: Recent::default(),
        }
    }

    pub(super) fn stream(&mut self, handle: Stream) -> DriverResult<StreamUse> {
        Ok(StreamUse { handle, id: self.streams.id(handle, &self.driver)? })
    }

    pub(super) fn allocate(
        &mut self,
        bytes: usize,
        handle: Stream,
    ) -> Result<DevicePtr, AllocError> {
        if bytes >= TOO_LARGE_BYTES {
            return Err(AllocError::TooLarge { bytes });
        }
        let stream = self.stream(handle)?;
        let rounded = self.config.rounded(bytes);
        // If events have passed, what they free may fit better.
        if self.events.is_empty()
            && let Some(found) =
                self.recent.again(|found| (found.bytes, found.stream) == (rounded, stream.id))
        {
            self.books.hand_out_again(found.ptr, bytes);
            self.usage.block_allocated(bytes);
            return Ok(found.ptr);
        }
        self.end_recent();
        self.process_events()?;
        let request = Request { bytes: rounded, pool: PoolKind::of(rounded), stream };
        let found =
            self.books.take_best_fit(request.pool, request.stream.id, rounded, &self.config);
        let ptr = match found {
            Some(ptr) => {
                let stream = stream.id;
                self.recent = Recent::Allocated(Found { ptr, bytes: rounded, stream });
                ptr
            }
            None => self.find_new_memory(&request, bytes)?,
        };
        self.books.hand_out(ptr, rounded, bytes, &self.config);
        self.usage.block_allocated(bytes);
        Ok(ptr)
    }

    #[cold]
    fn find_new_memory(
        &mut self,
        request: &Request,
        bytes: usize,
    ) -> Result<DevicePtr, AllocError> {
        self.collect_garbage();
        if let Some(ptr) = self.grow(request)? {
            return Ok(ptr);
        }
        if self.release_available(request)
            && let Some(ptr) = self.grow(request)?
        {
            return Ok(ptr);
        }
        self.release_cached();
        self.grow(request)?.ok_or_else(|| self.out_of_memory(bytes))
    }

    /// New memory for a request, as a free block that is not listed. `None`: there is not enough.
    fn grow(&mut self, request: &Request) -> Result<Option<DevicePtr>, AllocError> {
        let bytes = segment_bytes(request.bytes);
        if self.allowed_bytes.is_some_and(|allowed| self.usage.reserved_bytes + bytes > allowed) {
            return Ok(None);
        }
        let grown = if self.config.expandable_segments {
            self.expand(request)
        } else {
            self.add_segment(request, bytes)
        };
        match grown {
            Ok(ptr) => Ok(Some(ptr)),
            Err(Refused::OutOfMemory) => Ok(None),
            Err(Refused::Driver(error)) => Err(error.into()),
        }
    }

    fn add_segment(&mut self, request: &Request, bytes: usize) -> Result<DevicePtr, Refused> {
        let ptr = self.driver.alloc(bytes)?;
        self.usage.reserved(bytes);
        self.segments.insert(ptr, Segment::Plain { bytes });
        self.add_block(ptr, bytes, request, BlockState::Free { since: 0 });
        Ok(ptr)
    }

    fn add_block(&mut self, ptr: DevicePtr, bytes: usize, request: &Request, state: BlockState) {
        let block = Block {
            bytes,
            requested_bytes: 0,
            segment: ptr,
            stream: request.stream.id,
            pool: request.pool,
            state,
            uses: Vec::new(),
        };
        self.books.blocks.insert(ptr, block);
    }

    /// Puts memory under the lowest addresses that have room for the request, together with what is free before and behind them.
    fn expand(&mut self, request: &Request) -> Result<DevicePtr, Refused> {
        let ptr = match self.lowest_room(request) {
            Some(ptr) => ptr,
            None => self.add_expandable(request)?,
        };
        loop {
            let block = self.books.block(ptr);
            let missing = match block.state {
                BlockState::Unmapped => ptr,
                _ if block.bytes < request.bytes => ptr.offset(block.bytes),
                _ => break,
            };
            let wanted = request.bytes - (missing.0 - ptr.0) as usize;
            self.map(missing, wanted.min(self.books.block(missing).bytes))?;
        }
        self.books.unlist(ptr);
        Ok(ptr)
    }

    /// Where enough free and unmapped blocks lie side by side, the lowest unmapped one first.
    fn lowest_room(&self, request: &Request) -> Option<DevicePtr> {
        let unmapped = self.books.pool(request.pool).unmapped.get(&request.stream.id)?;
        unmapped.iter().find_map(|&ptr| {
            let segment = self.books.block(ptr).segment;
            let before = self.books.before(ptr);
            let free = before.filter(|(_, block)| block.is_free() && block.segment == segment);
            let begin = free.map_or(ptr, |(before, _)| before);
            let room: usize = self
                .books
                .blocks
                .range(begin..)
                .map(|(_, block)| block)
                .take_while(|block| block.segment == segment)
                .take_while(|block| block.is_free() || block.state == BlockState::Unmapped)
                .map(|block| block.bytes)
                .sum();
            (room >= request.bytes).then_some(begin)
        })
    }

    fn add_expandable(&mut self, request: &Request) -> Result<DevicePtr, Refused> {
        let page_bytes = request.pool.page_bytes();
        let segment = Expandable::reserve(page_bytes, request.bytes, request.stream, &self.driver)?;
        let (ptr, bytes) = (segment.begin, segment.bytes);
        self.segments.insert(ptr, Segment::Expandable(segment));
        self.add_block(ptr, bytes, request, BlockState::Unmapped);
        self.books.list(ptr);
        Ok(ptr)
    }

    /// Makes the first `bytes` of an unmapped block free, merged with its neighbours.
    fn map(&mut self, ptr: DevicePtr, bytes: usize) -> Result<(), Refused> {
        let Block { segment, bytes: whole, .. } = *self.books.block(ptr);
        let Some(Segment::Expandable(segment)) = self.segments.get_mut(&segment) else {
            unreachable!("only expandable segments have unmapped blocks")
        };
        let mapped = segment.map(ptr, bytes, &self.driver, &mut self.usage)?;
        self.books.unlist(ptr);
        if mapped < whole {
            self.books.cut(ptr, mapped, BlockState::Unmapped);
            self.books.list(ptr.offset(mapped));
        }
        self.books.free(ptr);
        Ok(())
    }

    pub(super) fn deallocate(
        &mut self,
        ptr: DevicePtr,
        bytes: usize,
        handle: Stream,
    ) -> Result<(), FreeError> {
        let block = self.books.live(ptr)?;
        if block.requested_bytes != bytes {
            let allocated_bytes = block.requested_bytes;
            return Err(FreeError::WrongSize { ptr, given_bytes: bytes, allocated_bytes });
        }
        let freed_on = self.stream(handle)?;
        self.use_on(ptr, freed_on);
        let events = self.record_uses(ptr)?;
        self.usage.block_freed(bytes);
        let block = self.books.block_mut(ptr);
        block.requested_bytes = 0;
        block.uses.clear();
        if events.is_empty() && self.recent.keeps(|found| found.ptr == ptr) {
            block.state = BlockState::Free { since: 0 };
            return Ok(());
        }
        self.end_recent();
        if events.is_empty() {
            self.books.free(ptr);
            return Ok(());
        }
        let block = self.books.block_mut(ptr);
        block.state = BlockState::Pending { events: events.len() };
        for (stream, event) in events {
            self.events.wait(stream, event, ptr);
        }
        Ok(())
    }

    /// Makes the block in hand free: something else is about to happen, or to be looked at.
    #[inline]
    pub(super) fn end_recent(&mut self) {
        if let Some(found) = self.recent.end() {
            self.books.free(found.ptr);
        }
    }

    /// Notes that a stream uses a block. Its own stream is known to.
    pub(super) fn use_on(&mut self, ptr: DevicePtr, stream: StreamUse) {
        let block = self.books.block_mut(ptr);
        if block.stream != stream.id && !block.uses.contains(&stream) {
            block.uses.push(stream);
        }
    }

    /// Freed blocks that other streams still use.
    pub(super) fn recoverable(&self) -> Recoverable {
        let pending = self
            .books
            .blocks
            .values()
            .filter(|block| matches!(block.state, BlockState::Pending { .. }));
        Recoverable { wait: pending.map(|block| block.bytes).sum(), ..Recoverable::default() }
    }

    #[cold]
    fn out_of_memory(&self, bytes: usize) -> AllocError {
        AllocError::OutOfMemory(Box::new(OutOfMemory {
            requested_bytes: bytes,
            live_bytes: self.usage.live_bytes,
            reserved_bytes: self.usage.reserved_bytes,
            largest_free_bytes: self.books.largest_request(&self.config),
            device_free_bytes: self.driver.memory_info().map_or(0, |info| info.free_bytes),
            recoverable: self.recoverable(),
            snapshot: None,
        }))
    }
}
