//! What is ordered before what: vector clocks over streams.
//!
//! Which work comes before which is settled when work is queued, not when it runs: by the order of a
//! stream, by events, by what the host waited for. So the relation can be kept while queueing, and a
//! pair of accesses that it does not order is a race, whatever times they happened to run at.

use std::collections::HashSet;
use std::sync::Arc;

use crate::seen_streams::{Removal, SeenStreams};

/// A stream: where the schedule has it, which becomes another's place when it is gone, and a number that never does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct StreamIndex {
    pub(crate) place: u32,
    pub(crate) number: u32,
}

impl StreamIndex {
    /// The legacy default stream is the first.
    pub(crate) const LEGACY: StreamIndex = StreamIndex { place: 0, number: 0 };
}

/// One piece of queued work: its stream, and its number among all work of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Epoch {
    pub(crate) stream: StreamIndex,
    pub(crate) seq: u64,
}

/// What came before: everything up to `floor`, and of some streams everything up to a later number.
/// Every number in `seen` exceeds `floor`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Order {
    floor: u64,
    seen: SeenStreams,
}

impl Order {
    /// After everything numbered up to `floor`.
    pub(crate) fn after_all(floor: u64) -> Order {
        Order { floor, seen: SeenStreams::default() }
    }

    /// Whether the work of `epoch` came before.
    pub(crate) fn covers(&self, epoch: Epoch) -> bool {
        epoch.seq <= self.floor || epoch.seq <= self.seen.newest(epoch.stream.number)
    }

    /// Also after the work of `epoch`.
    pub(crate) fn add(&mut self, epoch: Epoch) {
        if !self.covers(epoch) {
            self.seen.add(epoch.stream.number, epoch.seq);
        }
    }

    /// Also after everything that `other` is after.
    pub(crate) fn join(&mut self, other: &Order) {
        self.seen.join(&other.seen);
        self.floor = self.floor.max(other.floor);
        self.seen.forget_up_to(self.floor);
    }
}

/// Joins into a shared order, which stays the same one if that does not change it.
pub(crate) fn join_shared(order: &mut Arc<Order>, other: &Order, also: Option<Epoch>) {
    let mut joined = Order::clone(order);
    joined.join(other);
    if let Some(epoch) = also {
        joined.add(epoch);
    }
    if joined.floor != order.floor || !joined.seen.is_same_as(&order.seen) {
        *order = Arc::new(joined);
    }
}

/// Clears orders of streams of which nothing is known any more: nobody will ask for their work. Every order must be cleared, or
/// those that are not bring it back.
#[derive(Debug)]
pub(crate) struct Clearing {
    removal: Removal,
}

impl Clearing {
    pub(crate) fn new(known: &HashSet<StreamIndex>) -> Clearing {
        let numbers = known.iter().map(|stream| stream.number).collect();
        Clearing { removal: Removal::of_all_but(numbers) }
    }

    pub(crate) fn clear(&mut self, order: &mut Arc<Order>) {
        let mut seen = order.seen.clone();
        if self.removal.apply(&mut seen) {
            *order = Arc::new(Order { floor: order.floor, seen });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joins_carry_order_over() {
        let epoch = |place, seq| Epoch { stream: StreamIndex { place, number: place }, seq };
        let mut a = Order::default();
        a.add(epoch(1, 5));
        assert!(a.covers(epoch(1, 4)) && !a.covers(epoch(1, 6)) && !a.covers(epoch(2, 1)));
        let mut b = Order::after_all(3);
        b.join(&a);
        assert!(b.covers(epoch(2, 3)) && b.covers(epoch(1, 5)) && !b.covers(epoch(2, 4)));
        b.join(&Order::after_all(9));
        assert_eq!(b, Order::after_all(9));
    }

    #[test]
    fn what_is_cleared_keeps_what_is_known() {
        let epoch = |place, seq| Epoch { stream: StreamIndex { place, number: place }, seq };
        let mut order = Order::after_all(3);
        order.add(epoch(1, 5));
        order.add(epoch(2, 7));
        let mut both = [Arc::new(order.clone()), Arc::new(Order::default())];
        both[1] = Arc::clone(&both[0]);
        let known = HashSet::from([epoch(1, 0).stream]);
        let mut clearing = Clearing::new(&known);
        both.iter_mut().for_each(|order| clearing.clear(order));
        assert_eq!(both[0], both[1]);
        assert!(both[0].covers(epoch(1, 5)) && both[0].covers(epoch(2, 3)));
        assert!(!both[0].covers(epoch(2, 7)));
    }
}
