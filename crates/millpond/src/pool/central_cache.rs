//! Between the caches and the back: the global cache and the slabs.
//!
//! Everything here is under one lock, which is never held while the driver is asked for memory.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::blocks::{HeaderId, Numbers};
use super::heap::NodeId;
use super::points::{Points, StreamSlot};
use super::shelves::Bounds;
use super::sizes::{CLASSES, Class, SHELVES, Shelf};
use super::thread_cache::Entry;

/// Streams that the global cache keeps blocks for, at most. A block that is kept keeps its slab: without a bound, each stream that was ever
/// used would keep a slab of every class that it has used, until it is destroyed.
const MOST_STREAMS_KEPT: usize = 1024;

/// Whether a list that has grown is worth looking through: when it is twice as long as the last time, and not short.
pub(super) fn are_twice_as_many(had: usize, has: usize) -> bool {
    const FEW: usize = 15;
    had.max(FEW).ilog2() < has.max(FEW).ilog2()
}

/// Free blocks of a stream, by shelf: classes, then sizes of blocks of their own. `bytes = Σ shelves`.
#[derive(Debug)]
struct Lists {
    shelves: [Vec<Entry>; SHELVES],
    bytes: u64,
}

impl Default for Lists {
    fn default() -> Lists {
        Lists { shelves: std::array::from_fn(|_| Vec::new()), bytes: 0 }
    }
}

/// How many blocks of their own the global cache keeps for all streams, by shelf: so that nobody takes the lock to look in vain. Written
/// under it.
#[derive(Debug)]
pub(super) struct OwnInGlobal([AtomicUsize; SHELVES]);

impl Default for OwnInGlobal {
    fn default() -> OwnInGlobal {
        OwnInGlobal(std::array::from_fn(|_| AtomicUsize::new(0)))
    }
}

impl OwnInGlobal {
    // Relaxed: whoever does not see a block yet, or any more, takes another.

    /// Whether there may be some on a shelf.
    pub(super) fn may_have(&self, shelf: Shelf) -> bool {
        shelf.serves()
            && shelf.class().is_none()
            && self.0[shelf.index()].load(Ordering::Relaxed) > 0
    }

    fn added(&self, shelf: Shelf, blocks: usize) {
        self.0[shelf.index()].fetch_add(blocks, Ordering::Relaxed);
    }

    fn removed(&self, shelf: Shelf, blocks: usize) {
        self.0[shelf.index()].fetch_sub(blocks, Ordering::Relaxed);
    }

    /// What lists had that are gone.
    fn gone(&self, lists: Lists) -> impl Iterator<Item = Entry> + use<> {
        for (index, list) in lists.shelves.iter().enumerate() {
            self.removed(Shelf::at(index), list.len());
        }
        lists.shelves.into_iter().flatten()
    }
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

#[derive(Debug, Default)]
pub(super) struct Middle {
    global: HashMap<StreamSlot, Lists, Numbers>,
    own_in_global: Arc<OwnInGlobal>,
    /// Boxed: a map that grows holds its entries twice, and moves them all at once.
    slabs: HashMap<HeaderId, Box<Slab>, Numbers>,
    /// Slabs with free blocks, by class and by the stream that they serve. No list is empty, so that finding any slab of a class takes
    /// no longer with more streams. Each slab knows its place.
    partial: PartialSlabs,
    reserve: Reserve,
    /// Headers whose slab is gone, by class.
    unused_headers: HashMap<Class, Vec<HeaderId>>,
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

/// Blocks set aside by `preallocate`, for any stream: nothing has to be waited for.
#[derive(Debug, Default)]
struct Reserve {
    small: HashMap<Class, Vec<Entry>>,
    large: HashMap<u64, Vec<Entry>>,
}

impl Middle {
    // Headers.

    pub(super) fn unused_header(&mut self, class: Class) -> Option<HeaderId> {
        self.unused_headers.get_mut(&class)?.pop()
    }

    pub(super) fn header_is_unused(&mut self, class: Class, header: HeaderId) {
        self.unused_headers.entry(class).or_default().push(header);
    }

    // Taking.

    /// Up to `most` blocks that the global cache keeps for a stream.
    pub(super) fn take_global(
        &mut self,
        shelf: Shelf,
        stream: StreamSlot,
        most: usize,
    ) -> Vec<Entry> {
        let Some(lists) = self.global.get_mut(&stream) else { return Vec::new() };
        let list = &mut lists.shelves[shelf.index()];
        let entries = list.split_off(list.len().saturating_sub(most));
        lists.bytes -= shelf.block_bytes() * entries.len() as u64;
        self.own_in_global.removed(shelf, entries.len());
        entries
    }

    /// Up to `most` blocks of their own that the global cache keeps for any stream, the largest first.
    pub(super) fn take_some_large(&mut self, most: usize) -> Vec<(StreamSlot, Entry)> {
        let mut taken = Vec::new();
        for (stream, lists) in &mut self.global {
            for index in (CLASSES..SHELVES).rev() {
                let list = &mut lists.shelves[index];
                let some = list.split_off(list.len().saturating_sub(most - taken.len()));
                let shelf = Shelf::at(index);
                lists.bytes -= shelf.block_bytes() * some.len() as u64;
                self.own_in_global.removed(shelf, some.len());
                taken.extend(some.into_iter().map(|entry| (*stream, entry)));
            }
        }
        taken
    }

    /// Up to `most` blocks of a slab that serves a stream, and what must be waited for first.
    pub(super) fn take_from_slab(
        &mut self,
        class: Class,
        stream: StreamSlot,
        most: usize,
    ) -> Batch {
        let Some(header) = self.partial.of(stream, class) else { return Batch::default() };
        self.take_of_slab(header, most)
    }

    fn take_of_slab(&mut self, header: HeaderId, most: usize) -> Batch {
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
            self.leave_partial(stream, class, place);
        }
        Batch { entries, points }
    }

    /// Sets blocks of a class aside.
    pub(super) fn reserve_small(&mut self, class: Class, entries: Vec<Entry>) {
        self.reserve.small.entry(class).or_default().extend(entries);
    }

    /// Sets a block of its own aside.
    pub(super) fn reserve_large(&mut self, block_bytes: u64, entry: Entry) {
        self.reserve.large.entry(block_bytes).or_default().push(entry);
    }

    /// Up to `most` blocks that were set aside.
    pub(super) fn take_reserved_small(&mut self, class: Class, most: usize) -> Vec<Entry> {
        let Some(list) = self.reserve.small.get_mut(&class) else { return Vec::new() };
        list.split_off(list.len().saturating_sub(most))
    }

    /// Up to `most` blocks of exactly this size, aligned so, that were set aside.
    pub(super) fn take_reserved_large(
        &mut self,
        block_bytes: u64,
        align: u64,
        most: usize,
    ) -> Vec<Entry> {
        let Some(list) = self.reserve.large.get_mut(&block_bytes) else { return Vec::new() };
        let mut taken = Vec::new();
        while taken.len() < most
            && let Some(at) = list.iter().rposition(|entry| entry.offset.is_multiple_of(align))
        {
            taken.push(list.swap_remove(at));
        }
        taken
    }

    /// Everything that was set aside.
    pub(super) fn drain_reserve(&mut self) -> Vec<Entry> {
        let Reserve { small, large } = std::mem::take(&mut self.reserve);
        small.into_values().chain(large.into_values()).flatten().collect()
    }

    /// A block that another stream has freed, which must be waited for, of a slab whose points will do.
    pub(super) fn take_from_others(
        &mut self,
        class: Class,
        usable: impl Fn(&Points) -> bool,
    ) -> Option<Batch> {
        let is_usable = |header: &HeaderId| usable(&self.slabs[header].points);
        let header = self.partial.of_class(class).find(is_usable)?;
        Some(self.take_of_slab(header, 1))
    }

    /// A new slab that serves a stream, and up to `most` of its blocks, at least one: a slab goes when its last block comes back, and
    /// one that nobody has taken from would stay.
    pub(super) fn add_slab(&mut self, slab: EmptySlab, stream: StreamSlot, most: usize) -> Batch {
        let EmptySlab { header, node, start, class, points } = slab;
        // Taken from the end: the lowest addresses first.
        let free = (0..class.blocks()).rev().map(|index| index as u8).collect();
        let place = self.partial.add(stream, class, header);
        let slab = Slab { class, stream, node, start, free, place, points };
        self.slabs.insert(header, Box::new(slab));
        self.take_of_slab(header, most)
    }

    // Giving back.

    /// Puts free blocks into the global cache, as far as there is room for them; returns how many.
    pub(super) fn give(
        &mut self,
        shelf: Shelf,
        stream: StreamSlot,
        entries: impl Iterator<Item = Entry>,
        most: Bounds,
    ) -> usize {
        if most.blocks == 0 || most.bytes == 0 {
            return 0;
        }
        let lists = self.global.entry(stream).or_default();
        let list = &mut lists.shelves[shelf.index()];
        let had = list.len();
        let bytes_left = most.bytes.saturating_sub(lists.bytes) / shelf.block_bytes();
        let room = most.blocks.saturating_sub(had).min(bytes_left as usize);
        list.extend(entries.take(room));
        let kept = list.len() - had;
        lists.bytes += shelf.block_bytes() * kept as u64;
        self.own_in_global.added(shelf, kept);
        kept
    }

    /// Puts a block back into its slab. A slab that is empty then is taken out. `forget_needless` is for the slab's points, when they
    /// have become many: streams come and go, and a slab may stay.
    pub(super) fn give_to_slab(
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
                self.leave_partial(stream, class, slab.place);
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
    fn leave_partial(&mut self, stream: StreamSlot, class: Class, place: usize) {
        if let Some(moved) = self.partial.remove(stream, class, place) {
            self.slabs.get_mut(&moved).expect("partial slabs exist").place = place;
        }
    }

    /// Forgets streams for which there is nothing: they come and go. Takes what is in the global cache for those that are forgotten
    /// elsewhere: nobody will ask for it.
    pub(super) fn forget_idle_streams(
        &mut self,
        are_forgotten: impl Fn(&[StreamSlot]) -> Vec<bool>,
    ) -> Vec<(StreamSlot, Entry)> {
        self.global.retain(|_, lists| lists.bytes > 0);
        let streams: Vec<StreamSlot> = self.global.keys().copied().collect();
        let forgotten = streams.iter().zip(are_forgotten(&streams)).filter(|(_, is)| *is);
        let mut entries = Vec::new();
        for (stream, _) in forgotten {
            let Some(lists) = self.global.remove(stream) else { continue };
            entries.extend(self.own_in_global.gone(lists).map(|entry| (*stream, entry)));
        }
        entries
    }

    /// Checks that every slab is there for a block that somebody has. Slow.
    pub(super) fn assert_valid(&self) {
        for slab in self.slabs.values() {
            assert!(slab.free.len() < slab.class.blocks(), "nobody needs {slab:?}");
        }
    }

    /// How many blocks of their own the global cache keeps.
    pub(super) fn own_in_global(&self) -> Arc<OwnInGlobal> {
        Arc::clone(&self.own_in_global)
    }

    /// Whether the global cache has lists for more streams than it is to keep blocks for.
    pub(super) fn keeps_for_too_many(&self) -> bool {
        self.global.len() > MOST_STREAMS_KEPT
    }

    /// Takes everything out of the global cache.
    pub(super) fn drain_global(&mut self) -> Vec<(StreamSlot, Entry)> {
        let global = std::mem::take(&mut self.global);
        let of_stream = |(stream, lists): (StreamSlot, Lists)| {
            self.own_in_global.gone(lists).map(move |entry| (stream, entry))
        };
        global.into_iter().flat_map(of_stream).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every partial slab is where it says it is, and none else is in a list.
    fn assert_places(middle: &Middle) {
        let mut listed = 0;
        for lists in &middle.partial.0 {
            for list in lists.values() {
                assert!(!list.is_empty());
                for (place, header) in list.iter().enumerate() {
                    let slab = &middle.slabs[header];
                    assert_eq!(slab.place, place);
                    assert!(!slab.free.is_empty());
                    listed += 1;
                }
            }
        }
        assert_eq!(listed, middle.slabs.values().filter(|slab| !slab.free.is_empty()).count());
    }

    fn new_slab(class: Class, number: u32) -> EmptySlab {
        let start = u64::from(number) * class.slab_bytes();
        let (header, node) = (HeaderId(number), NodeId(number));
        EmptySlab { header, node, start, class, points: Points::default() }
    }

    #[test]
    fn a_new_slab_is_taken_from_whatever_the_global_cache_has_got_meanwhile() {
        let (class, stream) = (Class::of(4096), StreamSlot(0));
        let mut middle = Middle::default();
        let first = middle.add_slab(new_slab(class, 0), stream, 1).entries;
        let most = Bounds { blocks: 10, bytes: u64::MAX };
        assert_eq!(middle.give(Shelf::of_class(class), stream, first.into_iter(), most), 1);
        let second = middle.add_slab(new_slab(class, 1), stream, 1).entries;
        middle.assert_valid();
        assert_eq!(second[0].header, HeaderId(1));
        let given_back = middle.drain_global().into_iter().map(|(_, entry)| entry).chain(second);
        let empty = given_back
            .filter_map(|entry| middle.give_to_slab(entry, &Points::default(), |_| {}))
            .count();
        assert_eq!(empty, 2, "both slabs are empty and gone");
    }

    #[test]
    fn slabs_know_their_place_whatever_is_taken_and_given_back() {
        let (class, stream) = (Class::of(4096), StreamSlot(0));
        for seed in 0..20 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut streams = crate::pool::streams::Streams::default();
            let handle = crate::driver::Stream(1);
            assert_eq!(streams.slot(crate::driver::StreamId(1), handle), stream);
            let mut middle = Middle::default();
            let mut taken: Vec<Entry> = Vec::new();
            let mut next = 0;
            for _ in 0..2000 {
                if rng.bool() {
                    let most = rng.usize(1..40);
                    let mut batch = middle.take_from_slab(class, stream, most).entries;
                    if batch.is_empty() {
                        batch = middle.add_slab(new_slab(class, next), stream, most).entries;
                        next += 1;
                    }
                    taken.append(&mut batch);
                } else if !taken.is_empty() {
                    let entry = taken.swap_remove(rng.usize(0..taken.len()));
                    middle.give_to_slab(entry, &Points::default(), |_| {});
                }
                assert_places(&middle);
            }
            let mut offsets: Vec<u64> = taken.iter().map(|entry| entry.offset).collect();
            offsets.sort_unstable();
            offsets.dedup();
            assert_eq!(offsets.len(), taken.len(), "seed {seed}: a block was given twice");
            for entry in taken {
                middle.give_to_slab(entry, &Points::default(), |_| {});
            }
            assert!(middle.slabs.is_empty(), "seed {seed}: all slabs are empty and gone");
            assert_places(&middle);
        }
    }
}
