//! Repetitions of all allocators, and what remains of them.

use serde::Serialize;

use super::meter::clock_cost_ns;
use super::runner::Runner;
use super::sequence::SEQUENCE_LENGTH;
use super::workload::Workload;
use crate::output::Progress;

/// Pairs in one repetition: a whole sequence, and so few that some repetitions are undisturbed.
const PAIRS: usize = SEQUENCE_LENGTH;

/// How much is run.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Effort {
    /// Repetitions of each workload with each allocator, timed as a whole.
    pub(crate) repetitions: usize,
    /// Further ones, with each call timed.
    pub(crate) call_passes: usize,
}

impl Effort {
    pub(crate) const FULL: Effort = Effort { repetitions: 9, call_passes: 3 };
    pub(crate) const QUICK: Effort = Effort { repetitions: 3, call_passes: 1 };
}

/// An allocator in the contest.
pub(crate) struct Entrant {
    pub(crate) name: String,
    pub(crate) runner: Box<dyn Runner>,
}

/// The median of several repetitions, and how far they lay apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Spread {
    /// Of at least one value.
    fn of(mut values: Vec<f64>) -> Spread {
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[middle]
        } else {
            (values[middle - 1] + values[middle]) / 2.0
        };
        Spread { median, least: values[0], most: values[values.len() - 1] }
    }
}

/// What one allocator took for one workload, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    /// Of one allocate and one free.
    pub(crate) pair: Spread,
    /// Of single calls, less the clock's own cost: what one in a thousand exceeds.
    pub(crate) call_p999: Spread,
    /// The longest single call of each pass, less the clock's own cost. One that belongs to the allocator shows in
    /// every pass; one during which the machine did something else does not, so `least` is nearest to the truth.
    pub(crate) call_max: Spread,
}

/// What one workload showed: an entry for each entrant, `None` where the workload has too many threads for it, or too large blocks.
pub(crate) struct Outcome {
    pub(crate) workload: Workload,
    pub(crate) figures: Vec<Option<Figures>>,
}

/// Runs the workloads with all entrants; also says what the clock costs, in nanoseconds.
pub(crate) fn hold(
    workloads: &[Workload],
    entrants: &mut [Entrant],
    effort: Effort,
) -> (Vec<Outcome>, u32) {
    let clock_ns = clock_cost_ns();
    let rounds = workloads.len() * (1 + effort.repetitions + effort.call_passes);
    let progress = Progress::new(rounds * entrants.len());
    let outcomes = workloads
        .iter()
        .map(|&workload| Outcome {
            workload,
            figures: one_workload(workload, entrants, effort, clock_ns, &progress),
        })
        .collect();
    progress.finish_and_clear();
    (outcomes, clock_ns)
}

/// Entrants take turns, so that whatever else the machine does disturbs all of them alike, and each round begins
/// with another one, so that none always comes after the same.
fn one_workload(
    workload: Workload,
    entrants: &mut [Entrant],
    effort: Effort,
    clock_ns: u32,
    progress: &Progress,
) -> Vec<Option<Figures>> {
    let count = entrants.len();
    let mut pairs = vec![Vec::new(); count];
    let mut p999 = vec![Vec::new(); count];
    let mut max = vec![Vec::new(); count];
    let can_run: Vec<bool> =
        entrants.iter_mut().map(|entrant| entrant.runner.can_run(workload)).collect();
    // Round 0 is warm-up.
    for round in 0..=effort.repetitions + effort.call_passes {
        for turn in 0..count {
            let who = (round + turn) % count;
            let Entrant { name, runner } = &mut entrants[who];
            progress.set_message(&format!("{} {name}", workload.name()));
            progress.inc(1);
            if !can_run[who] {
                continue;
            }
            if round <= effort.repetitions {
                let time = runner.repetition(workload, PAIRS);
                if round > 0 {
                    pairs[who].push(time);
                }
            } else {
                let mut calls = runner.each_call(workload, PAIRS);
                let rank = calls.len() - 1 - calls.len() / 1000;
                let (_, &mut exceeded, longest) = calls.select_nth_unstable(rank);
                let longest = longest.iter().copied().max().unwrap_or(exceeded);
                p999[who].push(f64::from(exceeded.saturating_sub(clock_ns)));
                max[who].push(f64::from(longest.saturating_sub(clock_ns)));
            }
        }
    }
    let figures = pairs.into_iter().zip(p999).zip(max);
    figures
        .map(|((pairs, p999), max)| {
            (!pairs.is_empty()).then(|| Figures {
                pair: Spread::of(pairs),
                call_p999: Spread::of(p999),
                call_max: Spread::of(max),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_in_the_middle() {
        let odd = Spread::of(vec![3.0, 1.0, 9.0]);
        assert_eq!((odd.median, odd.least, odd.most), (3.0, 1.0, 9.0));
        assert_eq!(Spread::of(vec![4.0, 1.0, 2.0, 9.0]).median, 3.0);
    }
}
