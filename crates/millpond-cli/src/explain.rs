//! `millpond explain`: what held memory at a moment of a recorded job, and what could have been had.

mod callers;
mod holdings;
mod moment;
mod report;

use anyhow::{Result, ensure};
use millpond::Stack;
use millpond::replay::Stopped;

use self::callers::{Moment, by_frame};
pub(crate) use self::moment::At;
use self::report::Report;
use crate::cli::{Addresses, ExplainOptions};
use crate::overwriting;
use crate::replay::as_recorded;
use crate::replay::bench::Bench;
use crate::replay::recorded::{one_of, open};
use crate::replay::recorded_oom::RecordedOom;

/// Replays a trace up to a moment, and looks.
pub(crate) fn run(options: &ExplainOptions) -> Result<()> {
    overwriting::ensure_none([options.trace.as_path()], [options.json.file()])?;
    let named: Option<Stack> = options.allocator.as_deref().map(str::parse).transpose()?;
    let Bench { bench, .. } = Bench::new(&options.bench, Addresses::Simulated)?;
    let source = open(&options.trace)?;
    let recorded = one_of(&source, &options.trace, options.trace_device)?;
    let stack = named.map_or_else(|| as_recorded(&recorded.program), Ok)?;
    let mut recorded_oom = RecordedOom::of(&recorded.program).filter(|_| options.at == At::Oom);
    let mut event = match &recorded_oom {
        Some(oom) => oom.event,
        None => options.at.event(&bench, &stack, &recorded.program)?,
    };
    let mut part = recorded.program.until(event.saturating_add(1))?;
    let left = bench.replay_and_look(&stack, &part)?;
    if recorded_oom.is_some()
        && let Some(Stopped::Allocation { event: earlier, .. }) = left.outcome.stopped
    {
        // This allocator does not get as far as the recorded one did.
        (event, recorded_oom) = (earlier, None);
        part = recorded.program.until(event.saturating_add(1))?;
    }
    let early = left.outcome.stopped.as_ref().filter(|_| options.at != At::Oom);
    ensure!(
        early.is_none(),
        "{stack} does not get so far: it stopped at {}",
        early.expect("is some")
    );
    let mut live = holdings::live_at_end(part.steps()?, part.blocks())?;
    let failed = left.outcome.stopped.is_some();
    if failed {
        // Blocks of before the first event are allocated at event 0, and are there.
        live.retain(|step| event == 0 || step.event != event);
    }
    let by_frame = by_frame(&source, Moment { device: recorded.program.device(), event, failed })?;
    let report = Report::new(&recorded.name, &stack, event, &live, by_frame, &left)
        .at_recorded_oom(recorded_oom);
    if !options.json.write(&report)? {
        report.print()?;
    }
    Ok(())
}
