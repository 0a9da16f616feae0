//! Free ranges by size: the exact best fit, without walking lists.

use super::super::treap::{NodeId, Root, Treap, key};

/// Bins for each doubling of the size.
const BINS_PER_DOUBLING: u32 = 8;
/// Enough for all 64 doublings.
const BINS: usize = 512;
const WORDS: usize = BINS / 64;

/// Ranges sorted by (size, address): coarsely in bins, and exactly in a tree in each bin.
///
/// Most bins hold one or two ranges, so most operations touch one; if all ranges are of one size, it is one tree.
/// Bit `b` of `filled` is set iff `bins[b]` is not empty.
#[derive(Clone, Debug)]
pub(super) struct SizeIndex {
    filled: [u64; WORDS],
    bins: Box<[Root; BINS]>,
}

impl Default for SizeIndex {
    fn default() -> Self {
        SizeIndex { filled: [0; WORDS], bins: Box::new([Root::EMPTY; BINS]) }
    }
}

/// The sizes of a bin are all less than those of the next.
#[inline]
fn bin_of(bytes: u64) -> usize {
    let doublings = 63 - (bytes | BINS_PER_DOUBLING as u64).leading_zeros();
    let within = (bytes >> (doublings - BINS_PER_DOUBLING.ilog2())) as u32 % BINS_PER_DOUBLING;
    (doublings * BINS_PER_DOUBLING + within) as usize
}

impl SizeIndex {
    #[inline]
    pub(super) fn insert(
        &mut self,
        trees: &mut Treap<u128, false>,
        id: NodeId,
        bytes: u64,
        start: u64,
    ) {
        let bin = bin_of(bytes);
        trees.insert(&mut self.bins[bin], id, key(bytes, start), 0);
        self.filled[bin / 64] |= 1 << (bin % 64);
    }

    #[inline]
    pub(super) fn remove(&mut self, trees: &mut Treap<u128, false>, id: NodeId, bytes: u64) {
        let bin = bin_of(bytes);
        trees.remove(&mut self.bins[bin], id);
        if self.bins[bin].is_empty() {
            self.filled[bin / 64] &= !(1 << (bin % 64));
        }
    }

    /// The smallest range of at least `bytes`; of equals the lowest.
    #[inline]
    pub(super) fn best_fit(&self, trees: &Treap<u128, false>, bytes: u64) -> Option<NodeId> {
        let bin = bin_of(bytes);
        trees.first_from(self.bins[bin], key(bytes, 0)).or_else(|| {
            let bin = self.first_filled_from(bin + 1)?;
            trees.first(self.bins[bin])
        })
    }

    pub(super) fn largest(&self, trees: &Treap<u128, false>) -> Option<NodeId> {
        let word = (0..WORDS).rev().find(|word| self.filled[*word] != 0)?;
        let bin = word * 64 + self.filled[word].ilog2() as usize;
        trees.last(self.bins[bin])
    }

    pub(super) fn is_empty(&self) -> bool {
        self.filled == [0; WORDS]
    }

    #[inline]
    fn first_filled_from(&self, bin: usize) -> Option<usize> {
        let mut word = bin / 64;
        let mut bits = self.filled.get(word)? & (u64::MAX << (bin % 64));
        while bits == 0 {
            word += 1;
            bits = *self.filled.get(word)?;
        }
        Some(word * 64 + bits.trailing_zeros() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_rise_with_size() {
        let sizes = (0..20_000).map(|steps| steps * 256).chain((23..63).map(|power| 1 << power));
        let bins: Vec<usize> = sizes.map(bin_of).collect();
        assert!(bins.is_sorted());
        assert!(bin_of(u64::MAX) < BINS);
    }

    #[test]
    fn the_best_fit_is_the_smallest_and_lowest() {
        let (mut trees, mut index) = (Treap::default(), SizeIndex::default());
        let ranges = [(1024, 0x9000), (1024, 0x3000), (1280, 0x100), (1 << 30, 0x200)];
        for (id, (bytes, start)) in (0..).zip(ranges) {
            index.insert(&mut trees, id, bytes, start);
        }
        assert_eq!(index.best_fit(&trees, 512), Some(1));
        assert_eq!(index.best_fit(&trees, 1025), Some(2));
        assert_eq!(index.best_fit(&trees, 1281), Some(3));
        assert_eq!(index.best_fit(&trees, (1 << 30) + 1), None);
        assert_eq!(index.largest(&trees), Some(3));
        index.remove(&mut trees, 1, 1024);
        assert_eq!(index.best_fit(&trees, 512), Some(0));
    }
}
