//! What the replays showed, for people and for programs.

use std::time::Duration;

use anyhow::Result;
use millpond::Stack;
use millpond::replay::{Bench, Program, Recorded, Replayed, Stopped};
use millpond_text::shown_in_line;
use serde::Serialize;

use super::addresses::ReportedAddresses;
use super::as_recorded;
use super::recorded_oom::RecordedOom;
use crate::interrupt;
use crate::output::{mib, other_memory, print, print_figures, print_line, table};

/// Everything that was replayed.
pub(crate) struct Report<'a> {
    /// How the device was named.
    pub(crate) device: String,
    pub(crate) bench: &'a Bench,
    /// Whether Ctrl-C came before the end.
    pub(crate) interrupted: bool,
    pub(crate) traces: Vec<ReportedTrace>,
}

/// One trace, and what came of it with each allocator.
#[derive(Serialize)]
pub(crate) struct ReportedTrace {
    pub(crate) trace: String,
    pub(crate) events: usize,
    pub(crate) streams: usize,
    /// Of the host.
    pub(crate) threads: usize,
    pub(crate) peak_live_bytes: u64,
    pub(crate) recorded_peak_reserved_bytes: u64,
    /// Whether PyTorch's allocator had expandable segments when it was recorded.
    pub(crate) recorded_expandable_segments: bool,
    /// What was reserved over what was live, weighed with time. `None` where either was not recorded.
    pub(crate) recorded_mean_ratio: Option<f64>,
    /// Blocks that were there before the recording began.
    pub(crate) initial_blocks: usize,
    /// Frees that had to be left out: of blocks that nobody knows.
    pub(crate) unknown_frees: usize,
    pub(crate) unknown_free_bytes: u64,
    /// Memory that ran out already when it was recorded.
    pub(crate) recorded_oom: Option<RecordedOom>,
    pub(crate) results: Vec<ReportedResult>,
}

/// One trace with one allocator. `ns_per_op` is measured, `modelled_ms` is not. On a real device `measured_ms` stands in its place, and what
/// nobody counts there is `null`.
#[derive(Serialize)]
pub(crate) struct ReportedResult {
    pub(crate) allocator: String,
    /// Of the device's memory; `None`, as the ratios are, for an allocator whose memory is not the device's.
    pub(crate) peak_reserved_bytes: Option<u64>,
    pub(crate) ratio: Option<f64>,
    pub(crate) mean_ratio: Option<f64>,
    pub(crate) ns_per_op: f64,
    /// How fast it was replayed here, of a trace that was in memory without reading it. Measured.
    pub(crate) events_per_second: f64,
    pub(crate) driver_calls: u64,
    pub(crate) page_moves: Option<u64>,
    pub(crate) modelled_ms: Option<f64>,
    /// Of that until the last growth of what is reserved, and after it.
    pub(crate) modelled_growing_ms: Option<f64>,
    pub(crate) modelled_settled_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) measured_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) measured_growing_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) measured_settled_ms: Option<f64>,
    /// Creates, maps and unmaps in the second half of the events.
    pub(crate) late_driver_calls: Option<u64>,
    pub(crate) cross_stream_waits: Option<u64>,
    pub(crate) oom: Option<String>,
    pub(crate) min_capacity_bytes: Option<u64>,
    #[serde(flatten)]
    pub(crate) addresses: Option<ReportedAddresses>,
}

impl ReportedResult {
    pub(crate) fn new(
        stack: &Stack,
        program: &Program,
        replayed: &Replayed,
        smallest: Option<u64>,
        is_real: bool,
    ) -> Self {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let modelled = |time: Duration| (!is_real).then(|| ms(time));
        let measured = |time: Duration| is_real.then(|| ms(time));
        let (growing, settled) = (replayed.modelled_growing, replayed.modelled_settled());
        let takes_device_memory = !stack.host_reaches();
        let Replayed { outcome, page_moves, cross_stream_waits, took, .. } = replayed;
        ReportedResult {
            allocator: stack.to_string(),
            peak_reserved_bytes: takes_device_memory.then_some(outcome.peak_reserved_bytes),
            ratio: outcome.ratio().filter(|_| takes_device_memory),
            mean_ratio: outcome.mean_ratio().filter(|_| takes_device_memory),
            ns_per_op: outcome.ns_per_operation(),
            events_per_second: program.events() as f64 / took.as_secs_f64().max(f64::MIN_POSITIVE),
            driver_calls: outcome.driver_calls,
            page_moves: *page_moves,
            modelled_ms: modelled(replayed.modelled),
            modelled_growing_ms: modelled(growing),
            modelled_settled_ms: modelled(settled),
            measured_ms: measured(replayed.modelled),
            measured_growing_ms: measured(growing),
            measured_settled_ms: measured(settled),
            late_driver_calls: replayed.late_driver_calls,
            cross_stream_waits: *cross_stream_waits,
            oom: outcome.stopped.as_ref().map(Stopped::to_string),
            min_capacity_bytes: smallest,
            addresses: ReportedAddresses::of(program, replayed),
        }
    }

    /// How its driver's requests differed from what was recorded, if recorded addresses were the answers and they did.
    pub(crate) fn addresses_note(&self) -> Option<String> {
        let note = self.addresses.as_ref()?.note()?;
        Some(format!("{} {note}", self.allocator))
    }

    fn cells(&self) -> Vec<String> {
        // What was reserved until it ran out stands to nothing.
        let finished = self.oom.is_none();
        let ratio = |ratio: Option<f64>| {
            ratio.filter(|_| finished).map_or_else(dash, |ratio| format!("{ratio:.3}"))
        };
        let count = |count: Option<u64>| count.map_or_else(dash, |count| count.to_string());
        let ms = |ms: Option<f64>| ms.map_or_else(dash, |ms| format!("{ms:.1}"));
        let mut cells = vec![
            self.allocator.clone(),
            self.peak_reserved_bytes.map_or_else(dash, mib),
            ratio(self.ratio),
            ratio(self.mean_ratio),
            self.min_capacity_bytes.map_or_else(dash, mib),
            format!("{:.0}", self.ns_per_op),
            self.driver_calls.to_string(),
            count(self.late_driver_calls),
            ms(self.modelled_growing_ms.or(self.measured_growing_ms)),
            ms(self.modelled_settled_ms.or(self.measured_settled_ms)),
            count(self.page_moves),
            count(self.cross_stream_waits),
        ];
        cells.extend(self.addresses.as_ref().map(ReportedAddresses::cell));
        cells
    }
}

impl ReportedTrace {
    pub(crate) fn new(recorded: &Recorded, results: Vec<ReportedResult>) -> ReportedTrace {
        let summary = recorded.program.summary();
        ReportedTrace {
            trace: recorded.name.clone(),
            events: summary.events,
            streams: summary.streams,
            threads: recorded.program.threads(),
            peak_live_bytes: recorded.program.peak_live_bytes(),
            recorded_peak_reserved_bytes: summary.recorded_peak_reserved_bytes,
            recorded_expandable_segments: summary.is_expandable,
            recorded_mean_ratio: summary.recorded_mean_ratio(),
            initial_blocks: summary.initial_blocks,
            unknown_frees: summary.unknown_frees,
            unknown_free_bytes: summary.unknown_free_bytes,
            recorded_oom: RecordedOom::of(&recorded.program),
            results,
        }
    }

    /// Whether an allocator did not come to the end.
    pub(crate) fn has_failed(&self) -> bool {
        self.results.iter().any(|result| result.oom.is_some())
    }

    /// That memory ran out when it was recorded, in one line.
    pub(crate) fn recorded_oom_line(&self) -> Option<String> {
        let has_room = self.results.iter().any(|result| result.min_capacity_bytes.is_some());
        Some(self.recorded_oom.as_ref()?.line(has_room))
    }

    /// That PyTorch's allocator was not as it is by default, in one line.
    pub(crate) fn expandable_line(&self) -> Option<String> {
        self.recorded_expandable_segments.then(|| {
            format!("recorded: with expandable_segments:True, as {} has", as_recorded::name(true))
        })
    }

    /// That frees were left out, in one line.
    pub(crate) fn unknown_frees_line(&self) -> Option<String> {
        (self.unknown_frees > 0).then(|| {
            format!(
                "recorded: {} free{} of blocks from before the first event, {} MiB in all, left out: so much more may have been live, and ratios be too high",
                self.unknown_frees,
                if self.unknown_frees == 1 { "" } else { "s" },
                mib(self.unknown_free_bytes)
            )
        })
    }

    /// Why some allocators have no ratio.
    pub(crate) fn other_memory_line(&self) -> Option<String> {
        let others = self.results.iter().filter(|result| result.peak_reserved_bytes.is_none());
        let names: Vec<&str> = others.map(|result| result.allocator.as_str()).collect();
        (!names.is_empty()).then(|| other_memory(&names))
    }

    /// Whether recorded addresses were the driver's answers.
    pub(crate) fn has_addresses(&self) -> bool {
        self.results.iter().any(|result| result.addresses.is_some())
    }

    fn print(&self) -> Result<()> {
        print_line(&format!(
            "{}: {} events, {} stream{}, {}{} MiB live at the most",
            self.trace,
            self.events,
            self.streams,
            if self.streams == 1 { "" } else { "s" },
            if self.threads > 1 { format!("{} threads, ", self.threads) } else { String::new() },
            mib(self.peak_live_bytes),
        ))?;
        let mut header = vec![
            "ALLOCATOR",
            "RESERVED",
            "RATIO",
            "MEAN",
            "FITS IN",
            "NS/OP",
            "CALLS",
            "LATE",
            "GROWING",
            "SETTLED",
            "MOVES",
            "WAITS",
        ];
        if self.has_addresses() {
            header.push("MATCHED");
        }
        let mut rows = table(header);
        // A log tells nothing of what was reserved.
        if self.recorded_peak_reserved_bytes > 0 {
            rows.add_row(self.recorded_cells());
        }
        for result in &self.results {
            rows.add_row(result.cells());
        }
        print_figures(
            rows,
            &["WAITS", "MOVES", "CALLS", "MATCHED", "LATE", "MEAN", "NS/OP", "GROWING", "SETTLED"],
        )?;
        let lines = [
            self.expandable_line(),
            self.unknown_frees_line(),
            self.recorded_oom_line(),
            self.other_memory_line(),
        ];
        for line in lines.into_iter().flatten() {
            print_line(&line)?;
        }
        for result in &self.results {
            if let Some(oom) = &result.oom {
                print_line(&format!("{} stopped at {oom}", result.allocator))?;
            }
            if let Some(note) = result.addresses_note() {
                print_line(&note)?;
            }
        }
        print("\n")
    }

    /// What the recorded allocator itself had reserved.
    fn recorded_cells(&self) -> Vec<String> {
        let reserved = self.recorded_peak_reserved_bytes;
        let ratio = match self.peak_live_bytes {
            0 => dash(),
            live => format!("{:.3}", reserved as f64 / live as f64),
        };
        let mut cells = vec![dash(); if self.has_addresses() { 13 } else { 12 }];
        let mean = self.recorded_mean_ratio.map_or_else(dash, |ratio| format!("{ratio:.3}"));
        cells[..4].clone_from_slice(&["as recorded".to_owned(), mib(reserved), ratio, mean]);
        cells
    }
}

/// As programs get it.
#[derive(Serialize)]
pub(crate) struct Json<'a> {
    device: &'a str,
    capacity_bytes: u64,
    lag_events: u32,
    interrupted: bool,
    traces: &'a [ReportedTrace],
}

impl Report<'_> {
    pub(crate) fn json(&self) -> Json<'_> {
        Json {
            device: &self.device,
            capacity_bytes: self.bench.capacity_bytes(),
            lag_events: self.bench.lag_events(),
            interrupted: self.interrupted,
            traces: &self.traces,
        }
    }

    pub(crate) fn print(&self) -> Result<()> {
        self.traces.iter().try_for_each(ReportedTrace::print)?;
        print(&format!(
            "On {} with {} MiB{}. RESERVED: MiB taken from the driver at the most. RATIO: to what was live.\n\
             MEAN: the same over time. FITS IN: MiB of the smallest device on which it runs to the end, to half a percent.\n\
             NS/OP: host time of an allocation or free without the driver, measured. CALLS: of the driver; LATE: those that create, map or unmap in the second half of the events.\n\
             GROWING, SETTLED: ms of the host in the driver's calls until the last growth of what is reserved, and after it, {}.\n\
             MOVES: pages mapped again elsewhere. WAITS: of one stream for another.\n{}",
            shown_in_line(&self.device),
            mib(self.bench.capacity_bytes()),
            match self.bench.is_real() {
                true => String::new(),
                false => format!(", which runs {} events behind the host", self.bench.lag_events()),
            },
            if self.bench.is_real() { "measured" } else { "modelled" },
            match self.traces.iter().any(ReportedTrace::has_addresses) {
                true => {
                    "MATCHED: blocks at their recorded addresses, where the recorded segments were the driver's answers.\n"
                }
                false => "",
            }
        ))?;
        if self.interrupted {
            print(&format!("{}\n", interrupt::NOTE))?;
        }
        Ok(())
    }
}

fn dash() -> String {
    "–".to_owned()
}
