//! Free blocks by order, their halves and their other halves.

use std::collections::BTreeMap;

use super::super::frees::Frees;

/// Enough for 2⁶² bytes.
const ORDERS: usize = 55;

/// A size of blocks: `256 << order` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Order(u32);

impl Order {
    pub(super) const LEAST_BYTES: usize = 256;

    /// The least order whose blocks hold so many bytes.
    pub(super) fn of(bytes: usize) -> Option<Order> {
        let blocks = bytes.div_ceil(Order::LEAST_BYTES).max(1).checked_next_power_of_two()?;
        Some(Order(blocks.ilog2())).filter(|order| (order.0 as usize) < ORDERS)
    }

    pub(super) const fn bytes(self) -> usize {
        Order::LEAST_BYTES << self.0
    }
}

/// Memory of upstream, in which blocks begin at multiples of their size, counted from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) start: u64,
    pub(super) bytes: u64,
}

impl Region {
    /// The largest blocks that fit side by side: one for every bit of its size.
    fn largest_blocks(self) -> impl Iterator<Item = (u64, Order)> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let left = (self.bytes - at) / Order::LEAST_BYTES as u64;
            let order = Order(left.checked_ilog2()?);
            let start = self.start + at;
            at += order.bytes() as u64;
            Some((start, order))
        })
    }

    /// The other half of the block of twice the size, if the region has it.
    fn buddy(self, start: u64, order: Order) -> Option<u64> {
        let offset = (start - self.start) ^ order.bytes() as u64;
        (offset + order.bytes() as u64 <= self.bytes).then_some(self.start + offset)
    }
}

#[derive(Debug)]
struct FreeBlock {
    region: Region,
    /// What must have happened before it may be used again.
    frees: Frees,
}

/// The free blocks of each order, by address. A block and its buddy are never both free.
/// Bit `o` of `filled` is set iff there is a free block of order `o`.
#[derive(Debug)]
pub(super) struct Orders {
    free: [BTreeMap<u64, FreeBlock>; ORDERS],
    filled: u64,
}

impl Default for Orders {
    fn default() -> Self {
        Orders { free: std::array::from_fn(|_| BTreeMap::new()), filled: 0 }
    }
}

impl Orders {
    /// The order of the block to take for one of this order: the least that has one.
    #[inline]
    pub(super) fn find(&self, order: Order) -> Option<Order> {
        let enough = self.filled & (u64::MAX << order.0);
        (enough != 0).then(|| Order(enough.trailing_zeros()))
    }

    /// What the lowest free block of an order came from.
    pub(super) fn frees(&self, order: Order) -> &Frees {
        let first = self.free[order.0 as usize].first_key_value();
        &first.expect("the order was found to have one").1.frees
    }

    /// Takes the lowest free block of an order and halves it until it has the order that is wanted; upper halves stay free.
    pub(super) fn take(&mut self, found: Order, wanted: Order) -> (u64, Region) {
        let blocks = &mut self.free[found.0 as usize];
        let (start, block) = blocks.pop_first().expect("the order was found to have one");
        if blocks.is_empty() {
            self.filled &= !(1 << found.0);
        }
        let FreeBlock { region, frees } = block;
        for half in (wanted.0..found.0).rev().map(Order) {
            self.insert(start + half.bytes() as u64, half, region, frees.clone());
        }
        (start, region)
    }

    /// Frees a block, and makes it one with its buddy, and that with its buddy, as long as they are free.
    pub(super) fn free(&mut self, start: u64, order: Order, region: Region, frees: Frees) {
        let (mut start, mut order, mut frees) = (start, order, frees);
        while let Some(buddy) = region.buddy(start, order)
            && let Some(other) = self.remove(buddy, order)
        {
            frees.merge(&other.frees);
            start = start.min(buddy);
            order = Order(order.0 + 1);
        }
        self.insert(start, order, region, frees);
    }

    pub(super) fn add_region(&mut self, region: Region, frees: &Frees) {
        for (start, order) in region.largest_blocks() {
            self.insert(start, order, region, frees.clone());
        }
    }

    /// Whether nothing is live in a region.
    pub(super) fn is_unused(&self, region: Region) -> bool {
        let is_free =
            |(start, order): (u64, Order)| self.free[order.0 as usize].contains_key(&start);
        region.largest_blocks().all(is_free)
    }

    /// Forgets a region in which nothing is live.
    pub(super) fn remove_region(&mut self, region: Region) {
        for (start, order) in region.largest_blocks() {
            self.remove(start, order);
        }
    }

    pub(super) fn largest_free(&self) -> usize {
        self.filled.checked_ilog2().map_or(0, |order| Order(order).bytes())
    }

    fn insert(&mut self, start: u64, order: Order, region: Region, frees: Frees) {
        self.free[order.0 as usize].insert(start, FreeBlock { region, frees });
        self.filled |= 1 << order.0;
    }

    fn remove(&mut self, start: u64, order: Order) -> Option<FreeBlock> {
        let blocks = &mut self.free[order.0 as usize];
        let block = blocks.remove(&start)?;
        if blocks.is_empty() {
            self.filled &= !(1 << order.0);
        }
        Some(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 0x7_0000_0100;

    fn taken(orders: &mut Orders, bytes: usize) -> u64 {
        let order = Order::of(bytes).expect("not that large");
        let found = orders.find(order).expect("there is room");
        orders.take(found, order).0 - START
    }

    #[test]
    fn orders_are_powers_of_two_from_256_bytes() {
        assert_eq!(
            [1, 256, 257, 512, 1 << 20].map(|bytes| Order::of(bytes).unwrap().bytes()),
            [256, 256, 512, 512, 1 << 20]
        );
        assert_eq!(Order::of(usize::MAX), None);
    }

    #[test]
    fn a_region_of_any_size_is_used_to_its_end() {
        let mut orders = Orders::default();
        let region = Region { start: START, bytes: 256 * 13 };
        orders.add_region(region, &Frees::default());
        assert_eq!(orders.largest_free(), 256 * 8);
        let starts = [8 * 256, 4 * 256, 256].map(|bytes| taken(&mut orders, bytes));
        assert_eq!(starts, [0, 8 * 256, 12 * 256]);
        assert_eq!(orders.find(Order(0)), None);
        // The last block's other half would lie beyond the end.
        orders.free(START + 12 * 256, Order(0), region, Frees::default());
        assert_eq!(orders.largest_free(), 256);
    }

    #[test]
    fn halves_split_and_merge_with_their_buddies_only() {
        let mut orders = Orders::default();
        let region = Region { start: START, bytes: 256 * 8 };
        orders.add_region(region, &Frees::default());
        let starts = [0; 8].map(|_| taken(&mut orders, 256));
        assert_eq!(starts.map(|start| start / 256), [0, 1, 2, 3, 4, 5, 6, 7]);
        let mut free = |block: u64| {
            orders.free(START + block * 256, Order(0), region, Frees::default());
            orders.largest_free() / 256
        };
        // 1 and 2 are neighbours and no buddies.
        assert_eq!([1, 2, 3, 0].map(&mut free), [1, 1, 2, 4]);
        assert_eq!([7, 5, 6, 4].map(&mut free), [4, 4, 4, 8]);
        assert!(orders.is_unused(region));
        orders.remove_region(region);
        assert_eq!(orders.largest_free(), 0);
    }
}
