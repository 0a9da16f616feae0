//! Memory of a driver that has no pages to map: a few large allocations, in which blocks are placed as elsewhere.
//!
//! Addresses are the driver's own, so the heap spans all of them, and what lies between the chunks is outside. The last
//! step of a chunk stays outside too: two chunks that happen to be neighbours are not one.

use std::collections::BTreeMap;

use super::{Back, Reach, Wanted};
use crate::driver::{Call, DevicePtr, Driver, DriverError, DriverErrorKind, DriverResult};
use crate::pool::bins::STEP_BYTES;
use crate::pool::heap::{Heap, NodeId, Use};

/// The driver's addresses lie within this of each other: what x86-64 processors address.
pub(super) const SPAN_BYTES: u64 = 1 << 47;

const LEAST_BYTES: u64 = 16 << 20;
const MOST_BYTES: u64 = 512 << 20;
const ROUNDED_TO: u64 = 2 << 20;

/// A driver allocation. The node at its start has the same id for as long as the chunk is there.
#[derive(Debug)]
struct Chunk {
    first: NodeId,
    /// What can be used of it.
    usable_bytes: u64,
    reserved_bytes: u64,
}

/// `reserved = Σ chunks`; between any two chunks there is an outside node.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    by_start: BTreeMap<u64, Chunk>,
    outside: BTreeMap<u64, NodeId>,
}

/// Where the span begins, so that what the driver hands out lies in the middle of it.
pub(super) fn base_of_addresses(driver: &dyn Driver) -> DriverResult<DevicePtr> {
    let somewhere = driver.alloc(1)?;
    driver.free(somewhere)?;
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

    pub(super) fn reserved_bytes(&self) -> u64 {
        self.by_start.values().map(|chunk| chunk.reserved_bytes).sum()
    }

    fn add(&mut self, heap: &mut Heap, begin: u64, bytes: u64, reserved_bytes: u64) {
        let start = begin.next_multiple_of(STEP_BYTES);
        let usable_bytes = (begin + bytes - start) / STEP_BYTES * STEP_BYTES - STEP_BYTES;
        let (_, &outside) = self.outside.range(..start).next_back().expect("0 is never a chunk's");
        let (first, above) = heap.open(outside, start, usable_bytes);
        self.outside.insert(start + usable_bytes, above);
        self.by_start.insert(begin, Chunk { first, usable_bytes, reserved_bytes });
    }

    fn remove(&mut self, heap: &mut Heap, begin: u64) -> u64 {
        let chunk = self.by_start.remove(&begin).expect("a chunk that is there");
        let end = heap.node(chunk.first).end();
        self.outside.remove(&end);
        heap.close(chunk.first);
        chunk.reserved_bytes
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
        if let Some(node) = state.take_in_place(wanted, Reach::WithinSlack, &self.driver)? {
            return Ok(node);
        }
        // Room for the alignment, and for the steps at the chunk's ends.
        let needed = wanted.bytes + wanted.align + 2 * STEP_BYTES;
        let generous = (state.reserved_bytes / 8).clamp(LEAST_BYTES, MOST_BYTES).max(needed);
        drop(state);
        let round = |bytes: u64| bytes.next_multiple_of(ROUNDED_TO);
        let chunk = self.allocate_chunk(round(generous)).or_else(|error| {
            if error.is_out_of_memory() { self.allocate_chunk(round(needed)) } else { Err(error) }
        });
        let mut state = self.state.lock();
        match chunk {
            Ok((begin, bytes)) => {
                let granularity = self.driver.device().plain_granularity_bytes as u64;
                let reserved = bytes.next_multiple_of(granularity);
                let state = &mut *state;
                state.chunks.add(&mut state.heap, begin, bytes, reserved);
                state.reserve(reserved);
            }
            Err(error) if error.is_out_of_memory() => {
                // There is nothing new; what has to be waited for will do.
                let found = super::avoiding_captures(|| {
                    state.take_in_place(wanted, Reach::Any, &self.driver)
                });
                return found?.ok_or(error);
            }
            Err(error) => return Err(error),
        }
        let node = state.take_in_place(wanted, Reach::Any, &self.driver)?;
        Ok(node.expect("the chunk was made for this request"))
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

    /// Gives chunks back in which nothing is used; returns their bytes. The driver waits for work that still uses them. The
    /// caller holds `mapping`.
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
            // Before the driver can hand the address out again.
            let reserved = state.chunks.remove(&mut state.heap, begin);
            drop(guard);
            let answer = self.driver.free(self.address_of(begin));
            let mut guard = self.state.lock();
            let state = &mut *guard;
            if answer.is_err() {
                state.chunks.add(&mut state.heap, begin, reserved, reserved);
                return freed;
            }
            state.reserved_bytes -= reserved;
            freed += reserved;
        }
    }
}
