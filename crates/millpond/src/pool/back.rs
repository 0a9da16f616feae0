//! The back of the pool: addresses that stay, physical pages that move.
//!
//! ```text
//!   addresses   ┌──block──┬─free─┬──slab──┬───────free───────┬─block─┬──────── never used ─ …
//!   pages       │ 0    │ 1    │ 2    │ 3    │ 4    │ 5    │ 6    │
//!   memory         A      B      C      –      –      D      E             D is spare: nothing live touches it
//! ```
//!
//! A block is placed by best fit in addresses. Pages under it that have no memory get some: while the pool is
//! within its slack, new memory from the driver; beyond that, a spare page's. That page *moves without waiting*:
//! its handle is mapped at the new address too, and the old mapping goes once the work that used it is done. Until
//! then the old addresses are not handed out ("leaving").
//!
//! Two locks. `state` is held briefly and never while the driver maps or unmaps; `mapping` is held by whoever
//! does, so that there is one at a time. Lock order: `mapping`, then `state`.

mod state;

use parking_lot::{Mutex, MutexGuard};

use super::headers::HeaderId;
use super::heap::{Heap, NodeId, Use};
use super::pages::{PageNumber, Pages};
use super::points::{Point, Points, StreamSlot, Streams};
use crate::driver::{
    Access, Counted, DevicePtr, Driver, DriverError, DriverResult, PhysicalHandle,
    PhysicalProperties, Stream,
};

/// The pool's addresses are this many times the device's memory: room for best fit not to run out of.
const SPAN_PER_CAPACITY: u64 = 8;

/// A stream, as a request names it and as the pool numbers it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taker {
    pub(super) slot: StreamSlot,
    pub(super) handle: Stream,
}

/// What the back has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BackCounts {
    pub(super) page_moves: u64,
    pub(super) pages_created: u64,
    pub(super) cross_stream_waits: u64,
}

/// `used_bytes = Σ blocks and slabs ≤ reserved_bytes = (mapped pages + loose) × page`, but while a mapping is under way; and
/// every page that a block or slab touches is mapped.
#[derive(Debug)]
pub(super) struct State {
    pub(super) heap: Heap,
    pub(super) pages: Pages,
    pub(super) streams: Streams,
    /// Physical pages that are mapped nowhere.
    loose: Vec<PhysicalHandle>,
    leaving: Vec<Leaving>,
    used_bytes: u64,
    peak_used_bytes: u64,
    reserved_bytes: u64,
    peak_reserved_bytes: u64,
    slack: f64,
    pub(super) counts: BackCounts,
    /// Headers of blocks that are gone. They are here because whoever takes a block has this lock.
    unused_headers: Vec<HeaderId>,
}

/// A range that was taken: its node, where it begins, and a header for it if one was at hand.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub(super) node: NodeId,
    pub(super) start: u64,
    pub(super) header: Option<HeaderId>,
    /// For a slab, what happened to its memory before: the stream that took it comes after that, others that get a block
    /// of it must too.
    pub(super) points: Points,
}

/// Addresses whose memory has moved, until their mapping is gone.
#[derive(Debug)]
struct Leaving {
    node: NodeId,
    start: u64,
    bytes: u64,
    points: Points,
}

/// Where the memory of a page comes from.
enum Source {
    New,
    Loose(PhysicalHandle),
    Moved(PhysicalHandle),
}

/// Addresses, and the memory under them.
#[derive(Debug)]
pub(super) struct Back {
    driver: Counted,
    base: DevicePtr,
    span_bytes: u64,
    page_bytes: u64,
    properties: PhysicalProperties,
    state: Mutex<State>,
    mapping: Mutex<()>,
}

impl Back {
    pub(super) fn new(driver: Counted, slack: f64) -> DriverResult<Back> {
        let device = driver.device();
        let page_bytes = device.granularity_bytes as u64;
        let span_bytes =
            (device.capacity_bytes as u64 * SPAN_PER_CAPACITY).next_multiple_of(page_bytes);
        let base = driver.reserve(span_bytes as usize, 0)?;
        Ok(Back {
            base,
            span_bytes,
            page_bytes,
            properties: PhysicalProperties::default(),
            state: Mutex::new(State {
                heap: Heap::new(span_bytes),
                pages: Pages::new(page_bytes),
                streams: Streams::default(),
                loose: Vec::new(),
                leaving: Vec::new(),
                used_bytes: 0,
                peak_used_bytes: 0,
                reserved_bytes: 0,
                peak_reserved_bytes: 0,
                slack,
                counts: BackCounts::default(),
                unused_headers: Vec::new(),
            }),
            mapping: Mutex::new(()),
            driver,
        })
    }

    pub(super) fn driver(&self) -> &Counted {
        &self.driver
    }

    pub(super) fn span_bytes(&self) -> u64 {
        self.span_bytes
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The offset of an address in the pool's span, if it is in it.
    #[inline]
    pub(super) fn offset_of(&self, ptr: DevicePtr) -> Option<u64> {
        ptr.0.checked_sub(self.base.0).filter(|offset| *offset < self.span_bytes)
    }

    #[inline]
    pub(super) fn address_of(&self, offset: u64) -> DevicePtr {
        DevicePtr(self.base.0 + offset)
    }

    // Taking.

    /// A range for a stream, among what has memory already. Whoever takes it may use it at once.
    pub(super) fn allocate_in_place(
        &self,
        bytes: u64,
        align: u64,
        used_for: Use,
        taker: Taker,
    ) -> DriverResult<Option<Placed>> {
        let mut state = self.state.lock();
        let node = state.take_in_place(bytes, align, used_for, taker, &self.driver)?;
        Ok(node.map(|node| state.placed(node)))
    }

    /// A range for a stream, for which pages are moved or taken from the driver.
    #[cold]
    pub(super) fn allocate_mapping(
        &self,
        bytes: u64,
        align: u64,
        used_for: Use,
        taker: Taker,
    ) -> DriverResult<Placed> {
        let _mapping = self.mapping.lock();
        self.unmap_left(Wait::No)?;
        let node = match self.try_mapping(bytes, align, used_for, taker, Prefer::New) {
            // The driver has no more, although the slack would allow it: use what is spare.
            Err(error) if error.is_out_of_memory() => {
                self.try_mapping(bytes, align, used_for, taker, Prefer::Spare)?
            }
            answer => answer?,
        };
        Ok(self.state.lock().placed(node))
    }

    fn try_mapping(
        &self,
        bytes: u64,
        align: u64,
        used_for: Use,
        taker: Taker,
        prefer: Prefer,
    ) -> DriverResult<NodeId> {
        let mut state = self.state.lock();
        // Another thread may have mapped what serves this request meanwhile.
        if let Some(node) = state.take_in_place(bytes, align, used_for, taker, &self.driver)? {
            return Ok(node);
        }
        let Some(found) = state.find_anywhere(bytes, align, taker) else {
            return Err(self.out_of_addresses(bytes));
        };
        let node = state.heap.take(found, bytes, align, used_for);
        let start = state.heap.node(node).start;
        state.pages.add_user(start, bytes);
        let missing = state.pages.missing(start, bytes);
        let mut plan = state.plan(missing.len(), self.page_bytes, prefer);
        drop(state);
        match self.carry_out(&missing, &mut plan) {
            Ok(handles) => self.commit(node, missing, handles, plan, taker),
            Err(Failed { error, still_mapped }) => {
                let mut state = self.state.lock();
                for (page, source) in missing.iter().zip(&mut plan.sources) {
                    if still_mapped.contains(page)
                        && let Source::Loose(handle) = *source
                    {
                        state.pages.set_handle(*page, Some(handle));
                        *source = Source::New;
                    }
                }
                state.undo(plan, self.page_bytes);
                state.pages.remove_user(start, bytes);
                let hole = state.heap.free(node);
                state.leave(hole, &still_mapped, self.page_bytes);
                Err(error)
            }
        }
    }

    fn out_of_addresses(&self, bytes: u64) -> DriverError {
        DriverError::with_detail(
            crate::driver::Call::Reserve,
            crate::driver::DriverErrorKind::OutOfMemory,
            format!(
                "no {bytes} bytes of the pool's {} addresses are free in one piece",
                self.span_bytes
            ),
        )
    }

    /// Gets the memory of a plan and maps it: all of it, or none, but for what cannot be unmapped again.
    fn carry_out(
        &self,
        missing: &[PageNumber],
        plan: &mut Plan,
    ) -> Result<Vec<PhysicalHandle>, Failed> {
        for source in &mut plan.sources {
            if let Source::New = source {
                let handle = self.driver.create(self.page_bytes as usize, self.properties)?;
                plan.created += 1;
                *source = Source::Loose(handle);
            }
        }
        let handles: Vec<PhysicalHandle> = plan
            .sources
            .iter()
            .map(|source| match source {
                Source::Loose(handle) | Source::Moved(handle) => *handle,
                Source::New => unreachable!("all were created"),
            })
            .collect();
        for (done, (page, handle)) in missing.iter().zip(&handles).enumerate() {
            if let Err(error) =
                self.driver.map(self.address_of_page(*page), self.page_bytes as usize, *handle)
            {
                return Err(Failed { error, still_mapped: self.unmap_pages(&missing[..done]) });
            }
        }
        for (first, count) in runs(missing) {
            let bytes = count * self.page_bytes as usize;
            if let Err(error) =
                self.driver.set_access(self.address_of_page(first), bytes, Access::ReadWrite)
            {
                return Err(Failed { error, still_mapped: self.unmap_pages(missing) });
            }
        }
        Ok(handles)
    }

    fn address_of_page(&self, page: PageNumber) -> DevicePtr {
        self.address_of(u64::from(page.0) * self.page_bytes)
    }

    /// Undoes mappings that nobody has used yet. Returns those that the driver did not let go.
    fn unmap_pages(&self, pages: &[PageNumber]) -> Vec<PageNumber> {
        let unmap = |page| self.driver.unmap(self.address_of_page(page), self.page_bytes as usize);
        pages.iter().copied().filter(|page| unmap(*page).is_err()).collect()
    }

    fn commit(
        &self,
        node: NodeId,
        missing: Vec<PageNumber>,
        handles: Vec<PhysicalHandle>,
        plan: Plan,
        taker: Taker,
    ) -> DriverResult<NodeId> {
        let mut state = self.state.lock();
        let state = &mut *state;
        state.reserve(plan.created as u64 * self.page_bytes);
        state.counts.pages_created += plan.created as u64;
        let mut moved_points = Points::default();
        for run in plan.leaving {
            for page in state.pages.of(run.start, run.bytes) {
                state.pages.set_handle(page, None);
                state.counts.page_moves += 1;
            }
            moved_points.merge(run.points.clone());
            state.leaving.push(run);
            // So that it can be seen when the old mapping's work is done. If not now, then later.
            let _ = state.streams.record_all(&self.driver);
        }
        // The ends of the pages that have moved here belong to the free neighbours: whoever takes those uses
        // the same old memory.
        for neighbour in state.heap.free_neighbours(node) {
            state.heap.node_mut(neighbour).points.merge(moved_points.clone());
        }
        let mut points = std::mem::take(&mut state.heap.node_mut(node).points);
        points.merge(moved_points);
        for (page, handle) in missing.into_iter().zip(handles) {
            state.pages.set_handle(page, Some(handle));
        }
        state.count_used(state.heap.node(node).bytes);
        match state.streams.order(&points, taker.slot, taker.handle, &self.driver) {
            Ok(waits) => {
                state.counts.cross_stream_waits += waits as u64;
                if state.heap.node(node).used_for == Use::Slab {
                    state.heap.node_mut(node).points = points;
                }
                Ok(node)
            }
            Err(error) => {
                state.heap.node_mut(node).points = points;
                state.give_back(node);
                Err(error)
            }
        }
    }

    // Giving back.

    /// Frees blocks of their own at a point of a stream, and keeps their headers for others.
    pub(super) fn free(
        &self,
        blocks: impl IntoIterator<Item = (NodeId, HeaderId)>,
        stream: StreamSlot,
    ) {
        let mut state = self.state.lock();
        let point = state.streams.point(stream);
        for (node, header) in blocks {
            state.heap.node_mut(node).points.add(point);
            state.give_back(node);
            state.unused_headers.push(header);
        }
        if state.streams.are_several() {
            // An event that cannot be recorded now is recorded when somebody has to wait for it.
            let _ = state.streams.record(stream, &self.driver);
        }
    }

    /// Frees a range that several streams have used.
    pub(super) fn free_after(&self, node: NodeId, points: Points) {
        let mut state = self.state.lock();
        state.heap.node_mut(node).points.merge(points);
        state.give_back(node);
    }

    /// The point of what is freed on a stream now.
    pub(super) fn point(&self, stream: StreamSlot) -> Point {
        let mut state = self.state.lock();
        let point = state.streams.point(stream);
        if state.streams.are_several() {
            let _ = state.streams.record(stream, &self.driver);
        }
        point
    }

    /// Makes a stream wait for points, where it does not come after them anyway.
    pub(super) fn order(&self, points: &Points, taker: Taker) -> DriverResult<()> {
        let mut state = self.state.lock();
        let waits = state.streams.order(points, taker.slot, taker.handle, &self.driver)?;
        state.counts.cross_stream_waits += waits as u64;
        Ok(())
    }

    pub(super) fn slack(&self) -> f64 {
        self.state.lock().slack
    }

    pub(super) fn set_slack(&self, slack: f64) {
        self.state.lock().slack = slack;
    }

    /// Whether new memory for `bytes` would keep the pool within its slack.
    pub(super) fn may_grow_by(&self, bytes: u64) -> bool {
        self.state.lock().may_grow_by(bytes)
    }

    /// Checks everything that must hold while nobody calls. Slow.
    pub(super) fn assert_valid(&self) {
        let _mapping = self.mapping.lock();
        self.state.lock().assert_valid(self.span_bytes, self.page_bytes);
    }

    /// Bytes of ranges in use: what users hold, what caches keep, and what slabs have left over.
    pub(super) fn used_bytes(&self) -> u64 {
        self.state.lock().used_bytes
    }

    /// Gives memory that nothing live touches back to the driver; returns how many bytes.
    pub(super) fn trim(&self) -> u64 {
        let _mapping = self.mapping.lock();
        let mut state = self.state.lock();
        // What cannot be waited for cannot be given back; what is left simply stays.
        let _ = state.streams.record_all(&self.driver);
        let spare = state.take_spare(usize::MAX, self.page_bytes);
        state.leaving.extend(spare.into_iter().map(|(run, _)| run));
        drop(state);
        let _ = self.unmap_left(Wait::Yes);
        let mut state = self.state.lock();
        // An old mapping that could not go may be of any of them, and would keep its memory from being freed.
        let loose =
            if state.leaving.is_empty() { std::mem::take(&mut state.loose) } else { vec![] };
        drop(state);
        let mut released = 0;
        let mut kept = Vec::new();
        for handle in loose {
            match self.driver.release(handle) {
                Ok(()) => released += self.page_bytes,
                Err(_) => kept.push(handle),
            }
        }
        let mut state = self.state.lock();
        state.loose.append(&mut kept);
        state.reserved_bytes -= released;
        // Only to be rid of events; what cannot be asked now is asked later.
        let _ = state.streams.poll(&self.driver);
        released
    }

    /// Takes away old mappings whose work is done, or, if told to, waits for it. The caller holds `mapping`.
    fn unmap_left(&self, wait: Wait) -> DriverResult<()> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if state.leaving.is_empty() {
            return Ok(());
        }
        state.streams.poll(&self.driver)?;
        let leaving = std::mem::take(&mut state.leaving);
        let (done, mut staying): (Vec<_>, Vec<_>) = leaving
            .into_iter()
            .partition(|left| wait == Wait::Yes || state.streams.have_passed(&left.points));
        if wait == Wait::Yes {
            for left in &done {
                if let Err(error) = state.streams.wait(&left.points, &self.driver) {
                    staying.extend(done);
                    state.leaving = staying;
                    return Err(error);
                }
            }
        }
        drop(guard);
        let mut unmapped = Vec::new();
        for left in done {
            match self.driver.unmap(self.address_of(left.start), left.bytes as usize) {
                Ok(()) => unmapped.push(left),
                Err(_) => staying.push(left),
            }
        }
        let mut state = self.state.lock();
        state.leaving.append(&mut staying);
        for left in unmapped {
            // A page that moved has lost its handle already; one that is trimmed gives it up now.
            for page in state.pages.of(left.start, left.bytes) {
                if let Some(handle) = state.pages.handle(page) {
                    state.pages.set_handle(page, None);
                    state.loose.push(handle);
                }
            }
            state.pages.remove_user(left.start, left.bytes);
            state.heap.free(left.node);
        }
        Ok(())
    }
}

/// Whether new memory, within the slack, comes before spare memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Prefer {
    New,
    Spare,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    No,
    Yes,
}

/// Where the memory for some pages is to come from.
struct Plan {
    sources: Vec<Source>,
    leaving: Vec<Leaving>,
    created: usize,
}

/// A plan that could not be carried out.
struct Failed {
    error: DriverError,
    still_mapped: Vec<PageNumber>,
}

impl From<DriverError> for Failed {
    fn from(error: DriverError) -> Failed {
        Failed { error, still_mapped: Vec::new() }
    }
}

/// Pages that follow each other, as (first, count).
fn runs(pages: &[PageNumber]) -> Vec<(PageNumber, usize)> {
    let mut runs: Vec<(PageNumber, usize)> = Vec::new();
    for &page in pages {
        match runs.last_mut() {
            Some((first, count)) if first.0 as usize + *count == page.0 as usize => *count += 1,
            _ => runs.push((page, 1)),
        }
    }
    runs
}

impl Drop for Back {
    fn drop(&mut self) {
        // Work may still use the memory; a driver that is gone has no work either.
        let _ = self.driver.synchronize_device();
        let base = self.base;
        let state = self.state.get_mut();
        state.streams.all_passed();
        for left in std::mem::take(&mut state.leaving) {
            let moved =
                state.pages.handle(PageNumber((left.start / self.page_bytes) as u32)).is_none();
            if moved {
                let _ = self.driver.unmap(DevicePtr(base.0 + left.start), left.bytes as usize);
            }
        }
        for (page, handle) in state.pages.all_mapped() {
            let address = DevicePtr(base.0 + u64::from(page.0) * self.page_bytes);
            let _ = self.driver.unmap(address, self.page_bytes as usize);
            let _ = self.driver.release(handle);
        }
        for handle in state.loose.drain(..) {
            let _ = self.driver.release(handle);
        }
        state.streams.close(&self.driver);
        let _ = self.driver.unreserve(self.base, self.span_bytes as usize);
    }
}
