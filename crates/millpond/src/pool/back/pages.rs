//! The pages of the pool's addresses: which have memory that can be used, and which mapping gives it to them.
//!
//! A page is *used* while it does not lie wholly in a hole: a block or slab touches it, or its mapping is to be unmapped. A hole is a free
//! range with all that is free beside it. So the caller that takes or frees a range passes the hole around it, and no page counts its
//! users.
//!
//! ```text
//!   open[page]  = it is mapped, and its memory is in use through no other address
//!   ready[page] = open ∧ ¬used
//!   the pages of a hole that lie wholly in it = a maximal run of pages that are not used
//!   used()      = Σ used − those whose mapping is to be unmapped
//! ```
//!
//! Facts are bits, 64 pages to a word: the number of pages of a block is as random as its size, and a processor that has to guess how
//! often a loop runs guesses wrong.

use std::ops::Range;

use super::heap::{Node, NodeId};

/// A mapping of memory to addresses, by its place among all of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::pool) struct MappingId(pub(in crate::pool) u32);

impl MappingId {
    const NONE: MappingId = MappingId(u32::MAX);
}

/// All pages. See the [module](self) for the equations.
#[derive(Debug)]
pub(in crate::pool) struct Pages {
    /// A page has 2 to the power of this bytes.
    page_bits: u32,
    words: PageWords,
    mappings: Vec<MappingId>,
    /// The hole that begins with a page, or before it: right for the first page of each run that is not used.
    holes: Vec<NodeId>,
    top: usize,
    /// Used pages, without those whose mapping is to be unmapped.
    used: usize,
    /// A clock that goes up from time to time, by which the age of unused memory is measured.
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

    /// One page that is all memory, for a driver whose addresses always have memory.
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

    /// Adds entries, up to those for the page before `end`.
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

    pub(super) fn is_recent(&self, page: usize) -> bool {
        self.words.is_recent(page)
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
        self.words.set_recent(page);
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
        // No caller asks for pages beyond those that were ever used.
        if let Some(place) = self.holes.get_mut(first as usize) {
            *place = id;
        }
    }

    pub(super) fn used(&self) -> usize {
        self.used
    }

    pub(in crate::pool) fn now(&self) -> u32 {
        self.now
    }

    /// The clock goes up by one. The caller has noted which pages were used meanwhile.
    pub(super) fn tick(&mut self) {
        self.words.forget_recent();
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

    /// The mapping of some pages is to be unmapped: the pages are in no hole until then.
    pub(super) fn begin_leaving(&mut self, pages: Range<usize>) {
        self.words.take(pages.clone());
        pages.for_each(|page| self.set_open(page, false));
    }

    /// The mapping of some pages is gone.
    pub(super) fn end_leaving(&mut self, pages: Range<usize>) {
        self.words.give_back(pages);
    }
}

const PAGES: usize = u64::BITS as usize;

/// The bits of 64 pages, those of one kind in one number. `ready = open ∧ ¬used`
#[derive(Clone, Copy, Debug, Default)]
struct PageWord {
    /// It has memory, which is not in use through another address.
    open: u64,
    /// A used range touches it, or its mapping is to be unmapped.
    used: u64,
    /// Its memory is mapped at other addresses, too.
    shared: u64,
    /// It was used, or mapped, since the last tick of the clock.
    recent: u64,
}

/// How many pages were taken or given back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Changed {
    pages: usize,
    /// The memory of at least one of them is mapped at other addresses, too.
    pub(super) has_shared: bool,
}

/// The bits of all pages.
#[derive(Debug, Default)]
struct PageWords(Vec<PageWord>);

#[inline]
fn bit(page: usize) -> u64 {
    1 << (page % PAGES)
}

/// The bits of pages of the same word before this one.
#[inline]
fn bits_before(page: usize) -> u64 {
    bit(page) - 1
}

/// Calls `run` with each word that has some of the pages, and their bits, and adds up the answers. Nearly always one word has all.
#[inline(always)]
fn sum(pages: Range<usize>, mut run: impl FnMut(usize, u64) -> u32) -> usize {
    if pages.start >= pages.end {
        return 0;
    }
    let (first, last) = (pages.start / PAGES, pages.end / PAGES);
    let (not_before, not_after) = (!bits_before(pages.start), bits_before(pages.end));
    if first == last {
        return run(first, not_before & not_after) as usize;
    }
    let between: usize = (first + 1..last).map(|word| run(word, u64::MAX) as usize).sum();
    run(first, not_before) as usize + between + run(last, not_after) as usize
}

impl PageWords {
    /// Has room for this many pages from now on.
    fn grow(&mut self, pages: usize) {
        // One more: a range may end where a word does.
        let words = (pages / PAGES + 1).max(self.0.len());
        self.0.resize(words, PageWord::default());
    }

    #[inline]
    fn word(&self, page: usize) -> PageWord {
        self.0.get(page / PAGES).copied().unwrap_or_default()
    }

    #[inline]
    fn is_open(&self, page: usize) -> bool {
        self.word(page).open & bit(page) != 0
    }

    #[inline]
    fn is_used(&self, page: usize) -> bool {
        self.word(page).used & bit(page) != 0
    }

    #[inline]
    fn is_shared(&self, page: usize) -> bool {
        self.word(page).shared & bit(page) != 0
    }

    fn is_recent(&self, page: usize) -> bool {
        self.word(page).recent & bit(page) != 0
    }

    fn set_open(&mut self, page: usize, is_open: bool) {
        let word = &mut self.0[page / PAGES];
        word.open = word.open & !bit(page) | u64::from(is_open) << (page % PAGES);
    }

    /// Opens or closes those of up to 64 pages from `first` on whose bits are set.
    fn set_open_bits(&mut self, first: usize, bits: u64, are_open: bool) {
        let shift = first % PAGES;
        let high = if shift == 0 { 0 } else { bits >> (PAGES - shift) };
        for (word, bits) in [(first / PAGES, bits << shift), (first / PAGES + 1, high)] {
            if bits != 0 {
                let open = &mut self.0[word].open;
                *open = if are_open { *open | bits } else { *open & !bits };
            }
        }
    }

    fn set_shared(&mut self, page: usize, is_shared: bool) {
        let word = &mut self.0[page / PAGES];
        word.shared = word.shared & !bit(page) | u64::from(is_shared) << (page % PAGES);
    }

    fn set_recent(&mut self, page: usize) {
        self.0[page / PAGES].recent |= bit(page);
    }

    /// Some pages are in use from now on.
    #[inline]
    fn take(&mut self, pages: Range<usize>) -> Changed {
        self.change(pages, |word, bits| word.used |= bits)
    }

    /// Some pages are in use no longer.
    #[inline]
    fn give_back(&mut self, pages: Range<usize>) -> Changed {
        self.change(pages, |word, bits| word.used &= !bits)
    }

    #[inline(always)]
    fn change(&mut self, pages: Range<usize>, change: impl Fn(&mut PageWord, u64)) -> Changed {
        let count = pages.end.saturating_sub(pages.start);
        let mut shared = 0;
        sum(pages, |word, bits| {
            let Some(word) = self.0.get_mut(word) else { return 0 };
            change(word, bits);
            word.recent |= bits;
            shared |= word.shared & bits;
            0
        });
        Changed { pages: count, has_shared: shared != 0 }
    }

    /// Whether all pages from `first` to before `end` are open.
    #[inline]
    fn are_open(&self, first: usize, end: usize) -> bool {
        let (first_word, last_word) = (first / PAGES, (end - 1) / PAGES);
        let not_before = !bits_before(first);
        // Of the last page's word, up to and with that page.
        let not_after = u64::MAX >> (PAGES - 1 - (end - 1) % PAGES);
        if first_word == last_word {
            let word = self.0.get(first_word);
            return word.is_some_and(|word| !word.open & not_before & not_after == 0);
        }
        self.are_open_in_several(first_word, last_word, not_before, not_after)
    }

    #[inline(never)]
    fn are_open_in_several(
        &self,
        first_word: usize,
        last_word: usize,
        not_before: u64,
        not_after: u64,
    ) -> bool {
        let Some([first, between @ .., last]) = self.0.get(first_word..=last_word) else {
            return false;
        };
        (!first.open & not_before) | (!last.open & not_after) == 0
            && between.iter().all(|word| word.open == u64::MAX)
    }

    /// Which of up to 64 pages from `first` on are used, as the bits of a number.
    fn used_bits(&self, first: usize, count: usize) -> u64 {
        let low = self.word(first).used >> (first % PAGES);
        let high = match first % PAGES {
            0 => 0,
            shift => self.word(first + PAGES).used << (PAGES - shift),
        };
        (low | high) & (u64::MAX >> (PAGES - count))
    }

    /// Whether the memory of some of these pages is mapped at other addresses, too.
    #[inline]
    fn has_shared(&self, pages: Range<usize>) -> bool {
        sum(pages, |word, bits| {
            self.0.get(word).map_or(0, |word| u32::from(word.shared & bits != 0))
        }) > 0
    }

    /// The first page of the run of unused pages around a page.
    fn first_unused_around(&self, page: usize) -> usize {
        let mut word = page / PAGES;
        let mut used = self.word(page).used & bits_before(page);
        while used == 0 {
            if word == 0 {
                return 0;
            }
            word -= 1;
            used = self.0[word].used;
        }
        word * PAGES + PAGES - used.leading_zeros() as usize
    }

    /// The next run of ready pages in a range: from and to.
    fn next_ready(&self, range: Range<usize>) -> Option<Range<usize>> {
        let first = self.find_ready(range.clone(), 0)?;
        let end = self.find_ready(first..range.end, u64::MAX).unwrap_or(range.end);
        Some(first..end)
    }

    /// The first page in a range that is ready, or with `except` all ones, the first that is not.
    fn find_ready(&self, range: Range<usize>, except: u64) -> Option<usize> {
        let end = range.end.min(self.0.len() * PAGES);
        let mut page = range.start;
        while page < end {
            let word = self.0[page / PAGES];
            let wanted = (word.open & !word.used ^ except) & !bits_before(page);
            if wanted != 0 {
                let found = page / PAGES * PAGES + wanted.trailing_zeros() as usize;
                return (found < end).then_some(found);
            }
            page = (page / PAGES + 1) * PAGES;
        }
        // Pages beyond the words are not ready.
        (except != 0 && end < range.end).then_some(end.max(range.start))
    }

    /// The clock ticks: no page is recent any more.
    fn forget_recent(&mut self) {
        self.0.iter_mut().for_each(|word| word.recent = 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_as_single_pages_would_have_them() {
        const PAGES: usize = 300;
        for seed in 0..50 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut words = PageWords::default();
            words.grow(PAGES);
            let (mut open, mut shared, mut used) = ([false; PAGES], [false; PAGES], [false; PAGES]);
            for page in 0..PAGES {
                (open[page], shared[page]) = (rng.u8(..) > 20, rng.u8(..) < 9);
                words.set_open(page, open[page]);
                words.set_shared(page, shared[page]);
            }
            for _ in 0..40 {
                let first = rng.usize(0..PAGES);
                let end = rng.usize(first + 1..=PAGES.min(first + 90).max(first + 1));
                let what = format!("seed {seed}: {first} to {end}");
                assert_eq!(
                    words.are_open(first, end),
                    open[first..end].iter().all(|is| *is),
                    "{what}"
                );
                let has_shared = shared[first..end].contains(&true);
                assert_eq!(words.has_shared(first..end), has_shared, "{what}");
                let takes = rng.bool();
                let changed =
                    if takes { words.take(first..end) } else { words.give_back(first..end) };
                assert_eq!(changed, Changed { pages: end - first, has_shared }, "{what}");
                used[first..end].fill(takes);
                assert!((0..PAGES).all(|page| words.is_used(page) == used[page]), "{what}");
                let ready = |page: &usize| open[*page] && !used[*page];
                let run = words.next_ready(first..end);
                assert_eq!(run.as_ref().map(|run| run.start), (first..end).find(ready), "{what}");
                if let Some(run) = run {
                    let least = (run.start..end).find(|page| !ready(page)).unwrap_or(end);
                    assert_eq!(run.end, least, "{what}");
                }
                if !used[first] {
                    let before = (0..first).rfind(|page| used[*page]).map_or(0, |page| page + 1);
                    assert_eq!(words.first_unused_around(first), before, "{what}");
                }
            }
            assert!(!words.are_open(PAGES - 1, 1000));
            assert_eq!(words.next_ready(1000..2000), None);
            let (first, end) = (70, 3);
            assert_eq!(words.take(first..end), Changed::default(), "it ends before it begins");
        }
    }
}
