//! Where a block can go: among what has memory, or where least is missing.

use std::ops::Range;

use super::handles::HandleId;
use super::{Missed, Reach, State, Taker, Wanted};
use crate::pool::heap::{Found, Node, NodeId};
use crate::pool::points::{Points, StreamSlot};

/// Holes that are looked at for a block, at the most, and ready runs in them for one that fits at the upper end of none.
const MOST_HOLES: usize = 64;
const MOST_RUNS: usize = 64;
/// Holes that are looked at for one that the stream comes after anyway, where there are several streams: most are others', and to wait for
/// one of them costs less than to look at them all.
const MOST_OF_SEVERAL: usize = 16;
/// Holes that are looked at for where least is missing.
const MOST_WITHOUT_MEMORY: usize = 16;

/// What a search for a run of open pages has found so far: the room in the run, and a place there.
struct RunSearch {
    best: Option<(u64, Found)>,
    holes: usize,
    runs: usize,
}

/// What has to be done for a block to lie somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Price {
    /// Pages for which there is no memory that could be used.
    pub(super) new_pages: usize,
    pub(super) mappings: usize,
    /// Pages that nothing used before.
    pub(super) pages: usize,
}

impl Price {
    /// By what is dearest. Where memory is short that is pages, of which neighbours can share those at their ends, and else mappings.
    pub(super) fn order(self, is_short: bool) -> (usize, usize, usize) {
        let Price { new_pages, mappings, pages } = self;
        if is_short { (new_pages, pages, mappings) } else { (new_pages, mappings, pages) }
    }
}

impl State {
    /// A range whose pages all are open, and that the stream comes after anyway: at the upper end of a hole.
    #[inline]
    pub(super) fn find_ordered(&self, bytes: u64, align: u64, taker: StreamSlot) -> Option<Found> {
        let streams = &self.streams;
        let is_ordered = move |points: &Points| streams.are_ordered(points, taker);
        self.heap.find(bytes, align, self.most_holes(), move |node, start| {
            is_ordered(&node.points) && self.is_open(start, bytes, is_ordered)
        })
    }

    /// Whether a range of a hole can be used as it is.
    #[inline(always)]
    fn is_open(&self, start: u64, bytes: u64, usable: impl Fn(&Points) -> bool) -> bool {
        let pages = self.pages.of(start, bytes);
        self.pages.are_open(start, bytes)
            && (!self.pages.has_shared(pages.clone()) || self.are_usable(pages, usable))
    }

    /// Whether pages that are mapped elsewhere, too, are no two the same, and all usable.
    #[inline(never)]
    fn are_usable(&self, pages: Range<usize>, usable: impl Fn(&Points) -> bool) -> bool {
        let search = self.handles.new_search();
        let mut ready =
            pages.filter(|page| self.pages.is_shared(*page) && !self.pages.is_used(*page));
        ready.all(|page| {
            let (handle, index) = self.memory_of(page);
            let sharing = self.handles.handle(handle).sharing.as_ref().expect("it is shared");
            sharing.note(index, search) && usable(&sharing.points[index])
        })
    }

    /// The handle under a mapped page, and which page of it that is.
    pub(super) fn memory_of(&self, page: usize) -> (HandleId, usize) {
        let mapping = self.pages.mapping(page).expect("the page is mapped");
        let mapping = self.handles.mapping(mapping);
        (mapping.handle, page - mapping.first)
    }

    /// A range whose pages all are open, and that the stream may use or can be made to wait for.
    pub(super) fn find_in_place(&mut self, wanted: Wanted, reach: Reach) -> Option<Found> {
        let Wanted { bytes, align, taker, .. } = wanted;
        if let Some(found) = self.find_ordered_anywhere(bytes, align, taker.slot) {
            return Some(found);
        }
        let usable = |points: &Points| self.streams.can_serve(points, taker.slot);
        let is_usable =
            |node: &Node, start: u64| usable(&node.points) && self.is_open(start, bytes, usable);
        if reach == Reach::Every {
            let score = |node: &Node, start| is_usable(node, start).then_some(node.bytes);
            return self.heap.find_lowest(bytes, align, score);
        }
        let may_wait = || match reach {
            Reach::Ordered => false,
            Reach::WithinSlack => !self.may_grow_by(bytes),
            Reach::Any | Reach::Every => true,
        };
        if self.has_unordered(taker) && may_wait() {
            let found = self.heap.find(bytes, align, MOST_HOLES, is_usable);
            return found.or_else(|| self.find_run(bytes, align, MOST_HOLES, usable));
        }
        None
    }

    /// A range whose pages all are open, and that the stream comes after anyway: as [`find_ordered`](Self::find_ordered), or in the middle of
    /// a hole.
    #[inline]
    pub(super) fn find_ordered_anywhere(
        &mut self,
        bytes: u64,
        align: u64,
        taker: StreamSlot,
    ) -> Option<Found> {
        if self.has_missed(bytes, align, taker) {
            return None;
        }
        let found = self
            .find_ordered(bytes, align, taker)
            .or_else(|| self.find_ordered_run(bytes, align, taker));
        if found.is_none() {
            let passes = self.streams.passes();
            self.missed = Some(Missed { taker, bytes, align, passes });
        }
        found
    }

    /// Whether the last search has shown that there is no such range.
    fn has_missed(&self, bytes: u64, align: u64, taker: StreamSlot) -> bool {
        self.missed.is_some_and(|missed| {
            missed.taker == taker
                && missed.bytes <= bytes
                && missed.align <= align
                && missed.passes == self.streams.passes()
        })
    }

    /// Whether there can be ranges that this taker has to wait for.
    fn has_unordered(&self, taker: Taker) -> bool {
        self.streams.are_several() || taker.slot == StreamSlot::NOBODY
    }

    /// As [`find_ordered`](Self::find_ordered), in the middle of a hole.
    #[inline(never)]
    pub(super) fn find_ordered_run(
        &self,
        bytes: u64,
        align: u64,
        taker: StreamSlot,
    ) -> Option<Found> {
        let is_ordered = |points: &Points| self.streams.are_ordered(points, taker);
        self.find_run(bytes, align, self.most_holes(), is_ordered)
    }

    /// How many holes it is worth looking at for one that a stream comes after anyway.
    fn most_holes(&self) -> usize {
        if self.streams.are_several() { MOST_OF_SEVERAL } else { MOST_HOLES }
    }

    /// A range of open pages in the middle of a hole, in a run as short as possible.
    fn find_run(
        &self,
        bytes: u64,
        align: u64,
        most_holes: usize,
        usable: impl Fn(&Points) -> bool + Copy,
    ) -> Option<Found> {
        let mut search = RunSearch { best: None, holes: 0, runs: 0 };
        self.heap.each_from_smallest(bytes, |id, hole| {
            if usable(&hole.points) {
                self.look_for_runs(&mut search, id, hole, (bytes, align), usable);
            }
            search.holes += 1;
            search.holes < most_holes && search.runs < MOST_RUNS
        });
        search.best.map(|(_, found)| found)
    }

    #[inline]
    fn look_for_runs(
        &self,
        search: &mut RunSearch,
        id: NodeId,
        hole: &Node,
        (bytes, align): (u64, u64),
        usable: impl Fn(&Points) -> bool + Copy,
    ) {
        let whole = self.pages.whole_in(hole.range(), hole.range());
        let mut from = whole.start;
        while let Some(run) = self.pages.next_ready(from..whole.end) {
            from = run.end;
            // With what is free of the pages beside it that neighbours use.
            let begin = match run.start == whole.start {
                true => hole.start,
                false => self.pages.start_of(run.start),
            };
            let end = match run.end == whole.end {
                true => hole.end(),
                false => self.pages.start_of(run.end),
            };
            let room = end - begin;
            if room < bytes || search.best.is_some_and(|(least, _)| least <= room) {
                continue;
            }
            search.runs += 1;
            let high = (end - bytes) & !(align - 1);
            let low = (begin + align - 1) & !(align - 1);
            let fits = |start: &u64| {
                *start >= begin && start + bytes <= end && self.is_open(*start, bytes, usable)
            };
            if let Some(start) = [high, low].into_iter().find(fits) {
                search.best = Some((room, Found { node: id, start }));
            }
        }
    }

    /// Where in a hole least is missing. With every range to be looked at, the hole that misses least of all.
    pub(super) fn find_missing(&self, wanted: Wanted, reach: Reach) -> Option<(Price, Found)> {
        let Wanted { bytes, align, taker, .. } = wanted;
        let usable = |points: &Points| self.streams.can_serve(points, taker.slot);
        let most = if reach == Reach::Every { usize::MAX } else { MOST_WITHOUT_MEMORY };
        // Of the last hole, what lies beyond was never mapped.
        let top = self.pages.start_of(self.pages.top());
        let mut best: Option<(Price, Found)> = None;
        let mut looked_at = 0;
        self.heap.each_from_smallest(bytes, |node, hole| {
            looked_at += 1;
            let end = hole.end().min(top);
            if usable(&hole.points)
                && let Some(room) = end.checked_sub(bytes)
            {
                let places = [room & !(align - 1), hole.start.next_multiple_of(align)];
                for start in places {
                    if start < hole.start || start + bytes > end {
                        continue;
                    }
                    let price = self.price(start, bytes, hole, usable);
                    if let Some(price) = price
                        && best.as_ref().is_none_or(|(least, _)| self.is_less(price, *least))
                    {
                        best = Some((price, Found { node, start }));
                    }
                }
            }
            looked_at < most
        });
        best
    }

    pub(super) fn is_less(&self, price: Price, than: Price) -> bool {
        price.order(self.is_short) < than.order(self.is_short)
    }

    /// What it takes for a block to lie somewhere in a hole. `None`: some page there is mapped, and its memory is in use elsewhere.
    fn price(
        &self,
        start: u64,
        bytes: u64,
        hole: &Node,
        usable: impl Fn(&Points) -> bool,
    ) -> Option<Price> {
        let touched = self.pages.of(start, bytes);
        let unused = self.pages.whole_in(start..start + bytes, hole.range());
        // What neighbours use is there, unless it is on its way.
        if touched.clone().any(|page| !unused.contains(&page) && !self.pages.is_open(page)) {
            return None;
        }
        let mut missing = 0;
        let mut is_shared = false;
        for page in unused.clone() {
            if self.pages.mapping(page).is_none() {
                missing += 1;
            } else if !self.pages.is_open(page) {
                return None;
            } else {
                is_shared |= self.pages.is_shared(page);
            }
        }
        if is_shared && !self.are_usable(unused.clone(), usable) {
            return None;
        }
        let new_pages = unused.len().saturating_sub(self.spare_pages());
        Some(Price { new_pages, mappings: missing, pages: unused.len() })
    }
}
