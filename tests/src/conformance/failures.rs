//! Every driver call that a resource makes fails once, and nothing is lost.

use millpond_sim::Fault;
use proptest::strategy::{Strategy, ValueTree};

use super::Subject;
use super::lab::{Lab, Wrong};
use super::program::{program, run};
use super::seeds::{Seeds, replay_command, runner};

/// Programs to try where nothing else is asked for.
const PROGRAMS: u64 = 8;
/// Calls of each to fail at most.
const MOST_CALLS: u64 = 400;

/// Runs a few programs again and again, each time with another of the resource's driver calls failing.
///
/// # Errors
/// What was wrong, and the command that shows it again.
pub fn every_call_failing(subject: &Subject) -> Result<(), Wrong> {
    every_call_failing_in(subject, PROGRAMS)
}

/// As [`every_call_failing`], with so many programs.
///
/// # Errors
/// As there.
pub fn every_call_failing_in(subject: &Subject, programs: u64) -> Result<(), Wrong> {
    for seed in Seeds::first(programs) {
        let program =
            program().new_tree(&mut runner(seed)).map_err(|reason| reason.to_string())?.current();
        // What no call failing gives: how many there are to fail.
        let mut lab = Lab::new(subject, seed);
        run(&mut lab, &program)?;
        let calls = lab.gpu.counted_calls();
        lab.close(subject.promises.returns_upstream)?;
        for call in 0..calls.min(MOST_CALLS) {
            let try_it = || match Lab::with_faults(subject, seed, &[Fault::Nth(call)])? {
                // A resource that could not be made has nothing to lose.
                Err(_) => Ok(()),
                Ok(mut lab) => {
                    run(&mut lab, &program)?;
                    lab.close(subject.promises.returns_upstream)
                }
            };
            try_it().map_err(|wrong| {
                let replay = replay_command(subject.name, "every_call_failing", seed);
                format!(
                    "{} with seed {seed}, driver call {call} failing: {wrong}\nreplay: {replay}",
                    subject.name
                )
            })?;
        }
    }
    Ok(())
}
