//! Free and taken ranges of a span of addresses: best fit, neighbours merge at once.

use std::collections::{BTreeMap, BTreeSet};

/// Ranges of `[start, start + bytes)`. `Σ free + Σ taken = bytes`; no two free ranges touch.
#[derive(Debug)]
pub(crate) struct Ranges {
    free_by_start: BTreeMap<u64, u64>,
    free_by_size: BTreeSet<(u64, u64)>,
}

impl Ranges {
    pub(crate) fn new(start: u64, bytes: u64) -> Ranges {
        let mut ranges = Ranges { free_by_start: BTreeMap::new(), free_by_size: BTreeSet::new() };
        ranges.insert(start, bytes);
        ranges
    }

    /// The start of a range of `bytes`, a multiple of `align` (a power of two).
    pub(crate) fn take(&mut self, bytes: u64, align: u64) -> Option<u64> {
        let (size, start, aligned) = self
            .free_by_size
            .range((bytes, 0)..)
            .map(|&(size, start)| (size, start, start.next_multiple_of(align)))
            .find(|&(size, start, aligned)| aligned - start <= size - bytes)?;
        self.remove(start, size);
        self.insert(start, aligned - start);
        self.insert(aligned + bytes, start + size - (aligned + bytes));
        Some(aligned)
    }

    /// Gives a taken range back.
    pub(crate) fn give(&mut self, mut start: u64, mut bytes: u64) {
        if let Some((&before, &size)) = self.free_by_start.range(..start).next_back() {
            debug_assert!(before + size <= start, "range {start:#x} given back twice");
            if before + size == start {
                self.remove(before, size);
                start = before;
                bytes += size;
            }
        }
        if let Some(&size) = self.free_by_start.get(&(start + bytes)) {
            self.remove(start + bytes, size);
            bytes += size;
        }
        self.insert(start, bytes);
    }

    /// Takes a range that is free as a whole, and no more, out of the span.
    pub(crate) fn withdraw(&mut self, start: u64, bytes: u64) {
        debug_assert_eq!(self.free_by_start.get(&start), Some(&bytes));
        self.remove(start, bytes);
    }

    fn insert(&mut self, start: u64, bytes: u64) {
        if bytes > 0 {
            self.free_by_start.insert(start, bytes);
            self.free_by_size.insert((bytes, start));
        }
    }

    fn remove(&mut self, start: u64, bytes: u64) {
        self.free_by_start.remove(&start);
        self.free_by_size.remove(&(bytes, start));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_merges_with_both_neighbours() {
        let mut ranges = Ranges::new(0, 1 << 20);
        let a = ranges.take(1000, 512).unwrap();
        let b = ranges.take(5000, 4096).unwrap();
        let c = ranges.take(10, 1).unwrap();
        assert!(b.is_multiple_of(4096));
        ranges.give(a, 1000);
        ranges.give(c, 10);
        assert_eq!(ranges.take(1 << 20, 1), None);
        ranges.give(b, 5000);
        assert_eq!(ranges.take(1 << 20, 1), Some(0));
    }
}
