//! The pages of the pool's addresses: which have memory that can be used, and which mapping gives it to them.

use std::ops::Range;

use super::heap::{Node, NodeId};
pub(super) use super::page_words::Changed;
use super::page_words::PageWords;

/// A mapping of memory to addresses, by its place among all of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct MappingId(pub(super) u32);

impl MappingId {
    const NONE: MappingId = MappingId(u32::MAX);
}

/// A page is *used* while a block or slab touches it, which is while it does not lie wholly in a hole: a free range with all that is free
/// beside it. So the caller that takes or frees a range says what hole it lies in, and no page has to count its users.
///
/// ```text
///   open[page]  = it is mapped, and its memory is in use through no other address
///   ready[page] = open ∧ ¬used
///   the pages of a hole that lie wholly in it = a maximal run of pages that are not used
/// ```
#[derive(Debug)]
pub(super) struct Pages {
    /// A page has two to the power of this bytes.
    page_bits: u32,
    words: PageWords,
    mappings: Vec<MappingId>,
    /// The hole that begins with a page, or before it: right for the first page of each run that is not used.
    holes: Vec<NodeId>,
    top: usize,
    /// Used pages, but for those whose mapping is on its way out.
    used: usize,
    /// Goes up from time to time, so that it can be told how long memory has not been used.
    now: u32,
}

impl Pages {
    pub(super) fn new(page_bytes: u64) -> Pages {
        assert!(page_bytes.is_power_of_two(), "pages of {page_bytes} bytes");
        Pages {
            page_bits: page_bytes.trailing_zeros(),
            words: PageWords::default(),
            mappings: Vec::new(),
            holes: Vec::new(),
            top: 0,
            used: 0,
            now: 0,
        }
    }

    /// One page that is all memory: where addresses have memory as they are.
    pub(super) fn everything() -> Pages {
        let mut pages = Pages { page_bits: 63, ..Pages::new(1) };
        pages.grow(1);
        pages.words.set_open(0, true);
        pages
    }

    /// The pages that a range touches.
    #[inline]
    pub(super) fn of(&self, start: u64, bytes: u64) -> Range<usize> {
        (start >> self.page_bits) as usize..((start + bytes - 1) >> self.page_bits) as usize + 1
    }

    /// The pages that a range touches and that lie wholly in the hole around it. Empty, if it ends before it begins.
    #[inline]
    pub(super) fn whole_in(&self, range: Range<u64>, hole: Range<u64>) -> Range<usize> {
        let up = (1 << self.page_bits) - 1;
        let first = (range.start >> self.page_bits).max((hole.start + up) >> self.page_bits);
        let end = ((range.end + up) >> self.page_bits).min(hole.end >> self.page_bits);
        first as usize..end as usize
    }

    /// Has entries for all pages below one from now on.
    #[cold]
    pub(super) fn grow(&mut self, end: usize) {
        if end > self.mappings.len() {
            self.mappings.resize(end, MappingId::NONE);
            self.holes.resize(end, NodeId(0));
            self.words.grow(end);
        }
    }

    pub(super) fn count(&self) -> usize {
        self.mappings.len()
    }

    /// No page from here on was ever mapped.
    pub(super) fn top(&self) -> usize {
        self.top
    }

    pub(super) fn start_of(&self, page: usize) -> u64 {
        (page as u64) << self.page_bits
    }

    #[inline]
    pub(super) fn are_open(&self, start: u64, bytes: u64) -> bool {
        let pages = self.of(start, bytes);
        self.words.are_open(pages.start, pages.end)
    }

    pub(super) fn is_open(&self, page: usize) -> bool {
        self.words.is_open(page)
    }

    pub(super) fn is_used(&self, page: usize) -> bool {
        self.words.is_used(page)
    }

    /// Which of up to 64 pages from `first` on are used, as the bits of a number.
    pub(super) fn used_bits(&self, first: usize, count: usize) -> u64 {
        self.words.used_bits(first, count)
    }

    pub(super) fn is_shared(&self, page: usize) -> bool {
        self.words.is_shared(page)
    }

    pub(super) fn is_from_now(&self, page: usize) -> bool {
        self.words.is_from_now(page)
    }

    #[inline]
    pub(super) fn has_shared(&self, pages: Range<usize>) -> bool {
        self.words.has_shared(pages)
    }

    pub(super) fn set_open(&mut self, page: usize, is_open: bool) {
        self.words.set_open(page, is_open);
    }

    /// Opens or closes those of up to 64 pages from `first` on whose bits are set.
    pub(super) fn set_open_bits(&mut self, first: usize, bits: u64, are_open: bool) {
        self.words.set_open_bits(first, bits, are_open);
    }

    pub(super) fn set_shared(&mut self, page: usize, is_shared: bool) {
        self.words.set_shared(page, is_shared);
    }

    pub(super) fn mapping(&self, page: usize) -> Option<MappingId> {
        self.mappings.get(page).copied().filter(|mapping| *mapping != MappingId::NONE)
    }

    pub(super) fn set_mapping(&mut self, page: usize, mapping: Option<MappingId>) {
        self.mappings[page] = mapping.unwrap_or(MappingId::NONE);
        self.words.set_from_now(page);
        self.top = self.top.max(page + 1);
    }

    pub(super) fn next_ready(&self, range: Range<usize>) -> Option<Range<usize>> {
        self.words.next_ready(range)
    }

    /// The hole in which a page lies that is not used.
    pub(super) fn hole_around(&self, page: usize) -> NodeId {
        debug_assert!(!self.is_used(page));
        self.holes[self.words.first_unused_around(page)]
    }

    /// A hole begins where it did not: it was cut, or has grown.
    #[inline]
    pub(super) fn hole_begins(&mut self, id: NodeId, hole: &Node) {
        let first = (hole.start + (1 << self.page_bits) - 1) >> self.page_bits;
        if (first + 1) << self.page_bits > hole.end() {
            return;
        }
        // Beyond the pages that were ever used, nothing is asked for.
        if let Some(place) = self.holes.get_mut(first as usize) {
            *place = id;
        }
    }

    pub(super) fn used(&self) -> usize {
        self.used
    }

    pub(super) fn now(&self) -> u32 {
        self.now
    }

    /// Time goes by. What was used meanwhile has been looked at.
    pub(super) fn tick(&mut self) {
        self.words.forget_now();
        self.now += 1;
    }

    /// A range of a hole is used from now on.
    #[inline]
    pub(super) fn take(&mut self, pages: Range<usize>) -> Changed {
        let changed = self.words.take(pages);
        self.used += changed.pages;
        changed
    }

    /// A range has become part of a hole.
    #[inline]
    pub(super) fn give_back(&mut self, pages: Range<usize>) -> Changed {
        let changed = self.words.give_back(pages);
        self.used -= changed.pages;
        changed
    }

    /// The mapping of some pages is on its way out: the pages are in nobody's way, and in no hole.
    pub(super) fn begin_leaving(&mut self, pages: Range<usize>) {
        self.words.take(pages.clone());
        pages.for_each(|page| self.set_open(page, false));
    }

    /// The mapping of some pages is gone.
    pub(super) fn end_leaving(&mut self, pages: Range<usize>) {
        self.words.give_back(pages);
    }
}
