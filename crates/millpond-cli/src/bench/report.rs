//! What the contest showed, for people and for programs.

use std::collections::BTreeMap;

use anyhow::Result;
use comfy_table::CellAlignment;
use millpond_text::shown_in_line;
use serde::Serialize;

use super::allocators::{ALLOCATORS, YARDSTICK};
use super::contest::{Effort, Figures, Outcome, Spread};
use crate::output::{print, print_table, table};

/// Everything measured in one run.
pub(crate) struct Report<'a> {
    pub(crate) device: &'a str,
    pub(crate) is_real: bool,
    pub(crate) effort: Effort,
    pub(crate) clock_ns: u32,
    /// The allocators, in the order of each outcome's figures.
    pub(crate) names: Vec<&'a str>,
    pub(crate) outcomes: Vec<Outcome>,
}

/// As programs get it. `…_range` is the least and the most of the repetitions or passes. `ns` and `p999_ns` are their
/// median, `max_ns` is the least: the maximum of the pass that was disturbed least.
#[derive(Serialize)]
pub(crate) struct Json<'a> {
    device: &'a str,
    #[serde(flatten)]
    effort: Effort,
    /// What reading the clock took, which is already taken off the times of single calls.
    clock_ns: u32,
    workloads: BTreeMap<&'static str, BTreeMap<&'a str, JsonFigures>>,
}

#[derive(Serialize)]
struct JsonFigures {
    ns: f64,
    ns_range: [f64; 2],
    /// `null` where the yardstick was not measured.
    ratio: Option<f64>,
    p999_ns: f64,
    p999_ns_range: [f64; 2],
    max_ns: f64,
    max_ns_range: [f64; 2],
}

impl Report<'_> {
    pub(crate) fn json(&self) -> Json<'_> {
        let workloads = self.outcomes.iter().map(|outcome| {
            let measured = self.names.iter().zip(&outcome.figures);
            let figures = measured.filter_map(|(&name, figures)| {
                let figures = figures.as_ref()?;
                Some((name, JsonFigures::new(figures, self.ratio(outcome, figures))))
            });
            (outcome.workload.name(), figures.collect())
        });
        Json {
            device: self.device,
            effort: self.effort,
            clock_ns: self.clock_ns,
            workloads: workloads.collect(),
        }
    }

    /// How the figures compare with the yardstick's in the same workload.
    fn ratio(&self, outcome: &Outcome, figures: &Figures) -> Option<f64> {
        let yardstick = self.names.iter().position(|&name| name == YARDSTICK)?;
        Some(figures.pair.median / outcome.figures[yardstick]?.pair.median)
    }

    pub(crate) fn print(&self) -> Result<()> {
        for outcome in &self.outcomes {
            self.print_outcome(outcome)?;
        }
        print(&format!(
            "NS: nanoseconds of the host per allocate and free, median of {} repetitions, which lay in SPREAD. RATIO: to {YARDSTICK}.\n\
             P99.9, MAX: of single calls, less {} ns for the clock; of {} passes the median, and the least disturbed. –: for one thread only, or without blocks so large.\n\
             Measured on this machine, which does other things too: times are noisy, MAX most of all, and ratios are what counts.\n\
             {} are Millpond on {}: what its driver takes is {} time. nothing allocates nothing: what the harness costs.\n",
            self.effort.repetitions,
            self.clock_ns,
            self.effort.call_passes,
            self.ours(),
            shown_in_line(self.device),
            if self.is_real { "CUDA's" } else { "the simulation's" }
        ))
    }

    /// Which of the names are Millpond's.
    fn ours(&self) -> &'static str {
        let is_stack = |name: &&str| ALLOCATORS.iter().all(|allocator| allocator.name != *name);
        if self.names.iter().any(is_stack) { "pool, direct and stacks" } else { "pool and direct" }
    }

    fn print_outcome(&self, outcome: &Outcome) -> Result<()> {
        print(&format!("{}: {}\n", outcome.workload.name(), outcome.workload.title()))?;
        let mut rows = table(["ALLOCATOR", "NS", "SPREAD", "RATIO", "P99.9", "MAX"]);
        for column in rows.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        for (&name, figures) in self.names.iter().zip(&outcome.figures) {
            let cells = match figures {
                None => ["–"; 5].map(str::to_owned),
                Some(figures) => [
                    tenths(figures.pair.median),
                    format!("{} … {}", tenths(figures.pair.least), tenths(figures.pair.most)),
                    self.ratio(outcome, figures)
                        .map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}")),
                    format!("{:.0}", figures.call_p999.median),
                    format!("{:.0}", figures.call_max.least),
                ],
            };
            rows.add_row([name.to_owned()].into_iter().chain(cells));
        }
        print_table(&rows)?;
        print("\n")
    }
}

impl JsonFigures {
    fn new(figures: &Figures, ratio: Option<f64>) -> JsonFigures {
        let range = |spread: &Spread| [spread.least, spread.most];
        JsonFigures {
            ns: figures.pair.median,
            ns_range: range(&figures.pair),
            ratio,
            p999_ns: figures.call_p999.median,
            p999_ns_range: range(&figures.call_p999),
            max_ns: figures.call_max.least,
            max_ns_range: range(&figures.call_max),
        }
    }
}

fn tenths(nanoseconds: f64) -> String {
    format!("{nanoseconds:.1}")
}
