//! Programs of operations, made at random and cut down when they fail.

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

fn steps() -> impl Strategy<Value = Step> {
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

/// Whether an allocation may fail: never while little is asked of a device that is mostly free.
fn may_run_out(live_bytes: usize, bytes: usize) -> bool {
    live_bytes + bytes > CAPACITY_BYTES / 4
}

/// Runs a program. A call of the resource may fail where memory is short, or where one of its driver
/// calls was made to fail meanwhile.
pub(crate) fn run(lab: &mut Lab, program: &[Step]) -> Result<(), Wrong> {
    for step in program {
        let injected = lab.gpu.injected_faults();
        match *step {
            Step::Allocate { bytes, stream } => {
                let short = may_run_out(lab.live_bytes(), bytes);
                if let Err(error) = lab.allocate(bytes, stream)? {
                    let excused = lab.gpu.injected_faults() > injected;
                    if !(excused || short && error.is_out_of_memory()) {
                        return Err(format!("{bytes} bytes were refused for no reason: {error}"));
                    }
                }
            }
            Step::Free { block, stream } => {
                if let Some(block) = lab.block(block)
                    && let Err(error) = lab.free(&block, stream)?
                {
                    if lab.gpu.injected_faults() == injected {
                        return Err(format!("a right free was refused: {error}"));
                    }
                    // The block is still ours, and the failure was a single one.
                    lab.free(&block, stream)?.map_err(|error| {
                        format!("a free that failed cannot be repeated: {error}")
                    })?;
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
    }
    lab.settle()
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
        let time_of_first = std::cell::Cell::new(None);
        let outcome = runner(seed).run(&program(), |program| {
            let (outcome, time) = run_whole(subject, seed, &program);
            time_of_first.set(time_of_first.get().or(Some(time)));
            outcome.map_err(TestCaseError::fail)
        });
        simulated += time_of_first.get().unwrap_or_default();
        match outcome {
            Ok(()) => {}
            Err(TestError::Fail(reason, program)) => {
                let replay = replay_command(subject.name, "programs", seed);
                let steps: String = program.iter().map(|step| format!("\n  {step:?}")).collect();
                let wrong = format!(
                    "{} with seed {seed}: {reason}\nprogram:{steps}\nreplay: {replay}",
                    subject.name
                );
                return Err((wrong, simulated));
            }
            Err(TestError::Abort(reason)) => return Err((reason.to_string(), simulated)),
        }
    }
    Ok(simulated)
}
