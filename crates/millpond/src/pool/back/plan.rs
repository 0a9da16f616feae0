//! Where a block comes to lie that finds no place among what has memory, and which memory it gets.
//!
//! Either a hole is completed, or the block is composed at fresh addresses of what is free: a part of a handle at either end, whole
//! handles between. What is new comes in handles as large as fit, as long as the pool is within its slack.

use std::ops::Range;

use super::find::Price;
use super::handles::{HandleId, bits};
use super::sharing::Keeps;
use super::{Reach, State, Wanted};
use crate::driver::{Driver, DriverResult};
use crate::pool::heap::{Found, NodeId, Use};
use crate::pool::points::{Points, StreamSlot};
use crate::pool::streams::Order;

/// Pages of the handles that are asked for.
pub(super) const HANDLE_PAGES: [usize; 4] = [1, 4, 16, 64];

/// A handle may be larger than the block that it is asked for, but not than this part of all memory: growing little by little takes
/// many calls.
const LARGEST_PART: usize = 100;

/// Whether new memory, within the slack, comes before memory that is there.
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

/// A block that has its place, and what must be mapped for it.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) node: NodeId,
    pub(super) pieces: Vec<Piece>,
    /// What its user has been made to come after, of memory that it gets from elsewhere.
    pub(super) points: Points,
}

/// Where a block is to lie, and whether memory of the hole there is part of it.
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

/// What is free, as a search found it.
#[derive(Debug, Default)]
struct FreeMemory {
    /// Wholly free handles of each size in [`HANDLE_PAGES`], those first that were found last; and of other sizes.
    whole: [Vec<HandleId>; HANDLE_PAGES.len()],
    /// The shortest run of a partly used handle in which the block fits: where it begins, and how long it is.
    inner: Option<(HandleId, usize, usize)>,
    /// The longest free end and the longest free beginning that are shorter than the block.
    suffix: Option<(HandleId, usize)>,
    prefix: Option<(HandleId, usize)>,
}

/// How large handles may be. On a small device a handle that is partly used would be much of its memory; without slack, all of what is
/// left of one would be too much.
pub(super) fn largest_handle_pages(slack: f64, capacity_bytes: u64, page_bytes: u64) -> usize {
    /// Handles of which there is room for on a device, at the least.
    const HANDLES_OF_DEVICE: u64 = 2048;
    if slack == 0.0 || page_bytes == 0 {
        return 1;
    }
    let most = (capacity_bytes / page_bytes / HANDLES_OF_DEVICE).max(1);
    HANDLE_PAGES[class_of(most as usize)]
}

/// A slab's blocks go to streams that may have to wait for what was there before; a block's user has waited.
pub(super) fn keeps(used_for: Use) -> Keeps {
    if used_for == Use::Slab { Keeps::Points } else { Keeps::Nothing }
}

/// The largest size of handles of at most so many pages.
pub(super) fn class_of(pages: usize) -> usize {
    HANDLE_PAGES.iter().rposition(|size| *size <= pages).expect("a handle has a page")
}

impl State {
    /// Finds a place and memory for a block, and takes both. `None`: no addresses are left.
    pub(super) fn plan(
        &mut self,
        wanted: Wanted,
        reach: Reach,
        prefer: Prefer,
        driver: &dyn Driver,
    ) -> DriverResult<Option<Plan>> {
        let (missing, fresh) = (self.find_missing(wanted, reach), self.find_fresh(wanted));
        let (place, pieces) = match (missing, fresh) {
            (Some((price, found)), fresh)
                if fresh.as_ref().is_none_or(|fresh| !self.is_less(fresh.price, price)) =>
            {
                (
                    Place { found, comes_after_hole: true },
                    self.complete(found.start, wanted, prefer),
                )
            }
            (_, Some(fresh)) => self.compose(fresh, wanted, prefer),
            (_, None) => return Ok(None),
        };
        let Wanted { bytes, taker, .. } = wanted;
        if place.comes_after_hole {
            self.order(place.found, bytes, taker, driver)?;
        }
        let points = self.points_of_pieces(&pieces);
        let waits = self.streams.order(&points, taker.slot, taker.handle, driver)?;
        self.counts.cross_stream_waits += waits as u64;
        let node = self.take_for_pieces(place, &pieces, wanted);
        for piece in &pieces {
            if let Source::Free(handle) = piece.source {
                self.claim(handle, piece.used);
            }
        }
        self.leave_points(node, &points);
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
        let keeps = if comes_after_hole { keeps(wanted.used_for) } else { Keeps::Nothing };
        self.take(found, wanted.bytes, wanted.used_for, keeps)
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

    /// What must have happened before a range of a hole may be used through its own addresses.
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

    /// Where fresh addresses begin: after all that was ever mapped, beginning with what is free of the last page.
    fn find_fresh(&self, wanted: Wanted) -> Option<Fresh> {
        let Wanted { bytes, align, taker, .. } = wanted;
        let id = self.heap.at_end()?;
        let hole = self.heap.node(id);
        let first = self.pages.whole_in(hole.range(), hole.range()).start;
        let is_begun = first >= self.pages.top()
            && self.pages.start_of(first) > hole.start
            && self.pages.is_open(first - 1)
            && self.streams.can_serve(&hole.points, taker.slot);
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
        let grows = missing > 0 && self.grows(missing, wanted, prefer);
        let mut free = match grows || missing == 0 {
            true => self.find_ready(),
            false => self.find_free(missing, wanted, pages.clone()),
        };
        let mut pieces = Vec::new();
        let mut page = pages.start;
        while let Some(first) = (page..pages.end).find(|page| is_missing(self, page)) {
            let end = (first..pages.end).find(|page| !is_missing(self, page)).unwrap_or(pages.end);
            page = first;
            while page < end {
                let source = match grows {
                    true => free.ready_or(self.new_memory(end - page, None, wanted)),
                    false => free
                        .take_within(end - page)
                        .map_or_else(|| self.new_memory(end - page, None, wanted), Source::Free),
                };
                let count = self.pages_of(source);
                pieces.push(Piece { at: page, source, used: bits(0..count) });
                page += count;
            }
        }
        pieces
    }

    /// Whether all of a block is to be new memory: within the slack, that is better than mapping what is free once more.
    fn grows(&self, missing_pages: usize, wanted: Wanted, prefer: Prefer) -> bool {
        let new_pages = missing_pages.saturating_sub(self.loose_pages());
        let grown = self.reserved_bytes + self.pages.start_of(new_pages);
        prefer == Prefer::New && self.growth.is_within_slack(grown, wanted.bytes)
    }

    /// New memory for at most so many pages; or if only so many pages lie ahead of it, for more, as far as that is little of all.
    fn new_memory(&self, most: usize, ahead: Option<usize>, wanted: Wanted) -> Source {
        let largest = self.largest_handle_pages;
        let exactly = HANDLE_PAGES[class_of(most.min(largest))];
        let amply = self.handles.pages / LARGEST_PART;
        let amply = HANDLE_PAGES[class_of(most.max(amply).min(largest))];
        let may_be_more = ahead.is_some_and(|ahead| {
            let grown = self.reserved_bytes + self.pages.start_of(ahead + amply);
            self.growth.is_within_slack(grown, wanted.bytes)
        });
        Source::New(if may_be_more { amply } else { exactly })
    }

    /// Memory for fresh addresses. The first piece may begin with pages that are not for the block, which lies further up then.
    fn compose(&mut self, fresh: Fresh, wanted: Wanted, prefer: Prefer) -> (Place, Vec<Piece>) {
        let Fresh { hole, start, is_begun, pages, .. } = fresh;
        let (first, count) = (pages.start, pages.len());
        let grows = self.grows(count, wanted, prefer);
        let mut free = match grows {
            true => self.find_ready(),
            false => self.find_free(count, wanted, 0..0),
        };
        let may_be_pushed =
            start == self.pages.start_of(first) && wanted.align <= self.pages.start_of(1);
        let mut pieces = Vec::new();
        let (mut at, mut rest, mut last) = (first, count, None);
        if !grows {
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
            let found = if grows { None } else { free.take_within(rest) };
            if !grows
                && found.is_none()
                && last.is_none()
                && let Some(handle) = free.take_beyond(rest)
            {
                last = Some((handle, rest));
                break;
            }
            let ahead = (grows && last.is_none()).then_some(count - rest);
            let source = match found {
                Some(handle) => Source::Free(handle),
                None if grows => free.ready_or(self.new_memory(rest, ahead, wanted)),
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
        // Pages of the first piece that are not for the block push it up.
        let unused = pieces.first().map_or(0, |piece| piece.used.trailing_zeros() as usize);
        let found = Found { node: hole, start: start + self.pages.start_of(unused) };
        (Place { found, comes_after_hole: is_begun }, pieces)
    }

    /// Memory that was created ahead of need, and nothing else.
    fn find_ready(&self) -> FreeMemory {
        let mut free = FreeMemory::default();
        for handle in &self.handles.loose {
            free.whole[class_of(self.handles.handle(*handle).pages)].push(*handle);
        }
        free
    }

    /// Free memory for a block of so many pages: handles in turn, from where the last search ended.
    /// Not what lies under some pages, which the block will use where it is.
    fn find_free(&mut self, count: usize, wanted: Wanted, except: Range<usize>) -> FreeMemory {
        let mut free = FreeMemory::default();
        let all_are_in_reach =
            wanted.taker.slot != StreamSlot::NOBODY && self.streams.are_all_in_reach();
        let usable = |points: &Points| {
            // All of a capture's memory was freed by the one stream it is for.
            all_are_in_reach
                || self.streams.order_by() == Order::SameStream
                || self.streams.can_serve(points, wanted.taker.slot)
        };
        let mut whole_pages = 0;
        for handle in &self.handles.loose {
            whole_pages += self.handles.handle(*handle).pages;
            free.whole[class_of(self.handles.handle(*handle).pages)].push(*handle);
        }
        let search = self.handles.new_search();
        for page in except.filter(|page| self.pages.mapping(*page).is_some()) {
            let (handle, _) = self.memory_of(page);
            self.handles.handle(handle).seen.set(search);
        }
        let begin = self.handles.searched_up_to.min(self.pages.count());
        let mut page = begin;
        'search: for range in [begin..self.pages.count(), 0..begin] {
            page = range.start;
            while let Some(run) = self.pages.next_ready(page..range.end) {
                page = run.start;
                while page < run.end {
                    let (id, _) = self.memory_of(page);
                    let mapping = self.pages.mapping(page).expect("the page is mapped");
                    page = self.handles.mapping(mapping).range().end;
                    let handle = self.handles.handle(id);
                    if handle.leaves || handle.seen.replace(search) == search {
                        continue;
                    }
                    let owned = self.owned(id);
                    let pages = handle.pages;
                    let is_usable = |index: usize| usable(self.points_of_page(id, index));
                    if owned == 0 {
                        if (0..pages).all(is_usable) {
                            free.whole[class_of(pages)].push(id);
                            whole_pages += pages;
                        }
                    } else {
                        free.look_at_part(id, pages, owned, count, is_usable);
                    }
                    // Enough of all sizes to choose from.
                    if whole_pages > 2 * count + 4 * HANDLE_PAGES[HANDLE_PAGES.len() - 1] {
                        break 'search;
                    }
                }
            }
        }
        // The last of a list is taken first.
        free.whole.iter_mut().for_each(|handles| handles.reverse());
        self.handles.searched_up_to = page;
        free
    }
}

impl FreeMemory {
    /// A wholly free handle of at most so many pages, as large as possible.
    fn take_within(&mut self, most: usize) -> Option<HandleId> {
        self.whole[..=class_of(most)].iter_mut().rev().find_map(Vec::pop)
    }

    /// A handle that lies ready in place of a new one of the same size.
    fn ready_or(&mut self, new: Source) -> Source {
        let Source::New(pages) = new else { return new };
        self.whole[class_of(pages)].pop().map_or(new, Source::Free)
    }

    /// A wholly free handle of more pages, as small as possible.
    fn take_beyond(&mut self, least: usize) -> Option<HandleId> {
        self.whole[class_of(least) + 1..].iter_mut().find_map(Vec::pop)
    }

    /// Looks at the free runs of a handle that is partly used.
    fn look_at_part(
        &mut self,
        id: HandleId,
        pages: usize,
        owned: u64,
        count: usize,
        is_usable: impl Fn(usize) -> bool,
    ) {
        let is_free = |index: usize| owned & 1 << index == 0 && is_usable(index);
        let mut index = 0;
        while index < pages {
            if !is_free(index) {
                index += 1;
                continue;
            }
            let begin = index;
            while index < pages && is_free(index) {
                index += 1;
            }
            let length = index - begin;
            if length >= count && self.inner.is_none_or(|(_, _, least)| length < least) {
                self.inner = Some((id, begin, length));
            }
            if length >= count {
                continue;
            }
            if index == pages && self.suffix.is_none_or(|(_, most)| length > most) {
                self.suffix = Some((id, length));
            }
            if begin == 0 && self.prefix.is_none_or(|(_, most)| length > most) {
                self.prefix = Some((id, length));
            }
        }
    }
}
