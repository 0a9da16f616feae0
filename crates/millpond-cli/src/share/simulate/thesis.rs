//! The measurements of the thesis behind nvshare, beside what the simulation says of them.
//!
//! Two jobs on a P100, by turns, nothing prefetched: pages come in as they are touched, and part of the time for that is hidden
//! behind computing. How much is not known from first principles. It is fitted on one row of the measurements and has to predict
//! the other.

use std::time::Duration;

use anyhow::Result;
use millpond_share::policy::Settings;
use millpond_share::protocol::Prefetch;
use millpond_sim::{FaultModel, Profile};
use serde::Serialize;

use super::spec::JobSpec;
use super::world::{self, Play};
use crate::output;

const QUANTA: [u64; 4] = [1000, 30, 10, 5];

/// Each job's memory.
const BYTES: u64 = 15_300_000_000;

/// Played on a model of the device to this scale: so much less memory, and everything so much slower by the byte. A page stands for
/// so many pages; it takes as long to move all of a job's memory.
const SCALE: f64 = 32.0;

/// nvshare's: a job with nothing to do for so long gives up the device.
const IDLE: Duration = Duration::from_secs(5);

/// From one stretch on the host to the next. The facts do not say; half and double of it are shown, too.
const PHASE: Duration = Duration::from_secs(40);

/// Two equal jobs and how long they took, in seconds.
struct Measured {
    name: &'static str,
    /// One after the other.
    serial: u64,
    by_quantum: [u64; 4],
    unscheduled: u64,
    cpu_share: f64,
}

const BIG_90: Measured = Measured {
    name: "big_90",
    serial: 1438,
    by_quantum: [1380, 1521, 1821, 2788],
    unscheduled: 11434,
    cpu_share: 0.1,
};

const BIG_50: Measured = Measured {
    name: "big_50",
    serial: 2766,
    by_quantum: [2043, 2170, 2465, 3496],
    unscheduled: 11757,
    cpu_share: 0.5,
};

/// A figure of the thesis and ours.
#[derive(Clone, Debug, Serialize)]
struct Beside {
    jobs: &'static str,
    /// `None`: without turns.
    quantum_s: Option<u64>,
    measured_s: u64,
    predicted_s: f64,
    /// How much more ours is than the measured one.
    difference: f64,
}

/// The same figures with other lengths of the stretches on the host.
#[derive(Clone, Debug, Serialize)]
struct Otherwise {
    jobs: &'static str,
    phase_s: f64,
    differences: Vec<f64>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct ThesisReport {
    device: String,
    /// The part of the time for faults that is hidden behind computing: fitted on the scheduled figures of big_90.
    overlap: f64,
    phase_s: f64,
    figures: Vec<Beside>,
    sensitivity: Vec<Otherwise>,
}

fn scale_model(mut profile: Profile, scale: f64) -> Profile {
    let rates = [
        &mut profile.capacity_bytes,
        &mut profile.bandwidth,
        &mut profile.link_to_device,
        &mut profile.link_to_host,
        &mut profile.link_both,
    ];
    rates.into_iter().for_each(|rate| *rate /= scale);
    let times =
        [&mut profile.batch_ns, &mut profile.fault_ns, &mut profile.block_ns, &mut profile.page_ns];
    times.into_iter().for_each(|time| *time *= scale);
    profile
}

fn play_of(
    measured: &Measured,
    quantum_s: Option<u64>,
    overlap: f64,
    phase: Duration,
    scale: f64,
) -> Result<Play> {
    let job = JobSpec {
        bytes: (BYTES as f64 / scale) as u64,
        work: Duration::from_secs(measured.serial) / 2,
        cpu_share: measured.cpu_share,
        phase,
        touch_share: 1.0,
        sweep: Duration::from_secs(1),
        weight: 1,
        priority: 0,
        user: 0,
        start: Duration::ZERO,
    };
    Ok(Play {
        profile: scale_model(Profile::named("p100-16g")?, scale),
        faults: FaultModel::Driver,
        settings: Settings {
            quantum: Duration::from_secs(quantum_s.unwrap_or(30)),
            idle: IDLE,
            prefetch: Prefetch::Off,
            turns: quantum_s.is_some(),
            // As nvshare's, which are as long as they are set.
            stretches: false,
            ..Settings::default()
        },
        jobs: vec![job.clone(), job],
        overlap,
        seed: 1,
    })
}

fn beside(
    measured: &Measured,
    quantum_s: Option<u64>,
    overlap: f64,
    phase: Duration,
) -> Result<Beside> {
    let measured_s = match quantum_s {
        Some(quantum) => {
            let place = QUANTA.iter().position(|known| *known == quantum);
            measured.by_quantum[place.expect("one of them")]
        }
        None => measured.unscheduled,
    };
    let predicted_s =
        world::play(&play_of(measured, quantum_s, overlap, phase, SCALE)?)?.wall.as_secs_f64();
    let difference = predicted_s / measured_s as f64 - 1.0;
    Ok(Beside { jobs: measured.name, quantum_s, measured_s, predicted_s, difference })
}

fn scheduled(measured: &Measured, overlap: f64, phase: Duration) -> Result<Vec<Beside>> {
    std::thread::scope(|scope| {
        let one = |quantum| scope.spawn(move || beside(measured, Some(quantum), overlap, phase));
        let running = QUANTA.map(one);
        running.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
    })
}

/// The overlap, in percent, with which the furthest of big_90's scheduled figures is nearest. More overlap makes all of them
/// smaller, so that is where the one furthest above and the one furthest below are as far.
fn fitted_overlap() -> Result<f64> {
    let (mut least, mut most) = (0, 95);
    let mut nearest = (f64::INFINITY, 0);
    while most > least + 1 {
        let middle = (least + most) / 2;
        let figures = scheduled(&BIG_90, f64::from(middle) / 100.0, PHASE)?;
        let differences = || figures.iter().map(|figure| figure.difference);
        let above = differences().fold(f64::MIN, f64::max);
        let below = differences().fold(f64::MAX, f64::min);
        if above.max(-below) < nearest.0 {
            nearest = (above.max(-below), middle);
        }
        if above + below > 0.0 { least = middle } else { most = middle }
    }
    Ok(f64::from(nearest.1) / 100.0)
}

impl ThesisReport {
    pub(super) fn new() -> Result<ThesisReport> {
        let overlap = fitted_overlap()?;
        let mut figures = Vec::new();
        for measured in [&BIG_90, &BIG_50] {
            figures.extend(scheduled(measured, overlap, PHASE)?);
            // Whatever comes in pushes out what is needed next: there is nothing to compute on meanwhile.
            figures.push(beside(measured, None, 0.0, PHASE)?);
        }
        let mut sensitivity = Vec::new();
        for phase in [PHASE / 2, PHASE * 2] {
            let differences = scheduled(&BIG_50, overlap, phase)?;
            sensitivity.push(Otherwise {
                jobs: BIG_50.name,
                phase_s: phase.as_secs_f64(),
                differences: differences.iter().map(|figure| figure.difference).collect(),
            });
        }
        let device = "sim:p100-16g".to_owned();
        Ok(ThesisReport { device, overlap, phase_s: PHASE.as_secs_f64(), figures, sensitivity })
    }

    pub(super) fn print(&self) -> Result<()> {
        let mut table = output::table(["JOBS", "QUANTUM", "MEASURED", "PREDICTED", "DIFFERENCE"]);
        for figure in &self.figures {
            table.add_row([
                figure.jobs.to_owned(),
                figure.quantum_s.map_or("no turns".to_owned(), |quantum| format!("{quantum} s")),
                format!("{} s", figure.measured_s),
                format!("{:.0} s", figure.predicted_s),
                signed_percent(figure.difference),
            ]);
        }
        output::print_table(&table)?;
        output::print(&format!("\n{}\n", self.explanation()))
    }

    fn explanation(&self) -> String {
        let others: String = self
            .sensitivity
            .iter()
            .map(|other| {
                let differences: Vec<_> = other
                    .differences
                    .iter()
                    .map(|difference| signed_percent(*difference))
                    .collect();
                format!("\n  a round of {:.0} s: {}", other.phase_s, differences.join(", "))
            })
            .collect();
        format!(
            "Two jobs of 15.3 GB on {}, nothing prefetched, faults as the driver serves them.\n\
             Fitted, on the four scheduled figures of big_90: {:.0} % of the time for faults is hidden behind computing. Nothing else is fitted.\n\
             Assumed: big_90 computes on the host a tenth of its time and big_50 half of it, a round of device and host takes {:.0} s, kernels go \
             through all memory once a second; without turns nothing is hidden. big_50 with other rounds, by quantum as above:{others}",
            self.device,
            100.0 * self.overlap,
            self.phase_s,
        )
    }
}

fn signed_percent(share: f64) -> String {
    format!("{:+.1} %", 100.0 * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_of_the_model_hardly_matters() {
        let wall = |scale| {
            let job = Measured { serial: 200, ..BIG_90 };
            let play = play_of(&job, Some(10), 0.5, PHASE, scale).unwrap();
            world::play(&play).unwrap().wall.as_secs_f64()
        };
        let (model, original) = (wall(SCALE), wall(1.0));
        assert!((model / original - 1.0).abs() < 0.02, "{model} {original}");
    }
}
