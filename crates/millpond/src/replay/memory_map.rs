//! Where blocks lay during a replay, and when.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Stretches;
use crate::driver::DevicePtr;

/// Where a block lay, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Its first address.
    pub address: u64,
    /// How much was asked for.
    pub bytes: u64,
    /// The event that allocated it.
    pub from_event: u64,
    /// The event that freed it, after which it was gone; for one that stayed, the number of events.
    pub to_event: u64,
}

impl Placement {
    /// Bytes times events.
    fn weight(&self) -> u128 {
        u128::from(self.bytes) * u128::from(self.to_event - self.from_event)
    }
}

/// A placement in the order of what is kept: by weight, then by a scramble of its number, so that of many alike no part of the
/// replay has more than its share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ranked {
    rank: (u128, u64),
    placement: Placement,
}

impl Ord for Ranked {
    fn cmp(&self, other: &Ranked) -> std::cmp::Ordering {
        self.rank.cmp(&other.rank)
    }
}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Ranked) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Where blocks lay during a replay, and when: of all blocks [`MemoryMap::MOST`], the largest of those that were live at the peak and then those that held the
/// most bytes for the longest, and every address at which any block ever lay.
#[derive(Clone, Debug, Default)]
pub struct MemoryMap {
    /// Live blocks by number.
    live: Vec<Option<Placement>>,
    /// The event after which the most was live until now.
    peak_event: Option<u64>,
    /// Of what was live then and is gone, by bytes. The least is on top.
    at_peak: BinaryHeap<Reverse<Ranked>>,
    /// Of all others, by weight. The least is on top.
    kept: BinaryHeap<Reverse<Ranked>>,
    stretches: Stretches,
    blocks: u64,
    weight: u128,
}

impl MemoryMap {
    /// More placements are not kept.
    pub const MOST: usize = 4096;
    /// So many of them are of the peak: what is live there is often gone soon, and would not be kept for its weight.
    const MOST_AT_PEAK: usize = 1024;

    /// A block was placed.
    pub fn allocated(&mut self, block: usize, ptr: DevicePtr, bytes: u64, event: u64) {
        if block >= self.live.len() {
            self.live.resize(block + 1, None);
        }
        self.stretches.insert(ptr.0, bytes);
        self.live[block] =
            Some(Placement { address: ptr.0, bytes, from_event: event, to_event: event });
    }

    /// A block is gone.
    pub fn freed(&mut self, block: usize, event: u64) {
        let gone = self.live.get_mut(block).and_then(Option::take);
        let Some(placement) = gone else { return };
        let to_event = event.max(placement.from_event);
        self.keep(Placement { to_event, ..placement });
    }

    /// More is live than ever before, after this event.
    pub fn peak(&mut self, event: u64) {
        self.peak_event = Some(event);
        for Reverse(former) in std::mem::take(&mut self.at_peak) {
            self.keep_by_weight(former);
        }
    }

    /// There were so many events; what is live stayed.
    pub fn end(&mut self, events: u64) {
        for block in 0..self.live.len() {
            self.freed(block, events);
        }
    }

    fn keep(&mut self, placement: Placement) {
        let weight = placement.weight();
        if weight == 0 {
            return;
        }
        self.weight += weight;
        self.blocks += 1;
        // Weyl's sequence: neighbours end up far apart, and the same replay keeps the same.
        let scrambled = self.blocks.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let is_of_peak = |peak| (placement.from_event..placement.to_event).contains(&peak);
        if self.peak_event.is_some_and(is_of_peak) {
            let ranked = Ranked { rank: (u128::from(placement.bytes), scrambled), placement };
            if let Some(lesser) = push(&mut self.at_peak, ranked, Self::MOST_AT_PEAK) {
                self.keep_by_weight(lesser);
            }
        } else {
            self.keep_by_weight(Ranked { rank: (weight, scrambled), placement });
        }
    }

    fn keep_by_weight(&mut self, ranked: Ranked) {
        let rank = (ranked.placement.weight(), ranked.rank.1);
        push(&mut self.kept, Ranked { rank, ..ranked }, Self::MOST - Self::MOST_AT_PEAK);
    }

    fn all_kept(&self) -> impl Iterator<Item = Placement> {
        self.at_peak.iter().chain(&self.kept).map(|kept| kept.0.placement)
    }

    /// The placements that were kept, by the event that made them.
    pub fn placements(&self) -> Vec<Placement> {
        let mut placements: Vec<_> = self.all_kept().collect();
        placements.sort_by_key(|placement| (placement.from_event, placement.address));
        placements
    }

    /// All addresses at which blocks lay, of those not kept, too.
    pub fn stretches(&self) -> &Stretches {
        &self.stretches
    }

    /// How many blocks there were that outlived an event.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// What part of all live bytes, over all events, is in the placements that were kept: 1 if all is.
    pub fn share_kept(&self) -> f64 {
        if self.weight == 0 {
            return 1.0;
        }
        let kept: u128 = self.all_kept().map(|placement| placement.weight()).sum();
        kept as f64 / self.weight as f64
    }
}

/// Adds one, and returns the least if there are then too many.
fn push(heap: &mut BinaryHeap<Reverse<Ranked>>, ranked: Ranked, most: usize) -> Option<Ranked> {
    if heap.len() < most {
        heap.push(Reverse(ranked));
        return None;
    }
    match heap.peek_mut().filter(|least| least.0 < ranked) {
        Some(mut least) => Some(std::mem::replace(&mut *least, Reverse(ranked)).0),
        None => Some(ranked),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_kept_with_their_place_and_time() {
        let mut map = MemoryMap::default();
        map.allocated(0, DevicePtr(0x1000), 100, 3);
        map.allocated(1, DevicePtr(0x2000), 50, 4);
        map.freed(0, 6);
        // Its number is used again.
        map.allocated(0, DevicePtr(0x1000), 70, 6);
        // Gone with the event that made it.
        map.allocated(2, DevicePtr(0x9000), 70, 6);
        map.freed(2, 6);
        map.freed(9, 6);
        map.end(10);
        let placement = |address, bytes, from_event, to_event| Placement {
            address,
            bytes,
            from_event,
            to_event,
        };
        let expected = [
            placement(0x1000, 100, 3, 6),
            placement(0x2000, 50, 4, 10),
            placement(0x1000, 70, 6, 10),
        ];
        assert_eq!(map.placements(), expected);
        assert_eq!((map.blocks(), map.share_kept()), (3, 1.0));
    }

    #[test]
    fn those_that_hold_the_most_for_the_longest_are_kept() {
        let mut map = MemoryMap::default();
        map.allocated(0, DevicePtr(0), 10_000_000, 0);
        for number in 0..100_000 {
            map.allocated(1, DevicePtr(1 << 30), 1000, number);
            map.freed(1, number + 1);
        }
        map.end(100_000);
        let kept = map.placements();
        const MOST: usize = MemoryMap::MOST - MemoryMap::MOST_AT_PEAK;
        assert_eq!(kept.len(), MOST);
        assert_eq!((kept[0].bytes, kept[0].to_event), (10_000_000, 100_000));
        let late = kept.iter().filter(|placement| placement.from_event >= 50_000).count();
        assert!((MOST * 4 / 10..MOST * 6 / 10).contains(&late), "{late}");
        let share = (1e12 + (MOST - 1) as f64 * 1000.0) / (1e12 + 1e8);
        assert!((map.share_kept() - share).abs() < 1e-9, "{}", map.share_kept());
        assert_eq!(map.stretches().iter().count(), 2);
    }

    /// What is live at the peak is kept however soon it goes, and what was live at a lesser one before makes room for it.
    #[test]
    fn the_peak_is_kept() {
        let mut map = MemoryMap::default();
        for number in 0..10_000 {
            map.allocated(0, DevicePtr(0), 1000, 10 * number);
            map.freed(0, 10 * number + 10);
        }
        for (event, bytes) in [(100_000, 20), (100_002, 30)] {
            for block in 0..500 {
                map.allocated(block, DevicePtr(block as u64 * 64), bytes, event);
            }
            map.peak(event);
            for block in 0..500 {
                map.freed(block, event + 1);
            }
        }
        map.end(100_010);
        let at = |event| {
            let live = |one: &&Placement| one.from_event <= event && event < one.to_event;
            map.placements().iter().filter(live).count()
        };
        assert_eq!((at(100_000), at(100_002)), (0, 500));
        assert!(map.placements().len() <= MemoryMap::MOST);
    }
}
