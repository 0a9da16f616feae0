//! The slabs of one object size.

use std::collections::{BTreeMap, BTreeSet};

use super::super::frees::Frees;
use super::super::ordered::Point;

/// A slab. `live + freed.len() + (objects − fresh) = objects`.
#[derive(Debug)]
struct SlabState {
    /// When it was taken from upstream: what was never used may be used after that.
    made: Point,
    /// The objects below this have been used before.
    fresh: u32,
    /// Those that were freed, each with when; the last one freed is taken first.
    freed: Vec<(u32, Point)>,
    live: u32,
}

/// Slabs of objects of one size. Each is in one list: full, partial or empty.
#[derive(Debug)]
pub(super) struct Cache {
    object_bytes: usize,
    objects_per_slab: u32,
    slabs: BTreeMap<u64, SlabState>,
    partial: BTreeSet<u64>,
    empty: BTreeSet<u64>,
    full: BTreeSet<u64>,
}

impl Cache {
    pub(super) fn new(object_bytes: usize, slab_bytes: usize) -> Cache {
        Cache {
            object_bytes,
            objects_per_slab: (slab_bytes / object_bytes) as u32,
            slabs: BTreeMap::new(),
            partial: BTreeSet::new(),
            empty: BTreeSet::new(),
            full: BTreeSet::new(),
        }
    }

    pub(super) fn object_bytes(&self) -> usize {
        self.object_bytes
    }

    /// The slab to take from: a partial one rather than an empty one, the lowest of each.
    pub(super) fn best_slab(&self) -> Option<u64> {
        self.partial.first().or_else(|| self.empty.first()).copied()
    }

    /// A new slab, empty.
    pub(super) fn add(&mut self, start: u64, made: Point) {
        self.slabs.insert(start, SlabState { made, fresh: 0, freed: Vec::new(), live: 0 });
        self.empty.insert(start);
    }

    /// What must have happened before the next object of a slab may be used.
    pub(super) fn next_point(&self, slab: u64) -> Point {
        let state = &self.slabs[&slab];
        state.freed.last().map_or(state.made, |(_, point)| *point)
    }

    /// Takes an object of a slab that has one; returns its address.
    pub(super) fn take(&mut self, slab: u64) -> u64 {
        let state = self.slabs.get_mut(&slab).expect("is a slab");
        let object = state.freed.pop().map_or(state.fresh, |(object, _)| object);
        state.fresh = state.fresh.max(object + 1);
        state.live += 1;
        let live = state.live;
        if live == 1 {
            self.empty.remove(&slab);
            self.partial.insert(slab);
        }
        if live == self.objects_per_slab {
            self.partial.remove(&slab);
            self.full.insert(slab);
        }
        slab + u64::from(object) * self.object_bytes as u64
    }

    /// Frees an object; says whether its slab is empty now.
    pub(super) fn free(&mut self, slab: u64, at: u64, point: Point) -> bool {
        let object = ((at - slab) / self.object_bytes as u64) as u32;
        let state = self.slabs.get_mut(&slab).expect("is a slab");
        state.freed.push((object, point));
        if state.live == self.objects_per_slab {
            self.full.remove(&slab);
            self.partial.insert(slab);
        }
        state.live -= 1;
        let is_empty = state.live == 0;
        if is_empty {
            self.partial.remove(&slab);
            self.empty.insert(slab);
        }
        is_empty
    }

    pub(super) fn empty_slabs(&self) -> usize {
        self.empty.len()
    }

    /// The empty slab to give back first. There must be one.
    pub(super) fn highest_empty(&self) -> u64 {
        *self.empty.last().expect("there is an empty slab")
    }

    /// What must have happened before a slab may be used for something else.
    pub(super) fn frees_of(&self, slab: u64) -> Frees {
        let state = &self.slabs[&slab];
        let mut frees = Frees::from(state.made);
        state.freed.iter().for_each(|(_, point)| frees.add(*point));
        frees
    }

    /// Forgets an empty slab.
    pub(super) fn remove(&mut self, slab: u64) {
        self.empty.remove(&slab);
        self.slabs.remove(&slab);
    }

    /// Where all slabs begin.
    pub(super) fn slabs(&self) -> impl Iterator<Item = u64> {
        self.slabs.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::ordered::StreamSlot;
    use super::*;

    const POINT: Point = Point { slot: StreamSlot::at(0), number: 1 };

    fn lists(cache: &Cache) -> [usize; 3] {
        [cache.full.len(), cache.partial.len(), cache.empty.len()]
    }

    #[test]
    fn slabs_move_between_full_partial_and_empty() {
        let mut cache = Cache::new(768, 2048);
        cache.add(0x10000, POINT);
        cache.add(0x20000, POINT);
        assert_eq!((cache.objects_per_slab, lists(&cache)), (2, [0, 0, 2]));
        let objects = [0; 3].map(|_| {
            let slab = cache.best_slab().expect("there is room");
            (slab, cache.take(slab))
        });
        assert_eq!(objects.map(|(_, at)| at), [0x10000, 0x10300, 0x20000]);
        assert_eq!(lists(&cache), [1, 1, 0]);
        assert!(!cache.free(objects[1].0, objects[1].1, POINT));
        assert_eq!(lists(&cache), [0, 2, 0]);
        assert!(cache.free(objects[2].0, objects[2].1, POINT));
        assert_eq!((lists(&cache), cache.highest_empty()), ([0, 1, 1], 0x20000));
        // The partial slab serves before the empty one.
        assert_eq!(cache.best_slab(), Some(0x10000));
        assert_eq!(cache.take(0x10000), objects[1].1);
        cache.remove(0x20000);
        assert_eq!((lists(&cache), cache.best_slab()), ([1, 0, 0], None));
    }
}
