//! The pool as a state machine: transitions at random, the model beside it, everything checked after each.
//!
//! The model is the conformance suite's [`Lab`](millpond_tests::conformance::Lab): a map of live blocks, each filled with a pattern by
//! the device and read back before it is freed. Beyond what any resource can do there are a pool's own settings, its kinds of
//! trimming, frees without a size, bad frees at any moment, and threads. Threads take turns, so a seed always gives the same run.

mod machine;
mod transition;
mod turns;

use machine::Machine;
use millpond_tests::conformance::{Seeds, runner};
use proptest::test_runner::{TestCaseError, TestError};
use transition::transitions;

/// Runs of up to 120 transitions each.
const RUNS: u64 = 1_500;

#[test]
fn the_pool_agrees_with_its_model() {
    for seed in Seeds::first(RUNS) {
        let outcome = runner(seed).run(&transitions(), |transitions| {
            Machine::run(seed, &transitions).map_err(TestCaseError::fail)
        });
        match outcome {
            Ok(()) => {}
            Err(TestError::Fail(reason, transitions)) => {
                let steps: String =
                    transitions.iter().map(|step| format!("\n  {step:?}")).collect();
                panic!(
                    "seed {seed}: {reason}\ntransitions:{steps}\n\
                     replay: MILLPOND_SEED={seed} cargo test -p millpond-tests --test pool_machine"
                );
            }
            Err(TestError::Abort(reason)) => panic!("seed {seed}: {reason}"),
        }
    }
}
