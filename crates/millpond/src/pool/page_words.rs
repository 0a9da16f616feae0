//! What is known of pages by a bit for each, for 64 pages at a time: how many pages a block has is as random as its size, and a machine
//! that has to guess how often a loop runs guesses wrong.

use std::ops::Range;

const PAGES: usize = u64::BITS as usize;

/// The bits of 64 pages, those of one kind in one number.
#[derive(Clone, Copy, Debug, Default)]
struct PageWord {
    mapped: u64,
    /// It has lost its last user, or has been mapped, since time last went by.
    from_now: u64,
}

/// The bits of all pages.
#[derive(Debug, Default)]
pub(super) struct PageWords(Vec<PageWord>);

#[inline]
fn bit(page: usize) -> u64 {
    1 << (page % PAGES)
}

/// The bits of pages of the same word before this one.
#[inline]
fn bits_before(page: usize) -> u64 {
    bit(page) - 1
}

/// Runs something on each word that has some of the pages, with their bits, and adds up the answers. Nearly always one has all.
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

/// How many of some neighbouring pages are mapped: nearly always all of them, which takes less time to see than to count.
#[inline]
fn count(mapped: u64, bits: u64) -> u32 {
    if bits != 0 && !mapped & bits == 0 {
        return u64::BITS - bits.leading_zeros() - bits.trailing_zeros();
    }
    std::hint::cold_path();
    (mapped & bits).count_ones()
}

impl PageWords {
    /// Has room for this many pages from now on.
    pub(super) fn grow(&mut self, pages: usize) {
        // One more: a range may end where a word does.
        self.0.resize(pages / PAGES + 1, PageWord::default());
    }

    #[inline]
    pub(super) fn is_mapped(&self, page: usize) -> bool {
        self.0[page / PAGES].mapped & bit(page) != 0
    }

    pub(super) fn is_from_now(&self, page: usize) -> bool {
        self.0[page / PAGES].from_now & bit(page) != 0
    }

    pub(super) fn set_mapped(&mut self, page: usize, is_mapped: bool) {
        let word = &mut self.0[page / PAGES];
        word.mapped = word.mapped & !bit(page) | u64::from(is_mapped) << (page % PAGES);
        word.from_now |= bit(page);
    }

    /// How many of some pages are mapped. Beyond the words, none is.
    #[inline]
    pub(super) fn count_mapped(&self, pages: Range<usize>) -> usize {
        let mapped = |word: usize| self.0.get(word).map_or(0, |word| word.mapped);
        sum(pages, |word, bits| count(mapped(word), bits))
    }

    /// Nobody uses some pages any more; says how many of them are mapped.
    #[inline]
    pub(super) fn lost_last_user(&mut self, pages: Range<usize>) -> usize {
        sum(pages, |word, bits| {
            let Some(word) = self.0.get_mut(word) else { return 0 };
            word.from_now |= bits;
            count(word.mapped, bits)
        })
    }

    /// Whether all pages from `first` to before `end` are mapped.
    #[inline]
    pub(super) fn are_mapped(&self, first: usize, end: usize) -> bool {
        let (first_word, last_word) = (first / PAGES, (end - 1) / PAGES);
        let not_before = !bits_before(first);
        // Of the last page's word, up to and with that page.
        let not_after = u64::MAX >> (PAGES - 1 - (end - 1) % PAGES);
        if first_word == last_word {
            let word = self.0.get(first_word);
            return word.is_some_and(|word| !word.mapped & not_before & not_after == 0);
        }
        self.are_mapped_in_several(first_word, last_word, not_before, not_after)
    }

    #[inline(never)]
    fn are_mapped_in_several(
        &self,
        first_word: usize,
        last_word: usize,
        not_before: u64,
        not_after: u64,
    ) -> bool {
        let Some([first, between @ .., last]) = self.0.get(first_word..=last_word) else {
            return false;
        };
        (!first.mapped & not_before) | (!last.mapped & not_after) == 0
            && between.iter().all(|word| word.mapped == u64::MAX)
    }

    /// Time goes by.
    pub(super) fn forget_now(&mut self) {
        self.0.iter_mut().for_each(|word| word.from_now = 0);
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
            let mut mapped = [false; PAGES];
            for (page, mapped) in mapped.iter_mut().enumerate() {
                *mapped = rng.u8(..) > 20;
                words.set_mapped(page, *mapped);
            }
            words.forget_now();
            let mut from_now = [false; PAGES];
            for _ in 0..40 {
                let first = rng.usize(0..PAGES);
                let end = rng.usize(first + 1..=PAGES.min(first + 90).max(first + 1));
                let count = mapped[first..end].iter().filter(|mapped| **mapped).count();
                let what = format!("seed {seed}: {first} to {end}");
                assert_eq!(words.are_mapped(first, end), count == end - first, "{what}");
                assert_eq!(words.count_mapped(first..end), count, "{what}");
                if rng.bool() {
                    assert_eq!(words.lost_last_user(first..end), count, "{what}");
                    from_now[first..end].fill(true);
                }
                let as_noted = |page: usize| {
                    words.is_from_now(page) == from_now[page]
                        && words.is_mapped(page) == mapped[page]
                };
                assert!((0..PAGES).all(as_noted), "{what}");
            }
            assert!(!words.are_mapped(PAGES - 1, 1000));
            assert_eq!(words.count_mapped(0..0), 0);
            let (first, end) = (70, 3);
            assert_eq!(words.lost_last_user(first..end), 0, "it ends before it begins");
        }
    }
}
