//! What is ordered before what: vector clocks over streams.
//!
//! Which work comes before which is settled when work is queued, not when it runs: by the order of a
//! stream, by events, by what the host waited for. So the relation can be kept while queueing, and a
//! pair of accesses that it does not order is a race, whatever times they happened to run at.

use std::sync::Arc;

/// The place of a stream in the schedule. Never given to another stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct StreamIndex(pub(crate) u32);

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joins_carry_order_over() {
        let epoch = |stream, seq| Epoch { stream: StreamIndex(stream), seq };
        let mut a = Order::default();
        a.add(epoch(1, 5));
        assert!(a.covers(epoch(1, 4)) && !a.covers(epoch(1, 6)) && !a.covers(epoch(2, 1)));
        let mut b = Order::after_all(3);
        b.join(&a);
        assert!(b.covers(epoch(2, 3)) && b.covers(epoch(1, 5)) && !b.covers(epoch(2, 4)));
        b.join(&Order::after_all(9));
        assert_eq!(b, Order::after_all(9));
    }
}
