//! Where plain allocations go: large ones have frames of their own, small ones share.

use std::collections::BTreeMap;

use crate::address_space::{AddressSpace, Region, RegionKind, whole_frames};
use crate::board::Board;
use crate::frames::{Extent, FRAME_BYTES};
use crate::ranges::Ranges;

/// Requests up to this size share frames, as they do under NVIDIA's driver.
const LARGEST_SMALL_BYTES: u64 = 1 << 20;
/// Chunks lie this far apart, so that free ranges of two chunks never merge.
const CHUNK_STRIDE_BYTES: u64 = 2 * FRAME_BYTES;

#[derive(Debug)]
struct Chunk {
    extent: Extent,
    used_bytes: u64,
}

/// `free` has exactly the unused parts of all chunks; a chunk with `used_bytes = 0` goes back at once.
#[derive(Debug)]
pub(crate) struct PlainHeap {
    granularity: u64,
    chunks: BTreeMap<u64, Chunk>,
    free: Ranges,
    held_bytes: u64,
}

impl PlainHeap {
    pub(crate) fn new(granularity: u64) -> PlainHeap {
        PlainHeap { granularity, chunks: BTreeMap::new(), free: Ranges::new(0, 0), held_bytes: 0 }
    }

    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// An allocation's address, and when its memory is there. `None`: out of memory.
    pub(crate) fn alloc(
        &mut self,
        bytes: u64,
        space: &mut AddressSpace,
        board: &mut Board,
        now: u64,
    ) -> Option<(u64, u64)> {
        let rounded = bytes.checked_next_multiple_of(self.granularity)?;
        let (start, extents, ready) = if rounded > LARGEST_SMALL_BYTES {
            let (extents, ready) = board.claim(whole_frames(bytes)?, now)?;
            match space.take_addresses(whole_frames(bytes)?, FRAME_BYTES) {
                Some(start) => (start, extents, ready),
                None => {
                    board.give_back(&extents);
                    return None;
                }
            }
        } else {
            self.alloc_small(rounded, space, board, now)?
        };
        space.insert(start, Region { bytes, kind: RegionKind::Plain { extents } });
        self.held_bytes += rounded;
        Some((start, ready))
    }

    fn alloc_small(
        &mut self,
        rounded: u64,
        space: &mut AddressSpace,
        board: &mut Board,
        now: u64,
    ) -> Option<(u64, Vec<Extent>, u64)> {
        let mut ready = now;
        let start = match self.free.take(rounded, self.granularity) {
            Some(start) => start,
            None => {
                let (extents, at) = board.claim(FRAME_BYTES, now)?;
                let Some(chunk) = space.take_addresses(CHUNK_STRIDE_BYTES, CHUNK_STRIDE_BYTES)
                else {
                    board.give_back(&extents);
                    return None;
                };
                ready = at;
                self.chunks.insert(chunk, Chunk { extent: extents[0], used_bytes: 0 });
                self.free.give(chunk, FRAME_BYTES);
                self.free.take(rounded, self.granularity).expect("a chunk holds any small request")
            }
        };
        let (chunk_start, chunk) = self.chunks.range_mut(..=start).next_back().expect("of a chunk");
        chunk.used_bytes += rounded;
        let extent = Extent { start: chunk.extent.start + (start - chunk_start), bytes: rounded };
        Some((start, vec![extent], ready))
    }

    /// Frees what `alloc` returned. The frames that go back are the caller's to clean.
    pub(crate) fn free(&mut self, start: u64, space: &mut AddressSpace) -> Vec<Extent> {
        let region = space.remove(start, "freed").expect("the caller looked it up");
        let RegionKind::Plain { extents } = region.kind else { unreachable!("the caller looked") };
        let rounded = region.bytes.next_multiple_of(self.granularity);
        self.held_bytes -= rounded;
        if rounded > LARGEST_SMALL_BYTES {
            space.give_addresses(start, whole_frames(region.bytes).expect("fitted when allocated"));
            return extents;
        }
        self.free.give(start, rounded);
        let (&chunk_start, chunk) =
            self.chunks.range_mut(..=start).next_back().expect("of a chunk");
        chunk.used_bytes -= rounded;
        if chunk.used_bytes > 0 {
            return Vec::new();
        }
        let chunk = self.chunks.remove(&chunk_start).expect("just found");
        self.free.withdraw(chunk_start, FRAME_BYTES);
        space.give_addresses(chunk_start, CHUNK_STRIDE_BYTES);
        vec![chunk.extent]
    }
}
