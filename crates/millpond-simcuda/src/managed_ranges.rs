//! What programs have advised about ranges of managed memory, and where they sent them last.

use std::collections::BTreeMap;

use parking_lot::RwLock;

use crate::layouts::Location;

/// What holds for all bytes of a range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RangeAttributes {
    pub(crate) read_mostly: bool,
    pub(crate) preferred: Option<Location>,
    /// Those that were told to keep it within reach, in the order in which they were named.
    pub(crate) accessed_by: Vec<Location>,
    pub(crate) last_prefetch: Option<Location>,
}

/// Ranges by where they begin, with where they end. They do not overlap; what is in none has nothing said about it.
#[derive(Debug, Default)]
pub(crate) struct ManagedRanges {
    ranges: RwLock<BTreeMap<u64, (u64, RangeAttributes)>>,
}

/// CUDA keeps attributes by pages.
const PAGE_BYTES: u64 = 4096;

/// A range in whole pages.
fn whole_pages(start: u64, bytes: u64) -> (u64, u64) {
    let end = start.saturating_add(bytes);
    (start / PAGE_BYTES * PAGE_BYTES, end.div_ceil(PAGE_BYTES).saturating_mul(PAGE_BYTES))
}

/// Cuts a range in two where it lies across an address.
fn cut(ranges: &mut BTreeMap<u64, (u64, RangeAttributes)>, at: u64) {
    let Some((_, (end, attributes))) = ranges.range_mut(..at).next_back() else { return };
    if *end > at {
        let right = (*end, attributes.clone());
        *end = at;
        ranges.insert(at, right);
    }
}

impl ManagedRanges {
    /// Changes what holds for a range.
    pub(crate) fn change(&self, start: u64, bytes: u64, change: impl Fn(&mut RangeAttributes)) {
        let (start, end) = whole_pages(start, bytes);
        let mut ranges = self.ranges.write();
        cut(&mut ranges, start);
        cut(&mut ranges, end);
        let known: Vec<(u64, u64)> =
            ranges.range(start..end).map(|(from, (to, _))| (*from, *to)).collect();
        let mut next = start;
        for (from, to) in known.into_iter().chain([(end, end)]) {
            if next < from {
                ranges.insert(next, (from, RangeAttributes::default()));
            }
            next = to;
        }
        for (_, attributes) in
            ranges.range_mut(start..end).map(|(_, range)| (range.0, &mut range.1))
        {
            change(attributes);
        }
    }

    /// What holds for every part of a range.
    pub(crate) fn parts(&self, start: u64, bytes: u64) -> Vec<RangeAttributes> {
        let (start, end) = whole_pages(start, bytes);
        let ranges = self.ranges.read();
        let before = ranges.range(..start).next_back().filter(|(_, (to, _))| *to > start);
        let mut parts = Vec::new();
        let mut next = start;
        for (from, (to, attributes)) in before.into_iter().chain(ranges.range(start..end)) {
            if *from > next {
                parts.push(RangeAttributes::default());
            }
            parts.push(attributes.clone());
            next = *to;
        }
        if next < end {
            parts.push(RangeAttributes::default());
        }
        parts
    }

    /// Forgets a range that was freed.
    pub(crate) fn forget(&self, start: u64, bytes: u64) {
        let (start, end) = whole_pages(start, bytes);
        let mut ranges = self.ranges.write();
        if ranges.is_empty() {
            return;
        }
        cut(&mut ranges, start);
        cut(&mut ranges, end);
        // Not by looking at all of them: a program may free as many as it has.
        while let Some((&from, _)) = ranges.range(start..end).next() {
            ranges.remove(&from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_what_its_parts_are() {
        let ranges = ManagedRanges::default();
        let read_mostly = |start: u64, pages: u64| -> Vec<bool> {
            let parts = ranges.parts(start * PAGE_BYTES, pages * PAGE_BYTES);
            parts.iter().map(|part| part.read_mostly).collect()
        };
        assert_eq!(read_mostly(0, 8), [false]);
        ranges.change(2 * PAGE_BYTES, 4 * PAGE_BYTES, |part| part.read_mostly = true);
        assert_eq!(read_mostly(2, 4), [true]);
        assert_eq!(read_mostly(0, 8), [false, true, false]);
        assert_eq!(read_mostly(3, 1), [true]);
        ranges.change(3 * PAGE_BYTES + 1, 1, |part| part.read_mostly = false);
        assert_eq!(read_mostly(2, 4), [true, false, true]);
        ranges.forget(2 * PAGE_BYTES, 4 * PAGE_BYTES);
        assert_eq!(read_mostly(0, 8), [false]);
        assert!(ranges.ranges.read().is_empty());
    }

    /// It takes a moment. Where each look at all of them it takes minutes.
    #[test]
    fn forgetting_one_of_many_ranges_looks_at_no_others() {
        const COUNT: u64 = 400_000;
        let ranges = ManagedRanges::default();
        for page in 0..COUNT {
            ranges.change(page * PAGE_BYTES, PAGE_BYTES, |part| part.read_mostly = true);
        }
        let since = std::time::Instant::now();
        for page in 0..COUNT {
            ranges.forget(page * PAGE_BYTES, PAGE_BYTES);
            assert!(since.elapsed().as_secs() < 30, "{page} of {COUNT}");
        }
        assert!(ranges.ranges.read().is_empty());
    }
}
