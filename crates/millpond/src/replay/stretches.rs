//! Addresses that were ever used, as a bounded number of stretches.

use std::collections::BTreeMap;

/// Addresses without a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The first.
    pub address: u64,
    /// How many.
    pub bytes: u64,
}

/// Addresses that were ever used, in whole granules. The granule doubles when there would be more than [`Stretches::MOST`] of them, and gaps that
/// are smaller than it count as used.
#[derive(Clone, Debug)]
pub struct Stretches {
    granule_bytes: u64,
    /// From the first address of a stretch to the first after it. They neither overlap nor touch.
    ends: BTreeMap<u64, u64>,
}

impl Default for Stretches {
    fn default() -> Stretches {
        Stretches { granule_bytes: Self::LEAST_GRANULE_BYTES, ends: BTreeMap::new() }
    }
}

impl Stretches {
    /// More there are never.
    pub const MOST: usize = 512;
    /// The device's page.
    const LEAST_GRANULE_BYTES: u64 = 2 << 20;

    /// Addresses from this on are used, so many.
    pub fn insert(&mut self, address: u64, bytes: u64) {
        let begin = address - address % self.granule_bytes;
        let end = address.saturating_add(bytes.max(1)).next_multiple_of(self.granule_bytes);
        self.join(begin, end);
        while self.ends.len() > Self::MOST {
            self.granule_bytes *= 2;
            for (begin, end) in std::mem::take(&mut self.ends) {
                self.join(
                    begin - begin % self.granule_bytes,
                    end.next_multiple_of(self.granule_bytes),
                );
            }
        }
    }

    fn join(&mut self, mut begin: u64, mut end: u64) {
        let before = self.ends.range(..=begin).next_back().map(|(begin, end)| (*begin, *end));
        if let Some((known, known_end)) = before.filter(|known| known.1 >= begin) {
            if known_end >= end {
                return;
            }
            begin = known;
        }
        while let Some((next, next_end)) = self.ends.range(begin..=end).next() {
            let next = *next;
            end = end.max(*next_end);
            self.ends.remove(&next);
        }
        self.ends.insert(begin, end);
    }

    /// All of them, by address.
    pub fn iter(&self) -> impl Iterator<Item = Stretch> {
        self.ends.iter().map(|(begin, end)| Stretch { address: *begin, bytes: end - begin })
    }

    /// The least gap that is told from used addresses.
    pub fn granule_bytes(&self) -> u64 {
        self.granule_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 2 << 20;

    #[test]
    fn stretches_that_meet_become_one() {
        let mut stretches = Stretches::default();
        for (page, bytes) in [(10, 1), (12, 2 * PAGE), (11, 5), (20, PAGE), (0, PAGE + 1)] {
            stretches.insert(page * PAGE, bytes);
        }
        let pages: Vec<(u64, u64)> =
            stretches.iter().map(|one| (one.address / PAGE, one.bytes / PAGE)).collect();
        assert_eq!(pages, [(0, 2), (10, 4), (20, 1)]);
    }

    #[test]
    fn there_are_never_too_many_and_none_is_lost() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut stretches = Stretches::default();
        let used: Vec<(u64, u64)> =
            (0..5000).map(|_| (random.u64(..1 << 45), random.u64(1..1 << 30))).collect();
        for (address, bytes) in &used {
            stretches.insert(*address, *bytes);
            assert!(stretches.iter().count() <= Stretches::MOST);
        }
        for (address, bytes) in used {
            let holds =
                |one: Stretch| one.address <= address && address + bytes <= one.address + one.bytes;
            assert!(stretches.iter().any(holds), "{address:#x}, {bytes} bytes");
        }
    }
}
