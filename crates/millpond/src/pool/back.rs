//! The page backend: addresses, and memory under them, each page of which has one owner and perhaps several addresses.
//!
//! ```text
//!   addresses   ┌──block──┬─free─┬──slab──┬───────free───────┬─block─┬──────── never used ─ …
//!   pages       │ 0    │ 1    │ 2    │ 3    │ 4    │ 5    │ 6    │
//!   memory         A      B      C      B      –      C      D             3 and 5 are closed: B and C are in use through 1 and 2
//! ```
//!
//! A block is placed by best fit in addresses, where every page is open: mapped, and its memory in use through no other address. That
//! takes no driver call. Else a hole is completed, or the block is composed at fresh addresses: of new memory while the pool is within its
//! slack, or of unused memory, which is mapped a second time. Unused mappings stay, so that a program that repeats itself finds its
//! addresses as they were. The oldest of them go when a handle has more than four on average. The files in the order in which a request
//! goes:
//!
//! ```text
//!   this file   what callers see: requests, frees, waits                      takes the lock
//!   state       all that the lock protects; takes ranges and frees them
//!   kept        free ranges that streams keep for themselves                  a request looks here first, if there are several streams
//!   place       finds a place among open pages, or plans one with a mapping
//!   heap, bins  addresses: nodes that tile the span; free ones by size
//!   pages       a bit per page and fact: open, used, shared
//!   handles     physical memory, its mappings, and the owner of each page
//!   growth      how much new memory there may be, and memory ahead of need
//!   mapping     carries a plan out with the driver; unmaps, trims, lends
//!   chunks      instead of pages, where the driver cannot map memory
//! ```
//!
//! Two locks. `state` is held briefly and never while the driver maps or unmaps. `mapping` is held by the one thread that maps or unmaps.
//! Lock order: `mapping`, then `state`.
//!
//! ```text
//!   a request either takes open pages under `state`, or takes `mapping` and asks the driver
//!   every byte of a used range lies on an open page, owned through that address
//!   used_bytes ≤ reserved_bytes, but while memory is on its way
//! ```

mod bins;
mod chunks;
mod growth;
mod handles;
mod heap;
mod kept;
mod mapping;
mod pages;
mod place;
mod state;

use std::collections::VecDeque;

use parking_lot::{Mutex, MutexGuard};

pub(super) use self::bins::STEP_BYTES;
use self::chunks::Chunks;
use self::growth::{Growth, largest_handle_pages};
use self::handles::Handles;
use self::heap::Heap;
pub(super) use self::heap::{NodeId, Use};
use self::kept::Kept;
use self::pages::Pages;
pub(super) use self::state::{BackCounts, State};
use super::blocks::HeaderId;
use super::streams::{OrderBy, Points, Settle, StreamSlot, Streams, is_unwaitable_stream};
use crate::driver::{
    Access, Counted, DevicePtr, Driver, DriverResult, PhysicalProperties, RelaxedCalls, Stream,
};
use crate::fork::Process;

/// The stream that a request is for, as the request names it and as the pool numbers it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Requester {
    pub(super) slot: StreamSlot,
    pub(super) handle: Stream,
}

impl Requester {
    /// For a request that is for no stream in particular.
    pub(super) const NO_STREAM: Requester =
        Requester { slot: StreamSlot::NONE, handle: Stream::LEGACY };
}

/// A range that is wanted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) bytes: u64,
    pub(super) align: u64,
    pub(super) used_for: Use,
    pub(super) requester: Requester,
}

/// How far a search for memory goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SearchEffort {
    /// It takes only ranges that the stream comes after anyway.
    NoWait,
    /// It also makes the stream wait for a range, if new memory would exceed the slack.
    WaitBeyondSlack,
    /// It also makes the stream wait for a range.
    Wait,
    /// As `Wait`, and it looks at every free range, however many there are: the last resort.
    Exhaustive,
}

/// The kind of memory that a back holds, and its bounds.
#[derive(Clone, Copy, Debug)]
pub(super) struct BackOptions {
    pub(super) slack: f64,
    pub(super) order: OrderBy,
    pub(super) properties: PhysicalProperties,
    pub(super) access: Access,
    /// Addresses, as a multiple of the device's memory: room for best fit not to run out of.
    pub(super) span_per_capacity: u64,
}

/// Memory that is neither used nor given back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pending {
    /// Mappings that are to be unmapped, and whose work is not known to be done.
    pub(super) waiting_bytes: u64,
    /// The largest free range with memory under all of it.
    pub(super) largest_hole_bytes: u64,
    /// Pages that no used range touches.
    pub(super) spare_bytes: u64,
    /// Pages that are mapped nowhere.
    pub(super) loose_bytes: u64,
}

/// The place of a block or slab: its node, and a header for it if one was at hand.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) node: NodeId,
    pub(super) start: u64,
    pub(super) header: Option<HeaderId>,
}

/// A range that was taken.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub(super) room: Room,
    /// For a slab, the points of its memory. The stream that asked for it comes after them; other streams that get a block of it must,
    /// too.
    pub(super) points: Points,
}

/// Addresses, and the memory under them.
#[derive(Debug)]
pub(super) struct Back {
    driver: Counted,
    base: DevicePtr,
    span_bytes: u64,
    /// 0 where the driver has no pages to map.
    page_bytes: u64,
    properties: PhysicalProperties,
    access: Access,
    state: Mutex<State>,
    mapping: Mutex<()>,
    /// Held while memory is created ahead of need.
    growing_ahead: Mutex<()>,
    process: Process,
}

impl Back {
    pub(super) fn new(driver: Counted, options: BackOptions) -> DriverResult<Back> {
        let device = driver.device();
        let pages = device.virtual_memory;
        let page_bytes = if pages { device.granularity_bytes as u64 } else { 0 };
        let (base, span_bytes, heap, chunks) = if pages {
            let wanted = device.capacity_bytes as u64 * options.span_per_capacity;
            let span_bytes = wanted.next_multiple_of(page_bytes);
            let base = driver.reserve(span_bytes as usize, 0)?;
            (base, span_bytes, Heap::new(span_bytes), Chunks::default())
        } else {
            let base = chunks::base_of_addresses(&driver)?;
            let (heap, chunks) = Chunks::over_all_addresses();
            (base, chunks::SPAN_BYTES, heap, chunks)
        };
        let streams = Streams::new(driver.stream_epoch(), options.order);
        Ok(Back {
            base,
            span_bytes,
            page_bytes,
            properties: options.properties,
            access: options.access,
            state: Mutex::new(State {
                heap,
                pages: if pages { Pages::new(page_bytes) } else { Pages::everything() },
                streams,
                chunks,
                handles: Handles::default(),
                largest_handle_pages: largest_handle_pages(
                    options.slack,
                    device.capacity_bytes as u64,
                    page_bytes,
                ),
                is_short: false,
                failed_search: None,
                freed_before: VecDeque::new(),
                kept: Kept::default(),
                leaving: Vec::new(),
                withheld: Vec::new(),
                used_bytes: 0,
                peak_used_bytes: 0,
                reserved_bytes: 0,
                peak_reserved_bytes: 0,
                keep_bytes: 0,
                grows_by_bytes: if pages { 0 } else { chunks::CHUNK_BYTES },
                growth: Growth::new(options.slack),
                counts: BackCounts::default(),
                unused_headers: Vec::new(),
            }),
            mapping: Mutex::new(()),
            growing_ahead: Mutex::new(()),
            process: Process::this(),
            driver,
        })
    }

    pub(super) fn driver(&self) -> &Counted {
        &self.driver
    }

    pub(super) fn span_bytes(&self) -> u64 {
        self.span_bytes
    }

    pub(super) fn has_pages(&self) -> bool {
        self.page_bytes > 0
    }

    pub(super) fn properties(&self) -> PhysicalProperties {
        self.properties
    }

    pub(super) fn access(&self) -> Access {
        self.access
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The offset of an address in the pool's span, if it is in it.
    #[inline]
    pub(super) fn offset_of(&self, ptr: DevicePtr) -> Option<u64> {
        ptr.0.checked_sub(self.base.0).filter(|offset| *offset < self.span_bytes)
    }

    /// As [`offset_of`](Self::offset_of), for any address; outside the span, an offset beyond it.
    #[inline]
    pub(super) fn distance_of(&self, ptr: DevicePtr) -> u64 {
        ptr.0.wrapping_sub(self.base.0)
    }

    #[inline]
    pub(super) fn address_of(&self, offset: u64) -> DevicePtr {
        DevicePtr(self.base.0 + offset)
    }

    // Taking.

    /// A range for a stream, where there is memory already. The stream may use it at once.
    pub(super) fn allocate_in_place(
        &self,
        wanted: Wanted,
        effort: SearchEffort,
    ) -> DriverResult<Option<Placed>> {
        let mut state = self.state.lock();
        if wanted.requester.slot == StreamSlot::NONE {
            // Only memory whose points have passed will do.
            let _ = state.streams.record_all(&self.driver);
            let _ = state.streams.poll_all(&self.driver);
        }
        let mut node = state.take_in_place_retrying(wanted, SearchEffort::NoWait, &self.driver)?;
        if node.is_none() && (effort != SearchEffort::NoWait || !state.kept.is_empty()) {
            // Kept ranges merge only if there is no other memory that the stream comes after anyway.
            state.merge_all_kept();
            node = state.take_in_place_retrying(wanted, effort, &self.driver)?;
        }
        Ok(node.map(|node| state.placed(node)))
    }

    /// Frees blocks of their own on a stream, and takes one for it, where there is memory that the stream comes after anyway.
    #[inline]
    pub(super) fn free_and_allocate(
        &self,
        blocks: impl ExactSizeIterator<Item = (NodeId, HeaderId)>,
        bytes: u64,
        align: u64,
        stream: StreamSlot,
    ) -> Option<Room> {
        let mut state = self.state.lock();
        if blocks.len() > 0 {
            state.free(blocks, stream);
        }
        let (node, start) = state.take_without_wait(bytes, align, stream)?;
        Some(Room { node, start, header: state.unused_headers.pop() })
    }

    /// A block where there is memory, and streams keep the ranges that they free: one of the stream's own ranges if one fits closely, else
    /// memory that the stream comes after anyway, else a range of another stream, for which it waits.
    pub(super) fn allocate_kept(
        &self,
        bytes: u64,
        align: u64,
        requester: Requester,
    ) -> Option<Room> {
        let mut state = self.state.lock();
        let mut node = state.take_own_kept(requester.slot, bytes, align);
        if node.is_none() {
            node = state.take_without_wait(bytes, align, requester.slot).map(|(node, _)| node);
        }
        if node.is_none() {
            node = state.take_over(requester, bytes, align, &self.driver);
        }
        Some(state.room(node?))
    }

    /// Frees a block on a stream, and keeps its range for that stream.
    pub(super) fn keep(&self, block: (NodeId, HeaderId), stream: StreamSlot) {
        self.state.lock().keep([block], stream);
    }

    /// Merges all kept ranges with the free ones.
    pub(super) fn merge_all_kept(&self) {
        self.state.lock().merge_all_kept();
    }

    /// A range for a stream, for which free memory is mapped again, or new memory created.
    #[cold]
    pub(super) fn allocate_mapping(&self, wanted: Wanted) -> DriverResult<Placed> {
        self.fits_on_device(wanted.bytes)?;
        let _relaxed = RelaxedCalls::enter(&self.driver);
        let _mapping = self.mapping.lock();
        let node = if self.has_pages() { self.map(wanted)? } else { self.add_chunk(wanted)? };
        Ok(self.state.lock().placed(node))
    }

    // Giving back.

    /// Frees blocks of their own at a point of a stream, and keeps their headers for the next blocks.
    pub(super) fn free(
        &self,
        blocks: impl IntoIterator<Item = (NodeId, HeaderId)>,
        stream: StreamSlot,
    ) {
        self.state.lock().free(blocks, stream);
    }

    /// Frees a range that several streams have used.
    pub(super) fn free_after(&self, node: NodeId, points: Points) {
        let mut state = self.state.lock();
        state.heap.node_mut(node).points.merge(points);
        state.give_back(node);
    }

    /// Keeps the header of a block that is gone, for the next block.
    pub(super) fn keep_unused_header(&self, header: HeaderId) {
        self.state.lock().unused_headers.push(header);
    }

    /// The points of memory that is freed on some streams now.
    pub(super) fn points(&self, streams: impl IntoIterator<Item = StreamSlot>) -> Points {
        let mut state = self.state.lock();
        let mut points = Points::default();
        for stream in streams {
            points.add(state.streams.point(stream));
            if state.streams.are_several() {
                let _ = state.streams.record(stream, &self.driver);
            }
        }
        points
    }

    /// Whether work of a stream comes after points by itself, as far as is known.
    pub(super) fn is_ordered(&self, points: &Points, requester: StreamSlot) -> bool {
        self.state.lock().streams.are_ordered(points, requester)
    }

    /// Whether a stream can be made to wait for points, as far as is known.
    pub(super) fn can_wait_for(&self, points: &Points) -> bool {
        self.state.lock().streams.can_wait_for(points)
    }

    /// Records an event for all points of a stream so far, if that can be done now.
    pub(super) fn record(&self, stream: StreamSlot) {
        let _ = self.state.lock().streams.record(stream, &self.driver);
    }

    /// Whether points have passed, after waiting for them if told to.
    pub(super) fn has_passed(&self, points: &Points, wait: bool) -> bool {
        let asked = match wait {
            true => self.wait_until_passed(|_| vec![points.clone()]),
            false => self.state.lock().streams.poll_for([points], &self.driver),
        };
        asked.is_ok() && self.state.lock().streams.have_passed(points)
    }

    /// Waits for the points that `which` names. It does so without the lock, so that other threads do not wait, too.
    fn wait_until_passed(&self, which: impl Fn(&State) -> Vec<Points>) -> DriverResult<()> {
        let _relaxed = RelaxedCalls::enter(&self.driver);
        loop {
            let mut state = self.state.lock();
            let which = which(&state);
            state.streams.poll_for(&which, &self.driver)?;
            let mut event = Ok(None);
            for points in which {
                event = state.streams.event_before(&points, &self.driver);
                if !matches!(event, Ok(None)) {
                    break;
                }
            }
            if matches!(event, Ok(Some(_))) {
                state.streams.begin_waiting();
            }
            drop(state);
            let event = match event {
                Ok(None) => return Ok(()),
                Ok(Some(event)) => event,
                Err(error) if is_unwaitable_stream(&error) && self.settle(Settle::Gone)? => {
                    continue;
                }
                Err(error) => return Err(error),
            };
            // If another thread has seen the event pass and has recorded it again, this takes longer.
            let answer = self.driver.synchronize_event(event);
            self.state.lock().streams.end_waiting();
            answer?;
        }
    }

    /// Waits for the whole device, without the lock, if there are points that this makes pass; says whether there were. Ranges that were
    /// withheld because of them are free then.
    pub(super) fn settle(&self, which: Settle) -> DriverResult<bool> {
        let settling = self.state.lock().streams.begin_settling(which);
        if settling.is_empty() {
            return Ok(false);
        }
        let _relaxed = RelaxedCalls::enter(&self.driver);
        let answer = self.driver.synchronize_device();
        let mut state = self.state.lock();
        state.streams.settle(settling, answer.is_ok());
        state.give_back_withheld(&self.driver);
        answer.map(|()| true)
    }

    /// Finds out which streams are gone, and waits for their work. Points that cannot be waited for now stay.
    pub(super) fn settle_gone_streams(&self) {
        let _ = self.state.lock().streams.record_all(&self.driver);
        let _ = self.settle(Settle::Gone);
    }

    /// As the [function](avoiding_unwaitable_streams), for attempts that take the lock.
    pub(super) fn avoiding_unwaitable_streams<T>(
        &self,
        mut attempt: impl FnMut() -> DriverResult<T>,
    ) -> DriverResult<T> {
        let find_out = |_: &mut ()| self.state.lock().streams.find_gone_streams(&self.driver);
        avoiding_unwaitable_streams(&mut (), |()| attempt(), find_out)
    }

    /// Forgets streams that are gone and have no points left to pass, as far as is known.
    pub(super) fn forget_gone_streams(&self) {
        let mut state = self.state.lock();
        let _ = state.streams.poll_all(&self.driver);
        state.streams.find_gone_streams(&self.driver);
        state.merge_kept_of_gone_streams();
        state.streams.forget_gone(&self.driver);
    }

    /// Which of these streams have been forgotten.
    pub(super) fn are_forgotten(&self, streams: &[StreamSlot]) -> Vec<bool> {
        let state = self.state.lock();
        streams.iter().map(|stream| state.streams.is_forgotten(*stream)).collect()
    }

    /// Whether a stream goes with its thread.
    pub(super) fn is_of_thread(&self, stream: StreamSlot) -> bool {
        self.state.lock().streams.is_of_thread(stream)
    }

    /// Forgets points that no stream has to wait for, as far as is known.
    pub(super) fn forget_needless(&self, points: &mut Points) {
        let mut state = self.state.lock();
        let _ = state.streams.poll_for([&*points], &self.driver);
        state.streams.forget_needless(points);
    }

    /// A thread ends that has used a stream.
    pub(super) fn thread_ends(&self, stream: StreamSlot) {
        let mut state = self.state.lock();
        if state.streams.is_of_thread(stream) {
            // No other thread will ask for the ranges that are kept for it.
            state.merge_kept_of(stream);
        }
        state.streams.thread_ends(stream, &self.driver);
    }

    /// Makes a stream wait for points, where it does not come after them anyway.
    pub(super) fn order(&self, points: &Points, requester: Requester) -> DriverResult<()> {
        if requester.slot == StreamSlot::NONE {
            return self.wait_until_passed(|_| vec![points.clone()]);
        }
        let mut state = self.state.lock();
        let waits = state.streams.order(points, requester.slot, requester.handle, &self.driver)?;
        state.failed_search = None;
        state.counts.cross_stream_waits += waits as u64;
        Ok(())
    }

    pub(super) fn slack(&self) -> f64 {
        self.state.lock().growth.slack()
    }

    pub(super) fn set_slack(&self, slack: f64) {
        let capacity_bytes = self.driver.device().capacity_bytes as u64;
        let mut state = self.state.lock();
        state.growth.set_slack(slack);
        state.largest_handle_pages = largest_handle_pages(slack, capacity_bytes, self.page_bytes);
    }

    /// Trimming leaves this much.
    pub(super) fn set_keep_bytes(&self, bytes: u64) {
        self.state.lock().keep_bytes = bytes;
    }

    /// Users hold so many of the used bytes. `None`: statistics are off, and users may hold all of them.
    pub(super) fn set_live_bytes(&self, bytes: Option<u64>) {
        let mut state = self.state.lock();
        let bytes = bytes.unwrap_or(state.used_bytes);
        state.growth.set_live_bytes(bytes);
    }

    /// Whether new memory for `bytes` would keep the pool within its slack.
    pub(super) fn may_grow_by(&self, bytes: u64) -> bool {
        self.state.lock().may_grow_by(bytes)
    }

    /// Whether a block for which there is no place needs more memory than there is. If it does not, caches keep their blocks, and a
    /// program that repeats itself finds its addresses as they were.
    pub(super) fn needs_new_memory(&self, bytes: u64) -> bool {
        let spare_bytes = self.state.lock().spare_pages() as u64 * self.page_bytes;
        spare_bytes < bytes.next_multiple_of(self.page_bytes.max(1)) + self.page_bytes
    }

    /// Checks everything that must hold between calls. Slow.
    pub(super) fn assert_valid(&self) {
        let _mapping = self.mapping.lock();
        self.state.lock().assert_valid(self.span_bytes, self.page_bytes);
    }

    /// Bytes of used ranges: blocks of users and of caches, and slabs.
    pub(super) fn used_bytes(&self) -> u64 {
        self.state.lock().used_bytes
    }

    pub(super) fn reserved_bytes(&self) -> u64 {
        self.state.lock().reserved_bytes
    }

    /// Memory that is neither used nor given back.
    pub(super) fn pending(&self) -> Pending {
        let state = self.state.lock();
        Pending {
            waiting_bytes: state.leaving.iter().map(|left| state.heap.node(left.node).bytes).sum(),
            largest_hole_bytes: state.largest_hole_bytes(),
            spare_bytes: state.spare_pages() as u64 * self.page_bytes,
            loose_bytes: state.loose_pages() as u64 * self.page_bytes,
        }
    }

    /// Whether the memory belongs to a capture, which keeps it.
    pub(super) fn belongs_to_capture(&self) -> bool {
        self.state.lock().streams.order_by() == OrderBy::SameStream
    }

    /// The capture whose memory this is has been given up, and its work is done.
    pub(super) fn end_capture(&self) {
        let mut state = self.state.lock();
        state.streams.end_capture();
        state.give_back_withheld(&self.driver);
    }
}

/// Tries again when a stream turns out to be captured, or gone: the stream is marked now, and the next attempt leaves its memory alone.
/// After several attempts, all streams that are gone are looked for.
fn avoiding_unwaitable_streams<C, T>(
    context: &mut C,
    mut attempt: impl FnMut(&mut C) -> DriverResult<T>,
    find_gone_streams: impl Fn(&mut C),
) -> DriverResult<T> {
    const FEW_ATTEMPTS: usize = 4;
    const MOST_ATTEMPTS: usize = 16;
    for attempts in 1..MOST_ATTEMPTS {
        match attempt(context) {
            Err(error) if is_unwaitable_stream(&error) => {
                if attempts == FEW_ATTEMPTS {
                    find_gone_streams(context);
                }
            }
            answer => return answer,
        }
    }
    attempt(context)
}

impl Drop for Back {
    fn drop(&mut self) {
        if self.process.has_forked() {
            // The memory is the parent's.
            return;
        }
        let _relaxed = RelaxedCalls::enter(&self.driver);
        let state = self.state.get_mut();
        if state.reserved_bytes > 0 || !state.leaving.is_empty() {
            // Work may still use the memory; a driver that is gone has no work either.
            let _ = self.driver.synchronize_device();
        }
        for start in state.chunks.starts() {
            let _ = self.driver.free(DevicePtr(self.base.0 + start));
        }
        if self.page_bytes > 0 {
            let page_bytes = self.page_bytes;
            for (_, mapping) in state.handles.mappings.iter() {
                let address = DevicePtr(self.base.0 + mapping.first as u64 * page_bytes);
                let _ = self.driver.unmap(address, mapping.pages * page_bytes as usize);
            }
            for (_, handle) in state.handles.handles.iter() {
                let _ = self.driver.release(handle.physical);
            }
            let _ = self.driver.unreserve(self.base, self.span_bytes as usize);
        }
        state.streams.close(&self.driver);
    }
}
