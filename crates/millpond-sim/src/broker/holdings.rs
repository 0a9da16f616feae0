//! Which frames one client has claimed and not given back.

use std::collections::BTreeMap;

use crate::frames::Extent;

/// Runs of frames by their start. No two touch.
#[derive(Debug, Default)]
pub(crate) struct Holdings {
    runs: BTreeMap<u64, u64>,
}

impl Holdings {
    /// Adds frames that are not held.
    pub(crate) fn add(&mut self, Extent { mut start, mut bytes }: Extent) {
        if let Some((&before, &size)) = self.runs.range(..start).next_back()
            && before + size == start
        {
            self.runs.remove(&before);
            start = before;
            bytes += size;
        }
        if let Some(size) = self.runs.remove(&(start + bytes)) {
            bytes += size;
        }
        self.runs.insert(start, bytes);
    }

    /// Removes frames; `false`, and nothing is changed, if not all of them are held.
    pub(crate) fn remove(&mut self, extent: Extent) -> bool {
        let Some((&start, &size)) = self.runs.range(..=extent.start).next_back() else {
            return false;
        };
        let held_end = start + size;
        let Some(end) = extent.start.checked_add(extent.bytes).filter(|end| *end <= held_end)
        else {
            return false;
        };
        if extent.bytes == 0 {
            return false;
        }
        self.runs.remove(&start);
        if start < extent.start {
            self.runs.insert(start, extent.start - start);
        }
        if end < held_end {
            self.runs.insert(end, held_end - end);
        }
        true
    }

    /// Everything that is held.
    pub(crate) fn take_all(&mut self) -> Vec<Extent> {
        let runs = std::mem::take(&mut self.runs);
        runs.into_iter().map(|(start, bytes)| Extent { start, bytes }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_held_can_be_removed() {
        let extent = |start, bytes| Extent { start, bytes };
        let mut held = Holdings::default();
        held.add(extent(10, 10));
        held.add(extent(20, 10));
        held.add(extent(40, 10));
        for not_held in [(0, 10), (5, 10), (25, 10), (25, 20), (40, 11), (20, 0), (41, u64::MAX)] {
            assert!(!held.remove(extent(not_held.0, not_held.1)), "{not_held:?}");
        }
        assert!(held.remove(extent(15, 10)));
        assert!(!held.remove(extent(15, 10)));
        assert_eq!(held.take_all(), [extent(10, 5), extent(25, 5), extent(40, 10)]);
        assert_eq!(held.take_all(), []);
    }
}
