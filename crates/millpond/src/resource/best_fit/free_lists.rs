//! Ranges of upstream blocks: live, or free in the list of a stream.
//!
//! Addresses only; nothing here knows memory or streams' work.

use super::super::filled_lists::FilledLists;
use super::super::ordered::StreamSlot;
use super::super::treap::Treap;
use super::size_index::SizeIndex;

/// A range. Ids are reused once their range is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct RangeId(u32);

const NONE: RangeId = RangeId(u32::MAX);
/// What a live range has for a list.
const LIVE: u32 = u32::MAX;

/// `start + bytes = next.start`, unless the upstream block ends there. Neighbours are never both free in the same list.
#[derive(Clone, Copy, Debug)]
struct Range {
    start: u64,
    bytes: u64,
    prev: RangeId,
    next: RangeId,
    list: u32,
}

/// All ranges of all upstream blocks, and for each stream those that it has freed, by size.
#[derive(Debug, Default)]
pub(super) struct FreeLists {
    ranges: Vec<Range>,
    unused_ids: Vec<RangeId>,
    lists: Vec<SizeIndex>,
    filled: FilledLists,
    /// The nodes of all lists, by range.
    trees: Treap<u128, false>,
}

impl FreeLists {
    /// The smallest free range of a stream that holds `bytes`; of equals the lowest.
    #[inline]
    pub(super) fn best_fit(&self, slot: StreamSlot, bytes: usize) -> Option<RangeId> {
        let list = self.lists.get(slot.index())?;
        list.best_fit(&self.trees, bytes as u64).map(RangeId)
    }

    /// Makes the front of a free range live; what is left stays in its list. Returns its address.
    pub(super) fn take(&mut self, id: RangeId, bytes: usize) -> u64 {
        self.unlist(id);
        let Range { start, bytes: all, next, list, .. } = self.ranges[id.0 as usize];
        let bytes = bytes as u64;
        if all > bytes {
            let rest = Range { start: start + bytes, bytes: all - bytes, prev: id, next, list };
            let rest = self.new_range(rest);
            if next != NONE {
                self.ranges[next.0 as usize].prev = rest;
            }
            let range = &mut self.ranges[id.0 as usize];
            (range.bytes, range.next) = (bytes, rest);
            self.enlist(rest);
        }
        self.ranges[id.0 as usize].list = LIVE;
        start
    }

    /// A live range becomes free in a stream's list, one with its free neighbours there.
    pub(super) fn give(&mut self, id: RangeId, slot: StreamSlot) {
        self.make_room(slot);
        self.ranges[id.0 as usize].list = slot.index() as u32;
        self.coalesce(id);
    }

    fn coalesce(&mut self, id: RangeId) {
        let Range { prev, next, list, .. } = self.ranges[id.0 as usize];
        if next != NONE && self.ranges[next.0 as usize].list == list {
            self.unlist(next);
            self.absorb_next(id);
        }
        if prev != NONE && self.ranges[prev.0 as usize].list == list {
            self.unlist(prev);
            self.absorb_next(prev);
            self.enlist(prev);
        } else {
            self.enlist(id);
        }
    }

    /// A new upstream block, free in a stream's list.
    pub(super) fn add(&mut self, start: u64, bytes: usize, slot: StreamSlot) -> RangeId {
        self.make_room(slot);
        let (bytes, list) = (bytes as u64, slot.index() as u32);
        let id = self.new_range(Range { start, bytes, prev: NONE, next: NONE, list });
        self.enlist(id);
        id
    }

    /// All that one stream has free becomes another's.
    pub(super) fn merge(&mut self, from: StreamSlot, into: StreamSlot) {
        self.make_room(into);
        while let Some(id) = self.lists[from.index()].largest(&self.trees).map(RangeId) {
            self.unlist(id);
            self.ranges[id.0 as usize].list = into.index() as u32;
            self.coalesce(id);
        }
    }

    /// The first stream from `from` on, other than `slot`, that has something free.
    pub(super) fn other_from(&mut self, from: StreamSlot, slot: StreamSlot) -> Option<StreamSlot> {
        let is_empty = |slot: StreamSlot| self.lists[slot.index()].is_empty();
        let other = self.filled.first_from(from, is_empty)?;
        if other == slot { self.filled.first_from(other.next(), is_empty) } else { Some(other) }
    }

    /// Whether nothing is live in the upstream block that begins with this range.
    pub(super) fn is_unused(&self, first: RangeId) -> bool {
        self.all_of(first).all(|(_, range)| range.list != LIVE)
    }

    /// Forgets an upstream block in which nothing is live.
    pub(super) fn remove_all(&mut self, first: RangeId) {
        let ids: Vec<RangeId> = self.all_of(first).map(|(id, _)| id).collect();
        for id in ids {
            self.unlist(id);
            self.unused_ids.push(id);
        }
    }

    fn all_of(&self, first: RangeId) -> impl Iterator<Item = (RangeId, &Range)> {
        let at = |id: RangeId| (id != NONE).then(|| (id, &self.ranges[id.0 as usize]));
        std::iter::successors(at(first), move |(_, range)| at(range.next))
    }

    pub(super) fn largest_free(&self) -> usize {
        let largest = self.lists.iter().filter_map(|list| list.largest(&self.trees));
        largest.map(|id| self.ranges[id as usize].bytes).max().unwrap_or(0) as usize
    }

    fn make_room(&mut self, slot: StreamSlot) {
        if self.lists.len() <= slot.index() {
            self.lists.resize_with(slot.index() + 1, SizeIndex::default);
        }
    }

    fn new_range(&mut self, range: Range) -> RangeId {
        match self.unused_ids.pop() {
            Some(id) => {
                self.ranges[id.0 as usize] = range;
                id
            }
            None => {
                self.ranges.push(range);
                RangeId(self.ranges.len() as u32 - 1)
            }
        }
    }

    /// Adds a range's upper neighbour to it.
    fn absorb_next(&mut self, id: RangeId) {
        let gone = self.ranges[id.0 as usize].next;
        let Range { bytes, next, .. } = self.ranges[gone.0 as usize];
        self.unused_ids.push(gone);
        let range = &mut self.ranges[id.0 as usize];
        range.bytes += bytes;
        range.next = next;
        if next != NONE {
            self.ranges[next.0 as usize].prev = id;
        }
    }

    fn enlist(&mut self, id: RangeId) {
        let Range { start, bytes, list, .. } = self.ranges[id.0 as usize];
        self.lists[list as usize].insert(&mut self.trees, id.0, bytes, start);
        self.filled.add(StreamSlot::at(list as usize));
    }

    fn unlist(&mut self, id: RangeId) {
        let Range { bytes, list, .. } = self.ranges[id.0 as usize];
        self.lists[list as usize].remove(&mut self.trees, id.0, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: StreamSlot = StreamSlot::at(0);
    const TWO: StreamSlot = StreamSlot::at(1);

    fn taken(lists: &mut FreeLists, slot: StreamSlot, bytes: usize) -> (RangeId, u64) {
        let id = lists.best_fit(slot, bytes).expect("there is room");
        (id, lists.take(id, bytes))
    }

    #[test]
    fn the_smallest_range_that_fits_is_taken_from_its_front() {
        let mut lists = FreeLists::default();
        lists.add(0x10000, 0x10000, ONE);
        let sizes = [0x800, 0x100, 0x400, 0x100, 0x600, 0x100];
        let blocks = sizes.map(|bytes| taken(&mut lists, ONE, bytes));
        for (id, _) in [blocks[0], blocks[2], blocks[4]] {
            lists.give(id, ONE);
        }
        assert_eq!(taken(&mut lists, ONE, 0x500).1, blocks[4].1);
        assert_eq!(taken(&mut lists, ONE, 0x100).1, blocks[4].1 + 0x500, "what was left of it");
        assert_eq!(taken(&mut lists, ONE, 0x100).1, blocks[2].1);
    }

    #[test]
    fn neighbours_merge_within_a_stream_and_an_upstream_block() {
        let mut lists = FreeLists::default();
        lists.add(0x10000, 0x1000, ONE);
        // Adjacent by address only.
        lists.add(0x11000, 0x1000, ONE);
        assert_eq!(lists.largest_free(), 0x1000);
        let [(first, _), (second, _)] = [0x800, 0x800].map(|bytes| taken(&mut lists, ONE, bytes));
        lists.give(first, ONE);
        lists.give(second, TWO);
        assert_eq!(lists.best_fit(TWO, 0x900), None, "the other half is another stream's");
        assert_eq!(lists.other_from(ONE, ONE), Some(TWO));
        lists.merge(TWO, ONE);
        assert!(lists.is_unused(first));
        assert_eq!((lists.other_from(ONE, ONE), lists.largest_free()), (None, 0x1000));
        lists.remove_all(first);
        assert_eq!(taken(&mut lists, ONE, 0x1000).1, 0x11000);
    }
}
