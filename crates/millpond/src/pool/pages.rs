//! The pages under the pool's addresses: which are mapped, and which nothing live touches.

use crate::driver::PhysicalHandle;

/// The number of a page of the pool's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PageNumber(pub(super) u32);

#[derive(Clone, Copy, Debug, Default)]
struct Page {
    /// Nodes in use that touch it.
    users: u32,
    /// When it lost its last user.
    spare_since: u32,
    handle: Option<PhysicalHandle>,
}

/// `spare` counts the pages that have a handle and no users.
#[derive(Debug)]
pub(super) struct Pages {
    /// A page has two to the power of this bytes.
    page_bits: u32,
    pages: Vec<Page>,
    spare: usize,
    /// Goes up from time to time, so that it can be told how long a page has been spare.
    now: u32,
}

impl Pages {
    pub(super) fn new(page_bytes: u64) -> Pages {
        assert!(page_bytes.is_power_of_two(), "pages of {page_bytes} bytes");
        Pages { page_bits: page_bytes.trailing_zeros(), pages: Vec::new(), spare: 0, now: 0 }
    }

    /// One page that is all memory: where addresses have memory as they are.
    pub(super) fn everything() -> Pages {
        let all = Page { handle: Some(PhysicalHandle(0)), ..Page::default() };
        Pages { page_bits: 63, pages: vec![all], spare: 1, now: 0 }
    }

    /// The pages that a range touches.
    #[inline]
    pub(super) fn of(&self, start: u64, bytes: u64) -> impl Iterator<Item = PageNumber> + use<> {
        let end = ((start + bytes - 1) >> self.page_bits) as u32 + 1;
        ((start >> self.page_bits) as u32..end).map(PageNumber)
    }

    /// The entries of the pages that a range touches, made if there are none.
    #[inline]
    fn range_mut(&mut self, start: u64, bytes: u64) -> &mut [Page] {
        let first = (start >> self.page_bits) as usize;
        let end = ((start + bytes - 1) >> self.page_bits) as usize + 1;
        if end > self.pages.len() {
            self.pages.resize(end, Page::default());
        }
        &mut self.pages[first..end]
    }

    pub(super) fn start_of(&self, page: PageNumber) -> u64 {
        u64::from(page.0) << self.page_bits
    }

    pub(super) fn end_of(&self, page: PageNumber) -> u64 {
        self.start_of(PageNumber(page.0 + 1))
    }

    fn page_mut(&mut self, page: PageNumber) -> &mut Page {
        let index = page.0 as usize;
        if index >= self.pages.len() {
            self.pages.resize(index + 1, Page::default());
        }
        &mut self.pages[index]
    }

    pub(super) fn handle(&self, page: PageNumber) -> Option<PhysicalHandle> {
        self.pages.get(page.0 as usize)?.handle
    }

    #[inline]
    pub(super) fn is_mapped(&self, start: u64, bytes: u64) -> bool {
        let first = (start >> self.page_bits) as usize;
        let end = ((start + bytes - 1) >> self.page_bits) as usize + 1;
        let pages = self.pages.get(first..end);
        pages.is_some_and(|pages| pages.iter().all(|page| page.handle.is_some()))
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
        let end = ((start + bytes) >> self.page_bits).min(self.pages.len() as u64);
        let old = |page: &PageNumber| {
            let page = &self.pages[page.0 as usize];
            page.handle.is_some() && page.spare_since <= since
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
        self.now += 1;
    }

    pub(super) fn add_user(&mut self, start: u64, bytes: u64) {
        let mut taken = 0;
        for page in self.range_mut(start, bytes) {
            page.users += 1;
            taken += usize::from(page.users == 1 && page.handle.is_some());
        }
        self.spare -= taken;
    }

    pub(super) fn remove_user(&mut self, start: u64, bytes: u64) {
        let (now, mut left) = (self.now, 0);
        for page in self.range_mut(start, bytes) {
            page.users -= 1;
            if page.users == 0 && page.handle.is_some() {
                page.spare_since = now;
                left += 1;
            }
        }
        self.spare += left;
    }

    pub(super) fn set_handle(&mut self, number: PageNumber, handle: Option<PhysicalHandle>) {
        let now = self.now;
        let page = self.page_mut(number);
        let (had, unused) = (page.handle.is_some(), page.users == 0);
        page.spare_since = now;
        page.handle = handle;
        if unused {
            self.spare = self.spare + usize::from(handle.is_some()) - usize::from(had);
        }
    }

    /// Every page that has memory.
    pub(super) fn all_mapped(&self) -> impl Iterator<Item = (PageNumber, PhysicalHandle)> + '_ {
        let handles = self.pages.iter().enumerate();
        handles.filter_map(|(number, page)| Some((PageNumber(number as u32), page.handle?)))
    }

    /// Checks what is counted against what is there. Slow.
    pub(super) fn assert_valid(&self) {
        let spare = |page: &&Page| page.handle.is_some() && page.users == 0;
        assert_eq!(self.spare, self.pages.iter().filter(spare).count());
    }
}
