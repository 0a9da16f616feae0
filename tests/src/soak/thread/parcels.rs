//! Blocks that go from thread to thread.

use std::sync::Weak;

use millpond::driver::{Driver, EventTiming};

use super::Fellow;
use crate::conformance::Wrong;
use crate::soak::block::Mine;
use crate::soak::shared::Parcel;

/// Blocks between threads, at most.
const MOST_PARCELS: usize = 500;

impl Fellow<'_> {
    pub(super) fn hand_over(&mut self) -> Result<(), Wrong> {
        if self.shared.parcels.lock().len() >= MOST_PARCELS {
            return self.free(true);
        }
        let Some(Mine { block, stream, .. }) = self.give_up() else { return Ok(()) };
        let gpu = &*self.shared.gpu;
        let ready = self.shared.says(gpu.create_event(EventTiming::Disabled))?;
        self.shared.says(gpu.record_event(ready, self.streams[stream]))?;
        self.shared.parcels.lock().push(Parcel { block, ready });
        Ok(())
    }

    pub(super) fn take_over(&mut self) -> Result<(), Wrong> {
        let parcel = {
            let mut parcels = self.shared.parcels.lock();
            let index = self.rng.usize(..).checked_rem(parcels.len());
            index.map(|index| parcels.swap_remove(index))
        };
        let Some(Parcel { block, ready }) = parcel else { return Ok(()) };
        let stream = self.any_stream();
        self.shared.says(self.shared.gpu.wait_event(self.streams[stream], ready))?;
        self.shared.says(self.shared.gpu.destroy_event(ready))?;
        let mine = Mine { block, stream, region: Weak::new() };
        // Mostly freed here and now: the thread that allocated it finds it in its inbox.
        if self.rng.u32(0..4) > 0 {
            return self.free_block(mine, true);
        }
        self.take(mine);
        Ok(())
    }
}
