//! Waiting for the whole device, where there is no event to wait for.

use std::collections::BTreeSet;

use super::Streams;
use crate::pool::points::{Point, StreamSlot};

/// Which points the device is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::pool) enum Settle {
    /// Those that can be waited for in no other way.
    Gone,
    All,
}

/// Points that pass when the device has been waited for: the last of each stream. Nothing, if there are none.
#[derive(Debug)]
#[must_use = "points that are not settled stay as if they had passed into other hands"]
pub(in crate::pool) struct Settling(Vec<Point>);

impl Settling {
    pub(in crate::pool) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Streams {
    /// The points so far of streams that are gone, or of all, to be passed once the device has been waited for. The caller then waits,
    /// without the lock, and says how that went.
    pub(in crate::pool) fn begin_settling(&mut self, which: Settle) -> Settling {
        // Also those that another thread is waiting for: who asks must not go on before they have passed.
        let is_open = |slot: &StreamSlot| {
            let state = self.known(*slot);
            state.is_some_and(|state| state.has_unrecorded || state.settling > 0)
        };
        let slots: BTreeSet<StreamSlot> = match which {
            Settle::Gone => self.gone.iter().copied().filter(is_open).collect(),
            Settle::All => {
                let being_settled = self.gone.iter().filter(|slot| is_open(slot));
                let with_points = self.unrecorded.iter().chain(self.with_events.iter());
                with_points.chain(being_settled.copied()).collect()
            }
        };
        let mut begin = |slot: StreamSlot| {
            self.unrecorded.remove(slot);
            let state = self.state(slot);
            state.has_unrecorded = false;
            state.settling += 1;
            let last = Point { stream: slot, number: state.number };
            state.number += 1;
            last
        };
        Settling(slots.into_iter().map(&mut begin).collect())
    }

    /// The host has waited for the device, or has tried to.
    pub(in crate::pool) fn settle(&mut self, Settling(points): Settling, has_waited: bool) {
        self.passes += 1;
        for Point { stream, number } in points {
            let state = self.slots.get_mut(&stream).expect("kept while it settles");
            state.settling -= 1;
            if !has_waited {
                state.has_unrecorded = true;
                self.unrecorded.insert(stream);
                continue;
            }
            let recorded = state.recorded.partition_point(|(at, _)| *at <= number);
            self.spare_events.extend(state.recorded.drain(..recorded).map(|(_, event)| event));
            state.passed_below = state.passed_below.max(number + 1);
            if state.recorded.is_empty() {
                self.with_events.remove(stream);
            }
        }
    }
}
