//! Regions of the pool, and which blocks are whose.

use std::collections::BTreeMap;
use std::sync::Arc;

use millpond::driver::{DevicePtr, PhysicalProperties, Stream};
use millpond::pool::{Pool, Region, RegionOptions};
use millpond::{AllocError, FreeError, Resource};
use millpond_tests::conformance::Wrong;

use super::Machine;
use super::allocations::PAGE_BYTES;
use crate::transition::{MOST_REGIONS, Tiers};

/// Which region: never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number(u64);

struct Open {
    number: Number,
    region: Arc<Region>,
    dedicated_bytes: usize,
}

/// The regions that are open, and the blocks that were allocated from any.
#[derive(Default)]
pub(super) struct Regions {
    open: Vec<Open>,
    blocks: BTreeMap<DevicePtr, Number>,
    /// Blocks that were captured for any: a region takes them back, but does not hold them.
    captured: BTreeMap<DevicePtr, Number>,
    opened: u64,
}

impl Regions {
    /// The region that a transition means, if there is any.
    pub(super) fn of(&self, tiers: Tiers) -> Option<Number> {
        let Tiers::Region(number) = tiers else { return None };
        Some(self.open[number.checked_rem(self.open.len())?].number)
    }

    /// The open region that takes a block back.
    pub(super) fn taking(&self, ptr: DevicePtr) -> Option<Number> {
        let number = *self.blocks.get(&ptr).or_else(|| self.captured.get(&ptr))?;
        self.open.iter().any(|open| open.number == number).then_some(number)
    }

    /// Whether there is such a region, and the block is none of its.
    pub(super) fn is_not_of(&self, region: Option<Number>, ptr: DevicePtr) -> bool {
        region.is_some() && self.taking(ptr) != region
    }

    pub(super) fn allocated(&mut self, region: Option<Number>, ptr: DevicePtr) {
        self.blocks.extend(region.map(|number| (ptr, number)));
    }

    pub(super) fn captured(&mut self, region: Option<Number>, ptr: DevicePtr) {
        self.captured.extend(region.map(|number| (ptr, number)));
    }

    pub(super) fn freed(&mut self, ptr: DevicePtr) {
        self.blocks.remove(&ptr);
        self.captured.remove(&ptr);
    }

    /// Bytes, in whole pages, that regions keep for themselves.
    pub(super) fn dedicated_bytes(&self) -> usize {
        let pages = |open: &Open| open.dedicated_bytes.div_ceil(PAGE_BYTES) + 1;
        self.open.iter().map(pages).sum::<usize>() * PAGE_BYTES
    }
}

/// What a call is made to.
pub(super) enum Target {
    Pool(Pool),
    Region(Arc<Region>),
}

impl Target {
    pub(super) fn allocate(&self, bytes: usize, stream: Stream) -> Result<DevicePtr, AllocError> {
        match self {
            Target::Pool(pool) => pool.allocate(bytes, stream),
            Target::Region(region) => region.allocate(bytes, stream),
        }
    }

    pub(super) fn allocate_now(
        &self,
        bytes: usize,
        stream: Stream,
    ) -> Result<DevicePtr, AllocError> {
        match self {
            Target::Pool(pool) => pool.allocate_now(bytes, stream),
            Target::Region(region) => region.allocate_now(bytes, stream),
        }
    }

    pub(super) fn free(
        &self,
        ptr: DevicePtr,
        bytes: usize,
        with_size: bool,
        stream: Stream,
    ) -> Result<(), FreeError> {
        match (self, with_size) {
            (Target::Pool(pool), true) => pool.deallocate(ptr, bytes, stream),
            (Target::Pool(pool), false) => pool.deallocate_unsized(ptr, stream),
            (Target::Region(region), true) => region.deallocate(ptr, bytes, stream),
            (Target::Region(region), false) => region.deallocate_unsized(ptr, stream),
        }
    }
}

impl Machine {
    /// A region, or the pool.
    pub(super) fn target(&self, region: Option<Number>) -> Target {
        let open = |number| self.regions.open.iter().find(|open| open.number == number);
        match region.and_then(open) {
            Some(open) => Target::Region(Arc::clone(&open.region)),
            None => Target::Pool(self.pool.clone()),
        }
    }

    pub(super) fn open_region(
        &mut self,
        dedicated_bytes: usize,
        exportable: bool,
    ) -> Result<(), Wrong> {
        if self.regions.open.len() == MOST_REGIONS {
            return Ok(());
        }
        let properties = PhysicalProperties { exportable, ..PhysicalProperties::default() };
        let options = RegionOptions { dedicated_bytes, properties, ..RegionOptions::default() };
        let must_be_had = dedicated_bytes <= self.certainly_free_bytes();
        // What is live is the sum of several parts from now on.
        self.lab.is_counted_in_parts();
        match self.by(0, move |pool| pool.region(&options)) {
            Ok(region) => {
                self.regions.opened += 1;
                let number = Number(self.regions.opened);
                let region = Arc::new(region);
                self.regions.open.push(Open { number, region, dedicated_bytes });
                Ok(())
            }
            Err(error) if error.is_out_of_memory() && !must_be_had => Ok(()),
            Err(error) => Err(format!("no region for no reason: {error}")),
        }
    }

    /// Gives a region up. Blocks of it may be held.
    pub(super) fn close_region(&mut self, number: usize) {
        let open = &mut self.regions.open;
        let Some(index) = number.checked_rem(open.len()) else { return };
        let closed = open.swap_remove(index);
        self.lab.calling(|_| drop(closed));
    }

    pub(super) fn close_regions(&mut self) {
        while !self.regions.open.is_empty() {
            self.close_region(0);
        }
    }

    /// Each region holds its blocks and no others, and keeps what is dedicated to it.
    pub(super) fn check_regions(&self) -> Result<(), Wrong> {
        for Open { number, region, dedicated_bytes } in &self.regions.open {
            let is_its =
                |(ptr, _): &(DevicePtr, usize)| self.regions.blocks.get(ptr) == Some(number);
            let its = self.lab.all_held().filter(is_its);
            let (blocks, bytes) = its.fold((0, 0), |sum, (_, bytes)| (sum.0 + 1, sum.1 + bytes));
            let usage = region.usage();
            if (usage.live_blocks, usage.live_bytes) != (blocks, bytes)
                || usage.reserved_bytes < (*dedicated_bytes).max(bytes)
            {
                return Err(format!(
                    "{bytes} bytes in {blocks} blocks are of a region with {dedicated_bytes} dedicated, which says {usage:?}"
                ));
            }
        }
        Ok(())
    }
}
