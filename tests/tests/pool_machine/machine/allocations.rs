//! Allocating: at once or with patience, under a name or none, from the pool or a region; and setting aside.

use millpond::{AllocError, Resource};
use millpond_tests::conformance::{CAPACITY_BYTES, Wrong};

use super::Machine;
use super::tags::Scopes;
use crate::transition::{Caller, Name, Patience, Tiers};

pub(super) const PAGE_BYTES: usize = 2 << 20;
/// The largest block that comes from a slab, and the largest slab: it may touch one page more than its blocks do.
const LARGEST_IN_SLAB_BYTES: usize = 32 << 10;
const LARGEST_SLAB_BYTES: u64 = 256 << 10;
/// What the lab itself holds, and a page at either end of a block.
const ALLOWANCE_BYTES: usize = 6 << 20;

impl Machine {
    pub(super) fn allocate(
        &mut self,
        bytes: usize,
        by: Caller,
        of: Tiers,
        patience: Patience,
        name: Name,
    ) -> Result<(), Wrong> {
        let must_be_served = patience == Patience::Some && bytes <= self.certainly_free_bytes();
        let before = self.waits();
        let (stream, region) = (self.stream_of(by), self.regions.of(of));
        let (target, turns) = (self.target(region), &mut self.turns);
        let answer = self.lab.allocate_by(bytes, stream, |_, handle| {
            turns.run(by.thread, move || {
                let _scopes = Scopes::enter(name);
                match patience {
                    Patience::Some => target.allocate(bytes, handle),
                    Patience::None => target.allocate_now(bytes, handle),
                }
            })
        })?;
        if patience == Patience::None && self.waits() != before {
            return Err(format!(
                "{before:?} became {:?} although nobody was to wait",
                self.waits()
            ));
        }
        match answer {
            Ok(ptr) if ptr.is_null() => Ok(()),
            Ok(ptr) => {
                self.check_alignment(ptr)?;
                self.captures.check_memory(ptr, bytes, None)?;
                self.regions.allocated(region, ptr);
                self.tags.allocated(ptr, bytes, name);
                Ok(())
            }
            Err(AllocError::WouldWait { .. }) if patience == Patience::None => Ok(()),
            Err(error) if error.is_out_of_memory() && !must_be_served => Ok(()),
            Err(error) => Err(format!("refused for no reason: {error}")),
        }
    }

    pub(super) fn check_alignment(&self, ptr: millpond::driver::DevicePtr) -> Result<(), Wrong> {
        let alignment = self.pool.config().alignment;
        match ptr.is_aligned_to(alignment) {
            true => Ok(()),
            false => Err(format!("the block at {ptr} is not aligned to {alignment}")),
        }
    }

    /// What a call that must not wait leaves as it is: pages created and moved, waits of streams, bytes reserved.
    fn waits(&self) -> (u64, u64, u64, u64) {
        let stats = self.pool.stats();
        (stats.pages_created, stats.page_moves, stats.cross_stream_waits, stats.reserved_bytes)
    }

    /// All of the blocks are set aside, or none: nothing is live for it, and memory is out only where it may be.
    pub(super) fn preallocate(&mut self, bytes: usize, count: usize) -> Result<(), Wrong> {
        let alignment = self.pool.config().alignment;
        let most = bytes.saturating_add(alignment + 2 * PAGE_BYTES).saturating_mul(count);
        let must_be_served = most <= self.certainly_free_bytes();
        match self.by(0, move |pool| pool.preallocate(bytes, count)) {
            Ok(()) => {
                let (reserved, live) = (self.pool.usage().reserved_bytes, self.lab.live_bytes());
                match reserved >= live.saturating_add(bytes.saturating_mul(count)) {
                    true => Ok(()),
                    false => Err(format!("{reserved} bytes are too few to have set that aside")),
                }
            }
            Err(error) if error.is_out_of_memory() && !must_be_served => Ok(()),
            Err(error) => Err(format!("nothing was set aside for no reason: {error}")),
        }
    }

    /// What can be had as one block, whatever was allocated and freed before: all pages that nothing live keeps in place,
    /// and no region or graph for itself.
    pub(super) fn certainly_free_bytes(&self) -> usize {
        const PAGE: u64 = PAGE_BYTES as u64;
        let pages = |(ptr, bytes): (millpond::driver::DevicePtr, usize)| {
            let reach = if bytes <= LARGEST_IN_SLAB_BYTES { LARGEST_SLAB_BYTES } else { 0 };
            let (first, last) = (ptr.0 - reach, ptr.0 + bytes as u64 - 1 + reach);
            first / PAGE..=last / PAGE
        };
        let mut kept: Vec<u64> = self.lab.all_held().flat_map(pages).collect();
        kept.sort_unstable();
        kept.dedup();
        let stats = self.pool.stats();
        let for_itself = stats.captured_bytes as usize + self.regions.dedicated_bytes();
        let unusable = match self.captures.record_something() {
            // What a stream freed before it was captured cannot be waited for, and nobody knows how much that is.
            true => stats.reserved_bytes as usize,
            false => kept.len() * PAGE_BYTES,
        };
        (CAPACITY_BYTES - ALLOWANCE_BYTES).saturating_sub(unusable + for_itself)
    }
}
