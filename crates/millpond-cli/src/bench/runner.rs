//! Subjects of different types, run alike.

use super::meter::{EachCall, Meter, Unmetered};
use super::subject::{StreamNumber, Subject};
use super::workload::Workload;
use super::{one_thread, two_threads};

/// A subject whose type is forgotten. Inside one repetition it is known again.
pub(crate) trait Runner {
    /// Whether it can do a workload: it has blocks so large, and may be called by so many threads.
    fn can_run(&mut self, workload: Workload) -> bool;

    /// Runs so many pairs; nanoseconds per pair.
    fn repetition(&mut self, workload: Workload, pairs: usize) -> f64;

    /// Runs so many pairs and times each call; nanoseconds of all calls, in no particular order.
    fn each_call(&mut self, workload: Workload, pairs: usize) -> Vec<u32>;
}

/// A subject for one thread.
pub(crate) struct Alone<S>(pub(crate) S);

/// A subject for several threads, each of which has a clone.
pub(crate) struct Shared<S>(pub(crate) S);

impl<S: Subject> Runner for Alone<S> {
    fn can_run(&mut self, workload: Workload) -> bool {
        workload.threads() == 1 && self.0.has_blocks_of(workload.largest_bytes())
    }

    fn repetition(&mut self, workload: Workload, pairs: usize) -> f64 {
        alone(&mut self.0, workload, pairs, &mut Unmetered)
    }

    fn each_call(&mut self, workload: Workload, pairs: usize) -> Vec<u32> {
        let mut meter = EachCall::new(2 * pairs);
        alone(&mut self.0, workload, pairs, &mut meter);
        meter.nanoseconds
    }
}

impl<S: Subject + Clone + Send> Runner for Shared<S> {
    fn can_run(&mut self, workload: Workload) -> bool {
        self.0.has_blocks_of(workload.largest_bytes())
    }

    fn repetition(&mut self, workload: Workload, pairs: usize) -> f64 {
        shared(&mut self.0, workload, pairs, &mut [Unmetered, Unmetered])
    }

    fn each_call(&mut self, workload: Workload, pairs: usize) -> Vec<u32> {
        let calls = 2 * pairs + two_threads::WARM_UP_PAIRS;
        let mut meters = [EachCall::new(calls), EachCall::new(calls)];
        shared(&mut self.0, workload, pairs, &mut meters);
        let [mut first, second] = meters.map(|meter| meter.nanoseconds);
        first.extend(second);
        first
    }
}

fn alone<S: Subject>(
    subject: &mut S,
    workload: Workload,
    pairs: usize,
    meter: &mut impl Meter,
) -> f64 {
    match workload {
        Workload::W1 => one_thread::same_block(subject, pairs, meter),
        Workload::W2 | Workload::W3 => {
            one_thread::replace_random(subject, workload.kept(), pairs, meter)
        }
        Workload::W4 | Workload::W5 | Workload::W5x => {
            unreachable!("{} is not for one thread", workload.name())
        }
    }
}

fn shared<S: Subject + Clone + Send>(
    subject: &mut S,
    workload: Workload,
    pairs: usize,
    meters: &mut [impl Meter; 2],
) -> f64 {
    let kept = workload.kept();
    match workload {
        Workload::W1 | Workload::W2 | Workload::W3 => {
            alone(subject, workload, pairs, &mut meters[0])
        }
        Workload::W4 => two_threads::replace_random(subject, kept, pairs, meters),
        Workload::W5 => two_threads::pass_on(subject, kept, StreamNumber::Zero, pairs, meters),
        Workload::W5x => two_threads::pass_on(subject, kept, StreamNumber::One, pairs, meters),
    }
}
