//! A few streams, in order.

use crate::pool::points::StreamSlot;

/// A set that is changed with nearly every event, and usually small: a sorted list needs no memory of its own for that.
#[derive(Debug, Default)]
pub(super) struct SlotSet(Vec<StreamSlot>);

impl SlotSet {
    pub(super) fn insert(&mut self, slot: StreamSlot) {
        if let Err(place) = self.0.binary_search(&slot) {
            self.0.insert(place, slot);
        }
    }

    pub(super) fn remove(&mut self, slot: StreamSlot) {
        if let Ok(place) = self.0.binary_search(&slot) {
            self.0.remove(place);
        }
    }

    pub(super) fn contains(&self, slot: StreamSlot) -> bool {
        self.0.binary_search(&slot).is_ok()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = StreamSlot> + '_ {
        self.0.iter().copied()
    }

    /// Those from a stream on, and then those before it.
    pub(super) fn in_turn_from(&self, next: StreamSlot) -> impl Iterator<Item = StreamSlot> + '_ {
        let place = self.0.partition_point(|slot| *slot < next);
        self.0[place..].iter().chain(&self.0[..place]).copied()
    }
}
