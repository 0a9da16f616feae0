//! Memory of a driver that has no pages to map: a few large allocations, in which blocks are placed as elsewhere.
//!
//! Addresses are the driver's own, so the heap spans all that it may hand out. Addresses between the chunks are outside nodes.
//!
//! ```text
//!   span     = chunks ∪ outside, without overlap
//!   reserved = Σ chunks.reserved_bytes
//!   a chunk can go back ⇔ its first node is free and as large as the chunk
//! ```

use std::collections::BTreeMap;

use super::bins::STEP_BYTES;
use super::heap::{Heap, NodeId, Use};
use super::{Back, SearchEffort, Wanted};
use crate::driver::{
    Call, DevicePtr, Driver, DriverError, DriverErrorKind, DriverResult, RelaxedCalls,
};
use crate::pool::streams::Points;

/// The driver's addresses lie within this of each other: x86-64 processors address so much.
pub(super) const SPAN_BYTES: u64 = 1 << 47;

/// A chunk for many blocks. A block that is larger than half a chunk gets a chunk of its own size.
pub(super) const CHUNK_BYTES: u64 = 16 << 20;
const ROUNDED_TO: u64 = 2 << 20;

/// A driver allocation. The node at its start has the same id for as long as the chunk is there.
#[derive(Debug)]
struct Chunk {
    first: NodeId,
    /// The part that can be used, from its first node on.
    usable_bytes: u64,
    reserved_bytes: u64,
}

/// All chunks by where they begin in the span, and the outside nodes between them by their start.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    by_start: BTreeMap<u64, Chunk>,
    outside: BTreeMap<u64, NodeId>,
}

/// Where the span begins, so that the driver's allocations lie in the middle of it.
pub(super) fn base_of_addresses(driver: &dyn Driver) -> DriverResult<DevicePtr> {
    // Memory for a capture is made while it is under way.
    let _relaxed = RelaxedCalls::enter(driver);
    let somewhere = driver.alloc(1)?;
    // If the probe cannot be freed, the pool cannot be made: no owner would free it later.
    driver.free(somewhere).or_else(|_| driver.free(somewhere))?;
    let begin = somewhere.0.saturating_sub(SPAN_BYTES / 2);
    // Not at the very beginning: no chunk begins at 0.
    Ok(DevicePtr((begin / ROUNDED_TO * ROUNDED_TO).saturating_sub(ROUNDED_TO)))
}

impl Chunks {
    pub(super) fn over_all_addresses() -> (Heap, Chunks) {
        let (heap, all) = Heap::outside(SPAN_BYTES);
        let outside = BTreeMap::from([(0, all)]);
        (heap, Chunks { by_start: BTreeMap::new(), outside })
    }

    pub(super) fn starts(&self) -> impl Iterator<Item = u64> + '_ {
        self.by_start.keys().copied()
    }

    /// The usable part of each chunk, by address: from and to.
    pub(super) fn ranges(&self, heap: &Heap) -> Vec<(u64, u64)> {
        let range = |chunk: &Chunk| {
            let start = heap.node(chunk.first).start;
            (start, start + chunk.usable_bytes)
        };
        self.by_start.values().map(range).collect()
    }

    pub(super) fn reserved_bytes(&self) -> u64 {
        self.by_start.values().map(|chunk| chunk.reserved_bytes).sum()
    }

    fn add(&mut self, heap: &mut Heap, begin: u64, bytes: u64, reserved_bytes: u64) -> NodeId {
        let start = begin.next_multiple_of(STEP_BYTES);
        let usable_bytes = (begin + bytes - start) / STEP_BYTES * STEP_BYTES;
        let around = self.outside.range(..=start).next_back();
        let (&key, &outside) = around.expect("the driver hands out what it has not handed out");
        if key == start {
            self.outside.remove(&key);
        }
        let (first, above) = heap.open(outside, start, usable_bytes);
        if let Some(above) = above {
            self.outside.insert(start + usable_bytes, above);
        }
        self.by_start.insert(begin, Chunk { first, usable_bytes, reserved_bytes });
        first
    }

    fn remove(&mut self, heap: &mut Heap, begin: u64) -> Chunk {
        let chunk = self.by_start.remove(&begin).expect("a chunk that is there");
        let (outside, above) = heap.close(chunk.first);
        if let Some(above) = above {
            self.outside.remove(&above);
        }
        self.outside.insert(heap.node(outside).start, outside);
        chunk
    }

    /// The points after which a free chunk may be used again.
    fn points(&self, heap: &Heap, begin: u64) -> Points {
        heap.node(self.by_start[&begin].first).points.clone()
    }

    fn is_free(&self, heap: &Heap, chunk: &Chunk) -> bool {
        let node = heap.node(chunk.first);
        node.used_for == Use::Free && node.bytes == chunk.usable_bytes
    }
}

impl Back {
    /// Takes a range in a new chunk. The caller holds `mapping`.
    pub(super) fn add_chunk(&self, wanted: Wanted) -> DriverResult<NodeId> {
        let mut state = self.state.lock();
        // Another thread may have added one meanwhile.
        if let Some(node) =
            state.take_in_place(wanted, SearchEffort::WaitBeyondSlack, &self.driver)?
        {
            return Ok(node);
        }
        drop(state);
        let exact_bytes = wanted.bytes.next_multiple_of(ROUNDED_TO);
        // Enough, even if the driver aligns less than the request.
        let ample_bytes = (wanted.bytes + wanted.align + STEP_BYTES).next_multiple_of(ROUNDED_TO);
        let sizes = [
            if wanted.bytes * 2 > CHUNK_BYTES { exact_bytes } else { CHUNK_BYTES },
            exact_bytes,
            ample_bytes,
        ];
        let mut failed = None;
        for bytes in sizes {
            match self.allocate_chunk(bytes) {
                Ok((begin, bytes)) => {
                    let granularity = self.driver.device().plain_granularity_bytes as u64;
                    let reserved = bytes.next_multiple_of(granularity);
                    let mut state = self.state.lock();
                    let state = &mut *state;
                    state.chunks.add(&mut state.heap, begin, bytes, reserved);
                    state.failed_search = None;
                    state.reserve(reserved);
                    if let Some(node) =
                        state.take_in_place(wanted, SearchEffort::NoWait, &self.driver)?
                    {
                        return Ok(node);
                    }
                }
                Err(error) if error.is_out_of_memory() => failed = Some(error),
                Err(error) => return Err(error),
            }
        }
        // The driver has no more. The stream waits for memory that is there.
        let mut state = self.state.lock();
        let found = state.take_in_place_retrying(wanted, SearchEffort::Wait, &self.driver)?;
        found.ok_or_else(|| failed.unwrap_or_else(|| self.out_of_addresses(wanted.bytes)))
    }

    /// Where a new chunk begins in the span, and its size.
    fn allocate_chunk(&self, bytes: u64) -> DriverResult<(u64, u64)> {
        let address = self.driver.alloc(bytes as usize)?;
        if let Some(begin) = self.offset_of(address).filter(|begin| begin + bytes < SPAN_BYTES) {
            return Ok((begin, bytes));
        }
        let _ = self.driver.free(address);
        Err(DriverError::with_detail(
            Call::Alloc,
            DriverErrorKind::InvalidValue,
            format!("memory at {address} is beyond the addresses that the pool knows"),
        ))
    }

    /// Gives chunks back in which no range is used; returns their bytes. The driver waits for work that still uses them. The caller holds
    /// `mapping`.
    pub(super) fn free_chunks(&self) -> u64 {
        let mut freed = 0;
        loop {
            let mut guard = self.state.lock();
            let state = &mut *guard;
            let keep = state.keep_bytes;
            let found = state.chunks.by_start.iter().find(|(_, chunk)| {
                state.chunks.is_free(&state.heap, chunk)
                    && state.reserved_bytes - chunk.reserved_bytes >= keep
            });
            let Some((&begin, _)) = found else { return freed };
            let points = state.chunks.points(&state.heap, begin);
            // Removed before the driver can hand the address out again.
            let Chunk { reserved_bytes, .. } = state.chunks.remove(&mut state.heap, begin);
            drop(guard);
            let answer = self.driver.free(self.address_of(begin));
            let mut guard = self.state.lock();
            let state = &mut *guard;
            if answer.is_err() {
                let first =
                    state.chunks.add(&mut state.heap, begin, reserved_bytes, reserved_bytes);
                state.heap.node_mut(first).points = points;
                state.failed_search = None;
                return freed;
            }
            state.reserved_bytes -= reserved_bytes;
            freed += reserved_bytes;
        }
    }
}
