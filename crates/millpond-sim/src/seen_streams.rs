//! How far each of many streams was seen: a map that shares what it has in common with the maps it came from.
//!
//! Streams wait for streams that have waited for others, so one order holds most of another. A copy of it for each stream would take
//! streams × streams of memory and time. These maps are trees that never change: a join keeps every part that only one side has, or that
//! both have from the same origin, and walks only the rest.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Streams in a leaf. Few streams are one leaf, which joins as fast as an array does.
const LEAF_STREAMS: u64 = 16;

/// The newest work that was seen of each stream, by the streams' numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SeenStreams {
    root: Option<Arc<Node>>,
}

/// A part of the map: the streams `first .. first + span`. A branch has streams in both halves of that, and its span is the smallest power of
/// two for which that is so. `oldest ≤ every number in it ≤ newest`.
#[derive(Debug, PartialEq, Eq)]
struct Node {
    first: u64,
    span: u64,
    oldest: u64,
    newest: u64,
    content: Content,
}

#[derive(Debug, PartialEq, Eq)]
enum Content {
    /// 0 where nothing was seen: work is numbered from 1.
    Leaf([u64; LEAF_STREAMS as usize]),
    Branch(Arc<Node>, Arc<Node>),
}

impl SeenStreams {
    /// The newest work that was seen of a stream; 0 if none was.
    pub(crate) fn newest(&self, stream: u32) -> u64 {
        let stream = u64::from(stream);
        let mut node = self.root.as_ref();
        while let Some(here) = node.filter(|node| node.holds(stream)) {
            match &here.content {
                Content::Leaf(seen) => return seen[(stream - here.first) as usize],
                Content::Branch(low, high) => {
                    node = Some(if stream < high.first { low } else { high });
                }
            }
        }
        0
    }

    /// Also the work of this number, of this stream.
    pub(crate) fn add(&mut self, stream: u32, number: u64) {
        debug_assert!(number > 0, "work is numbered from 1");
        let mut seen = [0; LEAF_STREAMS as usize];
        seen[(u64::from(stream) % LEAF_STREAMS) as usize] = number;
        let first = u64::from(stream) / LEAF_STREAMS * LEAF_STREAMS;
        let leaf = Node::leaf(first, seen).expect("one stream is in it");
        self.join(&SeenStreams { root: Some(leaf) });
    }

    /// Also all that the other map has.
    pub(crate) fn join(&mut self, other: &SeenStreams) {
        match (&mut self.root, &other.root) {
            (_, None) => {}
            (root @ None, Some(other)) => *root = Some(Arc::clone(other)),
            (Some(root), Some(other)) => *root = joined(root, other),
        }
    }

    /// Whether it is the same map, by origin. Maps that happen to be equal may say no.
    pub(crate) fn is_same_as(&self, other: &SeenStreams) -> bool {
        match (&self.root, &other.root) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        }
    }

    /// Without work up to a number.
    pub(crate) fn forget_up_to(&mut self, number: u64) {
        self.root = self.root.as_ref().and_then(|root| after(root, number));
    }
}

impl Node {
    fn leaf(first: u64, seen: [u64; LEAF_STREAMS as usize]) -> Option<Arc<Node>> {
        let newest = *seen.iter().max().expect("leaves have places");
        let oldest = *seen.iter().filter(|number| **number > 0).min()?;
        Some(Arc::new(Node {
            first,
            span: LEAF_STREAMS,
            oldest,
            newest,
            content: Content::Leaf(seen),
        }))
    }

    /// What is left of two halves.
    fn of_halves(halves: (Option<Arc<Node>>, Option<Arc<Node>>)) -> Option<Arc<Node>> {
        match halves {
            (Some(low), Some(high)) => Some(Node::branch(low, high)),
            (low, high) => low.or(high),
        }
    }

    fn branch(low: Arc<Node>, high: Arc<Node>) -> Arc<Node> {
        debug_assert!(low.first < high.first);
        // The highest bit in which the two differ tells them apart; all above it is common.
        let half = 1 << (low.first ^ high.first).ilog2();
        Arc::new(Node {
            first: low.first & !(2 * half - 1),
            span: 2 * half,
            oldest: low.oldest.min(high.oldest),
            newest: low.newest.max(high.newest),
            content: Content::Branch(low, high),
        })
    }

    fn holds(&self, stream: u64) -> bool {
        (self.first..self.first + self.span).contains(&stream)
    }
}

/// All that either has. It is one of the two, if that has all that the other has.
fn joined(a: &Arc<Node>, b: &Arc<Node>) -> Arc<Node> {
    if Arc::ptr_eq(a, b) {
        return Arc::clone(a);
    }
    if a.span < b.span && b.holds(a.first) {
        return joined(b, a);
    }
    match (&a.content, &b.content) {
        _ if !a.holds(b.first) => {
            let [low, high] = if a.first < b.first { [a, b] } else { [b, a] };
            Node::branch(Arc::clone(low), Arc::clone(high))
        }
        (Content::Leaf(of_a), Content::Leaf(of_b)) => {
            let both = std::array::from_fn(|i| of_a[i].max(of_b[i]));
            match both {
                both if both == *of_a => Arc::clone(a),
                both if both == *of_b => Arc::clone(b),
                both => Node::leaf(a.first, both).expect("neither is empty"),
            }
        }
        (Content::Branch(low_a, high_a), Content::Branch(low_b, high_b)) if a.span == b.span => {
            let (low, high) = (joined(low_a, low_b), joined(high_a, high_b));
            let is = |own: &Arc<Node>, other: &Arc<Node>| {
                Arc::ptr_eq(own, &low) && Arc::ptr_eq(other, &high)
            };
            match () {
                () if is(low_a, high_a) => Arc::clone(a),
                () if is(low_b, high_b) => Arc::clone(b),
                () => Node::branch(low, high),
            }
        }
        (Content::Branch(low, high), _) => {
            let is_low = b.first < a.first + a.span / 2;
            let half = if is_low { low } else { high };
            let new = joined(half, b);
            match is_low {
                _ if Arc::ptr_eq(&new, half) => Arc::clone(a),
                true => Node::branch(new, Arc::clone(high)),
                false => Node::branch(Arc::clone(low), new),
            }
        }
        (Content::Leaf(_), Content::Branch(..)) => unreachable!("the larger one is the first"),
    }
}

/// The part of it that comes after a number.
fn after(node: &Arc<Node>, number: u64) -> Option<Arc<Node>> {
    if node.oldest > number {
        return Some(Arc::clone(node));
    }
    if node.newest <= number {
        return None;
    }
    match &node.content {
        Content::Leaf(seen) => {
            Node::leaf(node.first, seen.map(|seen| if seen > number { seen } else { 0 }))
        }
        Content::Branch(low, high) => Node::of_halves((after(low, number), after(high, number))),
    }
}

/// Takes streams out of maps. What maps share is walked once, and shared afterwards as well.
#[derive(Debug)]
pub(crate) struct Removal {
    kept: HashSet<u32>,
    /// What became of each part. The old ones stay until the end, so that no new one gets their address.
    done: HashMap<*const Node, (Arc<Node>, Option<Arc<Node>>)>,
}

impl Removal {
    /// Of all streams but these.
    pub(crate) fn of_all_but(kept: HashSet<u32>) -> Removal {
        Removal { kept, done: HashMap::new() }
    }

    /// Takes them out of a map. Whether any was in it.
    pub(crate) fn apply(&mut self, seen: &mut SeenStreams) -> bool {
        let Some(root) = &seen.root else { return false };
        let left = self.left_of(root);
        let is_changed = left.as_ref().is_none_or(|left| !Arc::ptr_eq(left, root));
        seen.root = left;
        is_changed
    }

    fn left_of(&mut self, node: &Arc<Node>) -> Option<Arc<Node>> {
        if let Some((_, left)) = self.done.get(&Arc::as_ptr(node)) {
            return left.clone();
        }
        let left = match &node.content {
            Content::Leaf(seen) => {
                let is_kept =
                    |index: usize| self.kept.contains(&((node.first as u32) + index as u32));
                let left = std::array::from_fn(|i| if is_kept(i) { seen[i] } else { 0 });
                match left == *seen {
                    true => Some(Arc::clone(node)),
                    false => Node::leaf(node.first, left),
                }
            }
            Content::Branch(low, high) => match (self.left_of(low), self.left_of(high)) {
                (Some(left), Some(right))
                    if Arc::ptr_eq(&left, low) && Arc::ptr_eq(&right, high) =>
                {
                    Some(Arc::clone(node))
                }
                halves => Node::of_halves(halves),
            },
        };
        self.done.insert(Arc::as_ptr(node), (Arc::clone(node), left.clone()));
        left
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// The parts of a map that are not among these yet.
    fn new_parts(seen: &SeenStreams, known: &mut HashSet<*const Node>) -> usize {
        fn count(node: &Arc<Node>, known: &mut HashSet<*const Node>) -> usize {
            if !known.insert(Arc::as_ptr(node)) {
                return 0;
            }
            match &node.content {
                Content::Leaf(_) => 1,
                Content::Branch(low, high) => 1 + count(low, known) + count(high, known),
            }
        }
        seen.root.as_ref().map_or(0, |root| count(root, known))
    }

    fn assert_is(seen: &SeenStreams, model: &BTreeMap<u32, u64>, streams: &[u32]) {
        for stream in streams {
            assert_eq!(seen.newest(*stream), model.get(stream).copied().unwrap_or(0), "{stream}");
        }
    }

    #[test]
    fn maps_are_what_plain_maps_would_be() {
        let streams: Vec<u32> =
            [0, 1, 15, 16, 17, 31, 32, 255, 256, 4096, 70_000, u32::MAX - 1, u32::MAX]
                .into_iter()
                .chain(1000..1100)
                .collect();
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut maps = vec![(SeenStreams::default(), BTreeMap::<u32, u64>::new()); 4];
            for _ in 0..300 {
                let (one, other) = (random.usize(..maps.len()), random.usize(..maps.len()));
                match random.u32(..20) {
                    0..10 => {
                        let stream = streams[random.usize(..streams.len())];
                        let number = random.u64(1..1000);
                        maps[one].0.add(stream, number);
                        let seen = maps[one].1.entry(stream).or_default();
                        *seen = number.max(*seen);
                    }
                    10..17 => {
                        let (other, model) = maps[other].clone();
                        maps[one].0.join(&other);
                        for (stream, number) in model {
                            let seen = maps[one].1.entry(stream).or_default();
                            *seen = number.max(*seen);
                        }
                    }
                    17..19 => {
                        let number = random.u64(..300);
                        maps[one].0.forget_up_to(number);
                        maps[one].1.retain(|_, seen| *seen > number);
                    }
                    _ => {
                        let kept: HashSet<u32> =
                            streams.iter().copied().filter(|_| random.u32(..4) > 0).collect();
                        let mut removal = Removal::of_all_but(kept.clone());
                        for (seen, model) in &mut maps {
                            let before = model.len();
                            model.retain(|stream, _| kept.contains(stream));
                            assert_eq!(removal.apply(seen), model.len() < before, "seed {seed}");
                        }
                    }
                }
                assert_is(&maps[one].0, &maps[one].1, &streams);
                let empty = maps[one].1.is_empty();
                assert_eq!(maps[one].0 == SeenStreams::default(), empty, "seed {seed}");
            }
        }
    }

    #[test]
    fn a_chain_of_streams_shares_nearly_everything() {
        let mut known = HashSet::new();
        let mut before = SeenStreams::default();
        let mut parts = 0;
        const STREAMS: u32 = 20_000;
        let mut all = Vec::new();
        for stream in 0..STREAMS {
            let mut own = SeenStreams::default();
            own.join(&before);
            own.add(stream, u64::from(stream) + 1);
            parts += new_parts(&own, &mut known);
            // Another stream that has seen the same: nothing is new.
            own.join(&before);
            assert_eq!(new_parts(&own, &mut known), 0);
            all.push(std::mem::replace(&mut before, own));
        }
        // The path from the root to one leaf, each time.
        let most = STREAMS.ilog2() as usize;
        assert!(parts <= STREAMS as usize * most, "{parts} parts for {STREAMS} streams");
        // Taking streams out walks each part once.
        let mut removal = Removal::of_all_but((0..STREAMS).step_by(2).collect());
        for seen in &mut all {
            removal.apply(seen);
        }
        assert!(removal.done.len() <= parts, "{} steps for {parts} parts", removal.done.len());
    }
}
