//! Which candidates are best for a recorded job, and whether that holds for what they were not chosen by.

use anyhow::{Result, ensure};
use indicatif::ProgressBar;
use millpond::Stack;
use millpond::replay::{Bench, Program, Replayed};

use super::candidates::USUAL;
use crate::interrupt;

/// How many are looked at closely.
pub(crate) const FINALISTS: usize = 5;

/// What one candidate showed.
pub(crate) struct Finalist {
    pub(crate) stack: Stack,
    /// On the whole trace.
    pub(crate) whole: Replayed,
    pub(crate) min_capacity_bytes: Option<u64>,
    /// On the half by which it was not chosen; `None` if it ran out there.
    pub(crate) held_out: Option<Replayed>,
    /// Its place among the finalists on that half, from 1.
    pub(crate) held_out_place: usize,
}

/// How the candidates did.
pub(crate) struct Contest {
    /// The best first.
    pub(crate) finalists: Vec<Finalist>,
    /// What PyTorch does by default, on the whole trace and on the half that was held out.
    pub(crate) usual: Replayed,
    pub(crate) usual_held_out: Replayed,
    /// Candidates that did not come to the end of the first half.
    pub(crate) ran_out: Vec<String>,
    /// How long the recorded job took.
    pub(crate) duration_us: u64,
}

/// Chooses by the first half of a program, and looks at those chosen on the second half and on the whole.
pub(crate) fn hold(
    bench: &Bench,
    program: &Program,
    candidates: Vec<Stack>,
    progress: &ProgressBar,
) -> Result<Contest> {
    let duration_us = duration_us(program)?;
    let [first, second] = program.halves()?;
    let mut chosen = Vec::new();
    let mut ran_out = Vec::new();
    let mut seen = Vec::new();
    for stack in candidates {
        ensure!(!interrupt::is_requested(), "interrupted before anything was finished");
        progress.set_message(stack.to_string());
        let replayed = bench.replay(&stack, &first)?;
        let outcome = &replayed.outcome;
        // A setting that changed nothing is none.
        let did = (resource_of(&stack), outcome.peak_reserved_bytes, outcome.driver_calls);
        match outcome.stopped {
            None if seen.contains(&did) => {}
            None => {
                seen.push(did);
                chosen.push((cost(&replayed, duration_us / 2), stack));
            }
            Some(_) => ran_out.push(stack.to_string()),
        }
        progress.inc(1);
    }
    chosen.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    chosen.truncate(FINALISTS);
    let usual = bench.replay(&USUAL.parse()?, program)?;
    let usual_held_out = bench.replay(&USUAL.parse()?, &second)?;
    let mut finalists = Vec::new();
    for (_, stack) in chosen {
        if interrupt::is_requested() {
            break;
        }
        progress.set_message(stack.to_string());
        let held_out = bench.replay(&stack, &second)?;
        let whole = bench.replay(&stack, program)?;
        let min_capacity_bytes = bench.smallest_bytes(&stack, program, &whole)?;
        let held_out = held_out.outcome.stopped.is_none().then_some(held_out);
        finalists.push(Finalist { stack, whole, min_capacity_bytes, held_out, held_out_place: 0 });
        progress.inc(1);
    }
    // Who runs out later than in the first half comes after those that do not.
    finalists.sort_by_key(|finalist| finalist.whole.outcome.stopped.is_some());
    place_by_held_out(&mut finalists, duration_us);
    Ok(Contest { finalists, usual, usual_held_out, ran_out, duration_us })
}

fn place_by_held_out(finalists: &mut [Finalist], duration_us: u64) {
    let costs: Vec<f64> = finalists
        .iter()
        .map(|finalist| {
            let held_out = finalist.held_out.as_ref();
            held_out.map_or(f64::INFINITY, |replayed| cost(replayed, duration_us / 2))
        })
        .collect();
    for (finalist, own) in finalists.iter_mut().zip(&costs) {
        finalist.held_out_place = 1 + costs.iter().filter(|other| *other < own).count();
    }
}

/// The time of the later half of a job, with what allocating takes in it, times the memory that it holds. Jobs go on for long, and
/// have grown soon.
fn cost(replayed: &Replayed, duration_us: u64) -> f64 {
    let job = duration_us as f64 * 0.5e-6 + late_seconds(replayed);
    job * replayed.outcome.peak_reserved_bytes as f64
}

/// What allocating takes in the later half: measured on the host and modelled in the driver.
pub(crate) fn late_seconds(replayed: &Replayed) -> f64 {
    (replayed.outcome.host_time / 2 + replayed.modelled_late).as_secs_f64()
}

/// From the first recorded time to the last; 0 where no clock was.
fn duration_us(program: &Program) -> Result<u64> {
    let (mut first, mut last) = (u64::MAX, 0);
    for step in program.steps()? {
        let time = step?.time_us;
        if time > 0 {
            (first, last) = (first.min(time), last.max(time));
        }
    }
    Ok(last.saturating_sub(first))
}

/// The name of a stack's resource, without its options.
fn resource_of(stack: &Stack) -> String {
    let text = stack.to_string();
    text.split(':').next().unwrap_or_default().to_owned()
}
