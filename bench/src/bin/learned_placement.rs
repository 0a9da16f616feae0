//! An experiment: what a placement that learns the step would need.
//!
//! `cargo run --release -p millpond-bench --bin learned_placement -- [--as-recorded] TRACE…`
//!
//! Only addresses and pages are counted; there is no driver. Blocks go by best fit, in steps of 512 bytes, and pages move at once
//! where memory is needed, as in the pool at slack 0. Once a step was repeated, each block of more than 1 MiB that has an offset in the plan
//! goes there; whatever deviates (another size, a place that is taken) and all that is smaller goes by best fit beside the plan.
//! Most traces have few steps: the last one is repeated, unless told otherwise.
//! The addresses of a page that moved are not used for as many events as the device lags.
//!
//! The pages beneath a plan do not move away from it. In the first step after it was made they come there; what is called settled
//! comes after that.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use millpond::Trace;
use millpond_bench::happenings::{Happens, happenings};
use millpond_bench::holes::Holes;
use millpond_bench::plan::{Item, Rhythm, lowest};

const PAGE: u64 = 2 << 20;
const STEP: u64 = 512;
/// What thread caches serve the back does not see, so neither can a plan there. Here it has addresses of its own.
const LARGEST_SMALL: u64 = 1 << 20;
const SMALL_BASE: u64 = 1 << 44;
const SPAN: u64 = 1 << 43;
/// Deviations in a row after which a plan is given up.
const PATIENCE: usize = 16;
/// Steps that are added to a trace of fixed shapes: most were recorded for a few only.
const MORE_STEPS: usize = 20;
/// A block may live for so many rounds.
const MOST_ROUNDS: usize = 2;

/// Pages with memory, and who uses them.
#[derive(Default)]
struct Pages {
    users: HashMap<u64, u32>,
    mapped: HashSet<u64>,
    spare: BTreeSet<u64>,
    /// Of the plan: they stay where they are.
    kept: Range<u64>,
    peak: usize,
    moves: u64,
}

fn pages_of(start: u64, bytes: u64) -> std::ops::RangeInclusive<u64> {
    start / PAGE..=(start + bytes - 1) / PAGE
}

struct Plan {
    /// The allocations of one round, or of two.
    circle: usize,
    /// The allocation with which the plan begins.
    since: usize,
    sizes: Vec<u64>,
    offsets: Vec<Option<u64>>,
    /// Addresses that only the plan uses.
    own: (u64, u64),
    deviating: usize,
}

#[derive(Default)]
struct Outcome {
    period: usize,
    peak_live: u64,
    moves_learning: u64,
    moves_settling: u64,
    moves_settled: u64,
    settled: usize,
    peak_settled: usize,
    peak_live_settled: u64,
    deviations_settling: usize,
    deviations_settled: usize,
    given_up: usize,
    plan_time: Duration,
}

/// A page that moved away, and those of its addresses that are not used until then.
struct Leaving {
    until: usize,
    page: u64,
    ranges: Vec<(u64, u64)>,
}

struct Block {
    start: u64,
    bytes: u64,
    requested: u64,
    /// Which of the large ones it is.
    large: Option<usize>,
}

struct Simulation {
    holes: Holes,
    small_holes: Holes,
    pages: Pages,
    /// Blocks by the number of their allocation, as long as they live.
    blocks: Vec<Option<Block>>,
    /// Large live blocks by address, to see whether a planned place is taken.
    in_use: BTreeMap<u64, u64>,
    /// Of large blocks: their sizes, and how many had been allocated when each was freed.
    sizes: Vec<u64>,
    freed_at: Vec<usize>,
    live_large: u64,
    live: u64,
    rhythm: Rhythm,
    plan: Option<Plan>,
    leaving: VecDeque<Leaving>,
    left: HashSet<u64>,
    now: usize,
    lag: usize,
    learns: bool,
    outcome: Outcome,
}

impl Simulation {
    fn new(lag: usize, learns: bool) -> Simulation {
        let mut simulation = Simulation {
            holes: Holes::default(),
            small_holes: Holes::default(),
            pages: Pages::default(),
            blocks: Vec::new(),
            in_use: BTreeMap::new(),
            freed_at: Vec::new(),
            sizes: Vec::new(),
            live_large: 0,
            live: 0,
            rhythm: Rhythm::default(),
            plan: None,
            leaving: VecDeque::new(),
            left: HashSet::new(),
            now: 0,
            lag,
            learns,
            outcome: Outcome::default(),
        };
        simulation.holes.give(0, SPAN);
        simulation.small_holes.give(SMALL_BASE, SMALL_BASE + SPAN);
        simulation
    }

    fn is_settled(&self) -> bool {
        self.plan.as_ref().is_some_and(|plan| self.sizes.len() > plan.since + plan.circle)
    }

    /// Gives addresses back to best fit, but for those of the plan.
    fn give_addresses(&mut self, start: u64, end: u64) {
        if start >= SMALL_BASE {
            return self.small_holes.give(start, end);
        }
        // No block lies across the plan's end; the pages there are its alone.
        if !self.plan.as_ref().is_some_and(|plan| (plan.own.0..plan.own.1).contains(&start)) {
            self.holes.give(start, end);
        }
    }

    /// Memory under a range: what is spare moves there, the rest is new.
    fn map(&mut self, start: u64, bytes: u64) {
        let pages: Vec<u64> = pages_of(start, bytes).collect();
        for page in &pages {
            *self.pages.users.entry(*page).or_default() += 1;
            self.pages.spare.remove(page);
        }
        for page in pages {
            if self.pages.mapped.contains(&page) {
                continue;
            }
            // The last one: what best fit uses least.
            let spare =
                self.pages.spare.iter().rev().find(|p| !self.pages.kept.contains(p)).copied();
            if let Some(from) = spare {
                self.pages.spare.remove(&from);
                self.pages.mapped.remove(&from);
                self.pages.moves += 1;
                if self.lag > 0 {
                    let holes = if from * PAGE >= SMALL_BASE {
                        &mut self.small_holes
                    } else {
                        &mut self.holes
                    };
                    let taken = holes.take_range(from * PAGE, (from + 1) * PAGE);
                    self.left.insert(from);
                    let until = self.now + self.lag;
                    self.leaving.push_back(Leaving { until, page: from, ranges: taken });
                }
            }
            self.pages.mapped.insert(page);
        }
        self.pages.peak = self.pages.peak.max(self.pages.mapped.len());
    }

    /// The planned place of the next allocation, if there is one and it is free.
    fn planned_place(&mut self, bytes: u64) -> Option<u64> {
        let plan = self.plan.as_mut()?;
        let phase = (self.sizes.len() - plan.since) % plan.circle;
        if plan.sizes[phase] != bytes {
            plan.deviating += 1;
            return None;
        }
        let offset = plan.offsets[phase]?;
        let taken = self.in_use.range(..offset + bytes).next_back();
        let taken = taken.is_some_and(|(start, used)| start + used > offset);
        if taken || pages_of(offset, bytes).any(|page| self.left.contains(&page)) {
            return None;
        }
        plan.deviating = 0;
        Some(offset)
    }

    fn allocate(&mut self, requested: u64) {
        let bytes = requested.max(1).next_multiple_of(STEP);
        let (was_planned, settled) = (self.plan.is_some(), self.is_settled());
        let is_large = bytes > LARGEST_SMALL;
        let start = match is_large {
            false => self.small_holes.take(bytes),
            true => self.planned_place(bytes).unwrap_or_else(|| {
                match (was_planned, settled) {
                    (true, true) => self.outcome.deviations_settled += 1,
                    (true, false) => self.outcome.deviations_settling += 1,
                    _ => {}
                }
                self.holes.take(bytes)
            }),
        };
        let moves = self.pages.moves;
        self.map(start, bytes);
        let moved = self.pages.moves - moves;
        match (was_planned, settled) {
            (true, true) => self.outcome.moves_settled += moved,
            (true, false) => self.outcome.moves_settling += moved,
            _ => self.outcome.moves_learning += moved,
        }
        self.live += requested;
        self.outcome.peak_live = self.outcome.peak_live.max(self.live);
        if settled {
            self.outcome.peak_settled = self.outcome.peak_settled.max(self.pages.mapped.len());
            self.outcome.peak_live_settled = self.outcome.peak_live_settled.max(self.live);
        }
        let large = is_large.then_some(self.sizes.len());
        self.blocks.push(Some(Block { start, bytes, requested, large }));
        if is_large {
            self.outcome.settled += usize::from(settled);
            self.in_use.insert(start, bytes);
            self.sizes.push(bytes);
            self.freed_at.push(usize::MAX);
            self.look_for_a_plan(bytes);
            self.live_large += bytes;
        }
    }

    /// The plan no longer fits, or there is one to be made.
    fn look_for_a_plan(&mut self, bytes: u64) {
        let period = self.rhythm.allocated(bytes, self.live_large);
        if self.plan.as_ref().is_some_and(|plan| plan.deviating >= PATIENCE) {
            self.give_up();
        }
        if let (true, None, Some(period)) = (self.learns, &self.plan, period)
            && self.rhythm.is_lowest(period)
        {
            self.learn(period);
        }
    }

    fn free(&mut self, number: usize) {
        let block = self.blocks[number].take().expect("a block is freed once");
        self.live -= block.requested;
        if let Some(large) = block.large {
            self.freed_at[large] = self.sizes.len();
            self.in_use.remove(&block.start);
            self.live_large -= block.bytes;
        }
        for page in pages_of(block.start, block.bytes) {
            let users = self.pages.users.get_mut(&page).expect("it was used");
            *users -= 1;
            if *users == 0 {
                self.pages.users.remove(&page);
                self.pages.spare.insert(page);
            }
        }
        self.give_addresses(block.start, block.start + block.bytes);
    }

    fn tick(&mut self) {
        self.now += 1;
        while self.leaving.front().is_some_and(|leaving| leaving.until <= self.now) {
            let Leaving { page, ranges, .. } = self.leaving.pop_front().expect("just seen");
            self.left.remove(&page);
            for (start, end) in ranges {
                self.give_addresses(start, end);
            }
        }
    }

    /// Makes a plan from the last two rounds.
    fn learn(&mut self, period: usize) {
        let begin = Instant::now();
        let since = self.sizes.len();
        // How long each block lived in the last round, or in one before if it still lives. Who was freed in none of them has no
        // planned place.
        let life = |number: usize| {
            let freed = self.freed_at[number];
            (freed != usize::MAX).then(|| (freed - number).max(1))
        };
        let mut lives_of = Vec::new();
        for phase in 0..period {
            let bytes = self.sizes[since - period + phase];
            let known = (1..=MOST_ROUNDS + 1).find_map(|rounds| {
                let number = (since + phase).checked_sub(rounds * period)?;
                life(number).filter(|_| self.sizes[number] == bytes)
            });
            let Some(lives) = known else { continue };
            if lives <= MOST_ROUNDS * period {
                lives_of.push((phase, lives));
            }
        }
        // A block that is freed only after its successor was allocated, as a batch of data often is, needs two places in turn.
        let longest = lives_of.iter().map(|(_, lives)| *lives).max().unwrap_or(1);
        let rounds = longest.div_ceil(period).max(1);
        let circle = rounds * period;
        let mut items = Vec::new();
        for round in 0..rounds {
            items.extend(lives_of.iter().map(|(phase, lives)| Item {
                bytes: self.sizes[since - period + phase],
                start: round * period + phase,
                lives: *lives,
            }));
        }
        let (mut offsets_of, end) = lowest(&items, circle);
        // Above everything: nothing is in its way there, and addresses are plenty.
        let above = self.in_use.iter().map(|(start, bytes)| start + bytes).max().unwrap_or(0);
        let left = self.left.iter().filter(|page| **page < SMALL_BASE / PAGE).max();
        let above = above.max(left.map_or(0, |page| (page + 1) * PAGE));
        let base = above.next_multiple_of(PAGE);
        offsets_of.iter_mut().for_each(|offset| *offset += base);
        let own = (base, (base + end).next_multiple_of(PAGE));
        self.holes.take_range(own.0, own.1);
        let mut offsets = vec![None; circle];
        for (item, offset) in items.iter().zip(offsets_of) {
            offsets[item.start] = Some(offset);
        }
        // From now on they stay, once they have memory: a page that moves away takes its addresses from the plan.
        self.pages.kept = own.0 / PAGE..own.1 / PAGE;
        let sizes = self.sizes[since - period..].repeat(rounds);
        self.plan = Some(Plan { circle, since, sizes, offsets, own, deviating: 0 });
        self.outcome.plan_time += begin.elapsed();
        self.outcome.period = period;
    }

    /// The plan no longer fits: its addresses become ordinary ones.
    fn give_up(&mut self) {
        let plan = self.plan.take().expect("there is one");
        self.pages.kept = 0..0;
        self.outcome.given_up += 1;
        let (mut at, end) = plan.own;
        let in_use: Vec<(u64, u64)> = self.in_use.range(at..end).map(|(s, b)| (*s, *b)).collect();
        for (start, bytes) in in_use {
            if start > at {
                self.holes.give(at, start);
            }
            at = start + bytes;
        }
        if at < end {
            self.holes.give(at, end);
        }
    }
}

fn simulate(happenings: &[Happens], lag: usize, learns: bool) -> (Outcome, usize) {
    let mut simulation = Simulation::new(lag, learns);
    for happens in happenings {
        simulation.tick();
        match happens {
            Happens::Alloc(bytes) => simulation.allocate(*bytes),
            Happens::Free(number) => simulation.free(*number),
        }
    }
    (simulation.outcome, simulation.pages.peak)
}

fn main() -> ExitCode {
    let (flags, paths): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|argument| argument.starts_with("--"));
    if paths.is_empty() || flags.iter().any(|flag| flag != "--as-recorded") {
        eprintln!(
            "usage: learned_placement [--as-recorded] TRACE…, PyTorch memory snapshots of one stream"
        );
        return ExitCode::from(2);
    }
    let more_steps = if flags.is_empty() { MORE_STEPS } else { 0 };
    println!(
        "{:<20}{:>5}{:>15}{:>21}{:>16}{:>13}{:>8}",
        "", "", "peak / live", "page moves", "deviations", "", "plan"
    );
    println!(
        "{:<20}{:>5}{:>7}{:>8}{:>7}{:>7}{:>7}{:>8}{:>8}{:>7}{:>6}{:>8}",
        "trace",
        "lag",
        "all",
        "settled",
        "before",
        "step",
        "after",
        "step",
        "after",
        "steps",
        "lost",
        "ms"
    );
    for path in paths {
        let trace = match Trace::open(&path) {
            Ok(trace) => trace,
            Err(error) => {
                eprintln!("{path}: {error}");
                return ExitCode::from(2);
            }
        };
        let Some(device) = trace.devices.iter().max_by_key(|device| device.events.len()) else {
            continue;
        };
        let happenings = happenings(device, more_steps);
        for lag in [0, 2000] {
            let (without, pages) = simulate(&happenings, lag, false);
            let ratio = |pages: usize, live: u64| pages as f64 * PAGE as f64 / live as f64;
            println!(
                "{:<20}{lag:>5}{:>7.4}{:>8}{:>7}{:>7}{:>7}  best fit alone",
                trace.name,
                ratio(pages, without.peak_live),
                "–",
                without.moves_learning,
                "–",
                "–"
            );
            let (with, pages) = simulate(&happenings, lag, true);
            let settled = match with.settled {
                0 => "–".to_owned(),
                _ => format!("{:.4}", ratio(with.peak_settled, with.peak_live_settled)),
            };
            let steps = with.settled as f64 / with.period.max(1) as f64;
            println!(
                "{:<20}{lag:>5}{:>7.4}{settled:>8}{:>7}{:>7}{:>7}{:>8}{:>8}{steps:>7.1}{:>6}{:>8.1}",
                "  learned",
                ratio(pages, with.peak_live),
                with.moves_learning,
                with.moves_settling,
                with.moves_settled,
                with.deviations_settling,
                with.deviations_settled,
                with.given_up,
                with.plan_time.as_secs_f64() * 1e3
            );
        }
    }
    ExitCode::SUCCESS
}
