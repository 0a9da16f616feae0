//! Chunks of regions, and the bins of those that are free.

use super::super::frees::Frees;
use super::super::treap::{Root, Treap, key};

/// A chunk. Ids are reused once their chunk is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunkId(u32);

const NONE: ChunkId = ChunkId(u32::MAX);

/// Bin `b` holds chunks from `256 << b` bytes on, the last one all that are larger.
const BINS: usize = 21;
const LEAST_BYTES: u64 = 256;

/// `start + bytes = next.start`, unless the region ends there. No two neighbours are free.
#[derive(Debug)]
struct Chunk {
    start: u64,
    bytes: u64,
    prev: ChunkId,
    next: ChunkId,
    is_live: bool,
    /// What must have happened before it may be used again.
    frees: Frees,
}

/// All chunks of all regions.
#[derive(Debug)]
pub(super) struct Chunks {
    chunks: Vec<Chunk>,
    unused_ids: Vec<ChunkId>,
    bins: [Root; BINS],
    /// Bit `b` is set iff bin `b` is not empty.
    filled: u32,
    /// The nodes of all bins, by chunk.
    trees: Treap<u128, false>,
}

impl Default for Chunks {
    fn default() -> Self {
        Chunks {
            chunks: Vec::new(),
            unused_ids: Vec::new(),
            bins: [Root::EMPTY; BINS],
            filled: 0,
            trees: Treap::default(),
        }
    }
}

fn bin_of(bytes: u64) -> usize {
    ((bytes.max(LEAST_BYTES) / LEAST_BYTES).ilog2() as usize).min(BINS - 1)
}

impl Chunks {
    /// The smallest free chunk that holds `bytes`; of equals the lowest.
    #[inline]
    pub(super) fn find(&self, bytes: usize) -> Option<ChunkId> {
        let bytes = bytes as u64;
        let bin = bin_of(bytes);
        let found = self.trees.first_from(self.bins[bin], key(bytes, 0)).or_else(|| {
            let larger = self.filled & (u32::MAX << bin << 1);
            (larger != 0)
                .then(|| larger.trailing_zeros() as usize)
                .and_then(|bin| self.trees.first_from(self.bins[bin], key(bytes, 0)))
        });
        found.map(ChunkId)
    }

    /// Makes a free chunk live, or its front if it is much too large. Returns the live chunk and its address.
    pub(super) fn take(
        &mut self,
        id: ChunkId,
        bytes: usize,
        most_waste_bytes: usize,
    ) -> (ChunkId, u64) {
        let (all, wanted) = (self.chunk(id).bytes, bytes as u64);
        let is_split = all >= wanted.saturating_mul(2) || all - wanted >= most_waste_bytes as u64;
        if is_split && all > wanted {
            return self.split(id, wanted);
        }
        self.unbin(id);
        let chunk = self.chunk_mut(id);
        chunk.is_live = true;
        (id, chunk.start)
    }

    /// Cuts a live chunk off the front of a free one.
    fn split(&mut self, id: ChunkId, bytes: u64) -> (ChunkId, u64) {
        let chunk = self.chunk_mut(id);
        let (start, prev, old_bytes) = (chunk.start, chunk.prev, chunk.bytes);
        chunk.start += bytes;
        chunk.bytes -= bytes;
        let frees = Frees::default();
        let front = self.new_chunk(Chunk { start, bytes, prev, next: id, is_live: true, frees });
        self.chunk_mut(id).prev = front;
        if prev != NONE {
            self.chunk_mut(prev).next = front;
        }
        self.rebin(id, old_bytes);
        (front, start)
    }

    /// A live chunk becomes free, one with its free neighbours.
    pub(super) fn free(&mut self, id: ChunkId, frees: Frees) {
        let Chunk { start, bytes, prev, next, .. } = self.chunks[id.0 as usize];
        let is_free = |id: ChunkId| id != NONE && !self.chunk(id).is_live;
        match (is_free(prev), is_free(next)) {
            (true, next_is_free) => {
                if next_is_free {
                    self.unbin(next);
                    self.absorb_next(id);
                }
                let old_bytes = self.chunk(prev).bytes;
                self.absorb_next(prev);
                self.chunk_mut(prev).frees.merge(&frees);
                self.rebin(prev, old_bytes);
            }
            (false, true) => {
                let chunk = self.chunk_mut(next);
                let old_bytes = chunk.bytes;
                (chunk.start, chunk.prev) = (start, prev);
                chunk.bytes += bytes;
                chunk.frees.merge(&frees);
                if prev != NONE {
                    self.chunk_mut(prev).next = next;
                }
                self.unused_ids.push(id);
                self.rebin(next, old_bytes);
            }
            (false, false) => {
                let chunk = self.chunk_mut(id);
                (chunk.is_live, chunk.frees) = (false, frees);
                self.bin(id);
            }
        }
    }

    /// Adds a chunk's upper neighbour to it.
    fn absorb_next(&mut self, id: ChunkId) {
        let gone_id = self.chunk(id).next;
        let gone = self.chunk_mut(gone_id);
        let (bytes, next, frees) = (gone.bytes, gone.next, std::mem::take(&mut gone.frees));
        self.unused_ids.push(gone_id);
        let chunk = self.chunk_mut(id);
        chunk.bytes += bytes;
        chunk.next = next;
        chunk.frees.merge(&frees);
        if next != NONE {
            self.chunk_mut(next).prev = id;
        }
    }

    /// A new region: one free chunk.
    pub(super) fn add_region(&mut self, start: u64, bytes: usize, frees: Frees) -> ChunkId {
        let bytes = bytes as u64;
        let chunk = Chunk { start, bytes, prev: NONE, next: NONE, is_live: false, frees };
        let id = self.new_chunk(chunk);
        self.bin(id);
        id
    }

    /// The only chunk of a region, if nothing is live there.
    pub(super) fn whole_region(&self, start: u64, bytes: usize) -> Option<ChunkId> {
        // Free neighbours are always merged, so it is one free chunk of the region's size, or there is none.
        let bytes = bytes as u64;
        let found = self.trees.first_from(self.bins[bin_of(bytes)], key(bytes, start))?;
        let chunk = &self.chunks[found as usize];
        ((chunk.start, chunk.bytes) == (start, bytes)).then_some(ChunkId(found))
    }

    /// Forgets a region in which nothing is live.
    pub(super) fn remove_region(&mut self, whole: ChunkId) {
        self.unbin(whole);
        self.unused_ids.push(whole);
    }

    /// What must have happened before a chunk may be used again.
    pub(super) fn frees(&self, id: ChunkId) -> &Frees {
        &self.chunk(id).frees
    }

    pub(super) fn largest_free(&self) -> usize {
        if self.filled == 0 {
            return 0;
        }
        let last = self.bins[self.filled.ilog2() as usize];
        let largest = self.trees.last(last);
        largest.map_or(0, |id| self.chunk(ChunkId(id)).bytes as usize)
    }

    fn chunk(&self, id: ChunkId) -> &Chunk {
        &self.chunks[id.0 as usize]
    }

    fn chunk_mut(&mut self, id: ChunkId) -> &mut Chunk {
        &mut self.chunks[id.0 as usize]
    }

    fn new_chunk(&mut self, chunk: Chunk) -> ChunkId {
        match self.unused_ids.pop() {
            Some(id) => {
                *self.chunk_mut(id) = chunk;
                id
            }
            None => {
                self.chunks.push(chunk);
                ChunkId(self.chunks.len() as u32 - 1)
            }
        }
    }

    fn bin(&mut self, id: ChunkId) {
        let Chunk { start, bytes, .. } = self.chunks[id.0 as usize];
        let bin = bin_of(bytes);
        self.trees.insert(&mut self.bins[bin], id.0, key(bytes, start), 0);
        self.filled |= 1 << bin;
    }

    /// Puts a chunk that had `old_bytes` where it belongs now.
    fn rebin(&mut self, id: ChunkId, old_bytes: u64) {
        let Chunk { start, bytes, .. } = self.chunks[id.0 as usize];
        let (old, bin) = (bin_of(old_bytes), bin_of(bytes));
        if old == bin {
            self.trees.rekey(&mut self.bins[bin], id.0, key(bytes, start));
        } else {
            self.remove_from(old, id);
            self.bin(id);
        }
    }

    fn remove_from(&mut self, bin: usize, id: ChunkId) {
        self.trees.remove(&mut self.bins[bin], id.0);
        if self.bins[bin].is_empty() {
            self.filled &= !(1 << bin);
        }
    }

    fn unbin(&mut self, id: ChunkId) {
        self.remove_from(bin_of(self.chunk(id).bytes), id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WASTE: usize = 128 << 20;

    fn taken(chunks: &mut Chunks, bytes: usize) -> (ChunkId, u64) {
        let id = chunks.find(bytes).expect("there is room");
        chunks.take(id, bytes, WASTE)
    }

    #[test]
    fn there_are_21_bins_from_256_bytes_to_256_mib() {
        assert_eq!([0, 255, 256, 511, 512].map(bin_of), [0, 0, 0, 0, 1]);
        assert_eq!([(256 << 20) - 1, 256 << 20, 1 << 40].map(bin_of), [19, 20, 20]);
    }

    #[test]
    fn a_chunk_is_split_if_it_is_twice_too_large_or_wastes_too_much() {
        let mut chunks = Chunks::default();
        chunks.add_region(1 << 30, 4096, Frees::default());
        let (id, _) = taken(&mut chunks, 2304);
        assert_eq!(chunks.chunk(id).bytes, 4096, "less than twice 2304");
        chunks.free(id, Frees::default());
        let (id, _) = taken(&mut chunks, 2048);
        assert_eq!((chunks.chunk(id).bytes, chunks.largest_free()), (2048, 2048));
        let mut chunks = Chunks::default();
        chunks.add_region(1 << 30, 300 << 20, Frees::default());
        let (id, _) = taken(&mut chunks, 172 << 20);
        assert_eq!(chunks.chunk(id).bytes, 172 << 20, "128 MiB would be wasted");
        let (id, _) = taken(&mut chunks, 65 << 20);
        assert_eq!(chunks.chunk(id).bytes, 128 << 20);
    }

    #[test]
    fn freed_neighbours_are_one_again() {
        let mut chunks = Chunks::default();
        chunks.add_region(1 << 30, 1 << 20, Frees::default());
        let ids = [0; 5].map(|_| taken(&mut chunks, 4096).0);
        for at in [1, 3, 0, 4, 2] {
            assert_eq!(chunks.whole_region(1 << 30, 1 << 20), None);
            chunks.free(ids[at], Frees::default());
        }
        assert!(chunks.whole_region(1 << 30, 1 << 20).is_some());
        assert_eq!(chunks.largest_free(), 1 << 20);
    }
}
