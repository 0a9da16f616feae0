//! The pages under the pool's addresses: which are mapped, and which nothing live touches.

use super::page_words::PageWords;
use crate::driver::PhysicalHandle;

/// The number of a page of the pool's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PageNumber(pub(super) u32);

/// `spare` counts the pages that are mapped and that nothing in use touches.
#[derive(Debug)]
pub(super) struct Pages {
    /// A page has two to the power of this bytes.
    page_bits: u32,
    /// What is known of pages by a bit for each.
    words: PageWords,
    /// Nodes in use that touch a part of a page.
    part_users: Vec<u32>,
    handles: Vec<Option<PhysicalHandle>>,
    spare: usize,
    /// When a page lost its last user, but for those that did since time last went by.
    spare_since: Vec<u32>,
    /// Goes up from time to time, so that it can be told how long a page has been spare.
    now: u32,
}

/// The pages that a range touches: those that it has wholly, and the others.
struct Touched {
    below: Option<usize>,
    whole: std::ops::Range<usize>,
    above: Option<usize>,
}

impl Pages {
    pub(super) fn new(page_bytes: u64) -> Pages {
        assert!(page_bytes.is_power_of_two(), "pages of {page_bytes} bytes");
        Pages {
            page_bits: page_bytes.trailing_zeros(),
            words: PageWords::default(),
            part_users: Vec::new(),
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

    #[inline]
    fn touched(&self, start: u64, bytes: u64) -> Touched {
        let (end, inside) = (start + bytes, (1 << self.page_bits) - 1);
        let first = (start >> self.page_bits) as usize;
        let last = ((end - 1) >> self.page_bits) as usize;
        let (begins_inside, ends_inside) = (start & inside != 0, end & inside != 0);
        if first == last && (begins_inside || ends_inside) {
            return Touched { below: Some(first), whole: 0..0, above: None };
        }
        Touched {
            below: begins_inside.then_some(first),
            whole: first + usize::from(begins_inside)..last + usize::from(!ends_inside),
            above: ends_inside.then_some(last),
        }
    }

    /// Has entries for all pages below one from now on.
    #[cold]
    fn grow(&mut self, end: usize) {
        self.handles.resize(end, None);
        self.part_users.resize(end, 0);
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
            let is_from_now = self.words.word(page).is_from_now(page);
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
            if self.words.word(page).is_from_now(page) {
                self.spare_since[page] = self.now;
            }
        }
        self.words.forget_now();
        self.now += 1;
    }

    #[inline]
    pub(super) fn add_user(&mut self, start: u64, bytes: u64) {
        let end = ((start + bytes - 1) >> self.page_bits) as usize + 1;
        if end > self.handles.len() {
            self.grow(end);
        }
        let Touched { below, whole, above } = self.touched(start, bytes);
        if let Some(page) = below {
            self.add_part_user(page);
        }
        if let Some(page) = above {
            self.add_part_user(page);
        }
        self.spare -= self.words.add_whole_user(whole);
    }

    #[inline]
    pub(super) fn remove_user(&mut self, start: u64, bytes: u64) {
        let Touched { below, whole, above } = self.touched(start, bytes);
        if let Some(page) = below {
            self.remove_part_user(page);
        }
        if let Some(page) = above {
            self.remove_part_user(page);
        }
        self.spare += self.words.remove_whole_user(whole);
    }

    #[inline]
    fn add_part_user(&mut self, page: usize) {
        let users = &mut self.part_users[page];
        *users += 1;
        self.spare -= usize::from(*users == 1) & usize::from(self.words.word(page).is_mapped(page));
    }

    #[inline]
    fn remove_part_user(&mut self, page: usize) {
        let users = &mut self.part_users[page];
        *users -= 1;
        let is_unused = *users == 0;
        self.spare += usize::from(is_unused) & usize::from(self.words.word(page).is_mapped(page));
        self.words.word_mut(page).lost_user(page, is_unused);
    }

    pub(super) fn set_handle(&mut self, number: PageNumber, handle: Option<PhysicalHandle>) {
        let page = number.0 as usize;
        if page >= self.handles.len() {
            self.grow(page + 1);
        }
        let had = std::mem::replace(&mut self.handles[page], handle).is_some();
        let is_unused = self.is_unused(page);
        let word = self.words.word_mut(page);
        word.set_mapped(page, handle.is_some());
        word.lost_user(page, true);
        if is_unused {
            self.spare = self.spare + usize::from(handle.is_some()) - usize::from(had);
        }
    }

    fn is_unused(&self, page: usize) -> bool {
        self.part_users[page] == 0 && !self.words.word(page).has_whole_user(page)
    }

    /// Every page that has memory.
    pub(super) fn all_mapped(&self) -> impl Iterator<Item = (PageNumber, PhysicalHandle)> + '_ {
        let handles = self.handles.iter().enumerate();
        handles.filter_map(|(number, handle)| Some((PageNumber(number as u32), (*handle)?)))
    }

    /// Checks what is counted against what is there. Slow.
    pub(super) fn assert_valid(&self) {
        let pages = 0..self.handles.len();
        let is_mapped = |page: usize| self.words.word(page).is_mapped(page);
        let is_known = |page: usize| is_mapped(page) == self.handles[page].is_some();
        assert!(pages.clone().all(is_known));
        let is_spare = |page: &usize| self.handles[*page].is_some() && self.is_unused(*page);
        assert_eq!(self.spare, pages.filter(is_spare).count());
    }
}
