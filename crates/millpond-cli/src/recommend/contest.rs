//! Which candidates are best for a recorded job, and how they do on what they were not chosen by.
//!
//! Nothing here is measured on the host: what is recommended must be the same each time.

use anyhow::Result;
use millpond::Stack;
use millpond::replay::{Bench, Program, Replayed};

use super::candidates::USUAL;
use super::merit::{Merit, NEAR, by_merit};
use crate::interrupt;
use crate::output::Progress;
use crate::replay::bench::{PAGE_BYTES, smallest_bytes};

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
    /// The smallest device for that half. Looked for only where memory is short.
    held_out_device_bytes: Option<u64>,
    /// Its place among the finalists on that half, from 1. Who is near another one shares its place.
    pub(crate) held_out_place: usize,
    /// How much worse it is there than the best that is not slow: 0.02 is 2 %. Infinite if it ran out there.
    pub(crate) held_out_behind: f64,
    /// On the half by which it was chosen, and on the other: infinite if it ran out there.
    costs: [f64; 2],
}

/// How the candidates did.
pub(crate) struct Contest {
    /// The best first.
    pub(crate) finalists: Vec<Finalist>,
    /// Whether the smallest device decides before time and memory do.
    pub(crate) is_short: bool,
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

/// What the contest is about.
struct Ground<'a> {
    bench: &'a Bench,
    program: &'a Program,
    first: Program,
    second: Program,
    /// How long the job is taken to go on, in seconds.
    job_seconds: f64,
    is_short: bool,
}

/// A candidate that came to the end of the first half.
struct Candidate {
    stack: Stack,
    merit: Merit,
}

/// Chooses by the first half of a program, looks at those chosen on the second half and on the whole, and puts them in order by both
/// halves. Where memory is short, by the smallest device that they need.
///
/// It is short if `is_limited`, if it ran out when it was recorded, or if PyTorch's defaults run out.
pub(crate) fn hold(
    bench: &Bench,
    program: &Program,
    candidates: Vec<Stack>,
    is_limited: bool,
    progress: &Progress,
) -> Result<Contest> {
    let duration_us = duration_us(program)?;
    let [first, second] = program.halves()?;
    let mut contest = Contest {
        finalists: Vec::new(),
        is_short: is_limited || !program.failed_requests().is_empty(),
        usual: None,
        usual_held_out: None,
        ran_out: Vec::new(),
        duration_us,
        interrupted: interrupt::is_requested(),
    };
    if contest.interrupted {
        return Ok(contest);
    }
    let usual: Stack = USUAL.parse()?;
    let replayed = judged(bench, &usual, program)?;
    contest.is_short |= !has_finished(&replayed);
    contest.usual = Some(replayed);
    contest.usual_held_out = Some(judged(bench, &usual, &second)?);
    let is_short = contest.is_short;
    let job_seconds = job_seconds(duration_us, program);
    let ground = Ground { bench, program, first, second, job_seconds, is_short };
    let chosen = ground.choose(candidates, &mut contest, progress)?;
    let finalists = ground.look_closely(chosen, &mut contest, progress)?;
    contest.finalists = ground.in_order(finalists);
    contest.interrupted = interrupt::is_requested();
    Ok(contest)
}

impl Ground<'_> {
    /// Those that come to the end of the first half, the best first.
    fn choose(
        &self,
        candidates: Vec<Stack>,
        contest: &mut Contest,
        progress: &Progress,
    ) -> Result<Vec<Candidate>> {
        let mut finished = Vec::new();
        let mut seen = Vec::new();
        let mut smallest: Option<u64> = None;
        for stack in candidates {
            if interrupt::is_requested() {
                break;
            }
            progress.set_message(&stack.to_string());
            let replayed = judged(self.bench, &stack, &self.first)?;
            let device_bytes = match smallest {
                Some(smallest) if !self.fits_nearly(&stack, smallest)? => None,
                _ => self.device_bytes(&stack, &self.first, &replayed)?,
            };
            smallest = smallest.into_iter().chain(device_bytes).min();
            let outcome = &replayed.outcome;
            let reserved_bytes = outcome.peak_reserved_bytes;
            // A setting that changed nothing is none.
            let did = (resource_of(&stack), reserved_bytes, outcome.driver_calls, device_bytes);
            match outcome.stopped {
                None if seen.contains(&did) => {}
                None => {
                    seen.push(did);
                    let seconds = self.job_seconds / 4.0 + replayed.modelled_late.as_secs_f64();
                    let cost = seconds * reserved_bytes as f64;
                    let merit =
                        Merit { seconds, reserved_bytes, device_bytes, cost, ..Merit::default() };
                    finished.push(Candidate { stack, merit });
                }
                Some(_) => contest.ran_out.push(stack.to_string()),
            }
            progress.inc(1);
        }
        let order = by_merit(&finished.iter().map(|one| one.merit).collect::<Vec<_>>());
        let mut finished: Vec<_> = finished.into_iter().map(Some).collect();
        Ok(order.into_iter().filter_map(|place| finished[place].take()).collect())
    }

    /// The first of these on the other half, and on the whole. Who runs out later than in the first half makes room for the next.
    fn look_closely(
        &self,
        chosen: Vec<Candidate>,
        contest: &mut Contest,
        progress: &Progress,
    ) -> Result<Vec<Finalist>> {
        let mut finalists: Vec<Finalist> = Vec::new();
        for Candidate { stack, merit } in chosen {
            let fit = finalists.iter().filter(|finalist| has_finished(&finalist.whole)).count();
            // Where memory is short, whatever is recommended has to be held against PyTorch's defaults.
            let is_wanted = fit < FINALISTS || self.is_short && stack.to_string() == USUAL;
            if interrupt::is_requested() {
                break;
            }
            if !is_wanted {
                continue;
            }
            progress.set_message(&stack.to_string());
            let held_out = judged(self.bench, &stack, &self.second)?;
            let held_out_device_bytes = self.device_bytes(&stack, &self.second, &held_out)?;
            let held_out = has_finished(&held_out).then_some(held_out);
            let whole = judged(self.bench, &stack, self.program)?;
            // By itself the second half begins with an allocator that has to grow again. The job's does not: what allocating takes in
            // that half the whole trace tells.
            let second_cost = held_out.as_ref().map_or(f64::INFINITY, |held_out| {
                self.seconds(&whole) * held_out.outcome.peak_reserved_bytes as f64
            });
            let finalist = Finalist {
                min_capacity_bytes: smallest_bytes(self.bench, &stack, self.program, &whole)?,
                whole,
                stack,
                held_out,
                held_out_device_bytes,
                held_out_place: 0,
                held_out_behind: 0.0,
                costs: [merit.cost, second_cost],
            };
            // Also one that made a difference in the first half only is no other setting.
            let is_another = |other: &Finalist| {
                resource_of(&other.stack) != resource_of(&finalist.stack)
                    || figures(other) != figures(&finalist)
            };
            if finalists.iter().all(is_another) {
                finalists.push(finalist);
                progress.inc(1);
            }
        }
        finalists.sort_by_key(|finalist| !has_finished(&finalist.whole));
        let most = FINALISTS.max(finalists.iter().filter(|one| has_finished(&one.whole)).count());
        let others = finalists.split_off(finalists.len().min(most));
        contest.ran_out.extend(others.iter().map(|finalist| finalist.stack.to_string()));
        Ok(finalists)
    }

    /// The best first, and behind those that ran out nowhere the others. Whom another one beats in every modelled figure that is shown
    /// comes after that one.
    fn in_order(&self, mut finalists: Vec<Finalist>) -> Vec<Finalist> {
        let held_out: Vec<Merit> = finalists.iter().map(|one| self.held_out_merit(one)).collect();
        for (finalist, own) in finalists.iter_mut().zip(&held_out) {
            let before = held_out.iter().filter(|other| other.is_clearly_before(own));
            finalist.held_out_place = 1 + before.count();
            finalist.held_out_behind = own.behind_quick(&held_out);
        }
        let usual = finalists.iter().find(|finalist| finalist.stack.to_string() == USUAL);
        let usual_bytes = usual.and_then(|usual| usual.min_capacity_bytes);
        let merits: Vec<Merit> = finalists
            .iter()
            .map(|finalist| Merit {
                has_run_out: !has_finished(&finalist.whole),
                is_refuted: finalist.held_out_behind > NEAR,
                is_worse_than_usual: self.is_short
                    && usual_bytes.zip(finalist.min_capacity_bytes).is_some_and(|(u, own)| own > u),
                seconds: self.seconds(&finalist.whole),
                reserved_bytes: finalist.whole.outcome.peak_reserved_bytes,
                device_bytes: finalist.min_capacity_bytes.filter(|_| self.is_short),
                // The geometric mean of the two.
                cost: (finalist.costs[0] * finalist.costs[1]).sqrt(),
            })
            .collect();
        let mut left: Vec<_> = finalists.into_iter().map(Some).collect();
        let mut finalists: Vec<_> =
            by_merit(&merits).into_iter().filter_map(|place| left[place].take()).collect();
        let mut ordered = Vec::new();
        while !finalists.is_empty() {
            let is_unbeaten = |one: &Finalist| !finalists.iter().any(|other| beats(other, one));
            // Nobody beats whoever beats the most, so there is one.
            let next = finalists.iter().position(is_unbeaten).unwrap_or(0);
            ordered.push(finalists.remove(next));
        }
        ordered
    }

    fn held_out_merit(&self, finalist: &Finalist) -> Merit {
        let reserved = finalist.held_out.as_ref().map(|held| held.outcome.peak_reserved_bytes);
        Merit {
            has_run_out: reserved.is_none(),
            seconds: self.seconds(&finalist.whole),
            reserved_bytes: reserved.unwrap_or(u64::MAX),
            device_bytes: finalist.held_out_device_bytes,
            cost: finalist.costs[1],
            ..Merit::default()
        }
    }

    /// The smallest device for a part of the program. Looked for only where memory is short.
    fn device_bytes(
        &self,
        stack: &Stack,
        program: &Program,
        replayed: &Replayed,
    ) -> Result<Option<u64>> {
        match self.is_short && has_finished(replayed) {
            true => smallest_bytes(self.bench, stack, program, replayed),
            false => Ok(None),
        }
    }

    /// Whether the first half fits on a device not much larger than another one needs. Who is far behind need not be looked at longer.
    fn fits_nearly(&self, stack: &Stack, device_bytes: u64) -> Result<bool> {
        let bytes = (device_bytes as f64 * (1.0 + NEAR)) as u64 / PAGE_BYTES * PAGE_BYTES;
        let bench = self.bench.with_capacity(bytes)?;
        // What is too large even to be made does not fit.
        let replayed = bench.replay(stack, &self.first.with_failed_requests());
        Ok(replayed.is_ok_and(|replayed| has_finished(&replayed)))
    }

    /// The time of the later half of the job, with what allocating takes in it.
    fn seconds(&self, whole: &Replayed) -> f64 {
        self.job_seconds / 2.0 + whole.modelled_late.as_secs_f64()
    }
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

/// Whether it is as good in every modelled figure that is shown, and better in one.
fn beats(one: &Finalist, other: &Finalist) -> bool {
    let (one, other) = (figures(one), figures(other));
    one.iter().zip(&other).all(|(one, other)| one <= other) && one != other
}

/// Every figure that is shown, but for what was measured on the host.
fn figures(finalist: &Finalist) -> [f64; 6] {
    let Finalist { whole, held_out, min_capacity_bytes, .. } = finalist;
    let bytes = |bytes: Option<u64>| bytes.map_or(f64::INFINITY, |bytes| bytes as f64);
    [
        f64::from(u8::from(!has_finished(whole))),
        whole.outcome.peak_reserved_bytes as f64,
        bytes(held_out.as_ref().map(|replayed| replayed.outcome.peak_reserved_bytes)),
        bytes(*min_capacity_bytes),
        whole.modelled.as_secs_f64(),
        whole.modelled_late.as_secs_f64(),
    ]
}

/// What allocating takes in the later half: measured on the host and modelled in the driver.
pub(crate) fn late_seconds(replayed: &Replayed) -> f64 {
    (replayed.outcome.host_time / 2 + replayed.modelled_late).as_secs_f64()
}

/// How long the job took. Where no clock was, each event is taken to be as short as in the busiest of the recorded jobs we have.
fn job_seconds(duration_us: u64, program: &Program) -> f64 {
    const EVENT_SECONDS: f64 = 25e-6;
    match duration_us {
        0 => program.events() as f64 * EVENT_SECONDS,
        known => known as f64 * 1e-6,
    }
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
