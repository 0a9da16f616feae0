//! The pieces that the pool's addresses are cut into.

use std::ops::Range;

use super::bins::Bin;
use super::points::Points;

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
    /// Nobody's, and kept for the stream that freed it. It does not merge with what is free.
    Kept,
    /// Nobody's, but its old mapping may still be in use.
    Leaving,
    /// Not the pool's: addresses between the driver's allocations, where the pool has no addresses of its own.
    Outside,
}

/// A range of addresses.
///
/// `Σ nodes = span`; `prev.start + prev.bytes = start`; a node is in the bin of its size iff it is free.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Node {
    pub(super) start: u64,
    pub(super) bytes: u64,
    /// What must have happened before these bytes may be used again.
    pub(super) points: Points,
    pub(super) prev: Link,
    pub(super) next: Link,
    pub(super) bin_prev: Link,
    pub(super) bin_next: Link,
    /// Where it is while it is free.
    pub(super) bin: Bin,
    pub(super) used_for: Use,
    /// It begins memory of its own, and so does not merge with what lies below it.
    pub(super) stands_alone: bool,
}

/// A line of its own: whoever places or frees a block reads several.
const _: () = assert!(size_of::<Node>() == 64);

/// A node or none, in four bytes: nodes are what a search has to read. None is a node, too, which is nowhere: what is written to it is
/// nobody's, and need not be asked about. Whether a hole has neighbours is as good as random, and would be guessed wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link(u32);

impl Link {
    pub(super) const NONE: Link = Link(0);

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
    pub(super) const NONE: Node = Node {
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
pub(super) struct Nodes {
    chunks: Vec<Box<[Node; NODES_OF_CHUNK]>>,
    pub(super) added: usize,
}

/// Few: whoever needs the first of them writes them all.
const NODES_OF_CHUNK: usize = 128;

impl Nodes {
    /// Only the one that stands for none.
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
