//! Slabs: runs of 64 to 256 KiB of addresses, cut into blocks of one class.
//!
//! A slab serves the stream that it was made for. It comes from the back with its first batch, and goes back to it with its last block:
//! a slab without live or cached blocks is not kept. What is free in it was freed at its `points`; whoever takes a block waits for all of
//! them, which costs a stream of its own nothing.
//!
//! ```text
//!   blocks(class) = free + blocks that are live, in a cache or set aside
//!   0 ≤ free < blocks(class)                                  a slab that is all free is gone
//!   slab is in partial[class][stream]  ⇔  free > 0
//!   partial[class][stream][slab.place] = slab                 so that it leaves without a search
//! ```

use std::collections::{BTreeMap, HashMap};

use super::back::NodeId;
use super::blocks::{Entry, HeaderId, Numbers};
use super::sizes::{CLASSES, Class};
use super::streams::{Points, StreamSlot};

/// Whether a list that has grown is worth looking through: when it is twice as long as the last time, and not short.
pub(super) fn are_twice_as_many(had: usize, has: usize) -> bool {
    const FEW: usize = 15;
    had.max(FEW).ilog2() < has.max(FEW).ilog2()
}

/// The slabs of which somebody has a block.
#[derive(Debug, Default)]
pub(super) struct Slabs {
    /// Boxed: a map that grows holds its entries twice, and moves them all at once.
    slabs: HashMap<HeaderId, Box<Slab>, Numbers>,
    /// Slabs with free blocks, by class and by the stream that they serve. No list is empty, so that finding any slab of a class takes
    /// no longer with more streams. Each slab knows its place.
    partial: PartialSlabs,
    /// Headers whose slab is gone, by class.
    unused_headers: HashMap<Class, Vec<HeaderId>>,
}

/// What is known of a slab besides its header. `free` has the blocks that are neither live nor in a cache or list.
#[derive(Debug)]
struct Slab {
    class: Class,
    stream: StreamSlot,
    node: NodeId,
    start: u64,
    /// A slab has at most 256 blocks.
    free: Vec<u8>,
    /// Its place among the partial slabs of its stream and class, while `free` is not empty.
    place: usize,
    /// When the blocks in `free` were freed, or their memory before the slab was.
    points: Points,
}

/// A slab none of whose blocks anybody has: on its way in or out.
#[derive(Debug)]
pub(super) struct EmptySlab {
    pub(super) header: HeaderId,
    pub(super) node: NodeId,
    pub(super) start: u64,
    pub(super) class: Class,
    pub(super) points: Points,
}

/// Blocks for a cache, and what must be waited for first.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) entries: Vec<Entry>,
    pub(super) points: Points,
}

#[derive(Debug)]
struct PartialSlabs([BTreeMap<StreamSlot, Vec<HeaderId>>; CLASSES]);

impl Default for PartialSlabs {
    fn default() -> PartialSlabs {
        PartialSlabs(std::array::from_fn(|_| BTreeMap::new()))
    }
}

impl PartialSlabs {
    /// One that serves a stream.
    fn of(&self, stream: StreamSlot, class: Class) -> Option<HeaderId> {
        self.0[class.index()].get(&stream)?.last().copied()
    }

    /// All of a class, those of streams that became known first come first.
    fn of_class(&self, class: Class) -> impl Iterator<Item = HeaderId> {
        self.0[class.index()].values().flatten().copied()
    }

    /// Adds a slab, and says at which place.
    fn add(&mut self, stream: StreamSlot, class: Class, header: HeaderId) -> usize {
        let list = self.0[class.index()].entry(stream).or_default();
        list.push(header);
        list.len() - 1
    }

    /// Removes the slab at a place, and says which one has that place now.
    fn remove(&mut self, stream: StreamSlot, class: Class, place: usize) -> Option<HeaderId> {
        let lists = &mut self.0[class.index()];
        let list = lists.get_mut(&stream).expect("a partial slab is in a list");
        list.swap_remove(place);
        let moved = list.get(place).copied();
        if list.is_empty() {
            lists.remove(&stream);
        }
        moved
    }
}

impl Slabs {
    /// Up to `most` blocks of a slab that serves a stream, and what must be waited for first.
    pub(super) fn take(&mut self, class: Class, stream: StreamSlot, most: usize) -> Batch {
        let Some(header) = self.partial.of(stream, class) else { return Batch::default() };
        self.take_from(header, most)
    }

    fn take_from(&mut self, header: HeaderId, most: usize) -> Batch {
        let slab = self.slabs.get_mut(&header).expect("partial slabs exist");
        let (class, stream, place) = (slab.class, slab.stream, slab.place);
        let rest = slab.free.len().saturating_sub(most);
        let entries = slab
            .free
            .split_off(rest)
            .into_iter()
            .map(|index| Entry {
                offset: slab.start + u64::from(index) * class.block_bytes(),
                header,
                index: u32::from(index),
            })
            .collect();
        let points = slab.points.clone();
        if slab.free.is_empty() {
            self.remove_from_partial(stream, class, place);
        }
        Batch { entries, points }
    }

    /// A block that another stream has freed, which must be waited for, of a slab whose points will do.
    pub(super) fn take_of_any_stream(
        &mut self,
        class: Class,
        usable: impl Fn(&Points) -> bool,
    ) -> Option<Batch> {
        let is_usable = |header: &HeaderId| usable(&self.slabs[header].points);
        let header = self.partial.of_class(class).find(is_usable)?;
        Some(self.take_from(header, 1))
    }

    /// A new slab that serves a stream, and up to `most` of its blocks, at least one: a slab goes when its last block comes back, and
    /// one that nobody has taken from would stay.
    pub(super) fn add(&mut self, slab: EmptySlab, stream: StreamSlot, most: usize) -> Batch {
        let EmptySlab { header, node, start, class, points } = slab;
        // Taken from the end: the lowest addresses first.
        let free = (0..class.blocks()).rev().map(|index| index as u8).collect();
        let place = self.partial.add(stream, class, header);
        let slab = Slab { class, stream, node, start, free, place, points };
        self.slabs.insert(header, Box::new(slab));
        self.take_from(header, most)
    }

    /// Puts a block back into its slab. A slab that is empty then is taken out. `forget_needless` is for the slab's points, when they
    /// have become many: streams come and go, and a slab may stay.
    pub(super) fn give_back(
        &mut self,
        entry: Entry,
        points: &Points,
        forget_needless: impl FnOnce(&mut Points),
    ) -> Option<EmptySlab> {
        let slab =
            self.slabs.get_mut(&entry.header).expect("blocks of slabs are given back to them");
        let had = slab.points.len();
        slab.points.merge(points.clone());
        let has = slab.points.len();
        if are_twice_as_many(had, has) {
            forget_needless(&mut slab.points);
        }
        slab.free.push(entry.index as u8);
        let (class, stream) = (slab.class, slab.stream);
        match slab.free.len() {
            all if all == class.blocks() => {
                let slab = self.slabs.remove(&entry.header).expect("just found");
                self.remove_from_partial(stream, class, slab.place);
                Some(EmptySlab {
                    header: entry.header,
                    node: slab.node,
                    start: slab.start,
                    class,
                    points: slab.points,
                })
            }
            1 => {
                slab.place = self.partial.add(stream, class, entry.header);
                None
            }
            _ => None,
        }
    }

    /// Takes a slab out of its list; the last one gets its place. Searching for it would take as long as there are slabs.
    fn remove_from_partial(&mut self, stream: StreamSlot, class: Class, place: usize) {
        if let Some(moved) = self.partial.remove(stream, class, place) {
            self.slabs.get_mut(&moved).expect("partial slabs exist").place = place;
        }
    }

    /// A header whose slab is gone, for another.
    pub(super) fn unused_header(&mut self, class: Class) -> Option<HeaderId> {
        self.unused_headers.get_mut(&class)?.pop()
    }

    /// Keeps the header of a slab that is gone.
    pub(super) fn keep_unused_header(&mut self, class: Class, header: HeaderId) {
        self.unused_headers.entry(class).or_default().push(header);
    }

    /// Checks that every slab is there for a block that somebody has. Slow.
    pub(super) fn assert_valid(&self) {
        for slab in self.slabs.values() {
            assert!(slab.free.len() < slab.class.blocks(), "nobody needs {slab:?}");
        }
    }
}

/// A slab for tests.
#[cfg(test)]
pub(super) fn new_slab(class: Class, number: u32) -> EmptySlab {
    let start = u64::from(number) * class.slab_bytes();
    let (header, node) = (HeaderId(number), NodeId(number));
    EmptySlab { header, node, start, class, points: Points::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every partial slab is where it says it is, and none else is in a list.
    fn assert_places(slabs: &Slabs) {
        let mut listed = 0;
        for lists in &slabs.partial.0 {
            for list in lists.values() {
                assert!(!list.is_empty());
                for (place, header) in list.iter().enumerate() {
                    let slab = &slabs.slabs[header];
                    assert_eq!(slab.place, place);
                    assert!(!slab.free.is_empty());
                    listed += 1;
                }
            }
        }
        assert_eq!(listed, slabs.slabs.values().filter(|slab| !slab.free.is_empty()).count());
    }

    #[test]
    fn slabs_know_their_place_whatever_is_taken_and_given_back() {
        let (class, stream) = (Class::of(4096), StreamSlot(0));
        for seed in 0..20 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut streams = crate::pool::streams::Streams::default();
            let handle = crate::driver::Stream(1);
            assert_eq!(streams.slot(crate::driver::StreamId(1), handle), stream);
            let mut slabs = Slabs::default();
            let mut taken: Vec<Entry> = Vec::new();
            let mut next = 0;
            for _ in 0..2000 {
                if rng.bool() {
                    let most = rng.usize(1..40);
                    let mut batch = slabs.take(class, stream, most).entries;
                    if batch.is_empty() {
                        batch = slabs.add(new_slab(class, next), stream, most).entries;
                        next += 1;
                    }
                    taken.append(&mut batch);
                } else if !taken.is_empty() {
                    let entry = taken.swap_remove(rng.usize(0..taken.len()));
                    slabs.give_back(entry, &Points::default(), |_| {});
                }
                assert_places(&slabs);
            }
            let mut offsets: Vec<u64> = taken.iter().map(|entry| entry.offset).collect();
            offsets.sort_unstable();
            offsets.dedup();
            assert_eq!(offsets.len(), taken.len(), "seed {seed}: a block was given twice");
            for entry in taken {
                slabs.give_back(entry, &Points::default(), |_| {});
            }
            assert!(slabs.slabs.is_empty(), "seed {seed}: all slabs are empty and gone");
            assert_places(&slabs);
        }
    }
}
