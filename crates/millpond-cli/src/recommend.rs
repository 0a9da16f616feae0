//! `millpond recommend`: the allocator and the settings for a recorded job.

mod candidates;
mod contest;
mod merit;
mod paste;
mod report;

use anyhow::Result;

use self::candidates::Recorder;
use self::contest::FINALISTS;
use self::report::Report;
use crate::cli::{Addresses, RecommendOptions};
use crate::output::Progress;
use crate::replay::bench::Bench;
use crate::replay::recorded::{one_of, open};
use crate::{Finding, interrupt, overwriting};

/// Tries allocators and settings on a trace, and ranks them.
pub(crate) fn run(options: &RecommendOptions) -> Result<Finding> {
    overwriting::ensure_none([options.trace.as_path()], [options.json.file()])?;
    let Bench { device, bench } = Bench::new(&options.bench, Addresses::Simulated)?;
    let recorded = one_of(&open(&options.trace)?, &options.trace, options.trace_device)?;
    interrupt::listen()?;
    // Only PyTorch's snapshots say what was reserved.
    let recorder = match recorded.program.summary().recorded_peak_reserved_bytes {
        0 => Recorder::Other,
        _ => Recorder::PyTorch,
    };
    let candidates = candidates::for_job_of(recorder)?;
    let progress = Progress::new(candidates.len() + FINALISTS);
    let is_limited = options.bench.capacity.is_some();
    let contest = contest::hold(&bench, &recorded.program, candidates, is_limited, &progress)?;
    progress.finish_and_clear();
    let report = Report::new(&recorded, device, &bench, &contest);
    if !options.json.write(&report)? {
        report.print()?;
    }
    let has_one = report.ranking.first().is_some_and(|best| best.oom.is_none());
    Ok(if has_one && !report.interrupted { Finding::Good } else { Finding::Bad })
}
