//! Ordered sets whose nodes lie in one table, so that they never allocate once it has grown.
//!
//! A treap: a search tree by key, a heap by priorities that are as good as random, and so as deep as a few times the logarithm of its size. A
//! node has a weight beside its key and knows the greatest weight below it: "the first that weighs so much" is one way down.

/// The number of a node: whoever uses the table hands numbers out.
pub(super) type NodeId = u32;

const NONE: NodeId = u32::MAX;

/// What a set can be ordered by: a number, or two (see [`key`]).
pub(super) trait Key: Copy + Ord {
    const LEAST: Self;
    const GREATEST: Self;
}

impl Key for u64 {
    const LEAST: u64 = u64::MIN;
    const GREATEST: u64 = u64::MAX;
}

impl Key for u128 {
    const LEAST: u128 = u128::MIN;
    const GREATEST: u128 = u128::MAX;
}

/// The key of two numbers, of which the second decides between equals.
#[inline]
pub(super) const fn key(first: u64, second: u64) -> u128 {
    (first as u128) << 64 | second as u128
}

/// `left.key < key < right.key`, `priority ≥` that of both, `greatest = max(weight, left.greatest, right.greatest)`.
#[derive(Clone, Copy, Debug)]
struct Node<K> {
    key: K,
    weight: u64,
    greatest: u64,
    left: NodeId,
    right: NodeId,
    priority: u32,
}

/// A set: its topmost node, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Root(NodeId);

impl Root {
    pub(super) const EMPTY: Root = Root(NONE);

    #[inline]
    pub(super) fn is_empty(self) -> bool {
        self.0 == NONE
    }
}

/// The nodes of any number of sets. A node is in one set at most.
///
/// Where weights are not wanted, nothing is spent on them.
#[derive(Debug)]
pub(super) struct Treap<K, const WEIGHED: bool> {
    nodes: Vec<Node<K>>,
    /// The way down to where something has changed; kept for its memory.
    way: Vec<NodeId>,
}

impl<K, const WEIGHED: bool> Default for Treap<K, WEIGHED> {
    fn default() -> Self {
        Treap { nodes: Vec::new(), way: Vec::new() }
    }
}

impl<K: Key, const WEIGHED: bool> Treap<K, WEIGHED> {
    /// Adds a node that is in no set.
    pub(super) fn insert(&mut self, root: &mut Root, id: NodeId, key: K, weight: u64) {
        // As good as random: nobody chooses keys to match it, and runs repeat.
        let mixed = id.wrapping_mul(0x9E37_79B9);
        let priority = (mixed ^ (mixed >> 15)).wrapping_mul(0x85EB_CA6B);
        let node = Node { key, weight, greatest: weight, left: NONE, right: NONE, priority };
        match self.nodes.get_mut(id as usize) {
            Some(place) => *place = node,
            None => self.nodes.resize(id as usize + 1, node),
        }
        if root.is_empty() {
            root.0 = id;
            return;
        }
        self.way.clear();
        let mut at = root.0;
        while at != NONE {
            let node = &self.nodes[at as usize];
            if node.priority < priority {
                break;
            }
            self.way.push(at);
            at = if key < node.key { node.left } else { node.right };
        }
        if at != NONE {
            let (left, right) = self.split(at, key);
            let node = &mut self.nodes[id as usize];
            (node.left, node.right) = (left, right);
            self.weigh(id);
        }
        self.hang(root, id, key);
        self.weigh_upwards();
    }

    /// Puts a subtree at the end of the way that was gone with this key.
    #[inline]
    fn hang(&mut self, root: &mut Root, id: NodeId, key: K) {
        match self.way.last() {
            None => root.0 = id,
            Some(&parent) => {
                let parent = &mut self.nodes[parent as usize];
                *(if key < parent.key { &mut parent.left } else { &mut parent.right }) = id;
            }
        }
    }

    /// Those below a key, and the others.
    fn split(&mut self, at: NodeId, key: K) -> (NodeId, NodeId) {
        if at == NONE {
            return (NONE, NONE);
        }
        let node = &self.nodes[at as usize];
        let parts = if node.key < key {
            let (left, right) = self.split(node.right, key);
            self.nodes[at as usize].right = left;
            (at, right)
        } else {
            let (left, right) = self.split(node.left, key);
            self.nodes[at as usize].left = right;
            (left, at)
        };
        self.weigh(at);
        parts
    }

    /// Takes a node out of its set.
    pub(super) fn remove(&mut self, root: &mut Root, id: NodeId) {
        let Node { key, left, right, .. } = self.nodes[id as usize];
        if root.0 == id {
            root.0 = self.joined(left, right);
            return;
        }
        self.go_to(*root, id, key);
        let below = self.joined(left, right);
        self.hang(root, below, key);
        self.weigh_upwards();
    }

    /// Gives a node of a set another key, wherever that belongs.
    #[inline]
    pub(super) fn rekey(&mut self, root: &mut Root, id: NodeId, key: K) {
        let node = &mut self.nodes[id as usize];
        if root.0 == id && (node.left, node.right) == (NONE, NONE) {
            node.key = key;
        } else {
            let weight = node.weight;
            self.remove(root, id);
            self.insert(root, id, key, weight);
        }
    }

    /// Remembers the way to a node, without it.
    #[inline]
    fn go_to(&mut self, root: Root, id: NodeId, key: K) {
        self.way.clear();
        let mut at = root.0;
        while at != id {
            debug_assert_ne!(at, NONE, "the node is in the set");
            self.way.push(at);
            let node = &self.nodes[at as usize];
            at = if key < node.key { node.left } else { node.right };
        }
    }

    #[inline]
    fn joined(&mut self, left: NodeId, right: NodeId) -> NodeId {
        if left == NONE {
            return right;
        }
        if right == NONE {
            return left;
        }
        self.joined_by_priority(left, right)
    }

    fn joined_by_priority(&mut self, left: NodeId, right: NodeId) -> NodeId {
        let (low, high) = (&self.nodes[left as usize], &self.nodes[right as usize]);
        let top = if low.priority >= high.priority {
            let below = self.joined(low.right, right);
            self.nodes[left as usize].right = below;
            left
        } else {
            let below = self.joined(left, high.left);
            self.nodes[right as usize].left = below;
            right
        };
        self.weigh(top);
        top
    }

    #[inline]
    fn greatest_below(&self, id: NodeId) -> u64 {
        if id == NONE { 0 } else { self.nodes[id as usize].greatest }
    }

    /// Finds the greatest weight below a node anew; says whether it was another.
    #[inline]
    fn weigh(&mut self, at: NodeId) -> bool {
        if !WEIGHED {
            return false;
        }
        let Node { weight, left, right, greatest, .. } = self.nodes[at as usize];
        let now = weight.max(self.greatest_below(left)).max(self.greatest_below(right));
        self.nodes[at as usize].greatest = now;
        now != greatest
    }

    /// After something has changed at the end of the way.
    #[inline]
    fn weigh_upwards(&mut self) {
        if WEIGHED {
            for index in (0..self.way.len()).rev() {
                if !self.weigh(self.way[index]) {
                    break;
                }
            }
        }
    }

    /// The last node whose key is less than this, and the first whose is not.
    #[inline]
    pub(super) fn around(&self, root: Root, key: K) -> (Option<NodeId>, Option<NodeId>) {
        let (mut at, mut below, mut above) = (root.0, None, None);
        while at != NONE {
            let node = &self.nodes[at as usize];
            if node.key < key {
                below = Some(at);
                at = node.right;
            } else {
                above = Some(at);
                at = node.left;
            }
        }
        (below, above)
    }

    /// The first node whose key is no less than this.
    #[inline]
    pub(super) fn first_from(&self, root: Root, key: K) -> Option<NodeId> {
        self.around(root, key).1
    }

    /// The first node.
    #[inline]
    pub(super) fn first(&self, root: Root) -> Option<NodeId> {
        self.first_from(root, K::LEAST)
    }

    /// The last node.
    pub(super) fn last(&self, root: Root) -> Option<NodeId> {
        self.around(root, K::GREATEST).0
    }
}

impl<K: Key> Treap<K, true> {
    /// The first node that weighs at least so much, which is more than 0.
    #[inline]
    pub(super) fn first_weighing(&self, root: Root, weight: u64) -> Option<NodeId> {
        if self.greatest(root) < weight {
            return None;
        }
        let mut at = root.0;
        loop {
            let node = &self.nodes[at as usize];
            if self.greatest_below(node.left) >= weight {
                at = node.left;
            } else if node.weight >= weight {
                return Some(at);
            } else {
                at = node.right;
            }
        }
    }

    /// The greatest weight in a set, or 0.
    #[inline]
    pub(super) fn greatest(&self, root: Root) -> u64 {
        self.greatest_below(root.0)
    }

    /// The key and the weight of a node.
    #[inline]
    pub(super) fn get(&self, id: NodeId) -> (K, u64) {
        let Node { key, weight, .. } = self.nodes[id as usize];
        (key, weight)
    }

    /// Gives a node of a set another key and weight. It must stay between its neighbours.
    #[inline]
    pub(super) fn change(&mut self, root: Root, id: NodeId, key: K, weight: u64) {
        let node = &mut self.nodes[id as usize];
        (node.key, node.weight) = (key, weight);
        // Often something below it weighs more: then nobody above has to know.
        if self.weigh(id) {
            self.go_to(root, id, key);
            self.weigh_upwards();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Random insertions and removals beside a map of the standard library.
    #[test]
    fn it_is_an_ordered_set() {
        let mut rng = fastrand::Rng::with_seed(1);
        let (mut treap, mut root) = (Treap::<u128, true>::default(), Root::EMPTY);
        let mut model: BTreeMap<u128, NodeId> = BTreeMap::new();
        let mut ids: Vec<NodeId> = (0..200).collect();
        let weight = |key: &u128| (key >> 64) as u64;
        for _ in 0..5_000 {
            if rng.bool() && !ids.is_empty() {
                let id = ids.swap_remove(rng.usize(..ids.len()));
                let key = key(rng.u64(..50), u64::from(id));
                treap.insert(&mut root, id, key, weight(&key));
                model.insert(key, id);
            } else if let Some((&key, &id)) = model.iter().nth(rng.usize(..200)) {
                treap.remove(&mut root, id);
                model.remove(&key);
                ids.push(id);
            }
            let key = key(rng.u64(..50), rng.u64(..200));
            let from = model.range(key..).next().map(|(_, id)| *id);
            let before = model.range(..key).next_back().map(|(_, id)| *id);
            assert_eq!(treap.around(root, key), (before, from));
            let heavy = rng.u64(1..60);
            let first = model.iter().find(|(key, _)| weight(key) >= heavy).map(|(_, id)| *id);
            assert_eq!(treap.first_weighing(root, heavy), first);
            let last = model.last_key_value();
            assert_eq!(treap.last(root), last.map(|(_, id)| *id));
            assert_eq!(treap.greatest(root), last.map_or(0, |(key, _)| weight(key)));
            assert_eq!(root.is_empty(), model.is_empty());
        }
    }

    #[test]
    fn a_changed_node_weighs_what_it_was_given() {
        let (mut treap, mut root) = (Treap::<u64, true>::default(), Root::EMPTY);
        for id in 0..100 {
            treap.insert(&mut root, id, u64::from(id) * 10, 1);
        }
        treap.change(root, 37, 375, 5);
        assert_eq!(treap.first_weighing(root, 2), Some(37));
        assert_eq!(treap.first_from(root, 371), Some(37));
        treap.change(root, 37, 370, 0);
        assert_eq!((treap.first_weighing(root, 2), treap.greatest(root)), (None, 1));
    }
}
