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

/// Where blocks lay during a replay, and when: of all blocks those that held the most bytes for the longest, [`MemoryMap::MOST`] of
/// them, and every address at which any block ever lay.
#[derive(Clone, Debug, Default)]
pub struct MemoryMap {
    /// Live blocks by number.
    live: Vec<Option<Placement>>,
    kept: BinaryHeap<Reverse<Ranked>>,
    stretches: Stretches,
    blocks: u64,
    weight: u128,
}

impl MemoryMap {
    /// More placements are not kept.
    pub const MOST: usize = 4096;

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
        let ranked = Ranked { rank: (weight, scrambled), placement };
        if self.kept.len() < Self::MOST {
            self.kept.push(Reverse(ranked));
        } else if let Some(mut least) = self.kept.peek_mut().filter(|least| least.0 < ranked) {
            *least = Reverse(ranked);
        }
    }

    /// The placements that were kept, by the event that made them.
    pub fn placements(&self) -> Vec<Placement> {
        let mut placements: Vec<_> = self.kept.iter().map(|kept| kept.0.placement).collect();
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
        let kept: u128 = self.kept.iter().map(|kept| kept.0.rank.0).sum();
        kept as f64 / self.weight as f64
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
        assert_eq!(kept.len(), MemoryMap::MOST);
        assert_eq!((kept[0].bytes, kept[0].to_event), (10_000_000, 100_000));
        let late = kept.iter().filter(|placement| placement.from_event >= 50_000).count();
        assert!((MemoryMap::MOST * 4 / 10..MemoryMap::MOST * 6 / 10).contains(&late), "{late}");
        let share = (1e12 + 4095.0 * 1000.0) / (1e12 + 1e8);
        assert!((map.share_kept() - share).abs() < 1e-9, "{}", map.share_kept());
        assert_eq!(map.stretches().iter().count(), 2);
    }
}
