//! A soak: threads that come and go use one pool in every way at once, for as long as one likes.
//!
//! ```text
//!   threads    ── actions ──┐ quiet ┌── actions ──┐ quiet ┌── …       each action by weight, from the thread's own seed
//!   short-lived    ─────    │ point │    ───── ── │ point │           started by a thread, ended before the quiet point
//!                           │       │                                 blocks go from thread to thread on the way
//!   main                    └ audit ┘             └ audit ┘           all books against the pool's and the driver's
//! ```
//!
//! Every block is filled on its stream with a pattern of its own and read back before it is freed, in adversarial order and under the
//! detector's eyes. A seed gives each thread its generator; what it draws also depends on what the others have left it, so that two runs with
//! one seed are alike and not the same.

mod action;
mod audit;
mod block;
mod draws;
mod mappings;
mod report;
mod shared;
mod thread;

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use millpond::driver::{Driver, Watched};
use millpond::pool::Pool;
use millpond_sim::{Profile, RunOrder, SimGpu, SimOptions};

pub use audit::Sample;
pub use report::Report;

use crate::conformance::Wrong;
use audit::Audit;
use mappings::Mappings;
use shared::Shared;
use thread::Fellow;

/// Threads that live as long as the soak.
const THREADS: usize = 4;
/// Actions of a thread between two quiet points.
const ACTIONS: usize = 1_500;

/// Soaks a pool for a time, and says how it went. `progress` is shown each quiet point.
///
/// # Errors
/// The first thing that was wrong.
pub fn soak(time: Duration, seed: u64, mut progress: impl FnMut(&Sample)) -> Result<Report, Wrong> {
    let options = SimOptions { seed, run_order: RunOrder::Adversarial, ..SimOptions::default() };
    let profile = Profile::named("v100-16g").map_err(|error| error.to_string())?;
    let gpu = Arc::new(SimGpu::with_options(profile, options));
    let mappings = Mappings::default();
    let watched = Arc::new(Watched::with(gpu.clone(), mappings.clone()));
    let pool = Pool::new(watched).map_err(|error| error.to_string())?;
    let shared = Shared::new(Arc::clone(&gpu), pool.clone());
    let (quiet, go) = (Barrier::new(THREADS + 1), Barrier::new(THREADS + 1));
    let start = Instant::now();
    let samples = std::thread::scope(|scope| {
        let start_thread = |number| {
            let (shared, quiet, go) = (&shared, &quiet, &go);
            scope.spawn(move || {
                let mut fellow = shared.try_to(|| Fellow::new(shared, seed, number));
                // A thread that has failed still comes to the quiet points: the others wait there.
                loop {
                    if let Some(fellow) = &mut fellow {
                        shared.try_to(|| fellow.work(ACTIONS));
                        shared.hold(number, fellow.held());
                    }
                    quiet.wait();
                    go.wait();
                    if shared.is_over() {
                        break;
                    }
                }
                if let Some(fellow) = fellow {
                    shared.try_to(|| fellow.leave());
                }
            })
        };
        let threads: Vec<_> = (0..THREADS).map(start_thread).collect();
        let mut audit = Audit::new(&shared, mappings, start);
        loop {
            quiet.wait();
            let sample = shared.try_to(|| audit.at_quiet_point());
            if let Some(sample) = &sample {
                progress(sample);
            }
            if start.elapsed() >= time || shared.has_failed() {
                shared.end();
            }
            go.wait();
            if shared.is_over() {
                break;
            }
        }
        // Joined one by one: a scope does not wait for what a thread does last, giving its caches back.
        for thread in threads {
            thread.join().map_err(|_| "a thread panicked as it ended")?;
        }
        Ok::<_, Wrong>(audit.into_samples())
    })?;
    shared.outcome()?;
    shared.close()?;
    let stats = pool.stats();
    let threads = shared.threads_started();
    let actions = shared.actions();
    drop((shared, pool));
    match gpu.held() {
        held if held == Default::default() => Ok(Report { seed, samples, stats, threads, actions }),
        held => Err(format!("the pool is gone and left something behind: {held:?}")),
    }
}
