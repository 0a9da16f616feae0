//! What is played: the seeds' experiments, and the cases that they say would be harder.

use anyhow::{Result, bail};
use fastrand::Rng;
use millpond::Stack;
use millpond::nearest::suggestion;

use super::place::Place;
use super::scenarios::{dynamic, fragmentation, hard, predictable, tight};
use super::world::{Played, Stopped, World};
use crate::device::Site;

/// A row of a table of the seeds' program: one 64-bit column.
pub(crate) const ROW_BYTES: u64 = 8;

/// Whether operations are done one after the other, each waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Locking {
    None,
    Mutex,
}

/// How often a scenario is played by an allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Passes {
    One,
    Two,
}

/// What one scenario is.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// One line.
    pub(crate) what: &'static str,
    pub(crate) streams: usize,
    /// Instead of what the device has, at the most.
    capacity_bytes: Option<u64>,
    /// Whether the second pass counts, when the allocator has grown; or the only one, where a second would take long and show little.
    passes: Passes,
    play: fn(&mut World, &mut Rng, Locking) -> Result<(), Stopped>,
}

/// All of them, in the order of the report.
pub(crate) const SCENARIOS: [Scenario; 13] = [
    Scenario {
        name: "fragmentation",
        what: "the same 100 allocations at first, after 50 rounds of mixed sizes and after 100 longer ones, nine times each",
        streams: 1,
        capacity_bytes: None,
        passes: Passes::Two,
        play: |world, rng, _| fragmentation::play(world, rng),
    },
    Scenario {
        name: "predictable-simple",
        what: "8 streams, each 50 times: one column of 1 M rows made from another, waited for",
        streams: 8,
        capacity_bytes: None,
        passes: Passes::Two,
        play: |world, _, locking| predictable::simple(world, locking),
    },
    Scenario {
        name: "predictable-complex",
        what: "8 streams, each 50 times: five steps with intermediate columns of 0.5 to 2 M rows, waited for",
        streams: 8,
        capacity_bytes: None,
        passes: Passes::Two,
        play: |world, _, locking| predictable::complex(world, locking),
    },
    Scenario {
        name: "extreme-sizes",
        what: "8 streams, each 40 times: a column of 100 K to 10 M rows and its result",
        streams: 8,
        capacity_bytes: None,
        passes: Passes::Two,
        play: |world, rng, _| dynamic::extreme_sizes(world, rng),
    },
    Scenario {
        name: "streams-32",
        what: "32 streams, each 20 times: a column of 1 M rows and its result",
        streams: 32,
        capacity_bytes: None,
        passes: Passes::Two,
        play: |world, _, _| dynamic::many_streams(world),
    },
    Scenario {
        name: "churn",
        what: "8 streams, each 200 times: 500 K rows allocated, used and freed at once",
        streams: 8,
        capacity_bytes: None,
        passes: Passes::Two,
        play: |world, _, _| dynamic::churn(world),
    },
    Scenario {
        name: "interleaved",
        what: "4 streams, 100 rounds: made on one stream, used and freed on the next",
        streams: 4,
        capacity_bytes: None,
        passes: Passes::Two,
        play: |world, rng, _| dynamic::interleaved(world, rng),
    },
    Scenario {
        name: "small-frequent",
        what: "4 streams, each 200 times: 50 K rows and four intermediate columns",
        streams: 4,
        capacity_bytes: None,
        passes: Passes::Two,
        play: |world, _, _| dynamic::small_frequent(world),
    },
    Scenario {
        name: "size-range-10000x",
        what: "256 live blocks of 1 KiB to 10 MiB, 20,000 times a random one replaced",
        streams: 1,
        capacity_bytes: None,
        passes: Passes::Two,
        play: |world, rng, _| hard::size_range(world, rng),
    },
    Scenario {
        name: "millions-of-blocks",
        what: "600,000 live blocks of 256 B to 8 KiB; every other one freed, 300,000 more, all freed",
        streams: 1,
        capacity_bytes: None,
        passes: Passes::One,
        play: |world, rng, _| hard::millions_of_blocks(world, rng),
    },
    Scenario {
        name: "long-run",
        what: "30 days of 3,000 requests, each day with other sizes, some blocks staying for days",
        streams: 2,
        capacity_bytes: None,
        passes: Passes::Two,
        play: |world, rng, _| hard::long_run(world, rng),
    },
    Scenario {
        name: "near-exhaustion",
        what: "a device of 8 GiB, 90 to 95 % of it live in blocks of 256 KiB to 256 MiB, 4,000 times one replaced",
        streams: 1,
        capacity_bytes: Some(8 << 30),
        passes: Passes::Two,
        play: |world, rng, _| hard::near_exhaustion(world, rng),
    },
    Scenario {
        name: "tight-memory",
        what: "a device of 4 GiB: 3.5 GiB at the peak, 1 GiB on average",
        streams: 2,
        capacity_bytes: Some(4 << 30),
        passes: Passes::Two,
        play: |world, rng, _| tight::play(world, rng),
    },
];

impl Scenario {
    pub(crate) fn named(name: &str) -> Result<&'static Scenario> {
        match SCENARIOS.iter().find(|scenario| scenario.name == name) {
            Some(scenario) => Ok(scenario),
            None => {
                let names: Vec<&str> = SCENARIOS.iter().map(|scenario| scenario.name).collect();
                let suggestion = suggestion(name, names.iter().copied());
                bail!("unknown scenario '{name}'{suggestion} (known: {})", names.join(", "))
            }
        }
    }

    /// Whether it is also played with a mutex around each operation.
    pub(crate) fn has_mutex(&self) -> bool {
        self.name.starts_with("predictable")
    }

    /// A device to play on, with less memory where that is the point.
    pub(crate) fn place(&self, site: &Site, seed: u64) -> Result<Place> {
        Place::new(site, seed, self.capacity_bytes)
    }

    pub(crate) fn play(
        &self,
        site: &Site,
        seed: u64,
        stack: &Stack,
        locking: Locking,
    ) -> Result<Played> {
        let mut world = World::new(self.place(site, seed)?, stack, self.streams)?;
        let pass = |world: &mut World| (self.play)(world, &mut Rng::with_seed(seed), locking).err();
        let mut stopped = pass(&mut world);
        if stopped.is_none() && self.passes == Passes::Two {
            world.begin_pass()?;
            stopped = pass(&mut world);
        }
        world.finish(stopped)
    }
}

/// A size between two, uniform in the logarithm, in whole multiples of the first.
pub(crate) fn log_uniform(rng: &mut Rng, least: u64, most: u64) -> u64 {
    let factor = (rng.f64() * (most as f64 / least as f64).ln()).exp();
    ((least as f64 * factor) as u64).clamp(least, most)
}
