//! The calls to the driver that map, unmap, create and release memory.
//!
//! A plan is carried out without the lock on `state`, and then committed or rolled back. A mapping is unmapped in two steps: its addresses
//! leave the heap at once, and the driver unmaps them when the work that used them is done. Memory that is mapped nowhere is *loose*, and
//! is released, or lent to another back of the same device.
//!
//! ```text
//!   create ─► map ─► set_access ─► committed        failed ─► unmap ─► rolled back: new memory is loose, claims are undone
//!   mapping: in use or ready ─► leaving, closed, its points pass ─► unmapped
//!   handle:  all its mappings are unmapped ─► loose ─► released or lent
//!   Σ handles changes only with `add_handle`, `release_loose`, `lend` and `adopt`
//! ```

use super::handles::HandleId;
use super::heap::{Found, NodeId, Use};
use super::pages::MappingId;
use super::place::{Plan, Prefer, Source};
use super::{Back, SearchEffort, State, Wanted};
use crate::driver::{
    Call, Driver, DriverError, DriverErrorKind, DriverResult, PhysicalHandle, RelaxedCalls,
};
use crate::pool::streams::Points;

/// With more mappings for each handle than this, those that were not used for long are unmapped.
const MAPPINGS_PER_HANDLE: usize = 4;
/// Mappings that are looked at for each that is too many, at most. Those in use are passed over, and those used since the last look once.
const LOOKED_AT: usize = 8;
/// Mappings that are looked at in one call, at most: other threads wait for the lock.
const MOST_LOOKED_AT: usize = 1024;

/// Pages given back to the driver at a time. Then other threads can map.
const PAGES_AT_A_TIME: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    No,
    Yes,
}

/// How far the driver came with a plan.
struct Progress {
    /// The memory of each piece for which there is some.
    memory: Vec<PhysicalHandle>,
    /// Pieces that are mapped.
    mapped: Vec<bool>,
}

/// A mapping that is to be unmapped, once the work that used its addresses is done.
#[derive(Debug)]
pub(super) struct Leaving {
    pub(super) node: NodeId,
    pub(super) mapping: MappingId,
}

/// Memory that goes from one back to another.
pub(in crate::pool) struct Lent {
    memory: PhysicalHandle,
    pub(in crate::pool) pages: usize,
}

/// How much memory a release takes.
#[derive(Clone, Copy, Debug)]
struct ReleaseLimits {
    /// It stops when it has so many pages. A handle goes as a whole.
    enough_pages: usize,
    /// It never takes more pages than this.
    pages: usize,
    /// Memory that was used after this stays.
    since: u32,
}

impl Back {
    /// A range with memory under it. The caller holds `mapping`.
    pub(super) fn map(&self, wanted: Wanted) -> DriverResult<NodeId> {
        self.unmap_leaving(Wait::No)?;
        let attempts = [
            (Prefer::New, SearchEffort::WaitBeyondSlack, usize::MAX),
            // The driver has no more, although the slack would allow it: use free memory.
            (Prefer::Free, SearchEffort::Wait, usize::MAX),
            // Or it has no more in large pieces.
            (Prefer::Free, SearchEffort::Exhaustive, 1),
        ];
        let reserved_before = self.reserved_bytes();
        let mut answer = Err(self.out_of_addresses(wanted.bytes));
        for (prefer, effort, most_pages) in attempts {
            let attempt = || self.try_mapping(wanted, prefer, effort, most_pages);
            answer = self.avoiding_unwaitable_streams(attempt);
            if !answer.as_ref().is_err_and(DriverError::is_out_of_memory) {
                break;
            }
            self.unmap_unused();
            // The failed attempt may have created some memory, which other programs may need.
            let excess_bytes = self.reserved_bytes().saturating_sub(reserved_before);
            self.release_loose((excess_bytes / self.page_bytes) as usize, u32::MAX);
        }
        self.state.lock().begin_unmapping_old(&self.driver);
        answer
    }

    /// Unmaps all unused mappings. Memory is short, and addresses whose memory is in use elsewhere keep holes from being completed; a
    /// completed hole wastes no ends of pages.
    #[cold]
    fn unmap_unused(&self) {
        // Memory that is being created ahead of need serves this request.
        drop(self.growing_ahead.lock());
        let mut state = self.state.lock();
        state.is_short = true;
        let _ = state.streams.record_all(&self.driver);
        let _ = state.streams.poll_all(&self.driver);
        let numbers = state.handles.mappings.numbers();
        for id in numbers.map(MappingId) {
            state.begin_unmapping_if_unused(id);
        }
        drop(state);
        let _ = self.unmap_leaving(Wait::No);
    }

    fn try_mapping(
        &self,
        wanted: Wanted,
        prefer: Prefer,
        effort: SearchEffort,
        most_pages: usize,
    ) -> DriverResult<NodeId> {
        let mut state = self.state.lock();
        // Another thread may have mapped memory meanwhile that serves this request.
        if let Some(node) = state.take_in_place(wanted, effort, &self.driver)? {
            return Ok(node);
        }
        let largest = state.largest_handle_pages;
        state.largest_handle_pages = largest.min(most_pages);
        let plan = state.plan(wanted, effort, prefer, &self.driver);
        state.largest_handle_pages = largest;
        let plan = plan?.ok_or_else(|| self.out_of_addresses(wanted.bytes))?;
        let memory_of = |source| match source {
            Source::New(_) => None,
            Source::Free(handle) => Some(state.handles.handle(handle).physical),
        };
        let known = plan.pieces.iter().map(|piece| memory_of(piece.source)).collect();
        drop(state);
        match self.carry_out(&plan, known) {
            Ok(memory) => Ok(self.commit(plan, memory, wanted)),
            Err((error, done)) => {
                self.roll_back(plan, done);
                Err(error)
            }
        }
    }

    /// Refuses a request that is larger than the whole device before the driver is asked. The pool would else create all of its memory
    /// first, and other programs on the device would run out of it meanwhile.
    pub(super) fn fits_on_device(&self, bytes: u64) -> DriverResult<()> {
        let capacity_bytes = self.driver.device().capacity_bytes as u64;
        // At least so many pages lie under it, even if its ends share theirs with neighbours.
        let least_bytes = bytes.next_multiple_of(self.page_bytes.max(1));
        if least_bytes <= capacity_bytes {
            return Ok(());
        }
        Err(DriverError::with_detail(
            Call::Create,
            DriverErrorKind::OutOfMemory,
            format!("{least_bytes} bytes are more than the device has, {capacity_bytes}"),
        ))
    }

    pub(super) fn out_of_addresses(&self, bytes: u64) -> DriverError {
        DriverError::with_detail(
            Call::Reserve,
            DriverErrorKind::OutOfMemory,
            format!(
                "no {bytes} bytes of the pool's {} addresses are free in one piece",
                self.span_bytes
            ),
        )
    }

    /// Gets the memory of a plan and maps it: all of it, or none, but for mappings that cannot be unmapped again.
    fn carry_out(
        &self,
        plan: &Plan,
        known: Vec<Option<PhysicalHandle>>,
    ) -> Result<Vec<PhysicalHandle>, (DriverError, Progress)> {
        let pieces = &plan.pieces;
        let mut done = Progress { memory: Vec::new(), mapped: vec![false; pieces.len()] };
        for (piece, known) in pieces.iter().zip(known) {
            let memory = match (piece.source, known) {
                (Source::New(pages), _) => {
                    let bytes = pages * self.page_bytes as usize;
                    self.driver.create(bytes, self.properties)
                }
                (Source::Free(_), known) => Ok(known.expect("free memory is known")),
            };
            match memory {
                Ok(memory) => done.memory.push(memory),
                Err(error) => return Err((error, done)),
            }
        }
        let sizes: Vec<u64> = {
            let state = self.state.lock();
            pieces.iter().map(|piece| state.pages_of(piece.source) as u64).collect()
        };
        let address = |index: usize| self.address_of(pieces[index].at as u64 * self.page_bytes);
        let bytes = |index: usize| (sizes[index] * self.page_bytes) as usize;
        let mut failed = None;
        for index in 0..pieces.len() {
            match self.driver.map(address(index), bytes(index), done.memory[index]) {
                Ok(()) => done.mapped[index] = true,
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        let mut first = 0;
        while failed.is_none() && first < pieces.len() {
            // Pieces that follow each other are made accessible together.
            let follows = |index: &usize| {
                pieces[*index].at == pieces[*index - 1].at + sizes[*index - 1] as usize
            };
            let end = first + 1 + (first + 1..pieces.len()).take_while(follows).count();
            let total = (first..end).map(bytes).sum();
            failed = self.driver.set_access(address(first), total, self.access).err();
            first = end;
        }
        let Some(error) = failed else { return Ok(done.memory) };
        for index in 0..pieces.len() {
            if done.mapped[index] {
                done.mapped[index] = self.driver.unmap(address(index), bytes(index)).is_err();
            }
        }
        Err((error, done))
    }

    fn commit(&self, plan: Plan, memory: Vec<PhysicalHandle>, wanted: Wanted) -> NodeId {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state.failed_search = None;
        for (piece, memory) in plan.pieces.iter().zip(memory) {
            let handle = match piece.source {
                Source::New(pages) => state.add_handle(memory, pages, self.page_bytes),
                Source::Free(handle) => {
                    if !state.handles.handle(handle).mappings.is_empty() {
                        state.counts.page_moves += u64::from(piece.used.count_ones());
                    }
                    handle
                }
            };
            state.add_mapping(handle, piece.at, piece.used);
        }
        state.count_used(state.heap.node(plan.node).bytes);
        if wanted.used_for != Use::Slab {
            state.growth.add_live(wanted.bytes);
        }
        plan.node
    }

    /// A plan has failed: everything is as before, but for new memory, which is kept for the next time.
    fn roll_back(&self, plan: Plan, done: Progress) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state.failed_search = None;
        let memory = done.memory.into_iter().map(Some).chain(std::iter::repeat(None));
        let mut stuck = Vec::new();
        for ((piece, memory), still_mapped) in plan.pieces.iter().zip(memory).zip(done.mapped) {
            let handle = match (piece.source, memory) {
                (Source::Free(handle), _) => {
                    state.undo_claim(handle, piece.used, &plan.points);
                    handle
                }
                (Source::New(pages), Some(memory)) => {
                    let handle = state.add_handle(memory, pages, self.page_bytes);
                    state.handles.loose.push(handle);
                    handle
                }
                (Source::New(_), None) => continue,
            };
            if still_mapped {
                stuck.push((handle, piece.at));
            }
        }
        state.merge(plan.node);
        for (handle, at) in stuck {
            // No work has used these addresses: the mapping is unmapped as soon as the driver allows it.
            state.handles.loose.retain(|loose| *loose != handle);
            let mapping = state.add_mapping(handle, at, 0);
            state.begin_unmapping(mapping);
        }
    }

    /// Unmaps the leaving mappings whose work is done; if told to, it waits for the work. The caller holds `mapping`.
    pub(super) fn unmap_leaving(&self, wait: Wait) -> DriverResult<()> {
        if wait == Wait::Yes {
            self.wait_until_passed(|state| {
                let points = |left: &Leaving| state.heap.node(left.node).points.clone();
                state.leaving.iter().map(points).collect()
            })?;
        }
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state.give_back_withheld(&self.driver);
        if state.leaving.is_empty() {
            return Ok(());
        }
        let State { streams, heap, leaving, handles, .. } = state;
        streams.poll_for(leaving.iter().map(|left| &heap.node(left.node).points), &self.driver)?;
        let (done, mut staying): (Vec<_>, Vec<_>) = std::mem::take(leaving)
            .into_iter()
            .partition(|left| streams.have_passed(&heap.node(left.node).points));
        let ranges: Vec<_> =
            done.iter().map(|left| handles.mapping(left.mapping).range()).collect();
        drop(guard);
        let mut unmapped = Vec::new();
        for (left, range) in done.into_iter().zip(ranges) {
            let address = self.address_of(range.start as u64 * self.page_bytes);
            match self.driver.unmap(address, range.len() * self.page_bytes as usize) {
                Ok(()) => unmapped.push(left),
                Err(_) => staying.push(left),
            }
        }
        let mut state = self.state.lock();
        state.leaving.append(&mut staying);
        unmapped.into_iter().for_each(|left| state.end_unmapping(left));
        Ok(())
    }
}

impl State {
    /// Adds new memory. The caller maps it, or adds it to `loose`.
    pub(super) fn add_handle(
        &mut self,
        memory: PhysicalHandle,
        pages: usize,
        page_bytes: u64,
    ) -> HandleId {
        self.reserve(pages as u64 * page_bytes);
        self.counts.pages_created += pages as u64;
        self.handles.add(memory, pages, self.pages.now())
    }

    /// Begins to unmap mappings that were not used for long, if there are too many.
    fn begin_unmapping_old(&mut self, driver: &dyn Driver) {
        let per_handle = if self.is_short { 1 } else { MAPPINGS_PER_HANDLE };
        let most = per_handle * self.handles.handles.len();
        if self.handles.mappings.len() <= most + self.leaving.len() {
            return;
        }
        // To see which work is done. If the driver cannot answer now, it is asked again later.
        let _ = self.streams.record_all(driver);
        let _ = self.streams.poll_for([], driver);
        let too_many = self.handles.mappings.len() - self.leaving.len() - most;
        for _ in 0..(LOOKED_AT * too_many).min(MOST_LOOKED_AT) {
            if self.handles.mappings.len() <= most + self.leaving.len() {
                return;
            }
            let Some(id) = self.handles.next_by_age() else { return };
            if std::mem::take(&mut self.handles.mapping_mut(id).is_recent) && !self.is_short {
                continue;
            }
            self.begin_unmapping_if_unused(id);
        }
    }

    /// Begins to unmap a mapping that is unused, whose work is done, and whose memory has other addresses.
    fn begin_unmapping_if_unused(&mut self, id: MappingId) {
        let Some(mapping) = self.handles.mappings.find(id.0).copied() else { return };
        let handle = self.handles.handle(mapping.handle);
        let staying = handle.mappings.iter().filter(|id| !self.handles.mapping(**id).leaves);
        if mapping.leaves || staying.count() == 1 {
            return;
        }
        if self.pages.used_bits(mapping.first, mapping.pages) == 0 {
            let hole = self.pages.hole_around(mapping.first);
            if self.streams.have_passed(&self.heap.node(hole).points) {
                self.begin_unmapping(id);
            }
        }
    }
}

impl Back {
    /// Gives memory that no used range touches back to the driver; returns how many bytes. Waits for work that still uses some of it.
    pub(in crate::pool) fn trim(&self) -> u64 {
        let _relaxed = RelaxedCalls::enter(&self.driver);
        self.settle_gone_streams();
        let _mapping = self.mapping.lock();
        if self.belongs_to_capture() {
            return 0;
        }
        if !self.has_pages() {
            let freed = self.free_chunks();
            let _ = self.state.lock().streams.give_back_events(&self.driver);
            return freed;
        }
        let mut state = self.state.lock();
        state.give_back_withheld(&self.driver);
        // Memory that cannot be waited for stays.
        let _ = state.streams.record_all(&self.driver);
        let pages = state.pages_above_keeping(self.page_bytes);
        let most = ReleaseLimits { enough_pages: pages, pages, since: u32::MAX };
        let waitable = |state: &State, points: &Points| state.streams.can_wait_for(points);
        state.begin_unmapping_unused_handles(most, waitable, &mut 0);
        drop(state);
        let _ = self.unmap_leaving(Wait::Yes);
        let released = self.release_loose(pages, u32::MAX);
        let mut state = self.state.lock();
        state.is_short &= released == 0;
        // Events that cannot be asked now are asked later.
        let _ = state.streams.give_back_events(&self.driver);
        released
    }

    /// The clock goes up by one, and what was freed so far is noted.
    pub(in crate::pool) fn tick(&self) {
        let _relaxed = RelaxedCalls::enter(&self.driver);
        let mut state = self.state.lock();
        // Streams that cannot be asked now keep memory from going back for longer.
        let _ = state.streams.record_all(&self.driver);
        state.tick();
    }

    /// Gives some pages back that were not used since `since`, without waiting for work, a few at a time, so that a thread that needs to
    /// map something does not wait for long. Returns how many.
    pub(in crate::pool) fn expire(&self, most: usize, since: u32) -> usize {
        if self.belongs_to_capture() || !self.has_pages() {
            // The driver would wait for the whole device to take a chunk back.
            return 0;
        }
        let mut given_back = 0;
        let mut looked_up_to = 0;
        while given_back < most {
            let _relaxed = RelaxedCalls::enter(&self.driver);
            let _mapping = self.mapping.lock();
            let mut state = self.state.lock();
            let _ = state.streams.record_all(&self.driver);
            let _ = state.streams.poll_all(&self.driver);
            let pages = state.pages_above_keeping(self.page_bytes).min(most - given_back);
            let passed = |state: &State, points: &Points| state.streams.have_passed(points);
            let limits = ReleaseLimits { enough_pages: pages.min(PAGES_AT_A_TIME), pages, since };
            let left = state.begin_unmapping_unused_handles(limits, passed, &mut looked_up_to);
            if left == 0 && state.handles.loose.is_empty() {
                break;
            }
            drop(state);
            if self.unmap_leaving(Wait::No).is_err() {
                break;
            }
            let released = self.release_loose(pages, since);
            if released == 0 {
                break;
            }
            self.state.lock().is_short = false;
            given_back += (released / self.page_bytes) as usize;
        }
        given_back
    }

    /// Releases memory that was created for a request that failed all the same: loose memory, until no more than `reserved_bytes` are
    /// reserved. Other programs on the device may need it.
    #[cold]
    pub(in crate::pool) fn release_beyond(&self, reserved_bytes: u64) {
        if !self.has_pages() {
            return;
        }
        let _relaxed = RelaxedCalls::enter(&self.driver);
        let _mapping = self.mapping.lock();
        let excess_bytes = self.reserved_bytes().saturating_sub(reserved_bytes);
        self.release_loose((excess_bytes / self.page_bytes) as usize, u32::MAX);
    }

    /// Releases loose memory, at most so many pages, and none that was used after `since`; returns their bytes.
    pub(super) fn release_loose(&self, most: usize, since: u32) -> u64 {
        let loose = self.state.lock().take_loose(most, since);
        let mut kept = Vec::new();
        let mut released = 0;
        for lent in loose {
            match self.driver.release(lent.memory) {
                Ok(()) => released += lent.pages as u64 * self.page_bytes,
                Err(_) => kept.push(lent),
            }
        }
        let mut state = self.state.lock();
        for Lent { memory, pages } in kept {
            let now = state.pages.now();
            let id = state.handles.add(memory, pages, now);
            state.handles.loose.push(id);
        }
        state.reserved_bytes -= released;
        state.counts.pages_released += released / self.page_bytes;
        released
    }

    /// Gives unused memory to another back of the same device, about so many pages. It waits for no work.
    pub(in crate::pool) fn lend(&self, most: usize) -> Vec<Lent> {
        if self.belongs_to_capture() || !self.has_pages() || most == 0 {
            return Vec::new();
        }
        let _relaxed = RelaxedCalls::enter(&self.driver);
        let _mapping = self.mapping.lock();
        let mut state = self.state.lock();
        let _ = state.streams.record_all(&self.driver);
        let _ = state.streams.poll_all(&self.driver);
        let pages = state.pages_above_keeping(self.page_bytes);
        let loose: usize = state.loose_pages();
        let passed = |state: &State, points: &Points| state.streams.have_passed(points);
        let most =
            ReleaseLimits { enough_pages: most.saturating_sub(loose), pages, since: u32::MAX };
        state.begin_unmapping_unused_handles(most, passed, &mut 0);
        drop(state);
        // Memory that cannot be unmapped stays here.
        let _ = self.unmap_leaving(Wait::No);
        let mut state = self.state.lock();
        let lent = state.take_loose(pages, u32::MAX);
        let lent_pages: usize = lent.iter().map(|lent| lent.pages).sum();
        state.reserved_bytes -= lent_pages as u64 * self.page_bytes;
        lent
    }

    /// Takes memory that another back has lent.
    pub(in crate::pool) fn adopt(&self, lent: Vec<Lent>) {
        let mut state = self.state.lock();
        for Lent { memory, pages } in lent {
            state.reserve(pages as u64 * self.page_bytes);
            let now = state.pages.now();
            let id = state.handles.add(memory, pages, now);
            state.handles.loose.push(id);
        }
    }
}

impl State {
    /// Begins to unmap all mappings of unused handles, if `may_go` holds for their points. Returns how many pages the handles have. Looks
    /// at handles from a number on.
    fn begin_unmapping_unused_handles(
        &mut self,
        most: ReleaseLimits,
        may_go: impl Fn(&State, &Points) -> bool,
        looked_up_to: &mut u32,
    ) -> usize {
        let mut pages = 0;
        for number in *looked_up_to..self.handles.handles.numbers().end {
            if pages >= most.enough_pages {
                break;
            }
            *looked_up_to = number + 1;
            let id = HandleId(number);
            let Some(handle) = self.handles.handles.find(number) else { continue };
            let is_out = handle.leaves || handle.mappings.is_empty();
            if is_out || pages + handle.pages > most.pages || self.owned(id) != 0 {
                continue;
            }
            let mappings: Vec<MappingId> = handle.mappings.clone();
            let staying = |mapping: &&MappingId| !self.handles.mapping(**mapping).leaves;
            let mapping_may_go = |mapping: &MappingId| {
                let hole = self.pages.hole_around(self.handles.mapping(*mapping).first);
                may_go(self, &self.heap.node(hole).points)
            };
            let used_in = self.used_in(id);
            // Points of a hole are those of its newest free, which may have been of other pages.
            let is_idle = self.work_until_has_passed(used_in);
            if used_in > most.since
                || !is_idle && !mappings.iter().filter(staying).all(mapping_may_go)
            {
                continue;
            }
            pages += handle.pages;
            for mapping in mappings {
                if !self.handles.mapping(mapping).leaves {
                    let node = self.begin_unmapping(mapping);
                    if is_idle {
                        self.heap.node_mut(node).points = Points::default();
                    }
                }
            }
            self.handles.handle_mut(id).leaves = true;
        }
        pages
    }

    /// The clock when a page of a handle was last used.
    fn used_in(&self, id: HandleId) -> u32 {
        let handle = self.handles.handle(id);
        let mut pages =
            handle.mappings.iter().flat_map(|mapping| self.handles.mapping(*mapping).range());
        let is_recent = pages.any(|page| self.pages.is_recent(page));
        if is_recent { self.pages.now() } else { handle.used_in }
    }

    /// Whether all work has passed on memory that was last used then.
    fn work_until_has_passed(&self, used_in: u32) -> bool {
        let next = self.freed_before.iter().find(|(tick, _)| *tick > used_in);
        next.is_some_and(|(_, points)| self.streams.have_passed(points))
    }

    /// The clock goes up by one, and each handle notes when it was last used.
    fn tick(&mut self) {
        /// Times that are remembered.
        const TICKS: usize = 8;
        for number in self.handles.handles.numbers() {
            if self.handles.handles.find(number).is_some() {
                let used_in = self.used_in(HandleId(number));
                self.handles.handles.get_mut(number).used_in = used_in;
            }
        }
        self.pages.tick();
        if self.freed_before.len() == TICKS {
            self.freed_before.pop_front();
        }
        self.freed_before.push_back((self.pages.now(), self.streams.points_so_far()));
    }

    /// An unused mapping is to be unmapped: its addresses serve no request any more.
    pub(super) fn begin_unmapping(&mut self, id: MappingId) -> NodeId {
        let mapping = *self.handles.mapping(id);
        let hole = self.pages.hole_around(mapping.first);
        let start = self.pages.start_of(mapping.first);
        let bytes = self.pages.start_of(mapping.pages);
        let node = self.heap.take(Found { node: hole, start }, bytes, Use::Leaving);
        self.hole_above_begins(node);
        self.pages.begin_leaving(mapping.range());
        self.handles.mapping_mut(id).leaves = true;
        self.leaving.push(Leaving { node, mapping: id });
        node
    }

    /// A mapping was unmapped.
    pub(super) fn end_unmapping(&mut self, Leaving { node, mapping }: Leaving) {
        let range = self.handles.mapping(mapping).range();
        self.remove_mapping(mapping);
        self.pages.end_leaving(range);
        let hole = self.heap.free(node);
        self.failed_search = None;
        self.pages.hole_begins(hole, self.heap.node(hole));
    }

    pub(super) fn loose_pages(&self) -> usize {
        self.handles.loose.iter().map(|id| self.handles.handle(*id).pages).sum()
    }

    /// Takes loose memory, up to so many pages, and none that was used after `since`.
    fn take_loose(&mut self, most: usize, since: u32) -> Vec<Lent> {
        let mut pages = 0;
        let mut taken = Vec::new();
        for id in std::mem::take(&mut self.handles.loose) {
            let handle = self.handles.handle(id);
            let size = handle.pages;
            if pages + size > most || handle.used_in > since {
                self.handles.loose.push(id);
                continue;
            }
            pages += size;
            let handle = self.handles.remove(id);
            taken.push(Lent { memory: handle.physical, pages: size });
        }
        taken
    }
}
