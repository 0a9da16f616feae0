//! Where blocks lie in the pool's virtual addresses: best fit, merged at once.
//!
//! The heap is arithmetic on offsets; it knows no memory and no driver. Every byte of the span belongs to
//! exactly one node, nodes are linked in address order, and free nodes are binned by size.

use super::bins::{Bin, Bins};
use super::points::Points;
use crate::chunks::Chunks;

/// A node of the heap. Ids are reused once their node is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct NodeId(pub(super) u32);

/// What a node's bytes are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Nobody's. No two free nodes are neighbours.
    Free,
    /// A user's, or a cache's: one block.
    Block,
    /// A slab's.
    Slab,
    /// Nobody's, but its old mapping may still be in use.
    Leaving,
    /// Not the pool's: addresses between the driver's allocations, where the pool has no addresses of its own.
    Outside,
}

/// A range of addresses.
///
/// `Σ nodes = span`; `prev.start + prev.bytes = start`; a node is in the bin of its size iff it is free.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) start: u64,
    pub(super) bytes: u64,
    pub(super) used_for: Use,
    /// It begins memory of its own, and so does not merge with what lies below it.
    stands_alone: bool,
    /// What must have happened before these bytes may be used again.
    pub(super) points: Points,
    prev: Link,
    next: Link,
    bin_prev: Link,
    bin_next: Link,
}

/// A node or none, in four bytes: nodes are what a search has to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Link(u32);

impl Link {
    const NONE: Link = Link(u32::MAX);

    #[inline]
    fn to(id: Option<NodeId>) -> Link {
        id.map_or(Link::NONE, |id| Link(id.0))
    }

    #[inline]
    fn get(self) -> Option<NodeId> {
        (self != Link::NONE).then_some(NodeId(self.0))
    }
}

impl Node {
    pub(super) fn end(&self) -> u64 {
        self.start + self.bytes
    }
}

/// How many ranges of one bin are looked at for the best: enough to be nearly best, few enough to be fast.
const LOOKED_AT: usize = 8;
/// How many are looked at in all.
const MOST_LOOKED_AT: usize = 64;

/// All nodes of a span.
#[derive(Debug)]
pub(super) struct Heap {
    /// In chunks, so that no allocation waits while millions of nodes are copied.
    nodes: Chunks<Node, 1024>,
    unused: Vec<NodeId>,
    bins: Bins,
}

impl Heap {
    pub(super) fn new(span_bytes: u64) -> Heap {
        let mut heap = Heap { nodes: Chunks::new(), unused: Vec::new(), bins: Bins::new() };
        let all = heap.add(0, span_bytes, Points::default());
        heap.bin(all);
        heap
    }

    /// A span of which nothing belongs to the pool yet.
    pub(super) fn outside(span_bytes: u64) -> (Heap, NodeId) {
        let mut heap = Heap { nodes: Chunks::new(), unused: Vec::new(), bins: Bins::new() };
        let all = heap.add(0, span_bytes, Points::default());
        heap.node_mut(all).used_for = Use::Outside;
        (heap, all)
    }

    /// Makes a part of an outside node free. It never merges with what lies below it. Returns it and what is still outside
    /// above it.
    pub(super) fn open(
        &mut self,
        outside: NodeId,
        start: u64,
        bytes: u64,
    ) -> (NodeId, Option<NodeId>) {
        let opened =
            if self.node(outside).start < start { self.split(outside, start) } else { outside };
        let above = (self.node(opened).bytes > bytes).then(|| self.split(opened, start + bytes));
        if let Some(above) = above {
            self.node_mut(above).used_for = Use::Outside;
        }
        let node = self.node_mut(opened);
        (node.used_for, node.stands_alone) = (Use::Free, true);
        self.bin(opened);
        (opened, above)
    }

    /// Undoes [`open`](Self::open) of a node that is free again. Returns what it has become, and where an outside node that has
    /// become part of it began.
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
        if above.is_some() {
            self.merge_next(id);
        }
        match outside(self, self.node(id).prev) {
            Some(below) => {
                self.merge_next(below);
                (below, began)
            }
            None => (id, began),
        }
    }

    #[inline]
    pub(super) fn node(&self, id: NodeId) -> &Node {
        self.nodes.get(id.0 as usize).expect("ids are of nodes")
    }

    #[inline]
    pub(super) fn node_mut(&mut self, id: NodeId) -> &mut Node {
        self.nodes.get_mut(id.0 as usize).expect("ids are of nodes")
    }

    /// A free node that can hold `bytes` at a multiple of `align`, as small as possible, among those that are
    /// acceptable. Looks at a bounded number of nodes in each bin.
    pub(super) fn find(
        &self,
        bytes: u64,
        align: u64,
        acceptable: impl Fn(&Node) -> bool,
    ) -> Option<NodeId> {
        let mut bin = Bin::of(bytes);
        let mut looked_at = 0;
        loop {
            let mut best: Option<(u64, u64, NodeId)> = None;
            let mut next = self.bins.head(bin);
            for _ in 0..LOOKED_AT {
                let Some(id) = next else { break };
                looked_at += 1;
                let node = self.node(id);
                let better =
                    best.is_none_or(|(least, start, _)| (node.bytes, node.start) < (least, start));
                if better && position(node, bytes, align).is_some() && acceptable(node) {
                    best = Some((node.bytes, node.start, id));
                }
                next = node.bin_next.get();
            }
            if let Some((_, _, id)) = best {
                return Some(id);
            }
            bin = if looked_at < MOST_LOOKED_AT {
                self.bins.next_after(bin)?
            } else {
                // The end of the span is last; it holds anything, if it is acceptable at all.
                self.bins.last().filter(|last| *last > bin)?
            };
        }
    }

    /// The free node that can hold `bytes` at a multiple of `align` and has the lowest score. Looks at all of them. Slow.
    pub(super) fn find_lowest(
        &self,
        bytes: u64,
        align: u64,
        score: impl Fn(&Node) -> Option<u64>,
    ) -> Option<NodeId> {
        let scored = self.largest_first(bytes).filter_map(|id| {
            let node = self.node(id);
            position(node, bytes, align)?;
            Some((score(node)?, node.start, id))
        });
        scored.min().map(|(_, _, id)| id)
    }

    /// Every node. Slow.
    pub(super) fn all(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| node.bytes > 0)
    }

    /// Free nodes of at least `bytes`, the largest bins first.
    pub(super) fn largest_first(&self, bytes: u64) -> impl Iterator<Item = NodeId> + '_ {
        let least = Bin::of(bytes);
        let bins = std::iter::successors(self.bins.last(), |bin| self.bins.last_before(*bin));
        bins.take_while(move |bin| *bin >= least).flat_map(|bin| {
            std::iter::successors(self.bins.head(bin), |id| self.node(*id).bin_next.get())
        })
    }

    /// Takes `bytes` out of a free node, at its upper end, so that the rest stays where it can merge; the
    /// unused end of the span is taken from below.
    pub(super) fn take(&mut self, id: NodeId, bytes: u64, align: u64, used_for: Use) -> NodeId {
        let start =
            position(self.node(id), bytes, align).expect("the node was found for this size");
        self.take_at(id, start, bytes, used_for)
    }

    /// Takes an exact range out of the free node around it.
    pub(super) fn take_at(&mut self, id: NodeId, start: u64, bytes: u64, used_for: Use) -> NodeId {
        debug_assert_eq!(self.node(id).used_for, Use::Free);
        let below_bytes = start - self.node(id).start;
        if below_bytes > 0 {
            let (old, new) = (Bin::of(self.node(id).bytes), Bin::of(below_bytes));
            if old != new {
                self.unbin(id);
            }
            let above = self.split(id, start);
            if old != new {
                self.bin(id);
            }
            return self.take_front(above, bytes, used_for);
        }
        self.unbin(id);
        self.take_front(id, bytes, used_for)
    }

    fn take_front(&mut self, id: NodeId, bytes: u64, used_for: Use) -> NodeId {
        if self.node(id).bytes > bytes {
            let rest = self.split(id, self.node(id).start + bytes);
            self.bin(rest);
        }
        self.node_mut(id).used_for = used_for;
        id
    }

    /// Frees a node and merges it with its free neighbours; returns what it has become.
    pub(super) fn free(&mut self, id: NodeId) -> NodeId {
        debug_assert_ne!(self.node(id).used_for, Use::Free);
        self.node_mut(id).used_for = Use::Free;
        let mut merged = id;
        if !self.node(id).stands_alone
            && let Some(prev) = self.free_node(self.node(id).prev)
        {
            self.unbin(prev);
            self.merge_next(prev);
            merged = prev;
        }
        if let Some(next) = self.free_node(self.node(merged).next)
            && !self.node(next).stands_alone
        {
            self.unbin(next);
            self.merge_next(merged);
        }
        self.bin(merged);
        merged
    }

    fn free_node(&self, link: Link) -> Option<NodeId> {
        link.get().filter(|id| self.node(*id).used_for == Use::Free)
    }

    /// The free nodes beside a node.
    pub(super) fn free_neighbours(&self, id: NodeId) -> impl Iterator<Item = NodeId> + use<> {
        let node = self.node(id);
        [self.free_node(node.prev), self.free_node(node.next)].into_iter().flatten()
    }

    /// Cuts a node in two; the upper part is new.
    fn split(&mut self, id: NodeId, at: u64) -> NodeId {
        let node = self.node_mut(id);
        let upper_bytes = node.end() - at;
        node.bytes = at - node.start;
        let (next, points) = (node.next, node.points.clone());
        let upper = self.add(at, upper_bytes, points);
        let node = self.node_mut(upper);
        (node.prev, node.next) = (Link::to(Some(id)), next);
        self.node_mut(id).next = Link::to(Some(upper));
        if let Some(next) = next.get() {
            self.node_mut(next).prev = Link::to(Some(upper));
        }
        upper
    }

    /// Adds a node's upper neighbour to it.
    fn merge_next(&mut self, id: NodeId) {
        let upper = self.node(id).next.get().expect("there is an upper neighbour");
        let gone = self.node_mut(upper);
        let (bytes, next, points) = (gone.bytes, gone.next, std::mem::take(&mut gone.points));
        gone.bytes = 0;
        self.unused.push(upper);
        let node = self.node_mut(id);
        node.bytes += bytes;
        node.next = next;
        node.points.merge(points);
        if let Some(next) = next.get() {
            self.node_mut(next).prev = Link::to(Some(id));
        }
    }

    fn add(&mut self, start: u64, bytes: u64, points: Points) -> NodeId {
        let node = Node {
            start,
            bytes,
            used_for: Use::Free,
            stands_alone: false,
            points,
            prev: Link::NONE,
            next: Link::NONE,
            bin_prev: Link::NONE,
            bin_next: Link::NONE,
        };
        match self.unused.pop() {
            Some(id) => {
                *self.node_mut(id) = node;
                id
            }
            None => {
                self.nodes.push(node);
                NodeId(self.nodes.len() as u32 - 1)
            }
        }
    }

    fn bin(&mut self, id: NodeId) {
        let bin = Bin::of(self.node(id).bytes);
        let head = self.bins.head(bin);
        let node = self.node_mut(id);
        (node.bin_prev, node.bin_next) = (Link::NONE, Link::to(head));
        if let Some(head) = head {
            self.node_mut(head).bin_prev = Link::to(Some(id));
        }
        self.bins.set_head(bin, Some(id));
    }

    fn unbin(&mut self, id: NodeId) {
        let node = self.node(id);
        let (bytes, prev, next) = (node.bytes, node.bin_prev, node.bin_next);
        match prev.get() {
            Some(prev) => self.node_mut(prev).bin_next = next,
            None => self.bins.set_head(Bin::of(bytes), next.get()),
        }
        if let Some(next) = next.get() {
            self.node_mut(next).bin_prev = prev;
        }
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
            let mut binned = self.bins.head(Bin::of(node.bytes));
            while binned.is_some_and(|other| other != id) {
                binned = binned.and_then(|other| self.node(other).bin_next.get());
            }
            assert_eq!(binned.is_some(), free, "{id:?} is in a bin iff it is free");
            (end, was_free, prev, at) = (node.end(), free, Some(id), node.next.get());
            seen += 1;
        }
        assert_eq!(end, span_bytes);
        assert_eq!(seen + self.unused.len(), self.nodes.len());
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
    use crate::pool::bins::STEP_BYTES;

    const SPAN: u64 = 1 << 40;

    /// Random placements and frees beside a simple list of what is taken.
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
                    let found = heap.find(bytes, align, |_| true).expect("the span is large");
                    let node = heap.take(found, bytes, align, Use::Block);
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
            let found = heap.find(bytes, STEP_BYTES, |_| true).expect("the span is large");
            heap.take(found, bytes, STEP_BYTES, Use::Block)
        });
        for node in [nodes[0], nodes[2], nodes[4]] {
            heap.free(node);
        }
        let found = heap.find(41 * STEP_BYTES, STEP_BYTES, |_| true).expect("holes of 70 and 100");
        assert_eq!(heap.node(found).bytes, 70 * STEP_BYTES);
        let node = heap.take(found, 41 * STEP_BYTES, STEP_BYTES, Use::Block);
        assert_eq!(heap.node(node).end(), (100 + 1 + 40 + 1 + 70) * STEP_BYTES, "its upper end");
    }
}
