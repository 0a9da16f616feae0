//! Regions that all threads use, and any of them opens and gives up.

use std::sync::Arc;

use millpond::Resource;
use millpond::driver::PhysicalProperties;
use millpond::pool::{Region, RegionOptions};

use super::Fellow;
use crate::conformance::Wrong;
use crate::soak::shared::Open;

/// Regions at a time, at most.
const MOST_REGIONS: usize = 4;
/// Bytes that are dedicated to a region, at most.
const MOST_DEDICATED_BYTES: usize = 24 << 20;

impl Fellow<'_> {
    /// Opens a region, or gives one up where there are enough.
    pub(super) fn open_region(&mut self) -> Result<(), Wrong> {
        if self.shared.regions.lock().len() >= MOST_REGIONS {
            return self.close_region();
        }
        let dedicated_bytes = self.rng.usize(0..MOST_DEDICATED_BYTES);
        let exportable = self.rng.bool();
        let properties = PhysicalProperties { exportable, ..PhysicalProperties::default() };
        let options = RegionOptions { dedicated_bytes, properties, ..RegionOptions::default() };
        let region = self.shared.pool.region(&options);
        let region = region.map_err(|error| format!("refused with little live: {error}"))?;
        self.shared.regions.lock().push(Open { region: Arc::new(region), dedicated_bytes });
        Ok(())
    }

    /// Gives a region up, whose blocks others may hold.
    pub(super) fn close_region(&mut self) -> Result<(), Wrong> {
        let closed = {
            let mut regions = self.shared.regions.lock();
            let index = self.rng.usize(..).checked_rem(regions.len());
            index.map(|index| regions.swap_remove(index))
        };
        drop(closed);
        Ok(())
    }

    pub(super) fn any_region(&mut self) -> Option<Arc<Region>> {
        let regions = self.shared.regions.lock();
        self.rng.choice(&*regions).map(|open| Arc::clone(&open.region))
    }

    /// Allocates from a region, at once or with patience, if there is one.
    pub(super) fn allocate_in_region(&mut self) -> Result<(), Wrong> {
        let Some(region) = self.any_region() else { return Ok(()) };
        let (at_once, name) = (self.rng.u32(0..8) == 0, self.rng.bool().then_some("region"));
        let from = Arc::downgrade(&region);
        self.allocate_by(name, from, |_, bytes, stream| match at_once {
            true => region.allocate_now(bytes, stream),
            false => region.allocate(bytes, stream),
        })
    }
}
