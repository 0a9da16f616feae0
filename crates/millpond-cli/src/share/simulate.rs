//! `millpond share simulate`: the policy and a simulated GPU, in simulated time.
//!
//! ```text
//!   jobs: claim, want, bring in, compute, drop, make room       what the hook does, modelled (job, memory)
//!     │ events       ▲ messages
//!     ▼              │
//!   the policy, the daemon's own                                millpond-share
//!     jobs ──► kernels, prefetches ──► simulated GPU            millpond-sim: residency, link, faults; it counts what moves
//! ```

mod job;
mod memory;
mod on_page;
mod options;
mod report;
mod spec;
mod thesis;
mod timeline;
mod world;

use anyhow::Result;

pub(crate) use options::SimulateOptions;

pub(crate) fn run(options: &SimulateOptions) -> Result<()> {
    if options.thesis {
        let report = thesis::ThesisReport::new()?;
        if !options.json.write(&report)? {
            report.print()?;
        }
        return Ok(());
    }
    let play = options.play()?;
    let outcome = world::play(&play)?;
    let report = report::Report::new(&play, &outcome);
    if let Some(path) = &options.html {
        on_page::page(&report, &outcome).write(path)?;
    }
    if !options.json.write(&report)? {
        report.print()?;
    }
    Ok(())
}
