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
    page_bytes: u64,
    pages: Vec<Page>,
    spare: usize,
    /// Goes up from time to time, so that it can be told how long a page has been spare.
    now: u32,
}

impl Pages {
    pub(super) fn new(page_bytes: u64) -> Pages {
        Pages { page_bytes, pages: Vec::new(), spare: 0, now: 0 }
    }

    /// No pages at all: where addresses have memory as they are.
    pub(super) fn none() -> Pages {
        Pages::new(0)
    }

    /// The pages that a range touches.
    pub(super) fn of(&self, start: u64, bytes: u64) -> impl Iterator<Item = PageNumber> + use<> {
        let pages = match self.page_bytes {
            0 => 0..0,
            page => start / page..(start + bytes - 1) / page + 1,
        };
        pages.map(|number| PageNumber(number as u32))
    }

    pub(super) fn start_of(&self, page: PageNumber) -> u64 {
        u64::from(page.0) * self.page_bytes
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

    pub(super) fn is_mapped(&self, start: u64, bytes: u64) -> bool {
        self.of(start, bytes).all(|page| self.handle(page).is_some())
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
        let first = start.div_ceil(self.page_bytes);
        // What lies beyond the pages that were ever used has no memory.
        let end = ((start + bytes) / self.page_bytes).min(self.pages.len() as u64);
        let old = |page: &PageNumber| {
            let page = &self.pages[page.0 as usize];
            page.handle.is_some() && page.spare_since <= since
        };
        let mut pages = (first..end).map(|number| PageNumber(number as u32));
        let begin = pages.find(old)?;
        let more = pages.take_while(old).take(most - 1).count();
        Some((begin, 1 + more))
    }

    pub(super) fn now(&self) -> u32 {
        self.now
    }

    /// Time goes by.
    pub(super) fn tick(&mut self) {
        self.now += 1;
    }

    pub(super) fn add_user(&mut self, start: u64, bytes: u64) {
        for number in self.of(start, bytes) {
            let page = self.page_mut(number);
            page.users += 1;
            if page.users == 1 && page.handle.is_some() {
                self.spare -= 1;
            }
        }
    }

    pub(super) fn remove_user(&mut self, start: u64, bytes: u64) {
        let now = self.now;
        for number in self.of(start, bytes) {
            let page = self.page_mut(number);
            page.users -= 1;
            if page.users == 0 && page.handle.is_some() {
                page.spare_since = now;
                self.spare += 1;
            }
        }
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
