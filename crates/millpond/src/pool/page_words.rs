//! What is known of pages by a bit for each, for 64 pages at a time: how many pages a block has is as random as its size, and a machine
//! that has to guess how often a loop runs guesses wrong.

use std::ops::Range;

const PAGES: usize = u64::BITS as usize;

/// The bits of 64 pages, those of one kind in one number.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PageWord {
    mapped: u64,
    /// One node in use has all of it.
    whole_user: u64,
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

impl PageWord {
    #[inline]
    pub(super) fn is_mapped(&self, page: usize) -> bool {
        self.mapped & bit(page) != 0
    }

    #[inline]
    pub(super) fn has_whole_user(&self, page: usize) -> bool {
        self.whole_user & bit(page) != 0
    }

    #[inline]
    pub(super) fn is_from_now(&self, page: usize) -> bool {
        self.from_now & bit(page) != 0
    }

    pub(super) fn set_mapped(&mut self, page: usize, is_mapped: bool) {
        self.mapped = self.mapped & !bit(page) | u64::from(is_mapped) << (page % PAGES);
    }

    /// Notes that a page has lost a user, if that was the last.
    #[inline]
    pub(super) fn lost_user(&mut self, page: usize, was_last: bool) {
        self.from_now |= u64::from(was_last) << (page % PAGES);
    }

    /// How many of some pages are mapped.
    #[inline]
    fn count_mapped(&self, bits: u64) -> usize {
        (self.mapped & bits).count_ones() as usize
    }
}

impl PageWords {
    /// Has room for this many pages from now on.
    pub(super) fn grow(&mut self, pages: usize) {
        // One more: a range may end where a word does.
        self.0.resize(pages / PAGES + 1, PageWord::default());
    }

    #[inline]
    pub(super) fn word(&self, page: usize) -> &PageWord {
        &self.0[page / PAGES]
    }

    #[inline]
    pub(super) fn word_mut(&mut self, page: usize) -> &mut PageWord {
        &mut self.0[page / PAGES]
    }

    /// Runs something on each word that has some of the pages, with their bits, and adds up the answers.
    #[inline]
    fn sum(&mut self, pages: Range<usize>, run: impl Fn(&mut PageWord, u64) -> usize) -> usize {
        let (first, last) = (pages.start / PAGES, pages.end / PAGES);
        let (not_before, not_after) = (!bits_before(pages.start), bits_before(pages.end));
        if first == last {
            return run(&mut self.0[first], not_before & not_after);
        }
        let between: usize =
            self.0[first + 1..last].iter_mut().map(|word| run(word, u64::MAX)).sum();
        run(&mut self.0[first], not_before) + between + run(&mut self.0[last], not_after)
    }

    /// A node has all of some pages from now on; says how many of them are mapped.
    #[inline]
    pub(super) fn add_whole_user(&mut self, pages: Range<usize>) -> usize {
        self.sum(pages, |word, bits| {
            word.whole_user |= bits;
            word.count_mapped(bits)
        })
    }

    /// The node that had all of some pages is gone; says how many of them are mapped.
    #[inline]
    pub(super) fn remove_whole_user(&mut self, pages: Range<usize>) -> usize {
        self.sum(pages, |word, bits| {
            word.whole_user &= !bits;
            word.from_now |= bits;
            word.count_mapped(bits)
        })
    }

    /// Whether all pages from `first` to before `end` are mapped.
    #[inline]
    pub(super) fn are_mapped(&self, first: usize, end: usize) -> bool {
        let (first_word, last_word) = (first / PAGES, end / PAGES);
        let (not_before, not_after) = (!bits_before(first), bits_before(end));
        let Some(words) = self.0.get(first_word..=last_word) else { return false };
        let missing = |word: usize, bits: u64| !words[word].mapped & bits;
        if let [word] = words {
            return !word.mapped & not_before & not_after == 0;
        }
        let between = 1..words.len() - 1;
        missing(0, not_before) | missing(words.len() - 1, not_after) == 0
            && between.into_iter().all(|word| missing(word, u64::MAX) == 0)
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
                words.word_mut(page).set_mapped(page, *mapped);
            }
            let mut users = [false; PAGES];
            for _ in 0..40 {
                let first = rng.usize(0..PAGES);
                let end = rng.usize(first + 1..=PAGES.min(first + 90).max(first + 1));
                let count = mapped[first..end].iter().filter(|mapped| **mapped).count();
                let what = format!("seed {seed}: {first} to {end}");
                assert_eq!(words.are_mapped(first, end), count == end - first, "{what}");
                let adds = rng.bool();
                let counted = match adds {
                    true => words.add_whole_user(first..end),
                    false => words.remove_whole_user(first..end),
                };
                assert_eq!(counted, count, "{what}");
                users[first..end].fill(adds);
                let as_noted = |page: usize| words.word(page).has_whole_user(page) == users[page];
                assert!((0..PAGES).all(as_noted), "{what}");
            }
            assert!(!words.are_mapped(PAGES - 1, 1000));
            assert_eq!(words.add_whole_user(0..0), 0);
        }
    }
}
