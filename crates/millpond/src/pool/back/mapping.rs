//! Memory under addresses: mapped where it is wanted, moved from where it is not, given back when nobody needs it.

use super::{Back, Leaving, Reach, State, Wanted, avoiding_out_of_reach};
use crate::driver::{
    Call, DevicePtr, Driver, DriverError, DriverErrorKind, DriverResult, PhysicalHandle,
    RelaxedCalls,
};
use crate::pool::heap::{NodeId, Use};
use crate::pool::pages::PageNumber;
use crate::pool::points::Points;

/// Where the memory of a page comes from.
pub(super) enum Source {
    New,
    Loose(PhysicalHandle),
    Moved(PhysicalHandle),
}

/// Where the memory for some pages is to come from.
pub(super) struct Plan {
    pub(super) sources: Vec<Source>,
    pub(super) leaving: Vec<Leaving>,
    pub(super) created: usize,
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

/// Whether new memory, within the slack, comes before spare memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prefer {
    New,
    Spare,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    No,
    Yes,
}

/// Pages given back to the driver between two looks at whether somebody waits to map some.
const PAGES_AT_A_TIME: usize = 16;

impl Back {
    /// A range with pages under it. The caller holds `mapping`.
    pub(super) fn map(&self, wanted: Wanted) -> DriverResult<NodeId> {
        self.unmap_left(Wait::No)?;
        let attempts = [
            (Prefer::New, Reach::WithinSlack),
            // The driver has no more, although the slack would allow it: use what is spare.
            (Prefer::Spare, Reach::Any),
            (Prefer::Spare, Reach::Every),
        ];
        let mut answer = Err(self.out_of_addresses(wanted.bytes));
        for (prefer, reach) in attempts {
            answer = avoiding_out_of_reach(|| self.try_mapping(wanted, prefer, reach));
            if !answer.as_ref().is_err_and(DriverError::is_out_of_memory) {
                break;
            }
        }
        answer
    }

    fn try_mapping(&self, wanted: Wanted, prefer: Prefer, reach: Reach) -> DriverResult<NodeId> {
        let Wanted { bytes, used_for, taker, .. } = wanted;
        let mut state = self.state.lock();
        // Another thread may have mapped what serves this request meanwhile.
        if let Some(node) = state.take_in_place(wanted, reach, &self.driver)? {
            return Ok(node);
        }
        let node = match state.find_anywhere(wanted, reach) {
            Some(found) => {
                // Before there is memory for it: a stream that turns out to be captured cannot be waited for.
                state.order(found.node, taker, &self.driver)?;
                state.take(found, bytes, used_for)
            }
            None => {
                let taken = state.take_without_memory(wanted);
                taken.ok_or_else(|| self.out_of_addresses(bytes))?
            }
        };
        let start = state.heap.node(node).start;
        let missing = state.pages.missing(start, bytes);
        let mut plan = state.plan(missing.len(), self.page_bytes, prefer, wanted);
        drop(state);
        match self.carry_out(&missing, &mut plan) {
            Ok(handles) => self.commit(node, missing, handles, plan, wanted),
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
                let hole = state.merge(node);
                state.leave(hole, &still_mapped, self.page_bytes);
                Err(error)
            }
        }
    }

    /// Refuses what is larger than the whole device before anything is taken from the driver: all of its memory would be had first, page
    /// by page, and others on the device would run out of it meanwhile.
    pub(super) fn fits_on_device(&self, bytes: u64) -> DriverResult<()> {
        let capacity_bytes = self.driver.device().capacity_bytes as u64;
        // Whatever its ends share a page with: so many pages lie under it.
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
                self.driver.set_access(self.address_of_page(first), bytes, self.access)
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
        wanted: Wanted,
    ) -> DriverResult<NodeId> {
        let taker = wanted.taker;
        let mut state = self.state.lock();
        let state = &mut *state;
        state.reserve(plan.created as u64 * self.page_bytes);
        state.counts.pages_created += plan.created as u64;
        if plan.created == 0 && !plan.leaving.is_empty() {
            state.growth.has_moved_enough();
        }
        let mut moved_points = Points::default();
        for mut run in plan.leaving {
            for page in state.pages.of(run.start, run.bytes) {
                run.moved.extend(state.pages.handle(page));
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
        // The stream comes after these already.
        let mut points = std::mem::take(&mut state.heap.node_mut(node).points);
        for (page, handle) in missing.into_iter().zip(handles) {
            state.pages.set_handle(page, Some(handle));
        }
        state.count_used(state.heap.node(node).bytes);
        let ordered = state.streams.order(&moved_points, taker.slot, taker.handle, &self.driver);
        points.merge(moved_points);
        match ordered {
            Ok(waits) => {
                state.counts.cross_stream_waits += waits as u64;
                match wanted.used_for {
                    Use::Slab => state.heap.node_mut(node).points = points,
                    _ => state.growth.add_live(wanted.bytes),
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

    /// Gives memory that nothing live touches back to the driver; returns how many bytes. Waits for work that still uses
    /// some of it.
    pub(in crate::pool) fn trim(&self) -> u64 {
        let _relaxed = RelaxedCalls::enter(&self.driver);
        self.settle_gone_streams();
        let _mapping = self.mapping.lock();
        if self.is_captures() {
            return 0;
        }
        if !self.has_pages() {
            let freed = self.free_chunks();
            let _ = self.state.lock().streams.poll_all(&self.driver);
            return freed;
        }
        let mut state = self.state.lock();
        state.give_back_withheld(&self.driver);
        // What cannot be waited for cannot be given back; what is left simply stays.
        let _ = state.streams.record_all(&self.driver);
        let most = state.pages_above_keeping(self.page_bytes);
        let waitable = |state: &State, points: &Points| state.streams.can_wait_for(points);
        let now = state.pages.now();
        let loose = state.loose.len();
        let spare = state.take_spare(most.saturating_sub(loose), self.page_bytes, now, waitable);
        state.leaving.extend(spare.into_iter().map(|(run, _)| run));
        drop(state);
        let _ = self.unmap_left(Wait::Yes);
        let released = self.release_loose(most);
        // Only to be rid of events; what cannot be asked now is asked later.
        let _ = self.state.lock().streams.poll_all(&self.driver);
        released
    }

    /// Gives up to `most` pages back that nobody has needed since `since` and nobody has to wait for, a few at a time, so that
    /// nobody who needs to map something waits for long. Returns how many.
    pub(in crate::pool) fn expire(&self, most: usize, since: u32) -> usize {
        if self.is_captures() || !self.has_pages() {
            // The driver would wait for the whole device to take a chunk back.
            return 0;
        }
        let mut given_back = 0;
        while given_back < most {
            let _relaxed = RelaxedCalls::enter(&self.driver);
            let _mapping = self.mapping.lock();
            let mut state = self.state.lock();
            let _ = state.streams.record_all(&self.driver);
            let _ = state.streams.poll_all(&self.driver);
            let step = state.pages_above_keeping(self.page_bytes).min(PAGES_AT_A_TIME);
            let passed = |state: &State, points: &Points| state.streams.have_passed(points);
            let spare = state.take_spare(step, self.page_bytes, since, passed);
            if spare.is_empty() && state.loose.is_empty() {
                break;
            }
            state.leaving.extend(spare.into_iter().map(|(run, _)| run));
            drop(state);
            if self.unmap_left(Wait::No).is_err() {
                break;
            }
            let released = self.release_loose(step);
            if released == 0 {
                break;
            }
            given_back += (released / self.page_bytes) as usize;
        }
        given_back
    }

    /// Gives back what was taken for a request that failed all the same: memory that lies nowhere, as far as more than so much is
    /// reserved. Others on the device may have use for it.
    #[cold]
    pub(in crate::pool) fn release_beyond(&self, reserved_bytes: u64) {
        if !self.has_pages() {
            return;
        }
        let _relaxed = RelaxedCalls::enter(&self.driver);
        let _mapping = self.mapping.lock();
        let excess_bytes = self.reserved_bytes().saturating_sub(reserved_bytes);
        self.release_loose((excess_bytes / self.page_bytes) as usize);
    }

    /// Lets go of loose pages, at most so many; returns their bytes.
    fn release_loose(&self, most: usize) -> u64 {
        let loose = self.state.lock().take_loose(most);
        let mut kept = Vec::new();
        let mut released = 0;
        for handle in loose {
            match self.driver.release(handle) {
                Ok(()) => released += self.page_bytes,
                Err(_) => kept.push(handle),
            }
        }
        let mut state = self.state.lock();
        state.loose.append(&mut kept);
        state.reserved_bytes -= released;
        state.counts.pages_released += released / self.page_bytes;
        released
    }

    /// Gives pages that nobody needs to another back of the same device, at most so many. Nobody waits for that.
    pub(in crate::pool) fn lend(&self, most: usize) -> Vec<PhysicalHandle> {
        if self.is_captures() || !self.has_pages() || most == 0 {
            return Vec::new();
        }
        let _relaxed = RelaxedCalls::enter(&self.driver);
        let _mapping = self.mapping.lock();
        let mut state = self.state.lock();
        let _ = state.streams.record_all(&self.driver);
        let _ = state.streams.poll_all(&self.driver);
        let most = most.min(state.pages_above_keeping(self.page_bytes));
        let passed = |state: &State, points: &Points| state.streams.have_passed(points);
        let (now, loose) = (state.pages.now(), state.loose.len());
        let spare = state.take_spare(most.saturating_sub(loose), self.page_bytes, now, passed);
        state.leaving.extend(spare.into_iter().map(|(run, _)| run));
        drop(state);
        // What cannot be unmapped stays here.
        let _ = self.unmap_left(Wait::No);
        let mut state = self.state.lock();
        let lent = state.take_loose(most);
        state.reserved_bytes -= lent.len() as u64 * self.page_bytes;
        lent
    }

    /// Takes pages that another back has lent.
    pub(in crate::pool) fn adopt(&self, mut pages: Vec<PhysicalHandle>) {
        let mut state = self.state.lock();
        state.reserve(pages.len() as u64 * self.page_bytes);
        state.loose.append(&mut pages);
    }

    /// Takes away old mappings whose work is done, or, if told to, waits for it. The caller holds `mapping`.
    fn unmap_left(&self, wait: Wait) -> DriverResult<()> {
        if wait == Wait::Yes {
            self.wait_until_passed(|state| {
                state.leaving.iter().map(|left| left.points.clone()).collect()
            })?;
        }
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state.give_back_withheld(&self.driver);
        if state.leaving.is_empty() {
            return Ok(());
        }
        state.streams.poll_for(state.leaving.iter().map(|left| &left.points), &self.driver)?;
        let leaving = std::mem::take(&mut state.leaving);
        let (done, mut staying): (Vec<_>, Vec<_>) =
            leaving.into_iter().partition(|left| state.streams.have_passed(&left.points));
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
            state.merge(left.node);
        }
        Ok(())
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
