//! Free addresses: exact best fit, cut from the upper end of a hole; the end of the span is cut from below.

use std::collections::{BTreeMap, BTreeSet};

/// Free addresses. The last hole is the end of the span.
#[derive(Debug, Default)]
pub struct Holes {
    by_start: BTreeMap<u64, u64>,
    by_size: BTreeSet<(u64, u64)>,
}

impl Holes {
    fn remove(&mut self, start: u64) -> u64 {
        let bytes = self.by_start.remove(&start).expect("a hole begins here");
        self.by_size.remove(&(bytes, start));
        bytes
    }

    fn insert(&mut self, start: u64, bytes: u64) {
        if bytes > 0 {
            self.by_start.insert(start, bytes);
            self.by_size.insert((bytes, start));
        }
    }

    /// Takes as much of a range as is free; returns what was taken, as starts and ends.
    pub fn take_range(&mut self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let from = self.by_start.range(..=start).next_back().map_or(start, |(hole, _)| *hole);
        let holes: Vec<u64> = self.by_start.range(from..end).map(|(hole, _)| *hole).collect();
        let mut taken = Vec::new();
        for hole in holes {
            let hole_end = hole + self.by_start[&hole];
            let (low, high) = (hole.max(start), hole_end.min(end));
            if low < high {
                self.remove(hole);
                self.insert(hole, low - hole);
                self.insert(high, hole_end - high);
                taken.push((low, high));
            }
        }
        taken
    }

    /// Takes `bytes` where they fit best; says where.
    ///
    /// # Panics
    /// If nothing is large enough.
    pub fn take(&mut self, bytes: u64) -> u64 {
        let (size, hole) = *self.by_size.range((bytes, 0)..).next().expect("the span is large");
        let is_end = self.by_start.range(hole + 1..).next().is_none();
        let start = if is_end { hole } else { hole + size - bytes };
        self.take_range(start, start + bytes);
        start
    }

    /// Frees a range, which merges with its neighbours.
    pub fn give(&mut self, mut start: u64, mut end: u64) {
        if let Some((&before, &bytes)) = self.by_start.range(..start).next_back()
            && before + bytes == start
        {
            self.remove(before);
            start = before;
        }
        if let Some(&bytes) = self.by_start.get(&end) {
            self.remove(end);
            end += bytes;
        }
        self.insert(start, end - start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_hole_is_cut_from_above() {
        let mut holes = Holes::default();
        holes.give(0, 1000);
        assert_eq!((holes.take(100), holes.take(50), holes.take(10)), (0, 100, 150));
        holes.give(0, 100);
        assert_eq!(holes.take(30), 70);
        holes.give(100, 150);
        holes.give(70, 100);
        assert_eq!(holes.take_range(140, 200), [(140, 150), (160, 200)]);
        assert_eq!(holes.take(140), 0);
    }
}
