//! Superblocks and the blocks in them: what an arena, or the global one, has.
//!
//! Addresses only; nothing here knows memory or streams.

use std::collections::BTreeMap;

use super::super::live_blocks::LiveBlocks;
use super::super::treap::{NodeId, Root, Treap};
use crate::driver::DevicePtr;

/// The least a superblock has; larger blocks come from the global arena.
pub(super) const SUPERBLOCK_BYTES: u64 = 1 << 20;

/// A superblock on its way from one arena to another, with what is in it.
#[derive(Debug)]
pub(super) struct Superblock {
    start: u64,
    bytes: u64,
    /// Start and size of each free range.
    free: Vec<(u64, u64)>,
    /// Address, size asked for and real size of each block that users hold.
    live: Vec<(DevicePtr, usize, u64)>,
}

/// Superblocks, the free ranges in them by address, and the blocks that users hold.
///
/// Each superblock is tiled by free ranges and live blocks; no two free neighbours of one superblock stay apart. Of a set of free ranges
/// the first that is large enough is found by going down one tree, where RMM walks a list of superblocks and a list in each.
#[derive(Debug)]
pub(super) struct Space {
    superblocks: BTreeMap<u64, u64>,
    free: Root,
    /// The nodes of free ranges: keys are addresses, weights are sizes.
    trees: Treap,
    unused_nodes: Vec<NodeId>,
    nodes: NodeId,
    /// Each with its real size.
    pub(super) live: LiveBlocks<u64>,
}

impl Default for Space {
    fn default() -> Self {
        Space {
            superblocks: BTreeMap::new(),
            free: Root::EMPTY,
            trees: Treap::default(),
            unused_nodes: Vec::new(),
            nodes: 0,
            live: LiveBlocks::default(),
        }
    }
}

impl Space {
    /// Takes a block from the first free range that holds it.
    #[inline]
    pub(super) fn allocate(&mut self, bytes: u64, asked_bytes: usize) -> Option<DevicePtr> {
        let node = self.trees.first_weighing(self.free, bytes)?;
        Some(self.take(node, bytes, asked_bytes))
    }

    fn take(&mut self, node: NodeId, bytes: u64, asked_bytes: usize) -> DevicePtr {
        let ((start, _), all) = self.trees.get(node);
        if all > bytes {
            // It stays where it is in the order: nothing lies between its old start and its new one.
            self.trees.change(self.free, node, (start + bytes, 0), all - bytes);
        } else {
            self.remove_free(node);
        }
        self.live.insert(DevicePtr(start), asked_bytes, bytes);
        DevicePtr(start)
    }

    /// Frees a block that was checked to be live; returns the superblock it was in, if that is empty now.
    #[inline]
    pub(super) fn free(&mut self, ptr: DevicePtr) -> Option<u64> {
        let bytes = self.live.remove(ptr);
        let (superblock, size) = self.superblock_of(ptr.0);
        let free_bytes = self.add_free_in(superblock, superblock + size, ptr.0, bytes);
        (free_bytes == size).then_some(superblock)
    }

    /// Adds a free range of a superblock, one with its neighbours there; returns how large it is then.
    fn add_free_in(&mut self, from: u64, to: u64, start: u64, bytes: u64) -> u64 {
        let below = self.trees.last_before(self.free, (start, 0));
        let above = self.trees.first_from(self.free, (start, 0));
        let below = below.map(|node| (node, self.trees.get(node)));
        let above = above.map(|node| (node, self.trees.get(node)));
        let below = below.filter(|(_, ((at, _), size))| *at >= from && at + size == start);
        let above = above.filter(|(_, ((at, _), _))| *at < to && *at == start + bytes);
        match (below, above) {
            (Some((low, (key, size))), Some((high, (_, more)))) => {
                self.remove_free(high);
                self.trees.change(self.free, low, key, size + bytes + more);
                size + bytes + more
            }
            (Some((low, (key, size))), None) => {
                self.trees.change(self.free, low, key, size + bytes);
                size + bytes
            }
            (None, Some((high, (_, more)))) => {
                self.trees.change(self.free, high, (start, 0), bytes + more);
                bytes + more
            }
            (None, None) => {
                self.add_free(start, bytes);
                bytes
            }
        }
    }

    /// Start and size of the superblock around an address.
    fn superblock_of(&self, at: u64) -> (u64, u64) {
        let found = self.superblocks.range(..=at).next_back();
        found.map(|(start, bytes)| (*start, *bytes)).expect("every block is in a superblock")
    }

    /// The first superblock that holds a free range of `bytes`, cut down to that if it is empty and large enough. Its node.
    fn first_superblock(&mut self, bytes: u64) -> Option<NodeId> {
        let node = self.trees.first_weighing(self.free, bytes)?;
        let ((start, _), free_bytes) = self.trees.get(node);
        let (superblock, size) = self.superblock_of(start);
        let head = bytes.max(SUPERBLOCK_BYTES);
        if free_bytes == size && size >= head + SUPERBLOCK_BYTES {
            self.superblocks.insert(superblock, head);
            self.superblocks.insert(superblock + head, size - head);
            self.trees.change(self.free, node, (superblock, 0), head);
            self.add_free(superblock + head, size - head);
        }
        Some(node)
    }

    /// For the global arena: a block of its own superblock, if one can be cut out.
    pub(super) fn allocate_large(&mut self, bytes: u64, asked_bytes: usize) -> Option<DevicePtr> {
        let node = self.first_superblock(bytes)?;
        Some(self.take(node, bytes, asked_bytes))
    }

    /// For the global arena: the first superblock in which a block of this size can be had.
    pub(super) fn acquire(&mut self, bytes: u64) -> Option<Superblock> {
        let node = self.first_superblock(bytes)?;
        let ((start, _), _) = self.trees.get(node);
        let (superblock, _) = self.superblock_of(start);
        Some(self.remove(superblock))
    }

    /// Takes a superblock out, with what is in it.
    fn remove(&mut self, start: u64) -> Superblock {
        let bytes = self.superblocks.remove(&start).expect("is a superblock");
        let mut free = Vec::new();
        while let Some(node) = self.trees.first_from(self.free, (start, 0)) {
            let ((at, _), size) = self.trees.get(node);
            if at >= start + bytes {
                break;
            }
            self.remove_free(node);
            free.push((at, size));
        }
        // Most superblocks are empty when they leave; of the others all blocks must be looked for.
        let is_empty = free.first() == Some(&(start, bytes));
        let live = if is_empty { Vec::new() } else { self.live.take_within(start, bytes) };
        Superblock { start, bytes, free, live }
    }

    /// Takes all superblocks out.
    pub(super) fn remove_all(&mut self) -> Vec<Superblock> {
        let starts: Vec<u64> = self.superblocks.keys().copied().collect();
        starts.into_iter().map(|start| self.remove(start)).collect()
    }

    pub(super) fn insert(&mut self, superblock: Superblock) {
        self.superblocks.insert(superblock.start, superblock.bytes);
        for (start, bytes) in superblock.free {
            self.add_free(start, bytes);
        }
        for (ptr, asked_bytes, bytes) in superblock.live {
            self.live.insert(ptr, asked_bytes, bytes);
        }
    }

    /// For the global arena: takes a superblock back, and makes it one with its neighbours if they and it are empty.
    pub(super) fn release(&mut self, superblock: Superblock) {
        let start = superblock.start;
        self.insert(superblock);
        self.coalesce(start);
    }

    /// For the global arena: makes a superblock one with its neighbours if they and it are empty.
    pub(super) fn coalesce(&mut self, start: u64) {
        let Some(bytes) = self.empty_bytes(start) else { return };
        if self.empty_bytes(start + bytes).is_some() {
            self.join_next(start);
        }
        let below =
            self.superblocks.range(..start).next_back().map(|(below, size)| (*below, *size));
        if let Some((below, size)) = below
            && below + size == start
            && self.empty_bytes(below).is_some()
        {
            self.join_next(below);
        }
    }

    /// The size of the superblock that begins here, if there is one and it is empty.
    fn empty_bytes(&self, start: u64) -> Option<u64> {
        let bytes = *self.superblocks.get(&start)?;
        let node = self.trees.first_from(self.free, (start, 0))?;
        (self.trees.get(node) == ((start, 0), bytes)).then_some(bytes)
    }

    /// Makes two empty superblocks one.
    fn join_next(&mut self, start: u64) {
        let bytes = self.superblocks[&start];
        let next_bytes = self.superblocks.remove(&(start + bytes)).expect("is a superblock");
        let next = self.trees.first_from(self.free, (start + bytes, 0)).expect("is empty");
        self.remove_free(next);
        let node = self.trees.first_from(self.free, (start, 0)).expect("is empty");
        self.trees.change(self.free, node, (start, 0), bytes + next_bytes);
        self.superblocks.insert(start, bytes + next_bytes);
    }

    pub(super) fn largest_free(&self) -> u64 {
        self.trees.greatest(self.free)
    }

    fn add_free(&mut self, start: u64, bytes: u64) {
        let node = self.unused_nodes.pop().unwrap_or_else(|| {
            self.nodes += 1;
            self.nodes - 1
        });
        self.trees.insert(&mut self.free, node, (start, 0), bytes);
    }

    fn remove_free(&mut self, node: NodeId) {
        self.trees.remove(&mut self.free, node);
        self.unused_nodes.push(node);
    }
}

/// All of a range, empty.
impl From<(DevicePtr, usize)> for Superblock {
    fn from((ptr, bytes): (DevicePtr, usize)) -> Superblock {
        let (start, bytes) = (ptr.0, bytes as u64);
        Superblock { start, bytes, free: vec![(start, bytes)], live: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const BASE: u64 = 1 << 40;

    fn global(mib: u64) -> Space {
        let mut space = Space::default();
        space.insert(Superblock::from((DevicePtr(BASE), (mib * MIB) as usize)));
        space
    }

    #[test]
    fn superblocks_are_cut_from_the_lowest_that_fits() {
        let mut global = global(8);
        let first = global.acquire(256).expect("there is room");
        assert_eq!((first.start, first.bytes), (BASE, MIB));
        let large = global.allocate_large(3 * MIB, 0).expect("there is room");
        assert_eq!(large.0, BASE + MIB);
        let second = global.acquire(256).expect("there is room");
        assert_eq!((second.start, second.bytes), (BASE + 4 * MIB, MIB));
        // 3 MiB are left, and 2.5 of them would leave no superblock: all are taken.
        let rest = global.allocate_large(5 * MIB / 2, 0).expect("there is room");
        assert_eq!((rest.0, global.superblocks.len()), (BASE + 5 * MIB, 2));
        // What is left in that superblock goes to whoever wants one, with the block in it.
        let third = global.acquire(256).expect("half a MiB is left");
        assert_eq!((third.start, third.bytes, third.live.len()), (BASE + 5 * MIB, 3 * MIB, 1));
    }

    #[test]
    fn only_empty_neighbours_become_one() {
        let mut global = global(8);
        let blocks = [0; 3].map(|_| global.allocate_large(2 * MIB, 0).expect("there is room"));
        for (at, superblocks) in [(0, 4), (2, 3), (1, 1)] {
            let emptied = global.free(blocks[at]).expect("had one block");
            global.coalesce(emptied);
            assert_eq!(global.superblocks.len(), superblocks);
        }
        assert_eq!(global.largest_free(), 8 * MIB);
    }

    #[test]
    fn the_first_range_that_fits_is_taken_and_neighbours_merge_within_superblocks() {
        let mut global = global(4);
        let mut arena = Space::default();
        arena.insert(global.acquire(256).expect("there is room"));
        arena.insert(global.acquire(256).expect("there is room"));
        let blocks = [0; 8].map(|_| arena.allocate(MIB / 4, 0).expect("there is room"));
        assert_eq!(blocks.map(|ptr| (ptr.0 - BASE) / (MIB / 4)), [0, 1, 2, 3, 4, 5, 6, 7]);
        for at in [3, 1, 4, 6, 7] {
            arena.free(blocks[at]);
        }
        assert_eq!(arena.largest_free(), MIB / 2, "3 and 4 are neighbours in two superblocks");
        assert_eq!(arena.allocate(MIB / 2, 0), Some(blocks[6]));
        assert_eq!(arena.allocate(256, 0), Some(blocks[1]));
    }
}
