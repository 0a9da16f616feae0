//! Where a block comes to lie: among open pages, or where a plan brings memory.
//!
//! A search takes the upper end of the smallest hole that has open pages there, else the shortest run of open pages within a hole. If
//! there is neither, a plan completes a hole, or composes the block at fresh addresses: a part of a handle at either end, whole handles
//! between. New memory comes in handles as large as fit, while the pool is within its slack.
//!
//! ```text
//!   Found             every page of the range is open, no two are the same memory, and the stream comes after its points, or can be made to
//!   Plan.pieces       disjoint pages, rising; Σ used bits + pages that were open before = the pages of the block
//!   cheaper(a, b)     = (new pages, mappings, pages) is less; where memory is short, (new pages, pages, mappings)
//! ```

use std::ops::Range;

use super::growth::{HANDLE_PAGES, class_of};
use super::handles::{HandleId, bits};
use super::heap::{Found, KeepPoints, Node, NodeId, Use};
use super::state::FailedSearch;
use super::{Requester, SearchEffort, State, Wanted};
use crate::driver::{Driver, DriverResult};
use crate::pool::streams::{Points, StreamSlot};

/// Holes that a search looks at, at most, and runs of ready pages within them, if the block fits at the upper end of none.
const MOST_HOLES: usize = 64;
const MOST_RUNS: usize = 64;
/// The same for memory that the stream comes after anyway, where there are several streams: most holes are other streams', and waiting for
/// one of them costs less than looking at all.
const MOST_OF_SEVERAL: usize = 16;
/// Holes that a plan looks at for the lowest price.
const MOST_WITHOUT_MEMORY: usize = 16;

/// A search for a run of open pages, so far: the best run's bytes, and a place there.
struct RunSearch {
    best: Option<(u64, Found)>,
    holes: usize,
    runs: usize,
}

/// The price of a place for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Price {
    /// Pages for which memory must be created.
    pub(super) new_pages: usize,
    pub(super) mappings: usize,
    /// Pages that no range used before.
    pub(super) pages: usize,
}

impl Price {
    /// The price with its dearest part first. After new pages that is mappings; where memory is short, pages, because neighbours can share
    /// those at their ends.
    pub(super) fn order(self, is_short: bool) -> (usize, usize, usize) {
        let Price { new_pages, mappings, pages } = self;
        if is_short { (new_pages, pages, mappings) } else { (new_pages, mappings, pages) }
    }
}

/// Whether a plan takes new memory, within the slack, or free memory first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prefer {
    New,
    Free,
}

/// A handle that is to be mapped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    /// The first page of its addresses.
    pub(super) at: usize,
    pub(super) source: Source,
    /// The pages of the handle that the block uses.
    pub(super) used: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Source {
    /// To be created, of so many pages.
    New(usize),
    Free(HandleId),
}

/// A block that has its place, and the handles that must be mapped for it.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) node: NodeId,
    pub(super) pieces: Vec<Piece>,
    /// The points of memory that is mapped for it. Its stream comes after them already.
    pub(super) points: Points,
}

/// Where a block is to lie, and whether it uses memory of the hole there.
#[derive(Clone, Copy, Debug)]
struct Place {
    found: Found,
    comes_after_hole: bool,
}

/// Addresses that were never used, for a block.
#[derive(Clone, Debug)]
struct Fresh {
    price: Price,
    hole: NodeId,
    start: u64,
    /// The block begins in the last page that is mapped.
    is_begun: bool,
    /// The pages that need memory.
    pages: Range<usize>,
}

/// A slab keeps the points of its memory, because its blocks go to streams that may have to wait for them. The stream of a block comes
/// after them.
pub(super) fn keep_points(used_for: Use) -> KeepPoints {
    if used_for == Use::Slab { KeepPoints::Yes } else { KeepPoints::No }
}

impl State {
    /// A range of open pages, at the upper end of a hole, whose points the stream comes after anyway.
    #[inline]
    pub(super) fn find_ordered(
        &self,
        bytes: u64,
        align: u64,
        requester: StreamSlot,
    ) -> Option<Found> {
        let streams = &self.streams;
        let is_ordered = move |points: &Points| streams.are_ordered(points, requester);
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

    /// Whether shared pages are all usable, and no two of them are the same memory.
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

    /// A range of open pages whose points the stream comes after, or can be made to.
    pub(super) fn find_in_place(&mut self, wanted: Wanted, effort: SearchEffort) -> Option<Found> {
        let Wanted { bytes, align, requester, .. } = wanted;
        if let Some(found) = self.find_ordered_anywhere(bytes, align, requester.slot) {
            return Some(found);
        }
        let usable = |points: &Points| self.streams.can_serve(points, requester.slot);
        let is_usable =
            |node: &Node, start: u64| usable(&node.points) && self.is_open(start, bytes, usable);
        if effort == SearchEffort::Exhaustive {
            let score = |node: &Node, start| is_usable(node, start).then_some(node.bytes);
            return self.heap.find_lowest(bytes, align, score);
        }
        let may_wait = || match effort {
            SearchEffort::NoWait => false,
            SearchEffort::WaitBeyondSlack => !self.may_grow_by(bytes),
            SearchEffort::Wait | SearchEffort::Exhaustive => true,
        };
        if self.has_unordered(requester) && may_wait() {
            let found = self.heap.find(bytes, align, MOST_HOLES, is_usable);
            return found.or_else(|| self.find_run(bytes, align, MOST_HOLES, usable));
        }
        None
    }

    /// As [`find_ordered`](Self::find_ordered), also in the middle of a hole.
    #[inline]
    pub(super) fn find_ordered_anywhere(
        &mut self,
        bytes: u64,
        align: u64,
        requester: StreamSlot,
    ) -> Option<Found> {
        if self.is_known_to_fail(bytes, align, requester) {
            return None;
        }
        let found = self
            .find_ordered(bytes, align, requester)
            .or_else(|| self.find_ordered_run(bytes, align, requester));
        if found.is_none() {
            let passes = self.streams.passes();
            self.failed_search = Some(FailedSearch { requester, bytes, align, passes });
        }
        found
    }

    /// Whether the last search has shown that there is no such range.
    fn is_known_to_fail(&self, bytes: u64, align: u64, requester: StreamSlot) -> bool {
        self.failed_search.is_some_and(|failed_search| {
            failed_search.requester == requester
                && failed_search.bytes <= bytes
                && failed_search.align <= align
                && failed_search.passes == self.streams.passes()
        })
    }

    /// Whether there can be ranges that the requester has to wait for.
    fn has_unordered(&self, requester: Requester) -> bool {
        self.streams.are_several() || requester.slot == StreamSlot::NONE
    }

    /// As [`find_ordered`](Self::find_ordered), in the middle of a hole.
    #[inline(never)]
    pub(super) fn find_ordered_run(
        &self,
        bytes: u64,
        align: u64,
        requester: StreamSlot,
    ) -> Option<Found> {
        let is_ordered = |points: &Points| self.streams.are_ordered(points, requester);
        self.find_run(bytes, align, self.most_holes(), is_ordered)
    }

    /// How many holes a search looks at for memory that the stream comes after anyway.
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
            // With the free parts of the pages beside it that neighbours use.
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

    /// The cheapest place in a hole that needs mappings. An exhaustive search looks at all holes.
    pub(super) fn find_missing(
        &self,
        wanted: Wanted,
        effort: SearchEffort,
    ) -> Option<(Price, Found)> {
        let Wanted { bytes, align, requester, .. } = wanted;
        let usable = |points: &Points| self.streams.can_serve(points, requester.slot);
        let most =
            if effort == SearchEffort::Exhaustive { usize::MAX } else { MOST_WITHOUT_MEMORY };
        // The last hole goes on beyond this, where no page was ever mapped.
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
                        && best.as_ref().is_none_or(|(least, _)| self.is_cheaper(price, *least))
                    {
                        best = Some((price, Found { node, start }));
                    }
                }
            }
            looked_at < most
        });
        best
    }

    pub(super) fn is_cheaper(&self, price: Price, than: Price) -> bool {
        price.order(self.is_short) < than.order(self.is_short)
    }

    /// The price of a place in a hole. `None`: some page there is mapped, and its memory is in use elsewhere.
    fn price(
        &self,
        start: u64,
        bytes: u64,
        hole: &Node,
        usable: impl Fn(&Points) -> bool,
    ) -> Option<Price> {
        let touched = self.pages.of(start, bytes);
        let unused = self.pages.whole_in(start..start + bytes, hole.range());
        // Pages that neighbours use are open, unless they are still being mapped.
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

    /// Finds a place and memory for a block, and takes both. `None`: no addresses are left.
    pub(super) fn plan(
        &mut self,
        wanted: Wanted,
        effort: SearchEffort,
        prefer: Prefer,
        driver: &dyn Driver,
    ) -> DriverResult<Option<Plan>> {
        let (missing, fresh) = (self.find_missing(wanted, effort), self.find_fresh(wanted));
        let (place, pieces) = match (missing, fresh) {
            (Some((price, found)), fresh)
                if fresh.as_ref().is_none_or(|fresh| !self.is_cheaper(fresh.price, price)) =>
            {
                (
                    Place { found, comes_after_hole: true },
                    self.complete(found.start, wanted, prefer),
                )
            }
            (_, Some(fresh)) => self.compose(fresh, wanted, prefer),
            (_, None) => return Ok(None),
        };
        let Wanted { bytes, requester, .. } = wanted;
        if place.comes_after_hole {
            self.order(place.found, bytes, requester, driver)?;
        }
        let points = self.points_of_pieces(&pieces);
        let waits = self.streams.order(&points, requester.slot, requester.handle, driver)?;
        self.counts.cross_stream_waits += waits as u64;
        let node = self.take_for_pieces(place, &pieces, wanted);
        for piece in &pieces {
            if let Source::Free(handle) = piece.source {
                self.claim(handle, piece.used);
            }
        }
        self.pass_points_to_neighbours(node, &points);
        if wanted.used_for == Use::Slab {
            self.heap.node_mut(node).points.merge(points.clone());
        }
        Ok(Some(Plan { node, pieces, points }))
    }

    fn take_for_pieces(&mut self, place: Place, pieces: &[Piece], wanted: Wanted) -> NodeId {
        let Place { found, comes_after_hole } = place;
        let end = pieces.last().map_or(0, |piece| piece.at + self.pages_of(piece.source));
        self.pages.grow(end.max(self.pages.of(found.start, wanted.bytes).end));
        self.pages.hole_begins(found.node, self.heap.node(found.node));
        let keep_points =
            if comes_after_hole { keep_points(wanted.used_for) } else { KeepPoints::No };
        self.take(found, wanted.bytes, wanted.used_for, keep_points)
    }

    pub(super) fn pages_of(&self, source: Source) -> usize {
        match source {
            Source::New(pages) => pages,
            Source::Free(handle) => self.handles.handle(handle).pages,
        }
    }

    fn points_of_pieces(&self, pieces: &[Piece]) -> Points {
        let mut points = Points::default();
        for piece in pieces {
            if let Source::Free(handle) = piece.source {
                for index in 0..self.handles.handle(handle).pages {
                    if piece.used & 1 << index != 0 {
                        points.merge(self.points_of_page(handle, index).clone());
                    }
                }
            }
        }
        points
    }

    /// The points after which a range of a hole may be used through its own addresses.
    pub(super) fn points_around(&self, found: Found, bytes: u64) -> Points {
        let hole = self.heap.node(found.node);
        let mut points = hole.points.clone();
        let pages = self.pages.whole_in(found.start..found.start + bytes, hole.range());
        if self.pages.has_shared(pages.clone()) {
            for page in pages.filter(|page| self.pages.is_shared(*page)) {
                let (handle, index) = self.memory_of(page);
                points.merge(self.points_of_page(handle, index).clone());
            }
        }
        points
    }

    /// Fresh addresses for a block: after the last page that was ever mapped, or from the free part of that page on.
    fn find_fresh(&self, wanted: Wanted) -> Option<Fresh> {
        let Wanted { bytes, align, requester, .. } = wanted;
        let id = self.heap.at_end()?;
        let hole = self.heap.node(id);
        let first = self.pages.whole_in(hole.range(), hole.range()).start;
        let is_begun = first >= self.pages.top()
            && self.pages.start_of(first) > hole.start
            && self.pages.is_open(first - 1)
            && self.streams.can_serve(&hole.points, requester.slot);
        let first = first.max(self.pages.top());
        let begin = if is_begun { hole.start } else { self.pages.start_of(first) };
        let start = begin.next_multiple_of(align);
        // A handle may reach beyond the block at either end.
        let most = 2 * self.pages.start_of(HANDLE_PAGES[HANDLE_PAGES.len() - 1]);
        if start + bytes + most > hole.end() {
            return None;
        }
        let touched = self.pages.of(start, bytes);
        let first = first.max(touched.start);
        let pages = touched.end.saturating_sub(first);
        let price = Price {
            new_pages: pages.saturating_sub(self.spare_pages()),
            mappings: self.estimate_mappings(pages),
            pages,
        };
        Some(Fresh { price, hole: id, start, is_begun, pages: first..first + pages })
    }

    /// Roughly how many handles a block of so many pages consists of.
    fn estimate_mappings(&self, pages: usize) -> usize {
        let largest = HANDLE_PAGES[class_of(self.largest_handle_pages)];
        pages / largest + (pages % largest).div_ceil(8)
    }

    /// Memory for the pages of a hole that have none.
    fn complete(&mut self, start: u64, wanted: Wanted, prefer: Prefer) -> Vec<Piece> {
        let pages = self.pages.of(start, wanted.bytes);
        let is_missing = |state: &State, page: &usize| state.pages.mapping(*page).is_none();
        let missing = pages.clone().filter(|page| is_missing(self, page)).count();
        let should_grow = missing > 0 && self.should_grow(missing, wanted, prefer);
        let mut free = match should_grow || missing == 0 {
            true => self.find_ready(),
            false => self.find_free(missing, wanted, pages.clone()),
        };
        let mut pieces = Vec::new();
        let mut page = pages.start;
        while let Some(first) = (page..pages.end).find(|page| is_missing(self, page)) {
            let end = (first..pages.end).find(|page| !is_missing(self, page)).unwrap_or(pages.end);
            page = first;
            while page < end {
                let source = match should_grow {
                    true => free.ready_in_place_of(self.new_memory(end - page, None, wanted)),
                    false => free
                        .take_at_most(end - page)
                        .map_or_else(|| self.new_memory(end - page, None, wanted), Source::Free),
                };
                let count = self.pages_of(source);
                pieces.push(Piece { at: page, source, used: bits(0..count) });
                page += count;
            }
        }
        pieces
    }

    /// Memory for fresh addresses. The first piece may begin with pages that the block does not use. The block lies further up then.
    fn compose(&mut self, fresh: Fresh, wanted: Wanted, prefer: Prefer) -> (Place, Vec<Piece>) {
        let Fresh { hole, start, is_begun, pages, .. } = fresh;
        let (first, count) = (pages.start, pages.len());
        let should_grow = self.should_grow(count, wanted, prefer);
        let mut free = match should_grow {
            true => self.find_ready(),
            false => self.find_free(count, wanted, 0..0),
        };
        let may_be_pushed =
            start == self.pages.start_of(first) && wanted.align <= self.pages.start_of(1);
        let mut pieces = Vec::new();
        let (mut at, mut rest, mut last) = (first, count, None);
        if !should_grow {
            let inner = free.inner.filter(|(_, begin, _)| *begin == 0 || may_be_pushed);
            if let Some((handle, begin, _)) = inner {
                let used = bits(begin..begin + count);
                pieces.push(Piece { at, source: Source::Free(handle), used });
                rest = 0;
            } else {
                let suffix = free.suffix.filter(|_| may_be_pushed);
                if let Some((handle, length)) = suffix {
                    let pages = self.handles.handle(handle).pages;
                    let used = bits(pages - length..pages);
                    pieces.push(Piece { at, source: Source::Free(handle), used });
                    (at, rest) = (at + pages, rest - length);
                }
                let is_another = |(handle, length): &(HandleId, usize)| {
                    *length <= rest && suffix.is_none_or(|(suffix, _)| suffix != *handle)
                };
                last = free.prefix.filter(is_another);
                rest -= last.map_or(0, |(_, length)| length);
            }
        }
        while rest > 0 {
            let found = if should_grow { None } else { free.take_at_most(rest) };
            if !should_grow
                && found.is_none()
                && last.is_none()
                && let Some(handle) = free.take_larger_than(rest)
            {
                last = Some((handle, rest));
                break;
            }
            let ahead = (should_grow && last.is_none()).then_some(count - rest);
            let source = match found {
                Some(handle) => Source::Free(handle),
                None if should_grow => free.ready_in_place_of(self.new_memory(rest, ahead, wanted)),
                None => self.new_memory(rest, ahead, wanted),
            };
            let pages = self.pages_of(source);
            let used = pages.min(rest);
            pieces.push(Piece { at, source, used: bits(0..used) });
            (at, rest) = (at + pages, rest - used);
        }
        if let Some((handle, length)) = last {
            pieces.push(Piece { at, source: Source::Free(handle), used: bits(0..length) });
        }
        // Pages of the first piece that the block does not use push it up.
        let unused = pieces.first().map_or(0, |piece| piece.used.trailing_zeros() as usize);
        let found = Found { node: hole, start: start + self.pages.start_of(unused) };
        (Place { found, comes_after_hole: is_begun }, pieces)
    }
}
