//! Placements that learn a loop: when the same sizes are allocated in the same order again and again, where each block of the
//! next round goes can be worked out beforehand, with the whole round in view.
//!
//! ```text
//!   Rhythm   sizes as they come ──► a period, once a whole one has been repeated
//!   Round    who lives how long in a round, counted in allocations, not in time
//!   Plan     an offset for each block, so that no two that live together overlap
//! ```
//!
//! All of it is arithmetic on sizes and offsets. A block that lives across the end of a round is an interval on a circle.

use std::collections::HashMap;

/// Shorter loops are layers.
const LEAST_PERIOD: usize = 64;
/// So many sizes in a row are looked for among earlier ones.
const WINDOW: usize = 32;
/// A step reaches nearly the peak of all that came before; a loop of layers or of an optimizer does not.
const NEARLY: f64 = 0.9;

/// Finds the period of a sequence of allocations as it goes.
#[derive(Debug, Default)]
pub struct Rhythm {
    sizes: Vec<u64>,
    /// What was live before each allocation.
    live: Vec<u64>,
    peak_live: u64,
    /// Where each run of [`WINDOW`] sizes ended last.
    windows: HashMap<u64, usize>,
    candidate: Option<usize>,
    /// How many allocations in a row were as one candidate period before.
    repeated: usize,
}

impl Rhythm {
    /// Takes note of an allocation; says the period if by now a whole one was repeated, with as much live as a period ago.
    pub fn allocated(&mut self, bytes: u64, live_before: u64) -> Option<usize> {
        self.sizes.push(bytes);
        self.live.push(live_before);
        self.peak_live = self.peak_live.max(live_before + bytes);
        let at = self.sizes.len() - 1;
        match self.candidate {
            Some(period) if self.sizes[at] == self.sizes[at - period] => self.repeated += 1,
            _ => (self.candidate, self.repeated) = (None, 0),
        }
        if let Some(before) = self.window_before(at)
            && self.candidate.is_none()
            && at - before >= LEAST_PERIOD
        {
            let period = at - before;
            let alike = |i: &usize| self.sizes[*i] == self.sizes[i - period];
            self.repeated = (period..=at).rev().take(period).take_while(alike).count();
            self.candidate = Some(period);
        }
        self.candidate.filter(|period| self.repeated >= *period && self.is_step(*period))
    }

    /// Where the sizes up to `at` were seen last; from now on that is here.
    fn window_before(&mut self, at: usize) -> Option<usize> {
        let window = self.sizes.get((at + 1).checked_sub(WINDOW)?..=at)?;
        // FNV-1a over whole sizes; whoever is found by it is compared size by size.
        let hash = window.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, size| {
            (hash ^ size).wrapping_mul(0x0100_0000_01b3)
        });
        self.windows.insert(hash, at)
    }

    fn is_step(&self, period: usize) -> bool {
        let now = self.live.len() - 1;
        let after = |i: usize| self.live[i] + self.sizes[i];
        let peak = (now - period..=now).map(after).max().unwrap_or(0);
        self.live[now] == self.live[now - period] && peak as f64 >= NEARLY * self.peak_live as f64
    }

    /// Whether no less was live before any allocation of the last period than before the last one: here a plan is best begun,
    /// because the fewest blocks lie where it does not want them.
    pub fn is_lowest(&self, period: usize) -> bool {
        let now = self.live.len() - 1;
        self.live[now - period..].iter().min() == self.live.get(now)
    }
}

/// One block of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its size.
    pub bytes: u64,
    /// Which allocation of the round it is.
    pub start: usize,
    /// It is free before the allocation that comes so many after it. At least 1, at most a round.
    pub lives: usize,
}

impl Item {
    /// Whether two blocks of a round of `period` allocations live at the same time.
    pub fn meets(&self, other: &Item, period: usize) -> bool {
        let after = |from: usize, to: usize| (to + period - from) % period;
        after(self.start, other.start) < self.lives || after(other.start, self.start) < other.lives
    }
}

/// What comes first when blocks are placed one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The largest.
    Size,
    /// The largest product of size and life.
    Area,
    /// The longest life, then the largest.
    Life,
}

/// Which of the gaps it fits into a block takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// The smallest.
    Best,
    /// The lowest.
    First,
}

/// Offsets for all items of a round, from 0 on.
pub fn place(items: &[Item], period: usize, order: Order, fit: Fit) -> Vec<u64> {
    let mut turn: Vec<usize> = (0..items.len()).collect();
    turn.sort_by_key(|i| {
        let Item { bytes, start, lives } = items[*i];
        let key = match order {
            Order::Size => (bytes as u128, lives as u128),
            Order::Area => (bytes as u128 * lives as u128, bytes as u128),
            Order::Life => (lives as u128, bytes as u128),
        };
        (std::cmp::Reverse(key), start)
    });
    let mut offsets = vec![0; items.len()];
    // Placed items by offset, so that a sweep sees them in order.
    let mut placed: Vec<(u64, usize)> = Vec::with_capacity(items.len());
    for index in turn {
        let item = items[index];
        let in_the_way = placed.iter().filter(|(_, other)| items[*other].meets(&item, period));
        let in_the_way = in_the_way.map(|(offset, other)| (*offset, items[*other].bytes));
        let offset = gap(in_the_way, item.bytes, fit);
        offsets[index] = offset;
        let place = placed.partition_point(|(other, _)| *other < offset);
        placed.insert(place, (offset, index));
    }
    offsets
}

/// The plan that ends lowest, of those that every order and fit gives; and where it ends.
pub fn lowest(items: &[Item], period: usize) -> (Vec<u64>, u64) {
    let height = |offsets: &[u64]| {
        items.iter().zip(offsets).map(|(item, offset)| offset + item.bytes).max().unwrap_or(0)
    };
    let orders = [Order::Size, Order::Area, Order::Life];
    let plans = orders.iter().flat_map(|order| [(*order, Fit::First), (*order, Fit::Best)]);
    let plans = plans.map(|(order, fit)| place(items, period, order, fit));
    let best = plans.min_by_key(|offsets| height(offsets)).expect("there are orders");
    let end = height(&best);
    (best, end)
}

/// Where `bytes` go between ranges that are in use.
fn gap(in_use: impl Iterator<Item = (u64, u64)>, bytes: u64, fit: Fit) -> u64 {
    let mut end = 0;
    let mut best: Option<(u64, u64)> = None;
    for (start, used) in in_use {
        let room = start.saturating_sub(end);
        if room >= bytes {
            match fit {
                Fit::First => return end,
                Fit::Best => best = Some(best.map_or((room, end), |best| best.min((room, end)))),
            }
        }
        end = end.max(start + used);
    }
    best.map_or(end, |(_, start)| start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_found_once_it_was_repeated() {
        let mut rhythm = Rhythm::default();
        // What stays, then steps of 100 allocations in which ten layers are alike.
        let start = (0..37).map(|i| 3 * i + 1);
        let step = || (0..10).flat_map(|layer| (0..10).map(move |i| 1000 + i + layer / 9));
        let sizes: Vec<u64> = start.chain(step()).chain(step()).chain(step()).collect();
        let mut live = 0;
        let mut found = None;
        for (at, bytes) in sizes.iter().enumerate() {
            if let (None, Some(period)) = (found, rhythm.allocated(*bytes, live)) {
                found = Some((at, period));
            }
            // A step's blocks are freed at its end; what stays is not.
            live += bytes;
            if at >= 37 && (at - 36) % 100 == 0 {
                live = sizes[..37].iter().sum();
            }
        }
        assert_eq!(found, Some((37 + 199, 100)));
    }

    #[test]
    fn a_loop_that_keeps_what_it_allocates_is_no_step() {
        let mut rhythm = Rhythm::default();
        let mut live = 0;
        for i in 0..1000_u64 {
            assert_eq!(rhythm.allocated(i % 100 + 1, live), None);
            live += i % 100 + 1;
        }
    }

    #[test]
    fn lives_are_intervals_on_a_circle() {
        let item = |start, lives| Item { bytes: 1, start, lives };
        assert!(item(0, 5).meets(&item(4, 1), 10) && !item(0, 4).meets(&item(4, 1), 10));
        // Across the end of the round.
        assert!(item(8, 4).meets(&item(1, 1), 10) && !item(8, 4).meets(&item(2, 6), 10));
        assert!(item(3, 10).meets(&item(2, 1), 10));
    }

    #[test]
    fn a_stack_is_planned_without_waste() {
        // A forward pass that keeps what it makes, and a backward pass that lets go of it in turn.
        let layers = 20;
        let lives = |layer: usize| 2 * (layers - layer);
        let forward = (0..layers).map(|layer| Item {
            bytes: 100 + layer as u64,
            start: layer,
            lives: lives(layer),
        });
        let items: Vec<Item> = forward.collect();
        let (_, end) = lowest(&items, 2 * layers);
        assert_eq!(end, items.iter().map(|item| item.bytes).sum::<u64>());
    }

    #[test]
    fn nothing_overlaps_that_lives_together() {
        for seed in 0..30 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let period = rng.usize(1..80);
            let item = |start| Item { bytes: rng.u64(1..50), start, lives: rng.usize(1..=period) };
            let items: Vec<Item> = (0..period).map(item).collect();
            for order in [Order::Size, Order::Area, Order::Life] {
                for fit in [Fit::Best, Fit::First] {
                    let offsets = place(&items, period, order, fit);
                    for (i, a) in items.iter().enumerate() {
                        let apart = |start: u64, bytes: u64| {
                            offsets[i] + a.bytes <= start || start + bytes <= offsets[i]
                        };
                        for (j, b) in items.iter().enumerate().skip(i + 1) {
                            let safe = !a.meets(b, period) || apart(offsets[j], b.bytes);
                            assert!(safe, "seed {seed}: {i} and {j}");
                        }
                    }
                }
            }
        }
    }
}
