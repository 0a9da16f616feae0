//! `millpond replay`: what every allocator would have reserved for a recorded job, and where it would have died.

mod addresses;
pub(crate) mod bench;
mod on_page;
pub(crate) mod recorded;
mod report;
mod transcribe;

use anyhow::Result;

use self::bench::Bench;
pub(crate) use self::recorded::named;
use self::recorded::{all_of, ensure_has_segments, open};
use self::report::{Report, ReportedResult, ReportedTrace};
use crate::cli::{Addresses, ReplayOptions};
use crate::output::progress_bar;
use crate::{Finding, interrupt, stacks};

/// Replays each trace with each allocator.
pub(crate) fn run(options: &ReplayOptions) -> Result<Finding> {
    let stacks = stacks::chosen(&options.allocator)?;
    let Bench { device, bench } = Bench::new(&options.bench, options.addresses)?;
    let mut recorded = Vec::new();
    for path in &options.traces {
        recorded.extend(all_of(&open(path)?, path)?);
    }
    if options.addresses == Addresses::Recorded {
        recorded.iter().try_for_each(ensure_has_segments)?;
    }
    if let Some(path) = &options.snapshot {
        transcribe::save(path, &bench, &stacks, options.traces.len(), &recorded)?;
    }
    interrupt::listen()?;
    let progress = progress_bar(recorded.len() * stacks.len());
    let mut traces = Vec::new();
    let mut recorders = Vec::new();
    for recorded in recorded.iter().take_while(|_| !interrupt::is_requested()) {
        let mut results = Vec::new();
        let mut watched = Vec::new();
        for stack in &stacks {
            if interrupt::is_requested() {
                break;
            }
            progress.set_message(format!("{} {stack}", recorded.name));
            let mut replayed = bench.replay(stack, &recorded.program)?;
            if options.html.is_some() {
                // Once more, so that what is measured was not watched.
                let (seen, recorder) = bench.record(stack, &recorded.program)?;
                replayed = seen.measured_as(&replayed);
                watched.push(recorder);
            }
            let smallest = match options.quick {
                true => None,
                false => bench.smallest_bytes(stack, &recorded.program, &replayed)?,
            };
            results.push(ReportedResult::new(
                stack.to_string(),
                &recorded.program,
                &replayed,
                smallest,
                bench.is_real(),
            ));
            progress.inc(1);
        }
        traces.push(ReportedTrace::new(recorded, results));
        recorders.push(watched);
    }
    progress.finish_and_clear();
    let report = Report { device, bench: &bench, traces };
    if let Some(path) = &options.html {
        on_page::page(&report, &recorders).write(path)?;
    }
    if !options.json.write(&report.json())? {
        report.print()?;
    }
    let is_out = report.traces.iter().any(ReportedTrace::has_failed);
    Ok(if is_out { Finding::Bad } else { Finding::Good })
}
