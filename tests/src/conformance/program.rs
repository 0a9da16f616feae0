//! Programs of operations, made at random and cut down when they fail.

use std::cell::Cell;
use std::fmt::Debug;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestError;

use super::lab::{CAPACITY_BYTES, Lab, STREAMS, Wrong};
use super::seeds::{Seeds, replay_command, runner};
use super::{Promises, Subject};

/// One operation of a program. Numbers stand for whatever block or stream there is.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Allocate {
        bytes: usize,
        stream: usize,
    },
    /// Frees a block on a stream that may be another than it was allocated on.
    Free {
        block: usize,
        stream: usize,
    },
    /// Reads a block on another stream.
    Read {
        block: usize,
        stream: usize,
    },
    Synchronize {
        stream: usize,
    },
    PassTime {
        micros: u64,
    },
    RecycleStream {
        stream: usize,
    },
    Trim,
}

/// Mostly small, sometimes huge, often around powers of two.
fn sizes() -> impl Strategy<Value = usize> {
    prop_oneof![
        4 => 1..=4096_usize,
        3 => (8..=22_u32, -1..=1_i64).prop_map(|(power, off)| ((1_i64 << power) + off) as usize),
        2 => 4096..=(2_usize << 20),
        1 => (2_usize << 20)..=(24_usize << 20),
    ]
}

pub(crate) fn steps() -> impl Strategy<Value = Step> {
    let block = 0..64_usize;
    let stream = 0..STREAMS;
    prop_oneof![
        8 => (sizes(), stream.clone()).prop_map(|(bytes, stream)| Step::Allocate { bytes, stream }),
        7 => (block.clone(), stream.clone()).prop_map(|(block, stream)| Step::Free { block, stream }),
        2 => (block, stream.clone()).prop_map(|(block, stream)| Step::Read { block, stream }),
        1 => stream.clone().prop_map(|stream| Step::Synchronize { stream }),
        1 => (1..20_000_u64).prop_map(|micros| Step::PassTime { micros }),
        1 => stream.prop_map(|stream| Step::RecycleStream { stream }),
        1 => Just(Step::Trim),
    ]
}

pub(crate) fn program() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(steps(), 1..64)
}

/// Whether an allocation may fail: never while little is asked of a device that is mostly free, unless it is more than a block may have.
pub(crate) fn may_run_out(lab: &Lab, bytes: usize) -> bool {
    match lab.promises.block_bytes {
        None => lab.live_bytes() + bytes > CAPACITY_BYTES / 4,
        Some(block) => bytes > block || (lab.blocks().count() + 1) * block > CAPACITY_BYTES / 4,
    }
}

/// What is wrong with the device while a step runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// Driver calls keep failing: what failed once may fail again.
    pub(crate) lasts: bool,
    /// Memory or handles are short, whatever the model says.
    pub(crate) is_short: bool,
}

/// What came of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    /// An allocation was refused, for a reason.
    Refused {
        bytes: usize,
        stream: usize,
    },
}

/// Runs a program. A call of the resource may fail where memory is short, or where one of its driver
/// calls was made to fail meanwhile.
pub(crate) fn run(lab: &mut Lab, program: &[Step]) -> Result<(), Wrong> {
    for step in program {
        run_step(lab, step, Trouble::default())?;
    }
    lab.settle()
}

/// Runs one step of a program.
pub(crate) fn run_step(lab: &mut Lab, step: &Step, trouble: Trouble) -> Result<Outcome, Wrong> {
    let injected = lab.gpu.injected_faults();
    match *step {
        Step::Allocate { bytes, stream } => {
            let short = trouble.is_short || may_run_out(lab, bytes);
            if let Err(error) = lab.allocate(bytes, stream)? {
                let excused = lab.gpu.injected_faults() > injected;
                if !(excused || short && error.is_out_of_memory()) {
                    return Err(format!("{bytes} bytes were refused for no reason: {error}"));
                }
                return Ok(Outcome::Refused { bytes, stream });
            }
        }
        Step::Free { block, stream } => {
            if let Some(block) = lab.block(block)
                && let Err(error) = lab.free(&block, stream)?
            {
                if lab.gpu.injected_faults() == injected {
                    return Err(format!("a right free was refused: {error}"));
                }
                // The block is still ours, and a failure that was a single one is over.
                if !trouble.lasts {
                    lab.free(&block, stream)?.map_err(|error| {
                        format!("a free that failed cannot be repeated: {error}")
                    })?;
                }
            }
        }
        Step::Read { block, stream } => {
            if let Some(block) = lab.block(block) {
                lab.read(&block, stream)?;
            }
        }
        Step::Synchronize { stream } => lab.synchronize(stream)?,
        Step::PassTime { micros } => lab.pass_time(Duration::from_micros(micros)),
        Step::RecycleStream { stream } => lab.recycle_stream(stream)?,
        Step::Trim => lab.trim()?,
    }
    Ok(Outcome::Done)
}

/// Runs a program on a fresh device, and says how much virtual time that took.
fn run_whole(subject: &Subject, seed: u64, program: &[Step]) -> (Result<(), Wrong>, Duration) {
    let Promises { returns_upstream, .. } = subject.promises;
    let mut lab = Lab::new(subject, seed);
    let gpu = lab.gpu.clone();
    let outcome = run(&mut lab, program).and_then(|()| lab.close(returns_upstream));
    (outcome, gpu.now())
}

/// Runs seeded programs in adversarial order.
///
/// # Errors
/// What was wrong, the shortest program that shows it, and the command that runs it again.
pub fn programs(subject: &Subject, count: u64) -> Result<(), Wrong> {
    programs_until(subject, count).map(|_| ()).map_err(|(wrong, _)| wrong)
}

/// As [`programs`], with the virtual time that passed until then on all devices together.
///
/// # Errors
/// As [`programs`], with the virtual time up to the failure.
pub fn programs_until(subject: &Subject, count: u64) -> Result<Duration, (Wrong, Duration)> {
    let mut simulated = Duration::ZERO;
    for seed in Seeds::first(count) {
        // The first run is the program itself; the others cut it down after it has failed.
        let time_of_first = Cell::new(None);
        let outcome = run_seed(subject, "programs", seed, &program(), |program| {
            let (outcome, time) = run_whole(subject, seed, program);
            time_of_first.set(time_of_first.get().or(Some(time)));
            outcome
        });
        simulated += time_of_first.get().unwrap_or_default();
        outcome.map_err(|wrong| (wrong, simulated))?;
    }
    Ok(simulated)
}

/// Runs one seed's program; one that fails is cut down.
pub(crate) fn run_seed<S: Debug>(
    subject: &Subject,
    check: &str,
    seed: u64,
    programs: &impl Strategy<Value = Vec<S>>,
    run: impl Fn(&[S]) -> Result<(), Wrong>,
) -> Result<(), Wrong> {
    match runner(seed).run(programs, |program| run(&program).map_err(TestCaseError::fail)) {
        Ok(()) => Ok(()),
        Err(TestError::Fail(reason, program)) => {
            let replay = replay_command(subject.name, check, seed);
            let steps: String = program.iter().map(|step| format!("\n  {step:?}")).collect();
            Err(format!(
                "{} with seed {seed}: {reason}\nprogram:{steps}\nreplay: {replay}",
                subject.name
            ))
        }
        Err(TestError::Abort(reason)) => Err(reason.to_string()),
    }
}
