//! What came of a simulation, for people and programs.

use std::time::Duration;

use anyhow::Result;
use millpond_share::protocol::Prefetch;
use millpond_sim::FaultModel;
use millpond_text::shown_in_line;
use serde::Serialize;

use super::world::{Outcome, Play};
use crate::output;

#[derive(Debug, Serialize)]
pub(super) struct Report {
    device: String,
    quantum_ms: u64,
    /// As long as turns were at the end, when moving would have taken too much of them.
    effective_quantum_ms: u64,
    prefetch: Prefetch,
    faults: &'static str,
    turns: bool,
    overlap: f64,
    link_bytes_per_second: f64,
    seed: u64,
    pub(super) jobs: Vec<JobReport>,
    wall_ms: u64,
    useful_share: f64,
    switches: u64,
    moved_bytes: u64,
    moved_in_bytes: u64,
    moved_out_bytes: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct JobReport {
    pub(super) alone_ms: u64,
    pub(super) finished_ms: u64,
    pub(super) bytes: u64,
    weight: u32,
    priority: i32,
    user: u32,
    pub(super) waited_ms: u64,
    pub(super) held_ms: u64,
    pub(super) moving_ms: u64,
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Report {
    pub(super) fn new(play: &Play, outcome: &Outcome) -> Report {
        let jobs = play.jobs.iter().zip(&outcome.jobs).map(|(spec, job)| JobReport {
            alone_ms: milliseconds(job.alone),
            finished_ms: milliseconds(job.finished),
            bytes: spec.bytes,
            weight: spec.weight,
            priority: spec.priority,
            user: spec.user,
            waited_ms: job.status.waited_ms,
            held_ms: job.status.held_ms,
            moving_ms: job.status.moving_ms,
        });
        Report {
            device: format!("sim:{}", play.profile.name),
            quantum_ms: milliseconds(play.settings.quantum),
            effective_quantum_ms: outcome.effective_quantum_ms,
            prefetch: play.settings.prefetch,
            faults: match play.faults {
                FaultModel::Driver => "driver",
                FaultModel::Naive => "naive",
            },
            turns: play.settings.turns,
            overlap: play.overlap,
            link_bytes_per_second: play.profile.link_to_device,
            seed: play.seed,
            jobs: jobs.collect(),
            wall_ms: milliseconds(outcome.wall),
            useful_share: outcome.useful_share(),
            switches: outcome.switches,
            moved_bytes: outcome.moved_in_bytes + outcome.moved_out_bytes,
            moved_in_bytes: outcome.moved_in_bytes,
            moved_out_bytes: outcome.moved_out_bytes,
        }
    }

    pub(super) fn print(&self) -> Result<()> {
        let mut table = output::table([
            "JOB",
            "MEMORY",
            "ALONE",
            "FINISHED",
            "HELD",
            "OF THAT MOVING",
            "WAITED",
        ]);
        for (number, job) in self.jobs.iter().enumerate() {
            table.add_row([
                (number + 1).to_string(),
                gigabytes(job.bytes),
                seconds(job.alone_ms),
                seconds(job.finished_ms),
                seconds(job.held_ms),
                seconds(job.moving_ms),
                seconds(job.waited_ms),
            ]);
        }
        output::print(&format!("{}\n\n", self.heading()))?;
        output::print_table(&table)?;
        output::print(&format!("\n{}\n", self.conclusion()))
    }

    pub(super) fn heading(&self) -> String {
        let turns = if self.turns {
            format!("turns of {}", seconds(self.quantum_ms))
        } else {
            "no turns".to_owned()
        };
        let prefetch = match self.prefetch {
            Prefetch::WorkingSet => "the working set is prefetched",
            Prefetch::All => "everything is prefetched",
            Prefetch::Off => "nothing is prefetched",
        };
        format!(
            "On {} with a link of {:.1} GB/s: {turns}, {prefetch}, faults: {}, seed {}.\nAll times are modelled.",
            shown_in_line(&self.device),
            self.link_bytes_per_second / 1e9,
            self.faults,
            self.seed,
        )
    }

    pub(super) fn conclusion(&self) -> String {
        let thrashing = if self.turns && self.effective_quantum_ms > self.quantum_ms {
            format!(
                " Moving took so much of the turns that they were stretched to {}.",
                seconds(self.effective_quantum_ms)
            )
        } else {
            String::new()
        };
        let alone = self.jobs.iter().map(|job| job.alone_ms).sum();
        format!(
            "All done after {}. Alone, one after the other, they take {}: {:.1} % of the time was useful.\n\
             {} turns began; {} came in and {} went out.{thrashing}",
            seconds(self.wall_ms),
            seconds(alone),
            100.0 * self.useful_share,
            self.switches,
            gigabytes(self.moved_in_bytes),
            gigabytes(self.moved_out_bytes),
        )
    }
}

pub(super) fn seconds(milliseconds: u64) -> String {
    format!("{:.1} s", milliseconds as f64 / 1e3)
}

pub(super) fn gigabytes(bytes: u64) -> String {
    format!("{:.1} GB", bytes as f64 / 1e9)
}
