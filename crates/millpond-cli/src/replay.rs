//! `millpond replay`: what every allocator would have reserved for a recorded job, and where it would have died.

mod bench;
mod fit;
mod recorded;
mod report;
mod transcribe;

use anyhow::{Context, Result, ensure};
use millpond::Stack;
use millpond::stack::RESOURCES;

use self::bench::Bench;
use self::recorded::Recorded;
pub(crate) use self::recorded::named;
use self::report::{Report, ReportedResult, ReportedTrace};
use crate::cli::ReplayOptions;
use crate::output::progress_bar;
use crate::stacks::separate;
use crate::{Finding, device};

/// Resources that do not take the device's memory for blocks of any size: nothing of them can be compared.
const NOT_COMPARED: [&str; 3] = ["managed", "pinned", "fixed"];

/// Replays each trace with each allocator.
pub(crate) fn run(options: &ReplayOptions) -> Result<Finding> {
    let stacks = stacks(&options.allocator)?;
    let device = options.device.clone().unwrap_or_else(device::default_name);
    let mut profile = device::profile(&device)?;
    if let Some(capacity) = options.capacity {
        profile = profile.with_capacity(capacity.as_u64()).context("--capacity")?;
    }
    let bench = Bench { profile, lag_events: options.lag };
    let mut recorded = Vec::new();
    for path in &options.traces {
        recorded.extend(Recorded::open(path)?);
    }
    if let Some(path) = &options.snapshot {
        transcribe::save(path, &bench, &stacks, options.traces.len(), &recorded)?;
    }
    let progress = progress_bar(recorded.len() * stacks.len());
    let mut traces = Vec::new();
    for recorded in &recorded {
        let mut results = Vec::new();
        for stack in &stacks {
            progress.set_message(format!("{} {stack}", recorded.name));
            let replayed = bench.replay(stack, &recorded.program)?;
            let smallest = match options.quick {
                true => None,
                false => fit::smallest_bytes(&bench, stack, &recorded.program, &replayed)?,
            };
            results.push(ReportedResult::new(stack.to_string(), &replayed, smallest));
            progress.inc(1);
        }
        traces.push(ReportedTrace::new(recorded, results));
    }
    progress.finish_and_clear();
    let report = Report { device: &device, bench: &bench, traces };
    if !options.json.write(&report.json())? {
        report.print()?;
    }
    let is_out = report.traces.iter().any(ReportedTrace::has_failed);
    Ok(if is_out { Finding::Bad } else { Finding::Good })
}

/// Those that were named, each once, or all that can be compared.
fn stacks(options: &[String]) -> Result<Vec<Stack>> {
    let mut names: Vec<String> = options.iter().flat_map(|option| separate(option)).collect();
    if names.is_empty() {
        let all = RESOURCES.iter().map(|entry| entry.name.to_owned());
        names = all.filter(|name| !NOT_COMPARED.contains(&name.as_str())).collect();
    }
    let mut stacks: Vec<Stack> = Vec::new();
    for name in names {
        let stack: Stack = name.parse()?;
        if stacks.iter().all(|known| known.to_string() != stack.to_string()) {
            stacks.push(stack);
        }
    }
    ensure!(!stacks.is_empty(), "no allocator is named");
    Ok(stacks)
}
