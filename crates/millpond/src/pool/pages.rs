//! The pages under the pool's addresses: which are mapped, and which nothing live touches.

use std::ops::Range;

use super::page_words::PageWords;
use crate::driver::PhysicalHandle;

/// The number of a page of the pool's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PageNumber(pub(super) u32);

/// `spare` counts the pages that are mapped and that nothing in use touches: those that lie wholly in a hole, which is a free range with all
/// that is free beside it. So whoever takes or frees a range says what hole it lies in, and no page has to count its users.
#[derive(Debug)]
pub(super) struct Pages {
    /// A page has two to the power of this bytes.
    page_bits: u32,
    /// What is known of pages by a bit for each.
    words: PageWords,
    handles: Vec<Option<PhysicalHandle>>,
    spare: usize,
    /// When a page lost its last user, but for those that did since time last went by.
    spare_since: Vec<u32>,
    /// Goes up from time to time, so that it can be told how long a page has been spare.
    now: u32,
}

impl Pages {
    pub(super) fn new(page_bytes: u64) -> Pages {
        assert!(page_bytes.is_power_of_two(), "pages of {page_bytes} bytes");
        Pages {
            page_bits: page_bytes.trailing_zeros(),
            words: PageWords::default(),
            handles: Vec::new(),
            spare: 0,
            spare_since: Vec::new(),
            now: 0,
        }
    }

    /// One page that is all memory: where addresses have memory as they are.
    pub(super) fn everything() -> Pages {
        let mut pages = Pages { page_bits: 63, ..Pages::new(1) };
        pages.set_handle(PageNumber(0), Some(PhysicalHandle(0)));
        pages
    }

    /// The pages that a range touches.
    #[inline]
    pub(super) fn of(&self, start: u64, bytes: u64) -> impl Iterator<Item = PageNumber> + use<> {
        let end = ((start + bytes - 1) >> self.page_bits) as u32 + 1;
        ((start >> self.page_bits) as u32..end).map(PageNumber)
    }

    /// The pages that a range touches and that lie wholly in the hole around it. None, if it ends before it begins.
    #[inline]
    fn whole_in(&self, range: Range<u64>, hole: Range<u64>) -> Range<usize> {
        let up = (1 << self.page_bits) - 1;
        let first = (range.start >> self.page_bits).max((hole.start + up) >> self.page_bits);
        let end = ((range.end + up) >> self.page_bits).min(hole.end >> self.page_bits);
        first as usize..end as usize
    }

    /// Has entries for all pages below one from now on.
    #[cold]
    fn grow(&mut self, end: usize) {
        self.handles.resize(end, None);
        self.spare_since.resize(end, 0);
        self.words.grow(end);
    }

    pub(super) fn start_of(&self, page: PageNumber) -> u64 {
        u64::from(page.0) << self.page_bits
    }

    pub(super) fn end_of(&self, page: PageNumber) -> u64 {
        self.start_of(PageNumber(page.0 + 1))
    }

    pub(super) fn handle(&self, page: PageNumber) -> Option<PhysicalHandle> {
        *self.handles.get(page.0 as usize)?
    }

    #[inline]
    pub(super) fn is_mapped(&self, start: u64, bytes: u64) -> bool {
        let first = (start >> self.page_bits) as usize;
        let end = ((start + bytes - 1) >> self.page_bits) as usize + 1;
        self.words.are_mapped(first, end)
    }

    pub(super) fn missing(&self, start: u64, bytes: u64) -> Vec<PageNumber> {
        self.of(start, bytes).filter(|page| self.handle(*page).is_none()).collect()
    }

    /// Pages that have memory and nothing that is in use.
    pub(super) fn spare(&self) -> usize {
        self.spare
    }

    /// The first run of mapped pages that lie wholly in a range which nobody uses and that have been spare since `since`
    /// or longer, at most `most` of them.
    pub(super) fn spare_run(
        &self,
        start: u64,
        bytes: u64,
        most: usize,
        since: u32,
    ) -> Option<(PageNumber, usize)> {
        let first = start.div_ceil(1 << self.page_bits);
        // What lies beyond the pages that were ever used has no memory.
        let end = ((start + bytes) >> self.page_bits).min(self.handles.len() as u64);
        let old = |page: &PageNumber| {
            let page = page.0 as usize;
            let is_from_now = self.words.is_from_now(page);
            let spare_since = if is_from_now { self.now } else { self.spare_since[page] };
            self.handles[page].is_some() && spare_since <= since
        };
        let mut pages = (first..end).map(|number| PageNumber(number as u32));
        let begin = pages.find(old)?;
        let more = pages.take_while(old).take(most - 1).count();
        Some((begin, 1 + more))
    }

    /// Where in a range `bytes` can go, at a multiple of a power of two, on pages of which none has memory. Slow.
    pub(super) fn room_without_memory(
        &self,
        range: std::ops::Range<u64>,
        bytes: u64,
        align: u64,
    ) -> Option<u64> {
        let align = align.max(1 << self.page_bits);
        let mut start = range.start.next_multiple_of(align);
        while start + bytes <= range.end {
            let has_memory = |page: &PageNumber| self.handle(*page).is_some();
            let Some(page) = self.of(start, bytes).filter(has_memory).last() else {
                return Some(start);
            };
            start = self.end_of(page).next_multiple_of(align);
        }
        None
    }

    pub(super) fn now(&self) -> u32 {
        self.now
    }

    /// Time goes by.
    pub(super) fn tick(&mut self) {
        for page in 0..self.spare_since.len() {
            if self.words.is_from_now(page) {
                self.spare_since[page] = self.now;
            }
        }
        self.words.forget_now();
        self.now += 1;
    }

    /// A range of a hole is used from now on.
    #[inline]
    pub(super) fn take(&mut self, range: Range<u64>, hole: Range<u64>) {
        let pages = self.whole_in(range, hole);
        self.spare -= self.words.count_mapped(pages);
    }

    /// A range has become part of a hole.
    #[inline]
    pub(super) fn give_back(&mut self, range: Range<u64>, hole: Range<u64>) {
        let pages = self.whole_in(range, hole);
        self.spare += self.words.lost_last_user(pages);
    }

    /// A page that is in use, or on its way out, gets memory or loses it.
    pub(super) fn set_handle(&mut self, number: PageNumber, handle: Option<PhysicalHandle>) {
        let page = number.0 as usize;
        if page >= self.handles.len() {
            self.grow(page + 1);
        }
        self.handles[page] = handle;
        self.words.set_mapped(page, handle.is_some());
    }

    /// Every page that has memory.
    pub(super) fn all_mapped(&self) -> impl Iterator<Item = (PageNumber, PhysicalHandle)> + '_ {
        let handles = self.handles.iter().enumerate();
        handles.filter_map(|(number, handle)| Some((PageNumber(number as u32), (*handle)?)))
    }

    /// Checks what is counted against what is there, with all free ranges. Slow.
    pub(super) fn assert_valid(&self, holes: impl Iterator<Item = Range<u64>>) {
        let mut pages = 0..self.handles.len();
        assert!(pages.all(|page| self.words.is_mapped(page) == self.handles[page].is_some()));
        let spare = |hole: Range<u64>| self.words.count_mapped(self.whole_in(hole.clone(), hole));
        assert_eq!(self.spare, holes.map(spare).sum::<usize>());
    }
}
