//! Ordered sets whose nodes lie in one table, so that they never allocate once it has grown.
//!
//! A treap: a search tree by key, a heap by priorities that are random, and so as deep as a few times the logarithm of its size. A
//! node has a weight beside its key and knows the greatest weight below it: "the first that weighs so much" is one way down.

/// The number of a node: whoever uses the table hands numbers out.
pub(super) type NodeId = u32;

const NONE: NodeId = u32::MAX;

/// What a set is ordered by.
pub(super) type Key = (u64, u64);

/// `left.key < key < right.key`, `priority ≥` that of both, `greatest = max(weight, left.greatest, right.greatest)`.
#[derive(Clone, Copy, Debug)]
struct Node {
    key: Key,
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

    pub(super) fn is_empty(self) -> bool {
        self.0 == NONE
    }
}

/// The nodes of any number of sets. A node is in one set at most.
#[derive(Debug)]
pub(super) struct Treap {
    nodes: Vec<Node>,
    random: u32,
}

impl Default for Treap {
    fn default() -> Self {
        Treap { nodes: Vec::new(), random: 0x9E37_79B9 }
    }
}

impl Treap {
    /// Adds a node that is in no set.
    pub(super) fn insert(&mut self, root: &mut Root, id: NodeId, key: Key, weight: u64) {
        // Xorshift: nobody chooses keys to match it, and runs repeat.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        let priority = self.random;
        let node = Node { key, weight, greatest: weight, left: NONE, right: NONE, priority };
        if self.nodes.len() <= id as usize {
            self.nodes.resize(id as usize + 1, node);
        }
        self.nodes[id as usize] = node;
        root.0 = self.inserted(root.0, id);
    }

    fn inserted(&mut self, at: NodeId, id: NodeId) -> NodeId {
        if at == NONE {
            return id;
        }
        let (node, new) = (self.nodes[at as usize], self.nodes[id as usize]);
        if node.priority < new.priority {
            let (left, right) = self.split(at, new.key);
            let new = &mut self.nodes[id as usize];
            (new.left, new.right) = (left, right);
            self.weigh(id);
            return id;
        }
        if new.key < node.key {
            self.nodes[at as usize].left = self.inserted(node.left, id);
        } else {
            self.nodes[at as usize].right = self.inserted(node.right, id);
        }
        self.weigh(at);
        at
    }

    /// Those below a key, and the others.
    fn split(&mut self, at: NodeId, key: Key) -> (NodeId, NodeId) {
        if at == NONE {
            return (NONE, NONE);
        }
        let node = self.nodes[at as usize];
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
        let Node { key, .. } = self.nodes[id as usize];
        root.0 = self.removed(root.0, id, key);
    }

    fn removed(&mut self, at: NodeId, id: NodeId, key: Key) -> NodeId {
        debug_assert_ne!(at, NONE, "the node is in the set");
        let node = self.nodes[at as usize];
        if at == id {
            return self.joined(node.left, node.right);
        }
        if key < node.key {
            self.nodes[at as usize].left = self.removed(node.left, id, key);
        } else {
            self.nodes[at as usize].right = self.removed(node.right, id, key);
        }
        self.weigh(at);
        at
    }

    fn joined(&mut self, left: NodeId, right: NodeId) -> NodeId {
        if left == NONE {
            return right;
        }
        if right == NONE {
            return left;
        }
        let (low, high) = (self.nodes[left as usize], self.nodes[right as usize]);
        let top = if low.priority >= high.priority {
            self.nodes[left as usize].right = self.joined(low.right, right);
            left
        } else {
            self.nodes[right as usize].left = self.joined(left, high.left);
            right
        };
        self.weigh(top);
        top
    }

    #[inline]
    fn weigh(&mut self, at: NodeId) {
        let Node { weight, left, right, .. } = self.nodes[at as usize];
        let below = |id: NodeId| if id == NONE { 0 } else { self.nodes[id as usize].greatest };
        self.nodes[at as usize].greatest = weight.max(below(left)).max(below(right));
    }

    /// The first node whose key is no less than this.
    #[inline]
    pub(super) fn first_from(&self, root: Root, key: Key) -> Option<NodeId> {
        let (mut at, mut found) = (root.0, None);
        while at != NONE {
            let node = &self.nodes[at as usize];
            if node.key < key {
                at = node.right;
            } else {
                found = Some(at);
                at = node.left;
            }
        }
        found
    }

    /// The first node that weighs at least so much.
    #[inline]
    pub(super) fn first_weighing(&self, root: Root, weight: u64) -> Option<NodeId> {
        let weighs = |id: NodeId| id != NONE && self.nodes[id as usize].greatest >= weight;
        if !weighs(root.0) {
            return None;
        }
        let mut at = root.0;
        loop {
            let node = &self.nodes[at as usize];
            if weighs(node.left) {
                at = node.left;
            } else if node.weight >= weight {
                return Some(at);
            } else {
                at = node.right;
            }
        }
    }

    /// The greatest weight in a set, or 0.
    pub(super) fn greatest(&self, root: Root) -> u64 {
        if root.is_empty() { 0 } else { self.nodes[root.0 as usize].greatest }
    }

    /// The key and the weight of a node.
    #[inline]
    pub(super) fn get(&self, id: NodeId) -> (Key, u64) {
        let Node { key, weight, .. } = self.nodes[id as usize];
        (key, weight)
    }

    /// Gives a node of a set another key and weight. It must stay between its neighbours.
    #[inline]
    pub(super) fn change(&mut self, root: Root, id: NodeId, key: Key, weight: u64) {
        let old = std::mem::replace(&mut self.nodes[id as usize].key, key);
        self.nodes[id as usize].weight = weight;
        self.reweigh(root.0, id, old);
    }

    fn reweigh(&mut self, at: NodeId, id: NodeId, key: Key) {
        if at != id {
            let node = &self.nodes[at as usize];
            let below = if key < node.key { node.left } else { node.right };
            self.reweigh(below, id, key);
        }
        self.weigh(at);
    }

    /// The last node whose key is less than this.
    #[inline]
    pub(super) fn last_before(&self, root: Root, key: Key) -> Option<NodeId> {
        let (mut at, mut found) = (root.0, None);
        while at != NONE {
            let node = &self.nodes[at as usize];
            if node.key < key {
                found = Some(at);
                at = node.right;
            } else {
                at = node.left;
            }
        }
        found
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
        let (mut treap, mut root) = (Treap::default(), Root::EMPTY);
        let mut model: BTreeMap<Key, NodeId> = BTreeMap::new();
        let mut ids: Vec<NodeId> = (0..200).collect();
        for _ in 0..5_000 {
            if rng.bool() && !ids.is_empty() {
                let id = ids.swap_remove(rng.usize(..ids.len()));
                let key = (rng.u64(..50), u64::from(id));
                treap.insert(&mut root, id, key, key.0);
                model.insert(key, id);
            } else if let Some((&key, &id)) = model.iter().nth(rng.usize(..200)) {
                treap.remove(&mut root, id);
                model.remove(&key);
                ids.push(id);
            }
            let key = (rng.u64(..50), rng.u64(..200));
            let from = model.range(key..).next().map(|(_, id)| *id);
            let before = model.range(..key).next_back().map(|(_, id)| *id);
            assert_eq!(treap.first_from(root, key), from);
            assert_eq!(treap.last_before(root, key), before);
            let heavy = rng.u64(..60);
            let first = model.iter().find(|(key, _)| key.0 >= heavy).map(|(_, id)| *id);
            assert_eq!(treap.first_weighing(root, heavy), first);
            let greatest = model.last_key_value().map_or(0, |(key, _)| key.0);
            assert_eq!(treap.greatest(root), greatest);
            assert_eq!(root.is_empty(), model.is_empty());
        }
    }

    #[test]
    fn a_changed_node_weighs_what_it_was_given() {
        let (mut treap, mut root) = (Treap::default(), Root::EMPTY);
        for id in 0..100 {
            treap.insert(&mut root, id, (u64::from(id) * 10, 0), 1);
        }
        treap.change(root, 37, (375, 0), 5);
        assert_eq!(treap.first_weighing(root, 2), Some(37));
        assert_eq!(treap.first_from(root, (371, 0)), Some(37));
        treap.change(root, 37, (370, 0), 0);
        assert_eq!((treap.first_weighing(root, 2), treap.greatest(root)), (None, 1));
    }
}
