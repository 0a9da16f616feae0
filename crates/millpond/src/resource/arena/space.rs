//! Superblocks and the blocks in them: what an arena, or the global one, has.
//!
//! Addresses only; nothing here knows memory or streams.

use super::super::live_blocks::LiveBlocks;
use super::super::recent::Recent;
use super::super::treap::{NodeId, Root, Treap};
use crate::driver::DevicePtr;

/// The least a superblock has; larger blocks come from the global arena.
pub(super) const SUPERBLOCK_BYTES: u64 = 1 << 20;

/// A superblock on its way from one arena to another, with what is in it.
#[derive(Debug)]
pub(super) struct Superblock {
    pub(super) bounds: Bounds,
    /// Start and size of each free range.
    free: Vec<(u64, u64)>,
    /// Address and size asked for of each block that users hold.
    live: Vec<(DevicePtr, usize, LiveBlock)>,
}

/// The free ranges of superblocks by address, and the blocks in them that users hold.
///
/// Each superblock is tiled by free ranges and live blocks; no two free neighbours of one superblock stay apart. Of a set of free ranges
/// the first that is large enough is found by going down one tree, where RMM walks a list of superblocks and a list in each.
#[derive(Debug)]
pub(super) struct Space {
    free: Root,
    /// The nodes of free ranges: keys are addresses, weights are sizes.
    trees: Treap<u64, true>,
    /// The superblock that each free range is in.
    bounds: Vec<Bounds>,
    unused_nodes: Vec<NodeId>,
    pub(super) live: LiveBlocks<LiveBlock>,
    /// Of blocks of the first fit, not of those that have a superblock cut for them.
    recent: Recent<(DevicePtr, LiveBlock)>,
}

/// Where a superblock begins and ends. One in which something is live stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    start: u64,
    end: u64,
}

/// A block that a user holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct LiveBlock {
    bytes: u64,
    within: Bounds,
}

impl Default for Space {
    fn default() -> Self {
        Space {
            free: Root::EMPTY,
            trees: Treap::default(),
            bounds: Vec::new(),
            unused_nodes: Vec::new(),
            live: LiveBlocks::default(),
            recent: Recent::default(),
        }
    }
}

impl Space {
    /// Takes a block from the first free range that holds it.
    #[inline]
    pub(super) fn allocate(&mut self, bytes: u64, asked_bytes: usize) -> Option<DevicePtr> {
        if let Some((ptr, block)) = self.recent.again(|(_, block)| block.bytes == bytes) {
            self.live.insert(ptr, asked_bytes, block);
            return Some(ptr);
        }
        self.end_recent();
        let node = self.trees.first_weighing(self.free, bytes)?;
        let (ptr, block) = self.take(node, bytes, asked_bytes);
        self.recent = Recent::Allocated((ptr, block));
        Some(ptr)
    }

    #[inline]
    fn end_recent(&mut self) {
        if let Some((ptr, block)) = self.recent.end() {
            self.add_merged(block.within, ptr.0, block.bytes);
        }
    }

    #[inline]
    fn take(&mut self, node: NodeId, bytes: u64, asked_bytes: usize) -> (DevicePtr, LiveBlock) {
        let (start, all) = self.range(node);
        let within = self.bounds[node as usize];
        if all > bytes {
            // It stays where it is in the order: nothing lies between its old start and its new one.
            self.trees.change(self.free, node, start + bytes, all - bytes);
        } else {
            self.remove_free(node);
        }
        let (ptr, block) = (DevicePtr(start), LiveBlock { bytes, within });
        self.live.insert(ptr, asked_bytes, block);
        (ptr, block)
    }

    /// Frees a block, if it is one of this arena and of this size.
    #[inline]
    pub(super) fn free(&mut self, ptr: DevicePtr, asked_bytes: usize) -> bool {
        let Some(LiveBlock { bytes, within }) = self.live.take_if_block(ptr, asked_bytes) else {
            return false;
        };
        if !self.recent.keeps(|(newest, _)| *newest == ptr) {
            self.end_recent();
            self.add_merged(within, ptr.0, bytes);
        }
        true
    }

    /// For the global arena: frees a block that was checked to be live; returns the superblock it was in, if that is empty now.
    #[inline]
    pub(super) fn free_large(&mut self, ptr: DevicePtr) -> Option<Bounds> {
        let LiveBlock { bytes, within } = self.live.remove(ptr);
        let free_bytes = self.add_merged(within, ptr.0, bytes);
        (free_bytes == within.end - within.start).then_some(within)
    }

    /// Adds a free range of a superblock, one with its neighbours there; returns how large it is then.
    fn add_merged(&mut self, within: Bounds, start: u64, bytes: u64) -> u64 {
        let (below, above) = self.trees.around(self.free, start);
        let below = below.map(|node| (node, self.range(node)));
        let above = above.map(|node| (node, self.range(node)));
        let below = below.filter(|(_, (at, size))| *at >= within.start && at + size == start);
        let above = above.filter(|(_, (at, _))| *at < within.end && *at == start + bytes);
        let (node, from, size) = match (below, above) {
            (Some((low, (at, size))), Some((high, (_, more)))) => {
                self.remove_free(high);
                (low, at, size + bytes + more)
            }
            (Some((low, (at, size))), None) => (low, at, size + bytes),
            (None, Some((high, (_, more)))) => (high, start, bytes + more),
            (None, None) => {
                self.add_free(within, start, bytes);
                return bytes;
            }
        };
        self.trees.change(self.free, node, from, size);
        size
    }

    /// Start and size of a free range.
    #[inline]
    fn range(&self, node: NodeId) -> (u64, u64) {
        self.trees.get(node)
    }

    /// The first superblock that holds a free range of `bytes`, cut down to that if it is empty and large enough. That range's node.
    fn first_superblock(&mut self, bytes: u64) -> Option<NodeId> {
        let node = self.trees.first_weighing(self.free, bytes)?;
        let (_, free_bytes) = self.range(node);
        let Bounds { start, end } = self.bounds[node as usize];
        let head = bytes.max(SUPERBLOCK_BYTES);
        if free_bytes == end - start && free_bytes >= head + SUPERBLOCK_BYTES {
            let middle = start + head;
            self.trees.change(self.free, node, start, head);
            self.bounds[node as usize] = Bounds { start, end: middle };
            self.add_free(Bounds { start: middle, end }, middle, end - middle);
        }
        Some(node)
    }

    /// For the global arena: a block of its own superblock, if one can be cut out.
    pub(super) fn allocate_large(&mut self, bytes: u64, asked_bytes: usize) -> Option<DevicePtr> {
        let node = self.first_superblock(bytes)?;
        Some(self.take(node, bytes, asked_bytes).0)
    }

    /// For the global arena: the first superblock in which a block of this size can be had.
    pub(super) fn acquire(&mut self, bytes: u64) -> Option<Superblock> {
        let node = self.first_superblock(bytes)?;
        Some(self.remove(self.bounds[node as usize]))
    }

    /// Takes a superblock out, with what is in it.
    pub(super) fn remove(&mut self, bounds: Bounds) -> Superblock {
        self.end_recent();
        let mut free = Vec::new();
        while let Some(node) = self.trees.first_from(self.free, bounds.start) {
            let (at, size) = self.range(node);
            if at >= bounds.end {
                break;
            }
            self.remove_free(node);
            free.push((at, size));
        }
        // Most superblocks are empty when they leave; of the others all blocks must be looked for.
        let is_empty = free.first() == Some(&(bounds.start, bounds.end - bounds.start));
        let live =
            if is_empty { Vec::new() } else { self.live.take_within(bounds.start, bounds.end) };
        Superblock { bounds, free, live }
    }

    pub(super) fn insert(&mut self, superblock: Superblock) {
        self.end_recent();
        for (at, size) in superblock.free {
            self.add_free(superblock.bounds, at, size);
        }
        for (ptr, asked_bytes, block) in superblock.live {
            self.live.insert(ptr, asked_bytes, block);
        }
    }

    /// For the global arena: takes a superblock back, and makes it one with its neighbours if they and it are empty.
    pub(super) fn release(&mut self, superblock: Superblock) {
        let (bounds, is_empty) = (superblock.bounds, superblock.live.is_empty());
        self.insert(superblock);
        if is_empty {
            self.coalesce(bounds);
        }
    }

    /// For the global arena: makes an empty superblock one with its neighbours if they are empty, too.
    pub(super) fn coalesce(&mut self, bounds: Bounds) {
        let Bounds { mut start, mut end } = bounds;
        let (below, node) = self.trees.around(self.free, start);
        let mut node = node.expect("what is empty is free");
        let above = self.trees.first_from(self.free, end);
        if let Some(above) = above.filter(|above| self.is_empty(*above))
            && self.bounds[above as usize].start == end
        {
            end = self.bounds[above as usize].end;
            self.remove_free(above);
        }
        if let Some(below) = below.filter(|below| self.is_empty(*below))
            && self.bounds[below as usize].end == start
        {
            start = self.bounds[below as usize].start;
            self.remove_free(node);
            node = below;
        }
        if (Bounds { start, end }) != bounds {
            self.trees.change(self.free, node, start, end - start);
            self.bounds[node as usize] = Bounds { start, end };
        }
    }

    /// Whether a free range is a whole superblock.
    fn is_empty(&self, node: NodeId) -> bool {
        let Bounds { start, end } = self.bounds[node as usize];
        self.range(node) == (start, end - start)
    }

    pub(super) fn largest_free(&mut self) -> u64 {
        self.end_recent();
        self.trees.greatest(self.free)
    }

    fn add_free(&mut self, within: Bounds, start: u64, bytes: u64) {
        let node = match self.unused_nodes.pop() {
            Some(node) => {
                self.bounds[node as usize] = within;
                node
            }
            None => {
                self.bounds.push(within);
                self.bounds.len() as NodeId - 1
            }
        };
        self.trees.insert(&mut self.free, node, start, bytes);
    }

    fn remove_free(&mut self, node: NodeId) {
        self.trees.remove(&mut self.free, node);
        self.unused_nodes.push(node);
    }
}

/// All of a range, empty.
impl From<(DevicePtr, usize)> for Superblock {
    fn from((ptr, bytes): (DevicePtr, usize)) -> Superblock {
        let bounds = Bounds { start: ptr.0, end: ptr.0 + bytes as u64 };
        Superblock { bounds, free: vec![(ptr.0, bytes as u64)], live: Vec::new() }
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
        assert_eq!(first.bounds, Bounds { start: BASE, end: BASE + MIB });
        let large = global.allocate_large(3 * MIB, 0).expect("there is room");
        assert_eq!(large.0, BASE + MIB);
        let second = global.acquire(256).expect("there is room");
        assert_eq!(second.bounds, Bounds { start: BASE + 4 * MIB, end: BASE + 5 * MIB });
        // 3 MiB are left, and 2.5 of them would leave no superblock: all are taken.
        let rest = global.allocate_large(5 * MIB / 2, 0).expect("there is room");
        assert_eq!((rest.0, global.largest_free()), (BASE + 5 * MIB, MIB / 2));
        // What is left in that superblock goes to whoever wants one, with the block in it.
        let third = global.acquire(256).expect("half a MiB is left");
        assert_eq!(third.bounds, Bounds { start: BASE + 5 * MIB, end: BASE + 8 * MIB });
        assert_eq!(third.live.len(), 1);
    }

    #[test]
    fn only_empty_neighbours_become_one() {
        let mut global = global(8);
        let blocks = [0; 3].map(|_| global.allocate_large(2 * MIB, 0).expect("there is room"));
        for (at, largest) in [(0, 2 * MIB), (2, 4 * MIB), (1, 8 * MIB)] {
            let emptied = global.free_large(blocks[at]).expect("had one block");
            global.coalesce(emptied);
            assert_eq!(global.largest_free(), largest);
        }
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
            assert!(arena.free(blocks[at], 0));
        }
        assert_eq!(arena.largest_free(), MIB / 2, "3 and 4 are neighbours in two superblocks");
        assert_eq!(arena.allocate(MIB / 2, 0), Some(blocks[6]));
        assert_eq!(arena.allocate(256, 0), Some(blocks[1]));
    }
}
