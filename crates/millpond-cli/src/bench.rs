//! `millpond bench`: what an allocate and free costs the host, beside other allocators in the same run.

mod allocators;
mod chosen;
mod contest;
mod host_malloc_ffi;
mod meter;
mod offset;
mod on_streams;
mod one_thread;
mod report;
mod runner;
mod sequence;
mod subject;
mod tlsf_raw_memory;
mod two_threads;
mod workload;

use anyhow::{Result, bail};
use millpond::nearest::suggestion;

use self::contest::{Effort, Entrant};
use self::report::Report;
use self::workload::Workload;
use crate::cli::BenchOptions;
use crate::device::{self, Site};

/// Measures, or only runs the pairs that an instruction counter wants to see.
pub(crate) fn run(options: &BenchOptions) -> Result<()> {
    let workloads = workloads(&options.workload)?;
    let allocators = chosen::allocators(&options.allocator)?;
    let device = device::chosen(options.device.as_deref());
    let site = Site::named(&device)?;
    let mut entrants = allocators
        .iter()
        .map(|allocator| Ok(Entrant { name: allocator.name(), runner: allocator.make(&site)? }))
        .collect::<Result<Vec<_>>>()?;
    if let Some(pairs) = options.count_pairs {
        run_once(&workloads, &mut entrants, pairs);
        return Ok(());
    }
    let effort = if options.quick { Effort::QUICK } else { Effort::FULL };
    let (outcomes, clock_ns) = contest::hold(&workloads, &mut entrants, effort);
    let names = entrants.iter().map(|entrant| entrant.name.as_str()).collect();
    let report =
        Report { device: &device, is_real: site.is_real(), effort, clock_ns, names, outcomes };
    if options.json.write(&report.json())? {
        return Ok(());
    }
    report.print()
}

fn run_once(workloads: &[Workload], entrants: &mut [Entrant], pairs: usize) {
    for &workload in workloads {
        for Entrant { runner, .. } in &mut *entrants {
            if runner.can_run(workload) {
                runner.repetition(workload, pairs);
            }
        }
    }
}

/// Those named, or all; in their order, each once.
fn workloads(names: &[String]) -> Result<Vec<Workload>> {
    if let Some(wrong) = names.iter().find(|name| Workload::named(name).is_none()) {
        return unknown("workload", wrong, &Workload::ALL.map(Workload::name));
    }
    let chosen: Vec<_> = names.iter().filter_map(|name| Workload::named(name)).collect();
    let is_chosen = |workload: &Workload| chosen.is_empty() || chosen.contains(workload);
    Ok(Workload::ALL.into_iter().filter(is_chosen).collect())
}

fn unknown<T>(what: &str, name: &str, known: &[&'static str]) -> Result<T> {
    let suggestion = suggestion(name, known.iter().copied());
    bail!("unknown {what} '{name}'{suggestion} (known: {})", known.join(", "))
}
