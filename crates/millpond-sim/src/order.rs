//! What is ordered before what: vector clocks over streams.
//!
//! Which work comes before which is settled when work is queued, not when it runs: by the order of a
//! stream, by events, by what the host waited for. So the relation can be kept while queueing, and a
//! pair of accesses that it does not order is a race, whatever times they happened to run at.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

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
/// `seen` is sorted by stream and every number in it exceeds `floor`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Order {
    floor: u64,
    seen: Vec<(StreamIndex, u64)>,
}

impl Order {
    /// After everything numbered up to `floor`.
    pub(crate) fn after_all(floor: u64) -> Order {
        Order { floor, seen: Vec::new() }
    }

    /// Whether the work of `epoch` came before.
    pub(crate) fn covers(&self, epoch: Epoch) -> bool {
        epoch.seq <= self.floor
            || self
                .seen
                .binary_search_by_key(&epoch.stream, |(stream, _)| *stream)
                .is_ok_and(|i| self.seen[i].1 >= epoch.seq)
    }

    /// Also after the work of `epoch`.
    pub(crate) fn add(&mut self, epoch: Epoch) {
        if epoch.seq <= self.floor {
            return;
        }
        match self.seen.binary_search_by_key(&epoch.stream, |(stream, _)| *stream) {
            Ok(i) => self.seen[i].1 = self.seen[i].1.max(epoch.seq),
            Err(i) => self.seen.insert(i, (epoch.stream, epoch.seq)),
        }
    }

    /// Also after everything that `other` is after.
    pub(crate) fn join(&mut self, other: &Order) {
        if other.floor > self.floor {
            self.floor = other.floor;
            self.seen.retain(|(_, seq)| *seq > other.floor);
        }
        for &(stream, seq) in &other.seen {
            self.add(Epoch { stream, seq });
        }
    }

    fn has_all_of(&self, other: &Order) -> bool {
        other.floor <= self.floor
            && other.seen.iter().all(|&(stream, seq)| self.covers(Epoch { stream, seq }))
    }
}

/// Joins into a shared order, copying it only if that changes it.
pub(crate) fn join_shared(order: &mut Arc<Order>, other: &Order, also: Option<Epoch>) {
    if !order.has_all_of(other) {
        Arc::make_mut(order).join(other);
    }
    if let Some(epoch) = also
        && !order.covers(epoch)
    {
        Arc::make_mut(order).add(epoch);
    }
}

/// Clears orders of streams of which nothing is known any more: nobody will ask for their work. Every order must be cleared, or
/// those that are not bring it back.
#[derive(Debug)]
pub(crate) struct Clearing<'a> {
    known: &'a HashSet<StreamIndex>,
    /// Orders are shared: each is cleared once. The old ones stay until the end, so that no new one gets their address.
    cleared: HashMap<*const Order, (Arc<Order>, Arc<Order>)>,
}

impl Clearing<'_> {
    pub(crate) fn new(known: &HashSet<StreamIndex>) -> Clearing<'_> {
        Clearing { known, cleared: HashMap::new() }
    }

    pub(crate) fn clear(&mut self, order: &mut Arc<Order>) {
        if let Some((_, cleared)) = self.cleared.get(&Arc::as_ptr(order)) {
            *order = Arc::clone(cleared);
        } else if order.seen.iter().any(|(stream, _)| !self.known.contains(stream)) {
            let is_known = |(stream, _): &&(StreamIndex, u64)| self.known.contains(stream);
            let seen = order.seen.iter().filter(is_known).copied().collect();
            let cleared = Arc::new(Order { floor: order.floor, seen });
            let old = std::mem::replace(order, Arc::clone(&cleared));
            self.cleared.insert(Arc::as_ptr(&old), (old, cleared));
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
    fn what_is_cleared_keeps_what_is_known_and_stays_shared() {
        let epoch = |place, seq| Epoch { stream: StreamIndex { place, number: place }, seq };
        let mut order = Order::after_all(3);
        order.add(epoch(1, 5));
        order.add(epoch(2, 7));
        let mut both = [Arc::new(order.clone()), Arc::new(Order::default())];
        both[1] = Arc::clone(&both[0]);
        let known = HashSet::from([epoch(1, 0).stream]);
        let mut clearing = Clearing::new(&known);
        both.iter_mut().for_each(|order| clearing.clear(order));
        assert!(Arc::ptr_eq(&both[0], &both[1]));
        assert!(both[0].covers(epoch(1, 5)) && both[0].covers(epoch(2, 3)));
        assert!(!both[0].covers(epoch(2, 7)));
    }
}
