//! Free ranges sorted by size, so that a nearly best fit is found in constant time.
//!
//! Sizes are binned like floating-point numbers: 32 bins for each doubling, so that a bin's ranges differ by at most 3 %. Two levels of
//! bitmaps say which bins hold nodes.
//!
//! ```text
//!   size in steps:   0 1 2 … 63 │ 64 66 … 126 │ 128 132 … 252 │ …
//!   bin:             one each   │ 32 bins     │ 32 bins       │
//!
//!   steps ≥ 32:  bin = 32 × (⌊log₂ steps⌋ − 4) + the five bits of steps below the highest
//!   bit of a bin = it has a head;   bit of a group = one of its 32 bins has
//! ```

use super::heap::{Link, NodeId};

/// Sizes are counted in steps of this.
pub(in crate::pool) const STEP_BYTES: u64 = 512;

const SUB_BITS: u32 = 5;
const SUBS: u32 = 1 << SUB_BITS;
/// Enough for 2⁵⁴ bytes.
const GROUPS: usize = 42;
/// At least as many as there are bins, and a power of two, so that an index needs no check of bounds.
const HEADS: usize = (GROUPS * SUBS as usize).next_power_of_two();

/// Which bins hold nodes, and the first node of each.
#[derive(Debug)]
pub(in crate::pool) struct Bins {
    groups: u64,
    subs: [u32; GROUPS],
    heads: Box<[Link; HEADS]>,
}

/// The number of a bin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::pool) struct Bin(u16);

impl Bin {
    /// The bin of a size: the last one whose least size does not exceed it.
    #[inline]
    pub(super) const fn of(bytes: u64) -> Bin {
        let steps = bytes / STEP_BYTES;
        if steps < SUBS as u64 {
            return Bin(steps as u16);
        }
        let exponent = 63 - steps.leading_zeros();
        let group = exponent - SUB_BITS + 1;
        let sub = (steps >> (exponent - SUB_BITS)) as u32 & (SUBS - 1);
        Bin::at(group, sub)
    }

    const fn at(group: u32, sub: u32) -> Bin {
        Bin((group * SUBS + sub) as u16)
    }

    /// Its number: the smallest size's is 0.
    #[inline]
    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }

    #[inline]
    fn group(self) -> usize {
        self.index() / SUBS as usize
    }

    #[inline]
    fn sub(self) -> u32 {
        u32::from(self.0) % SUBS
    }
}

impl Bins {
    pub(super) fn new() -> Bins {
        Bins { groups: 0, subs: [0; GROUPS], heads: Box::new([Link::NONE; HEADS]) }
    }

    #[inline]
    pub(super) fn head(&self, bin: Bin) -> Link {
        self.heads[bin.index() % HEADS]
    }

    /// Puts a node first; returns the node that was first.
    #[inline]
    pub(super) fn put(&mut self, bin: Bin, id: NodeId) -> Link {
        let group = bin.group();
        self.subs[group] |= 1 << bin.sub();
        self.groups |= 1 << group;
        std::mem::replace(&mut self.heads[bin.index() % HEADS], Link::to(id))
    }

    /// A node has gone from a bin, and `head` is its first now. Without branches: whether there is one is as good as random.
    #[inline]
    pub(super) fn set_head(&mut self, bin: Bin, head: Link) {
        self.heads[bin.index() % HEADS] = head;
        let group = bin.group();
        self.subs[group] &= !(u32::from(head == Link::NONE) << bin.sub());
        self.groups &= !(u64::from(self.subs[group] == 0) << group);
    }

    /// The first bin from `bin` on that holds a node.
    #[inline]
    pub(super) fn first_from(&self, bin: Bin) -> Option<Bin> {
        if self.subs[bin.group()] >> bin.sub() & 1 != 0 { Some(bin) } else { self.next_after(bin) }
    }

    /// The first bin after `bin` that holds a node. All its ranges are larger than any in `bin`.
    #[inline]
    pub(super) fn next_after(&self, bin: Bin) -> Option<Bin> {
        let (group, sub) = (bin.group(), bin.sub());
        let rest = self.subs[group] & !(((1_u64 << (sub + 1)) - 1) as u32);
        if rest != 0 {
            return Some(Bin::at(group as u32, rest.trailing_zeros()));
        }
        let above = self.groups & !((1_u64 << (group + 1)) - 1);
        if above == 0 {
            return None;
        }
        let group = above.trailing_zeros();
        Some(Bin::at(group, self.subs[group as usize].trailing_zeros()))
    }

    /// The last bin before `bin` that holds a node.
    pub(super) fn last_before(&self, bin: Bin) -> Option<Bin> {
        let (group, sub) = (bin.group(), bin.sub());
        let rest = self.subs[group] & ((1 << sub) - 1);
        if rest != 0 {
            return Some(Bin::at(group as u32, 31 - rest.leading_zeros()));
        }
        let below = self.groups & ((1 << group) - 1);
        if below == 0 {
            return None;
        }
        let group = 63 - below.leading_zeros();
        Some(Bin::at(group, 31 - self.subs[group as usize].leading_zeros()))
    }

    /// The last bin that holds a node.
    pub(super) fn last(&self) -> Option<Bin> {
        if self.groups == 0 {
            return None;
        }
        let group = 63 - self.groups.leading_zeros();
        Some(Bin::at(group, 31 - self.subs[group as usize].leading_zeros()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_rise_with_size_and_stay_within_three_percent() {
        let mut least_of_bin = std::collections::BTreeMap::new();
        let mut last = Bin(0);
        for steps in (0..5000).chain((0..400).map(|i| 5000 + i * i * i)) {
            let bin = Bin::of(steps * STEP_BYTES);
            assert!(bin >= last, "{steps}");
            last = bin;
            let least = *least_of_bin.entry(bin.0).or_insert(steps);
            assert!(
                steps as f64 <= (least as f64 * 1.04).max(least as f64),
                "{steps} with {least}"
            );
        }
        assert!(Bin::of(1 << 54).group() < GROUPS);
    }

    #[test]
    fn the_next_bin_is_found_over_gaps() {
        let mut bins = Bins::new();
        let node = NodeId(1);
        for bytes in [512, 40 * 512, 1 << 20, 1 << 40] {
            bins.put(Bin::of(bytes), node);
        }
        assert_eq!(bins.next_after(Bin::of(512)), Some(Bin::of(40 * 512)));
        assert_eq!(bins.next_after(Bin::of(41 * 512)), Some(Bin::of(1 << 20)));
        assert_eq!(bins.last(), Some(Bin::of(1 << 40)));
        bins.set_head(Bin::of(1 << 40), Link::NONE);
        assert_eq!(bins.next_after(Bin::of(1 << 20)), None);
    }
}
