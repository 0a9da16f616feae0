//! Between the caches and the back: the global cache and the slabs.
//!
//! Everything here is under one lock, which is never held while the driver is asked for memory.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::headers::HeaderId;
use super::heap::NodeId;
use super::points::{Point, Points, StreamSlot};
use super::size_class::{CLASSES, Class};
use super::thread_cache::Entry;

/// Free blocks of a stream, by class.
type Lists = [Vec<Entry>; CLASSES];

/// What is known of a slab besides its header. `free` has the blocks that are neither live nor in a cache or list.
#[derive(Debug)]
struct Slab {
    class: Class,
    stream: StreamSlot,
    node: NodeId,
    start: u64,
    free: Vec<u32>,
    /// Where it stands among the partial slabs of its stream and class, if `free` has some.
    place: usize,
    /// When the blocks in `free` were freed, or their memory before the slab was.
    points: Points,
}

/// A slab that nobody uses any more.
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
    /// They were in the global cache, not in a slab.
    pub(super) from_global: bool,
}

/// For keys that are the pool's own numbers: nobody chooses them to collide.
type Numbers = BuildHasherDefault<NumberHasher>;

#[derive(Debug, Default)]
struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32(u32::from(*byte)));
    }

    fn write_u32(&mut self, number: u32) {
        const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(GOLDEN);
    }
}

#[derive(Debug, Default)]
pub(super) struct Middle {
    global: HashMap<StreamSlot, Lists, Numbers>,
    slabs: HashMap<HeaderId, Slab, Numbers>,
    /// Slabs with free blocks, by the stream that they serve.
    partial: HashMap<StreamSlot, [Vec<HeaderId>; CLASSES], Numbers>,
    /// Headers whose slab is gone, by class.
    unused_headers: HashMap<Class, Vec<HeaderId>>,
}

fn lists(of: &mut HashMap<StreamSlot, Lists, Numbers>, stream: StreamSlot) -> &mut Lists {
    of.entry(stream).or_insert_with(|| std::array::from_fn(|_| Vec::new()))
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

    /// Up to `most` blocks for a stream: from the global cache, or else from a slab.
    pub(super) fn take(&mut self, class: Class, stream: StreamSlot, most: usize) -> Batch {
        if let Some(list) = self.global.get_mut(&stream).map(|lists| &mut lists[class.index()])
            && !list.is_empty()
        {
            let rest = list.len().saturating_sub(most);
            let entries = list.split_off(rest);
            return Batch { entries, points: Points::default(), from_global: true };
        }
        self.take_from_slab(class, stream, most)
    }

    fn take_from_slab(&mut self, class: Class, stream: StreamSlot, most: usize) -> Batch {
        let Some(partial) = self.partial.get_mut(&stream).map(|lists| &mut lists[class.index()])
        else {
            return Batch::default();
        };
        let Some(&header) = partial.last() else { return Batch::default() };
        let slab = self.slabs.get_mut(&header).expect("partial slabs exist");
        let rest = slab.free.len().saturating_sub(most);
        let entries = slab
            .free
            .split_off(rest)
            .into_iter()
            .map(|index| Entry {
                offset: slab.start + u64::from(index) * class.block_bytes(),
                header,
                index,
            })
            .collect();
        if slab.free.is_empty() {
            partial.pop();
        }
        Batch { entries, points: slab.points.clone(), from_global: false }
    }

    /// Blocks that other streams have freed, which must be waited for.
    pub(super) fn take_from_others(&mut self, class: Class) -> Batch {
        for (stream, lists) in &self.partial {
            if !lists[class.index()].is_empty() {
                let stream = *stream;
                return self.take_from_slab(class, stream, 1);
            }
        }
        Batch::default()
    }

    /// A new slab, all of whose blocks are free.
    pub(super) fn add_slab(
        &mut self,
        header: HeaderId,
        class: Class,
        stream: StreamSlot,
        node: NodeId,
        start: u64,
        points: Points,
    ) {
        // Taken from the end: the lowest addresses first.
        let free = (0..class.blocks() as u32).rev().collect();
        let partial = self.partial_list(stream, class);
        partial.push(header);
        let place = partial.len() - 1;
        self.slabs.insert(header, Slab { class, stream, node, start, free, place, points });
    }

    fn partial_list(&mut self, stream: StreamSlot, class: Class) -> &mut Vec<HeaderId> {
        let lists =
            self.partial.entry(stream).or_insert_with(|| std::array::from_fn(|_| Vec::new()));
        &mut lists[class.index()]
    }

    // Giving back.

    /// Puts free blocks into the global cache, as far as there is room for them; returns how many.
    pub(super) fn give(
        &mut self,
        class: Class,
        stream: StreamSlot,
        entries: impl Iterator<Item = Entry>,
        most_blocks: usize,
    ) -> usize {
        let list = &mut lists(&mut self.global, stream)[class.index()];
        let had = list.len();
        list.extend(entries.take(most_blocks.saturating_sub(had)));
        list.len() - had
    }

    /// Puts a block back into its slab. A slab that is empty then is taken out.
    pub(super) fn give_to_slab(&mut self, entry: Entry, point: Point) -> Option<EmptySlab> {
        let slab =
            self.slabs.get_mut(&entry.header).expect("blocks of slabs are given back to them");
        slab.points.add(point);
        slab.free.push(entry.index);
        let (class, stream) = (slab.class, slab.stream);
        match slab.free.len() {
            all if all == class.blocks() => {
                let slab = self.slabs.remove(&entry.header).expect("just found");
                let partial = self.partial_list(stream, class);
                partial.swap_remove(slab.place);
                if let Some(&moved) = partial.get(slab.place) {
                    self.slabs.get_mut(&moved).expect("partial slabs exist").place = slab.place;
                }
                Some(EmptySlab {
                    header: entry.header,
                    node: slab.node,
                    start: slab.start,
                    class,
                    points: slab.points,
                })
            }
            1 => {
                let partial = self.partial_list(stream, class);
                partial.push(entry.header);
                let place = partial.len() - 1;
                self.slabs.get_mut(&entry.header).expect("just found").place = place;
                None
            }
            _ => None,
        }
    }

    /// Takes everything out of the global cache.
    pub(super) fn drain_global(&mut self) -> Vec<(StreamSlot, Entry)> {
        let global = std::mem::take(&mut self.global);
        let of_stream = |(stream, lists): (StreamSlot, Lists)| {
            lists.into_iter().flatten().map(move |entry| (stream, entry))
        };
        global.into_iter().flat_map(of_stream).collect()
    }
}
