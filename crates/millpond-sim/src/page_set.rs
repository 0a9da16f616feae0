//! Which of the 512 pages of a managed block are in some state.

/// Bytes of a page of managed memory.
pub(crate) const PAGE_BYTES: u64 = 4096;
/// Pages of a block.
pub(crate) const PAGES: usize = 512;
/// Pages that the driver handles together at the least.
const BIG_PAGE_PAGES: usize = 16;

/// A set of a block's pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PageSet([u64; PAGES / 64]);

impl PageSet {
    /// Pages `first..end`.
    pub(crate) fn range(first: usize, end: usize) -> PageSet {
        let mut set = PageSet::default();
        for (i, word) in set.0.iter_mut().enumerate() {
            let (low, high) = (first.clamp(i * 64, i * 64 + 64), end.clamp(i * 64, i * 64 + 64));
            let count = high.saturating_sub(low);
            if count > 0 {
                *word = (u64::MAX >> (64 - count)) << (low - i * 64);
            }
        }
        set
    }

    pub(crate) fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    pub(crate) fn first(&self) -> Option<usize> {
        let word = self.0.iter().position(|word| *word != 0)?;
        Some(word * 64 + self.0[word].trailing_zeros() as usize)
    }

    fn zip(self, other: PageSet, combine: impl Fn(u64, u64) -> u64) -> PageSet {
        PageSet(std::array::from_fn(|i| combine(self.0[i], other.0[i])))
    }

    pub(crate) fn union(self, other: PageSet) -> PageSet {
        self.zip(other, |a, b| a | b)
    }

    pub(crate) fn intersection(self, other: PageSet) -> PageSet {
        self.zip(other, |a, b| a & b)
    }

    pub(crate) fn without(self, other: PageSet) -> PageSet {
        self.zip(other, |a, b| a & !b)
    }

    /// The first `most` pages of the set.
    pub(crate) fn take(self, most: usize) -> PageSet {
        let mut rest = most;
        let mut taken = self;
        for word in &mut taken.0 {
            while word.count_ones() as usize > rest {
                *word &= !(1 << (63 - word.leading_zeros()));
            }
            rest -= word.count_ones() as usize;
        }
        taken
    }

    fn count_in(&self, first: usize, end: usize) -> usize {
        self.intersection(PageSet::range(first, end)).count()
    }

    /// What the driver brings in when `faulted` pages of a block fault while `resident` ones are there.
    ///
    /// Each faulted page is widened to its big page (64 KiB). Above that the block is a binary tree;
    /// the largest subtree around a fault of which more than `density_percent` is faulted or resident
    /// comes in whole (the tree-based prefetcher of NVIDIA's open kernel modules, uvm_perf_prefetch.c).
    pub(crate) fn brought_in_by(
        faulted: PageSet,
        resident: PageSet,
        density_percent: f64,
    ) -> PageSet {
        let mut dense = resident;
        for first in (0..PAGES).step_by(BIG_PAGE_PAGES) {
            if faulted.count_in(first, first + BIG_PAGE_PAGES) > 0 {
                dense = dense.union(PageSet::range(first, first + BIG_PAGE_PAGES));
            }
        }
        let mut brought = dense;
        let mut size = BIG_PAGE_PAGES * 2;
        while size <= PAGES {
            for first in (0..PAGES).step_by(size) {
                let has_fault = faulted.count_in(first, first + size) > 0;
                let share = dense.count_in(first, first + size) as f64 * 100.0;
                if has_fault && share > size as f64 * density_percent {
                    brought = brought.union(PageSet::range(first, first + size));
                }
            }
            size *= 2;
        }
        brought.without(resident)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_fault_after_another_brings_a_block_in_by_six_steps() {
        // 64 KiB, 64 KiB, then each time the other half of a subtree that became dense.
        let mut resident = PageSet::default();
        let mut steps = Vec::new();
        while resident.count() < PAGES {
            let missing = PageSet::range(0, PAGES).without(resident).take(1);
            let brought = PageSet::brought_in_by(missing, resident, 51.0);
            steps.push(brought.count() * 4);
            resident = resident.union(brought);
        }
        assert_eq!(steps, [64, 64, 128, 256, 512, 1024]);
    }

    #[test]
    fn ranges_and_takes_count_right() {
        for (first, end) in [(0, 512), (3, 3), (60, 70), (64, 128), (511, 512), (1, 400)] {
            let set = PageSet::range(first, end);
            assert_eq!(set.count(), end - first);
            assert_eq!(set.take(5).count(), (end - first).min(5));
            assert_eq!(set.take(5).first(), (end > first).then_some(first));
        }
    }
}
