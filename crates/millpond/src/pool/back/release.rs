//! Memory that nothing uses goes back to the driver, or to another back of the same device.

use super::handles::HandleId;
use super::mapping::Wait;
use super::{Back, Leaving, State};
use crate::driver::{Driver, PhysicalHandle, RelaxedCalls};
use crate::pool::heap::{Found, Use};
use crate::pool::pages::MappingId;
use crate::pool::points::Points;

/// Pages given back to the driver between two looks at whether somebody waits to map some.
const PAGES_AT_A_TIME: usize = 16;

/// Memory that goes from one back to another.
pub(in crate::pool) struct Lent {
    memory: PhysicalHandle,
    pub(in crate::pool) pages: usize,
}

/// How much is to go.
#[derive(Clone, Copy, Debug)]
struct Most {
    /// When this has been reached, it is enough. A handle goes as a whole.
    enough_pages: usize,
    /// No more than this.
    pages: usize,
    /// What was used after this stays.
    since: u32,
}

impl Back {
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
            let _ = self.state.lock().streams.give_back_events(&self.driver);
            return freed;
        }
        let mut state = self.state.lock();
        state.give_back_withheld(&self.driver);
        // What cannot be waited for cannot be given back; what is left simply stays.
        let _ = state.streams.record_all(&self.driver);
        let pages = state.pages_above_keeping(self.page_bytes);
        let most = Most { enough_pages: pages, pages, since: u32::MAX };
        let waitable = |state: &State, points: &Points| state.streams.can_wait_for(points);
        state.let_unused_go(most, waitable, &mut 0);
        drop(state);
        let _ = self.unmap_left(Wait::Yes);
        let released = self.release_loose(pages, u32::MAX);
        let mut state = self.state.lock();
        state.is_short &= released == 0;
        // Events that cannot be asked now are asked later.
        let _ = state.streams.give_back_events(&self.driver);
        released
    }

    /// Gives some pages back that nothing has used since `since` and for which nothing is waited, a few at a time, so that
    /// a thread that needs to map something does not wait for long. Returns how many.
    pub(in crate::pool) fn expire(&self, most: usize, since: u32) -> usize {
        if self.is_captures() || !self.has_pages() {
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
            let pages = state.pages_above_keeping(self.page_bytes);
            let passed = |state: &State, points: &Points| state.streams.have_passed(points);
            let most = Most { enough_pages: pages.min(PAGES_AT_A_TIME), pages, since };
            let left = state.let_unused_go(most, passed, &mut looked_up_to);
            if left == 0 && state.handles.loose.is_empty() {
                break;
            }
            drop(state);
            if self.unmap_left(Wait::No).is_err() {
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
        self.release_loose((excess_bytes / self.page_bytes) as usize, u32::MAX);
    }

    /// Lets go of memory that is mapped nowhere, at most so many pages, and nothing that was used after `since`; returns their bytes.
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

    /// Gives memory that nothing uses to another back of the same device, about so many pages. Nothing is waited for.
    pub(in crate::pool) fn lend(&self, most: usize) -> Vec<Lent> {
        if self.is_captures() || !self.has_pages() || most == 0 {
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
        let most = Most { enough_pages: most.saturating_sub(loose), pages, since: u32::MAX };
        state.let_unused_go(most, passed, &mut 0);
        drop(state);
        // What cannot be unmapped stays here.
        let _ = self.unmap_left(Wait::No);
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
    /// Lets all mappings of handles go that nothing uses, and whose work is acceptable. Returns how many pages the handles have. Looks
    /// at handles from a number on.
    fn let_unused_go(
        &mut self,
        most: Most,
        acceptable: impl Fn(&State, &Points) -> bool,
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
            let is_acceptable = |mapping: &MappingId| {
                let hole = self.pages.hole_around(self.handles.mapping(*mapping).first);
                acceptable(self, &self.heap.node(hole).points)
            };
            if self.used_in(id) > most.since || !mappings.iter().filter(staying).all(is_acceptable)
            {
                continue;
            }
            pages += handle.pages;
            for mapping in mappings {
                if !self.handles.mapping(mapping).leaves {
                    self.let_go(mapping);
                }
            }
            self.handles.handle_mut(id).leaves = true;
        }
        pages
    }

    /// When a page of a handle was last used.
    fn used_in(&self, id: HandleId) -> u32 {
        let handle = self.handles.handle(id);
        let mut pages =
            handle.mappings.iter().flat_map(|mapping| self.handles.mapping(*mapping).range());
        let is_from_now = pages.any(|page| self.pages.is_from_now(page));
        if is_from_now { self.pages.now() } else { handle.used_in }
    }

    /// Time goes by.
    pub(in crate::pool) fn tick(&mut self) {
        for number in self.handles.handles.numbers() {
            if self.handles.handles.find(number).is_some() {
                let used_in = self.used_in(HandleId(number));
                self.handles.handles.get_mut(number).used_in = used_in;
            }
        }
        self.pages.tick();
    }

    /// A mapping that nothing uses is to go: its addresses serve nothing any more.
    pub(super) fn let_go(&mut self, id: MappingId) {
        let mapping = *self.handles.mapping(id);
        let hole = self.pages.hole_around(mapping.first);
        let start = self.pages.start_of(mapping.first);
        let bytes = self.pages.start_of(mapping.pages);
        let node = self.heap.take(Found { node: hole, start }, bytes, Use::Leaving);
        self.hole_above_begins(node);
        self.pages.begin_leaving(mapping.range());
        self.handles.mapping_mut(id).leaves = true;
        self.leaving.push(Leaving { node, mapping: id });
    }

    /// A mapping is gone.
    pub(super) fn has_left(&mut self, Leaving { node, mapping }: Leaving) {
        let range = self.handles.mapping(mapping).range();
        self.remove_mapping(mapping);
        self.pages.end_leaving(range);
        let hole = self.heap.free(node);
        self.missed = None;
        self.pages.hole_begins(hole, self.heap.node(hole));
    }

    pub(super) fn loose_pages(&self) -> usize {
        self.handles.loose.iter().map(|id| self.handles.handle(*id).pages).sum()
    }

    /// Takes memory that is mapped nowhere, up to so many pages, and nothing that was used after `since`.
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
