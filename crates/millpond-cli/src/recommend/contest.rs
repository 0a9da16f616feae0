//! Which candidates are best for a recorded job, and how they do on what they were not chosen by.

use anyhow::Result;
use indicatif::ProgressBar;
use millpond::Stack;
use millpond::replay::{Bench, Program, Replayed};

use super::candidates::USUAL;
use crate::interrupt;
use crate::replay::bench::smallest_bytes;

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
    /// On the half by which it was chosen, and on the other: infinite if it ran out there.
    costs: [f64; 2],
}

/// How the candidates did.
pub(crate) struct Contest {
    /// The best first.
    pub(crate) finalists: Vec<Finalist>,
    /// What PyTorch does by default, on the whole trace and on the half that was held out. `None`: interrupted before.
    pub(crate) usual: Option<Replayed>,
    pub(crate) usual_held_out: Option<Replayed>,
    /// Candidates that did not come to the end, and are no finalists.
    pub(crate) ran_out: Vec<String>,
    /// How long the recorded job took.
    pub(crate) duration_us: u64,
    /// Whether Ctrl-C came before the end.
    pub(crate) interrupted: bool,
}

/// Chooses by the first half of a program, looks at those chosen on the second half and on the whole, and puts them in order by both
/// halves.
pub(crate) fn hold(
    bench: &Bench,
    program: &Program,
    candidates: Vec<Stack>,
    progress: &ProgressBar,
) -> Result<Contest> {
    let duration_us = duration_us(program)?;
    let [first, second] = program.halves()?;
    let mut contest = Contest {
        finalists: Vec::new(),
        usual: None,
        usual_held_out: None,
        ran_out: Vec::new(),
        duration_us,
        interrupted: false,
    };
    let mut chosen = Vec::new();
    let mut seen = Vec::new();
    for stack in candidates {
        if interrupt::is_requested() {
            contest.interrupted = true;
            return Ok(contest);
        }
        progress.set_message(stack.to_string());
        let replayed = judged(bench, &stack, &first)?;
        let outcome = &replayed.outcome;
        // A setting that changed nothing is none.
        let did = (resource_of(&stack), outcome.peak_reserved_bytes, outcome.driver_calls);
        match outcome.stopped {
            None if seen.contains(&did) => {}
            None => {
                seen.push(did);
                let reserved_bytes = outcome.peak_reserved_bytes;
                chosen.push((cost(&replayed, duration_us / 2, reserved_bytes), stack));
            }
            Some(_) => contest.ran_out.push(stack.to_string()),
        }
        progress.inc(1);
    }
    chosen.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    let mut finalists = Vec::new();
    // Who runs out later than in the first half makes room for the next.
    for (first_cost, stack) in chosen {
        let fit = finalists.iter().filter(|finalist: &&Finalist| has_finished(&finalist.whole));
        if fit.count() == FINALISTS || interrupt::is_requested() {
            break;
        }
        progress.set_message(stack.to_string());
        let held_out = judged(bench, &stack, &second)?;
        let held_out = has_finished(&held_out).then_some(held_out);
        let whole = judged(bench, &stack, program)?;
        // By itself the second half begins with an allocator that has to grow again. The job's does not: what allocating takes in
        // that half the whole trace tells.
        let second_cost = held_out.as_ref().map_or(f64::INFINITY, |held_out| {
            cost(&whole, duration_us, held_out.outcome.peak_reserved_bytes)
        });
        finalists.push(Finalist {
            whole,
            stack,
            min_capacity_bytes: None,
            held_out,
            held_out_place: 0,
            costs: [first_cost, second_cost],
        });
        progress.inc(1);
    }
    finalists.sort_by_key(|finalist| !has_finished(&finalist.whole));
    let others = finalists.split_off(finalists.len().min(FINALISTS));
    contest.ran_out.extend(others.iter().map(|finalist| finalist.stack.to_string()));
    for finalist in &mut finalists {
        let Finalist { stack, whole, .. } = &*finalist;
        finalist.min_capacity_bytes = smallest_bytes(bench, stack, program, whole)?;
    }
    if !interrupt::is_requested() {
        let usual: Stack = USUAL.parse()?;
        contest.usual = Some(judged(bench, &usual, program)?);
        contest.usual_held_out = Some(judged(bench, &usual, &second)?);
    }
    place_by_held_out(&mut finalists);
    contest.finalists = in_order(finalists);
    contest.interrupted = interrupt::is_requested();
    Ok(contest)
}

/// A replay. It has run out also if it has no room for what failed when it was recorded; its figures are without that.
fn judged(bench: &Bench, stack: &Stack, program: &Program) -> Result<Replayed> {
    let mut replayed = bench.replay(stack, program)?;
    if has_finished(&replayed) && !program.failed_requests().is_empty() {
        let again = bench.replay(stack, &program.with_failed_requests())?;
        replayed.outcome.stopped = again.outcome.stopped;
    }
    Ok(replayed)
}

pub(crate) fn has_finished(replayed: &Replayed) -> bool {
    replayed.outcome.stopped.is_none()
}

fn place_by_held_out(finalists: &mut [Finalist]) {
    let costs: Vec<f64> = finalists.iter().map(|finalist| finalist.costs[1]).collect();
    for (finalist, own) in finalists.iter_mut().zip(&costs) {
        finalist.held_out_place = 1 + costs.iter().filter(|other| *other < own).count();
    }
}

/// The least cost on both halves first, behind those that ran out nowhere the others. Whom another one beats in every figure that is
/// shown comes after that one, whatever the halves say.
fn in_order(mut finalists: Vec<Finalist>) -> Vec<Finalist> {
    // The geometric mean of the two grows as their product does.
    let key = |one: &Finalist| (!has_finished(&one.whole), (one.costs[0] * one.costs[1]).sqrt());
    finalists.sort_by(|one, other| {
        let ((one_out, one), (other_out, other)) = (key(one), key(other));
        one_out.cmp(&other_out).then(one.total_cmp(&other))
    });
    let mut ordered = Vec::new();
    while !finalists.is_empty() {
        let is_unbeaten = |one: &Finalist| !finalists.iter().any(|other| beats(other, one));
        // Nobody beats whoever beats the most, so there is one.
        let next = finalists.iter().position(is_unbeaten).unwrap_or(0);
        ordered.push(finalists.remove(next));
    }
    ordered
}

/// Whether it is as good in every figure that is shown, and better in one.
fn beats(one: &Finalist, other: &Finalist) -> bool {
    let figures = |finalist: &Finalist| {
        let Finalist { whole, held_out, min_capacity_bytes, .. } = finalist;
        let bytes = |bytes: Option<u64>| bytes.map_or(f64::INFINITY, |bytes| bytes as f64);
        [
            f64::from(u8::from(!has_finished(whole))),
            whole.outcome.peak_reserved_bytes as f64,
            bytes(held_out.as_ref().map(|replayed| replayed.outcome.peak_reserved_bytes)),
            bytes(*min_capacity_bytes),
            whole.outcome.ns_per_operation(),
            whole.modelled.as_secs_f64(),
            whole.modelled_late.as_secs_f64(),
        ]
    };
    let (one, other) = (figures(one), figures(other));
    one.iter().zip(&other).all(|(one, other)| one <= other) && one != other
}

/// The time of the later half of a job, with what allocating takes in it, times the memory that it holds. Jobs go on for long, and
/// have grown soon.
fn cost(replayed: &Replayed, duration_us: u64, reserved_bytes: u64) -> f64 {
    let job = duration_us as f64 * 0.5e-6 + late_seconds(replayed);
    job * reserved_bytes as f64
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
