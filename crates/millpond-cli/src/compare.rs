//! `millpond compare`: the experiments of the seed documents, with every allocator, on a simulated device or a real one.

mod advice;
mod contention;
mod on_page;
mod place;
mod report;
mod row;
mod scenario;
mod scenarios;
mod seeds;
mod standing;
mod world;

use std::time::{Duration, Instant};

use anyhow::Result;
use millpond::Stack;
use millpond::stack::comparable;

use self::report::{Report, Times};
use self::row::{MutexRow, Row};
use self::scenario::{Locking, SCENARIOS, Scenario};
use crate::cli::CompareOptions;
use crate::device::Site;
use crate::output::Progress;
use crate::{Finding, device, interrupt, stacks};

/// The driver's pool as CUDA has it unless told otherwise: it gives everything back whenever the host waits.
const ASYNC_BY_CUDA: &str = "async:release_threshold_bytes=0B";

/// Ours when it gives back what it does not use, as the driver's pool does.
const POOL_GIVING_BACK: &str = "pool:release_threshold_bytes=0B";

/// Plays each scenario with each allocator.
pub(crate) fn run(options: &CompareOptions) -> Result<Finding> {
    let scenarios = chosen(&options.scenario)?;
    // Beside those that keep everything.
    let that_gives_back = |name| match name {
        "pool" => Some(POOL_GIVING_BACK),
        "async" => Some(ASYNC_BY_CUDA),
        _ => None,
    };
    let all = comparable().flat_map(|name| [Some(name), that_gives_back(name)]).flatten();
    let stacks = stacks::chosen_or(&options.allocator, all)?;
    let device = device::chosen(options.device.as_deref());
    let site = Site::named(&device)?;
    interrupt::listen()?;
    let contest = Contest { site, seed: options.seed };
    let progress = Progress::new(scenarios.len() * stacks.len());
    let results = contest.play_all(&scenarios, &stacks, &progress)?;
    progress.finish_and_clear();
    let mut report = Report {
        device,
        times: if contest.site.is_real() { Times::Measured } else { Times::Modelled },
        seed: options.seed,
        interrupted: results.len() < scenarios.len() * stacks.len(),
        results,
        standings: Vec::new(),
        advice: Vec::new(),
        seeds: Vec::new(),
    };
    // Nothing follows from a part.
    if !report.interrupted {
        report.standings = standing::standings(&report.results);
        report.advice = advice::advice(&report.results, &report.standings);
        report.seeds = seeds::beside(&report.results);
    }
    if let Some(path) = &options.html {
        on_page::page(&report, &scenarios).write(path)?;
    }
    let is_written = match report.times {
        Times::Modelled => options.json.write(&report)?,
        Times::Measured => options.json.write(&report.measured_json()?)?,
    };
    if !is_written {
        report.print(&scenarios)?;
    }
    Ok(if report.interrupted { Finding::Bad } else { Finding::Good })
}

fn chosen(names: &[String]) -> Result<Vec<&'static Scenario>> {
    match names.is_empty() {
        true => Ok(SCENARIOS.iter().collect()),
        false => names.iter().map(|name| Scenario::named(name)).collect(),
    }
}

/// Where and with which numbers it is played.
struct Contest {
    site: Site,
    seed: u64,
}

/// A scenario is played again until this has passed, three times at the most; the least host time counts.
const LONG_ENOUGH: Duration = Duration::from_millis(100);
const MOST_TIMES: usize = 3;

impl Contest {
    fn play_all(
        &self,
        scenarios: &[&'static Scenario],
        stacks: &[Stack],
        progress: &Progress,
    ) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        for scenario in scenarios {
            for stack in stacks {
                if interrupt::is_requested() {
                    return Ok(rows);
                }
                progress.set_message(&format!("{} {stack}", scenario.name));
                rows.push(self.play(scenario, stack)?);
                progress.inc(1);
            }
        }
        Ok(rows)
    }

    fn play(&self, scenario: &Scenario, stack: &Stack) -> Result<Row> {
        let stack = &stack.clone().without_background();
        let mut row = self.row(scenario, stack, Locking::None)?;
        if scenario.has_mutex() {
            let locked = self.row(scenario, stack, Locking::Mutex)?;
            let place = || scenario.place(&self.site, self.seed);
            row.mutex = Some(MutexRow {
                host_ns: locked.host_ns,
                modelled_ns: locked.modelled_ns,
                threads_host_ns: contention::pair_ns(place()?, stack, Locking::None)?,
                threads_host_ns_with_mutex: contention::pair_ns(place()?, stack, Locking::Mutex)?,
            });
        }
        Ok(row)
    }

    fn row(&self, scenario: &Scenario, stack: &Stack, locking: Locking) -> Result<Row> {
        let begin = Instant::now();
        let mut best: Option<Row> = None;
        for _ in 0..MOST_TIMES {
            let played = scenario.play(&self.site, self.seed, stack, locking)?;
            let row = Row::new(scenario.name, stack, &played);
            if best.as_ref().is_none_or(|best| row.host_ns < best.host_ns) {
                best = Some(row);
            }
            if begin.elapsed() > LONG_ENOUGH {
                break;
            }
        }
        Ok(best.expect("was played at least once"))
    }
}
