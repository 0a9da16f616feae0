//! Where blocks lie in the pool's virtual addresses: best fit, merged at once.
//!
//! The heap is arithmetic on offsets; it knows no memory and no driver. Nodes are linked in address order, and free nodes are binned by
//! size.
//!
//! ```text
//!   Σ nodes.bytes = span;   node.start + node.bytes = node.next.start
//!   a node is in the bin of its size ⇔ it is free
//!   no two free nodes are neighbours, unless the upper one stands alone
//! ```

use std::ops::Range;

use super::bins::{Bin, Bins};
use crate::pool::streams::Points;

/// A node of the heap. Ids are reused once their node is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::pool) struct NodeId(pub(in crate::pool) u32);

/// The use of a node's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::pool) enum Use {
    /// Free. No two free nodes are neighbours.
    Free,
    /// One block of a user or a cache.
    Block,
    /// A slab.
    Slab,
    /// Free, and kept for the stream that freed it. It does not merge with free nodes.
    Kept,
    /// Free, but work may still use its old mapping, which is to be unmapped.
    Leaving,
    /// Outside the pool: addresses between the driver's allocations, where the pool has no addresses of its own.
    Outside,
}

/// A range of addresses.
///
/// `prev.start + prev.bytes = start`
#[derive(Debug)]
#[repr(align(64))]
pub(in crate::pool) struct Node {
    pub(in crate::pool) start: u64,
    pub(in crate::pool) bytes: u64,
    /// The points after which these bytes may be used again.
    pub(super) points: Points,
    pub(super) prev: Link,
    pub(super) next: Link,
    pub(super) bin_prev: Link,
    pub(super) bin_next: Link,
    /// Its bin, while it is free.
    pub(super) bin: Bin,
    pub(in crate::pool) used_for: Use,
    /// It begins a driver allocation, and so does not merge with the node below it.
    pub(super) stands_alone: bool,
}

/// One cache line each: placing or freeing a block reads several nodes.
const _: () = assert!(size_of::<Node>() == 64);

/// A node or none, in four bytes, because a search reads many nodes. None is a node, too, which lies nowhere: code writes to it without a
/// branch. Whether a hole has neighbours is as good as random, and a processor would guess it wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::pool) struct Link(u32);

impl Link {
    pub(in crate::pool) const NONE: Link = Link(0);

    #[inline]
    pub(super) fn to(id: NodeId) -> Link {
        Link(id.0)
    }

    #[inline]
    pub(super) fn get(self) -> Option<NodeId> {
        (self != Link::NONE).then_some(self.node())
    }

    /// The node, or the one that stands for none.
    #[inline]
    pub(super) fn node(self) -> NodeId {
        NodeId(self.0)
    }
}

impl Node {
    /// Neither anywhere nor beside anything.
    pub(in crate::pool) const NONE: Node = Node {
        start: 0,
        bytes: 0,
        points: Points::NONE,
        prev: Link::NONE,
        next: Link::NONE,
        bin_prev: Link::NONE,
        bin_next: Link::NONE,
        bin: Bin::of(0),
        used_for: Use::Free,
        stands_alone: false,
    };

    #[inline]
    pub(super) fn end(&self) -> u64 {
        self.start + self.bytes
    }

    #[inline]
    pub(super) fn range(&self) -> Range<u64> {
        self.start..self.end()
    }
}

/// The nodes by their numbers. In chunks, so that no allocation waits while millions of nodes are copied.
#[derive(Debug)]
pub(in crate::pool) struct Nodes {
    chunks: Vec<Box<[Node; NODES_OF_CHUNK]>>,
    pub(super) added: usize,
}

/// Few: the first use of a chunk writes all of its nodes.
const NODES_OF_CHUNK: usize = 128;

impl Nodes {
    /// Only the node that stands for none.
    pub(super) fn new() -> Nodes {
        let mut nodes = Nodes { chunks: Vec::new(), added: 0 };
        let none = nodes.add();
        debug_assert_eq!(Link::to(none), Link::NONE);
        nodes.get_mut(none).used_for = Use::Outside;
        nodes
    }

    #[inline]
    pub(super) fn get(&self, id: NodeId) -> &Node {
        let index = id.0 as usize;
        &self.chunks[index / NODES_OF_CHUNK][index % NODES_OF_CHUNK]
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: NodeId) -> &mut Node {
        let index = id.0 as usize;
        &mut self.chunks[index / NODES_OF_CHUNK][index % NODES_OF_CHUNK]
    }

    #[cold]
    pub(super) fn add(&mut self) -> NodeId {
        if self.added == self.chunks.len() * NODES_OF_CHUNK {
            let chunk: Box<[Node]> = (0..NODES_OF_CHUNK).map(|_| Node::NONE).collect();
            self.chunks.push(chunk.try_into().expect("as many as a chunk has"));
        }
        let id = u32::try_from(self.added).expect("four billion ranges");
        self.added += 1;
        NodeId(id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Node> {
        self.chunks.iter().flat_map(|chunk| chunk.iter()).take(self.added)
    }
}

/// A free node, and a place in it where a range can begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::pool) struct Found {
    pub(super) node: NodeId,
    pub(super) start: u64,
}

/// Whether a range that is taken out of a free one keeps the points of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeepPoints {
    /// Yes: other streams that get a part of it have to come after them.
    Yes,
    /// No: the stream that takes it comes after them.
    No,
}

/// How many ranges of one bin are looked at for the best: enough to be nearly best, few enough to be fast.
const LOOKED_AT: usize = 8;

/// All nodes of a span.
#[derive(Debug)]
pub(in crate::pool) struct Heap {
    nodes: Nodes,
    unused: Vec<NodeId>,
    bins: Bins,
}

impl Heap {
    pub(super) fn new(span_bytes: u64) -> Heap {
        let mut heap = Heap { nodes: Nodes::new(), unused: Vec::new(), bins: Bins::new() };
        let all = heap.add(Node { bytes: span_bytes, ..Node::NONE });
        heap.bin(all);
        heap
    }

    /// A span of which no part belongs to the pool yet.
    pub(super) fn outside(span_bytes: u64) -> (Heap, NodeId) {
        let mut heap = Heap { nodes: Nodes::new(), unused: Vec::new(), bins: Bins::new() };
        let all = heap.add(Node { bytes: span_bytes, used_for: Use::Outside, ..Node::NONE });
        (heap, all)
    }

    /// Makes a part of an outside node free. It never merges with the node below it. Returns it, and the outside node above it.
    pub(super) fn open(
        &mut self,
        outside: NodeId,
        start: u64,
        bytes: u64,
    ) -> (NodeId, Option<NodeId>) {
        let is_within = self.node(outside).start < start;
        let opened = if is_within {
            self.split(outside, start, Use::Outside, KeepPoints::Yes)
        } else {
            outside
        };
        let has_above = self.node(opened).bytes > bytes;
        let above =
            has_above.then(|| self.split(opened, start + bytes, Use::Outside, KeepPoints::Yes));
        let node = self.node_mut(opened);
        (node.used_for, node.stands_alone) = (Use::Free, true);
        self.bin(opened);
        (opened, above)
    }

    /// Undoes [`open`](Self::open) of a node that is free again. Returns the outside node that it is part of now, and where the outside
    /// node above it began that is part of that, too.
    pub(super) fn close(&mut self, id: NodeId) -> (NodeId, Option<u64>) {
        debug_assert_eq!(self.node(id).used_for, Use::Free);
        self.unbin(id);
        let node = self.node_mut(id);
        (node.used_for, node.stands_alone) = (Use::Outside, false);
        node.points = Points::default();
        let outside = |heap: &Heap, link: Link| {
            link.get().filter(|other| heap.node(*other).used_for == Use::Outside)
        };
        let above = outside(self, self.node(id).next);
        let began = above.map(|above| self.node(above).start);
        if let Some(above) = above {
            self.absorb(id, above);
        }
        match outside(self, self.node(id).prev) {
            Some(below) => {
                self.absorb(below, id);
                (below, began)
            }
            None => (id, began),
        }
    }

    #[inline]
    pub(super) fn node(&self, id: NodeId) -> &Node {
        self.nodes.get(id)
    }

    #[inline]
    pub(super) fn node_mut(&mut self, id: NodeId) -> &mut Node {
        self.nodes.get_mut(id)
    }

    /// A free node that can hold `bytes` at a multiple of `align`, as small as possible, among those that are `acceptable`, given where
    /// the bytes would begin. Looks at a bounded number of nodes in each bin, and at little more than `most` in all.
    #[inline]
    pub(super) fn find(
        &self,
        bytes: u64,
        align: u64,
        most: usize,
        acceptable: impl Fn(&Node, u64) -> bool,
    ) -> Option<Found> {
        let mut bin = self.bins.first_from(Bin::of(bytes))?;
        let mut looked_at = 0;
        loop {
            let (best, count) = self.best_of(bin, bytes, align, &acceptable);
            if best.is_some() {
                return best;
            }
            looked_at += count;
            bin = if looked_at < most {
                self.bins.next_after(bin)?
            } else {
                // The end of the span is last; it holds anything, if it is acceptable at all.
                self.bins.last().filter(|last| *last > bin)?
            };
        }
    }

    /// The smallest node of a bin that will do, of those that are looked at, and how many these are.
    #[inline]
    fn best_of(
        &self,
        bin: Bin,
        bytes: u64,
        align: u64,
        acceptable: &impl Fn(&Node, u64) -> bool,
    ) -> (Option<Found>, usize) {
        let mut best: Option<Found> = None;
        let (mut least, mut lowest) = (u64::MAX, u64::MAX);
        let mut next = self.bins.head(bin);
        for looked_at in 0..LOOKED_AT {
            let Some(node_id) = next.get() else { return (best, looked_at) };
            let node = self.node(node_id);
            if (node.bytes, node.start) < (least, lowest)
                && let Some(start) = position(node, bytes, align)
                && acceptable(node, start)
            {
                (least, lowest) = (node.bytes, node.start);
                best = Some(Found { node: node_id, start });
            }
            next = node.bin_next;
        }
        (best, LOOKED_AT)
    }

    /// The free node that can hold `bytes` at a multiple of `align` and has the lowest score. Looks at all of them. Slow.
    pub(super) fn find_lowest(
        &self,
        bytes: u64,
        align: u64,
        score: impl Fn(&Node, u64) -> Option<u64>,
    ) -> Option<Found> {
        let scored = self.largest_first(bytes).filter_map(|id| {
            let node = self.node(id);
            let start = position(node, bytes, align)?;
            Some((score(node, start)?, node.start, Found { node: id, start }))
        });
        scored.min_by_key(|(score, lowest, _)| (*score, *lowest)).map(|(_, _, found)| found)
    }

    /// Every node. Slow.
    pub(in crate::pool) fn all(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| node.bytes > 0)
    }

    /// Free nodes of at least `bytes`, the smallest bins first, as long as `look` wants more.
    #[inline]
    pub(super) fn each_from_smallest(
        &self,
        bytes: u64,
        mut look: impl FnMut(NodeId, &Node) -> bool,
    ) {
        let mut next_bin = self.bins.first_from(Bin::of(bytes));
        while let Some(bin) = next_bin {
            let mut next = self.bins.head(bin);
            while let Some(id) = next.get() {
                let node = self.node(id);
                if node.bytes >= bytes && !look(id, node) {
                    return;
                }
                next = node.bin_next;
            }
            next_bin = self.bins.next_after(bin);
        }
    }

    /// The free node at the end of the span, if there is one.
    pub(super) fn at_end(&self) -> Option<NodeId> {
        let is_end = |id: &NodeId| self.node(*id).next == Link::NONE;
        // Nearly always the largest of all.
        self.largest_first(0).find(is_end)
    }

    /// Free nodes of at least `bytes`, the largest bins first.
    pub(super) fn largest_first(&self, bytes: u64) -> impl Iterator<Item = NodeId> + '_ {
        let least = Bin::of(bytes);
        let bins = std::iter::successors(self.bins.last(), |bin| self.bins.last_before(*bin));
        bins.take_while(move |bin| *bin >= least).flat_map(|bin| {
            std::iter::successors(self.bins.head(bin).get(), |id| self.node(*id).bin_next.get())
        })
    }

    /// Takes a range out of the free node around it: `bytes` from where they were found to fit. It has the points of that node, and so
    /// have the rests that stay free below and above it.
    pub(super) fn take(&mut self, found: Found, bytes: u64, used_for: Use) -> NodeId {
        self.take_range(found, bytes, used_for, KeepPoints::Yes)
    }

    /// As [`take`](Self::take), for a stream that comes after the points: the range that is taken has none.
    #[inline]
    pub(super) fn take_ordered(&mut self, found: Found, bytes: u64, used_for: Use) -> NodeId {
        self.take_range(found, bytes, used_for, KeepPoints::No)
    }

    #[inline(always)]
    fn take_range(
        &mut self,
        found: Found,
        bytes: u64,
        used_for: Use,
        keep_points: KeepPoints,
    ) -> NodeId {
        let Found { node: id, start } = found;
        let node = self.node(id);
        debug_assert_eq!(node.used_for, Use::Free);
        let (begin, end) = (node.start, start + bytes);
        let has_above = end < node.end();
        let taken = if begin < start {
            let keep_points = if has_above { KeepPoints::Yes } else { keep_points };
            let taken = self.split(id, start, used_for, keep_points);
            // The rest below it has become smaller in place.
            let rest = self.node(id);
            let bin = Bin::of(rest.bytes);
            if bin != rest.bin {
                self.unbin(id);
                self.bin_in(bin, id);
            }
            taken
        } else {
            self.unbin(id);
            self.node_mut(id).used_for = used_for;
            id
        };
        if has_above {
            let above = self.split(taken, end, Use::Free, KeepPoints::Yes);
            self.bin(above);
        }
        if keep_points == KeepPoints::No {
            self.node_mut(taken).points = Points::NONE;
        }
        taken
    }

    /// Frees a node and merges it with its free neighbours; returns the merged node.
    #[inline]
    pub(super) fn free(&mut self, id: NodeId) -> NodeId {
        let node = self.node_mut(id);
        debug_assert_ne!(node.used_for, Use::Free);
        node.used_for = Use::Free;
        let (prev, next, stands_alone) = (node.prev, node.next, node.stands_alone);
        let mut merged = id;
        if !stands_alone && let Some(prev) = self.free_node(prev) {
            self.unbin(prev);
            self.absorb(prev, id);
            merged = prev;
        }
        if let Some(next) = self.free_node(next)
            && !self.node(next).stands_alone
        {
            self.unbin(next);
            self.absorb(merged, next);
        }
        self.bin(merged);
        merged
    }

    /// Takes a range out of a node in use. The rests below and above it keep the node's use, and all parts have its points.
    pub(super) fn cut(&mut self, found: Found, bytes: u64, used_for: Use) -> NodeId {
        let Found { node: mut id, start } = found;
        let rest = self.node(id).used_for;
        debug_assert_ne!(rest, Use::Free);
        if self.node(id).start < start {
            id = self.split(id, start, rest, KeepPoints::Yes);
        }
        if start + bytes < self.node(id).end() {
            self.split(id, start + bytes, rest, KeepPoints::Yes);
        }
        self.node_mut(id).used_for = used_for;
        id
    }

    fn free_node(&self, link: Link) -> Option<NodeId> {
        // None is not free.
        (self.node(link.node()).used_for == Use::Free).then_some(link.node())
    }

    /// The free nodes beside a node.
    pub(super) fn free_neighbours(&self, id: NodeId) -> impl Iterator<Item = NodeId> + use<> {
        let node = self.node(id);
        [self.free_node(node.prev), self.free_node(node.next)].into_iter().flatten()
    }

    /// Cuts a node in two; the upper part is new.
    #[inline(always)]
    fn split(&mut self, id: NodeId, at: u64, used_for: Use, keep_points: KeepPoints) -> NodeId {
        let upper = self.add_empty();
        let node = self.node_mut(id);
        let bytes = node.end() - at;
        node.bytes = at - node.start;
        let next = node.next;
        node.next = Link::to(upper);
        let points = match keep_points {
            KeepPoints::Yes => node.points.clone(),
            KeepPoints::No => Points::NONE,
        };
        // Field by field: a processor cannot forward a copy in one piece from the stores that put it together, and waits.
        let node = self.node_mut(upper);
        (node.start, node.bytes) = (at, bytes);
        (node.used_for, node.stands_alone) = (used_for, false);
        (node.prev, node.next) = (Link::to(id), next);
        node.points = points;
        self.node_mut(next.node()).prev = Link::to(upper);
        upper
    }

    /// Adds a node's upper neighbour to it.
    #[inline(always)]
    fn absorb(&mut self, id: NodeId, upper: NodeId) {
        self.unused.push(upper);
        let gone = self.node_mut(upper);
        let (bytes, next, points) = (gone.bytes, gone.next, gone.points.take());
        gone.bytes = 0;
        let node = self.node_mut(id);
        debug_assert_eq!(node.next, Link::to(upper));
        node.bytes += bytes;
        node.next = next;
        node.points.merge(points);
        self.node_mut(next.node()).prev = Link::to(id);
    }

    fn add(&mut self, node: Node) -> NodeId {
        let id = self.add_empty();
        *self.node_mut(id) = node;
        id
    }

    /// A node that lies nowhere. It has no points; its other fields may have any value.
    #[inline]
    fn add_empty(&mut self) -> NodeId {
        self.unused.pop().unwrap_or_else(|| self.nodes.add())
    }

    #[inline(always)]
    fn bin(&mut self, id: NodeId) {
        self.bin_in(Bin::of(self.node(id).bytes), id);
    }

    /// As [`bin`](Self::bin), where it belongs.
    #[inline(always)]
    fn bin_in(&mut self, bin: Bin, id: NodeId) {
        debug_assert_eq!(self.node(id).used_for, Use::Free);
        let head = self.bins.put(bin, id);
        let node = self.node_mut(id);
        (node.bin, node.bin_prev, node.bin_next) = (bin, Link::NONE, head);
        self.node_mut(head.node()).bin_prev = Link::to(id);
    }

    #[inline(always)]
    fn unbin(&mut self, id: NodeId) {
        let node = self.node(id);
        let (bin, prev, next) = (node.bin, node.bin_prev, node.bin_next);
        self.node_mut(prev.node()).bin_next = next;
        self.node_mut(next.node()).bin_prev = prev;
        let head = if prev == Link::NONE { next } else { self.bins.head(bin) };
        self.bins.set_head(bin, head);
    }

    /// Checks everything that must hold between nodes. Slow.
    pub(super) fn assert_valid(&self, span_bytes: u64) {
        let first = self
            .nodes
            .iter()
            .position(|node| node.bytes > 0 && node.start == 0)
            .expect("something is at 0");
        let mut at = Some(NodeId(first as u32));
        let (mut end, mut seen, mut was_free) = (0, 0, false);
        let mut prev = None;
        while let Some(id) = at {
            let node = self.node(id);
            assert_eq!(
                (node.start, node.prev.get()),
                (end, prev),
                "{id:?} does not follow its neighbour"
            );
            let free = node.used_for == Use::Free;
            let apart = node.stands_alone || !free || !was_free;
            assert!(apart, "free neighbours at {end:#x}");
            let mut binned = self.bins.head(Bin::of(node.bytes)).get();
            while binned.is_some_and(|other| other != id) {
                binned = binned.and_then(|other| self.node(other).bin_next.get());
            }
            assert!(!free || node.bin == Bin::of(node.bytes), "{id:?} knows its bin");
            assert_eq!(binned.is_some(), free, "{id:?} is in a bin iff it is free");
            (end, was_free, prev, at) = (node.end(), free, Some(id), node.next.get());
            seen += 1;
        }
        assert_eq!(end, span_bytes);
        assert_eq!(1 + seen + self.unused.len(), self.nodes.added);
    }
}

/// Where in a free node `bytes` would go, if they fit. The alignment is a power of two.
#[inline]
pub(super) fn position(node: &Node, bytes: u64, align: u64) -> Option<u64> {
    debug_assert!(align.is_power_of_two());
    let is_end_of_span = node.next == Link::NONE;
    let start = if is_end_of_span {
        (node.start + align - 1) & !(align - 1)
    } else {
        node.end().checked_sub(bytes)? & !(align - 1)
    };
    (start >= node.start && start + bytes <= node.end()).then_some(start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::back::bins::STEP_BYTES;

    const SPAN: u64 = 1 << 40;

    /// Random placements and frees beside a simple list of the taken ranges.
    #[test]
    fn nodes_tile_the_span_whatever_is_placed_and_freed() {
        for seed in 0..50 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut heap = Heap::new(SPAN);
            let mut taken: Vec<(u64, u64, NodeId)> = Vec::new();
            for _ in 0..300 {
                if rng.bool() || taken.is_empty() {
                    let power = rng.u32(0..14);
                    let bytes = rng.u64(1..=1 << power) * STEP_BYTES;
                    let align = if rng.u8(0..4) == 0 { 32 << 10 } else { STEP_BYTES };
                    let found =
                        heap.find(bytes, align, 64, |_, _| true).expect("the span is large");
                    let node = heap.take(found, bytes, Use::Block);
                    let start = heap.node(node).start;
                    assert!(
                        start.is_multiple_of(align) && heap.node(node).bytes == bytes,
                        "seed {seed}"
                    );
                    let overlaps = |(other, size, _): &(u64, u64, NodeId)| {
                        start < other + size && *other < start + bytes
                    };
                    assert!(!taken.iter().any(overlaps), "seed {seed}: overlap at {start:#x}");
                    taken.push((start, bytes, node));
                } else {
                    let (_, _, node) = taken.swap_remove(rng.usize(0..taken.len()));
                    heap.free(node);
                }
                heap.assert_valid(SPAN);
            }
            for (_, _, node) in taken {
                heap.free(node);
            }
            heap.assert_valid(SPAN);
            assert_eq!(heap.largest_first(SPAN).count(), 1, "seed {seed}: everything is one again");
        }
    }

    #[test]
    fn the_smallest_hole_that_fits_is_taken() {
        let mut heap = Heap::new(SPAN);
        let sizes = [100, 1, 40, 1, 70, 1].map(|steps| steps * STEP_BYTES);
        let nodes = sizes.map(|bytes| {
            let found = heap.find(bytes, STEP_BYTES, 64, |_, _| true).expect("the span is large");
            heap.take(found, bytes, Use::Block)
        });
        for node in [nodes[0], nodes[2], nodes[4]] {
            heap.free(node);
        }
        let found =
            heap.find(41 * STEP_BYTES, STEP_BYTES, 64, |_, _| true).expect("holes of 70 and 100");
        assert_eq!(heap.node(found.node).bytes, 70 * STEP_BYTES);
        let node = heap.take(found, 41 * STEP_BYTES, Use::Block);
        assert_eq!(heap.node(node).end(), (100 + 1 + 40 + 1 + 70) * STEP_BYTES, "its upper end");
    }
}
