//! `millpond replay`: what every allocator would have reserved for a recorded job, and where it would have died.

mod addresses;
mod as_recorded;
pub(crate) mod bench;
mod names;
mod on_page;
pub(crate) mod recorded;
pub(crate) mod recorded_oom;
mod report;
mod transcribe;

use std::path::PathBuf;

use anyhow::Result;

pub(crate) use self::as_recorded::as_recorded;
use self::bench::{Bench, smallest_bytes};
pub(crate) use self::recorded::named;
use self::recorded::{all_of, ensure_has_segments, open};
use self::report::{Report, ReportedResult, ReportedTrace};
use crate::cli::{Addresses, ReplayOptions};
use crate::output::Progress;
use crate::{Finding, interrupt, overwriting, stacks};

/// Replays each trace with each allocator.
pub(crate) fn run(options: &ReplayOptions) -> Result<Finding> {
    let written = [options.html.as_deref(), options.snapshot.as_deref(), options.json.file()];
    overwriting::ensure_none(options.traces.iter().map(PathBuf::as_path), written)?;
    let mut stacks = stacks::chosen(&options.allocator)?;
    let Bench { device, bench } = Bench::new(&options.bench, options.addresses)?;
    let (mut named, mut of_files) = (Vec::new(), Vec::new());
    for path in &options.traces {
        let source = open(path)?;
        named.push((path.as_path(), source.name().to_owned()));
        of_files.push(all_of(&source, path)?);
    }
    let of_files = names::told_apart(&named).into_iter().zip(of_files);
    let recorded: Vec<_> = of_files
        .flat_map(|(name, of_file)| of_file.into_iter().map(move |one| name.of(one)))
        .collect();
    if options.allocator.is_empty() {
        for one in &recorded {
            stacks::add(&mut stacks, as_recorded(&one.program)?);
        }
    }
    if options.addresses == Addresses::Recorded {
        recorded.iter().try_for_each(ensure_has_segments)?;
    }
    if let Some(path) = &options.snapshot {
        transcribe::save(path, &bench, &stacks, options.traces.len(), &recorded)?;
    }
    interrupt::listen()?;
    let progress = Progress::new(recorded.len() * stacks.len());
    let mut traces = Vec::new();
    let mut recorders = Vec::new();
    for recorded in recorded.iter().take_while(|_| !interrupt::is_requested()) {
        let mut results = Vec::new();
        let mut watched = Vec::new();
        for stack in &stacks {
            if interrupt::is_requested() {
                break;
            }
            progress.set_message(&format!("{} {stack}", recorded.name));
            let mut replayed = bench.replay(stack, &recorded.program)?;
            if options.html.is_some() {
                // Once more, so that what is measured was not watched.
                let (seen, recorder) = bench.record(stack, &recorded.program)?;
                replayed = seen.measured_as(&replayed);
                watched.push(recorder);
            }
            let smallest = match options.quick {
                true => None,
                false => smallest_bytes(&bench, stack, &recorded.program, &replayed)?,
            };
            results.push(ReportedResult::new(
                stack,
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
    let interrupted = interrupt::is_requested();
    let report = Report { device, bench: &bench, interrupted, traces };
    if let Some(path) = &options.html {
        on_page::page(&report, &recorders).write(path)?;
    }
    if !options.json.write(&report.json())? {
        report.print()?;
    }
    let is_out = report.traces.iter().any(ReportedTrace::has_failed);
    Ok(if is_out || interrupted { Finding::Bad } else { Finding::Good })
}
