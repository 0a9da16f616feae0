//! What holds whatever clients do: ten thousand random schedules of joins, leaves, hangs, deaths and restarts.
//! In half of them no principal may have more of a right to turns than another, and turns must be fair between them (`fairness`).
//!
//! Every choice follows from the schedule's number. A schedule that fails says its number, and can be run alone:
//! `SCHEDULE=1234 cargo test -p millpond-share --test policy schedules -- --nocapture`, which also prints what happens.

mod actor;
mod book;
mod fairness;
mod world;

use world::World;

const SCHEDULES: u64 = 10_000;

/// What schedules are numbered from. Another one gives other schedules.
fn first_schedule() -> u64 {
    let given = std::env::var("SCHEDULE_SEED").ok().and_then(|seed| seed.parse().ok());
    given.unwrap_or_else(|| fastrand::u64(..1 << 40))
}

#[test]
fn schedules_of_anything_keep_the_promises() {
    if let Some(schedule) = std::env::var("SCHEDULE").ok().and_then(|seed| seed.parse().ok()) {
        World::new(schedule, true).run();
        return;
    }
    let first = first_schedule();
    println!("schedules from {first} on");
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get() as u64);
    let mut grants = 0;
    std::thread::scope(|scope| {
        let run_every = |offset| {
            move || -> u64 {
                let mine = (first + offset..first + SCHEDULES).step_by(threads as usize);
                mine.map(|schedule| World::new(schedule, false).run()).sum()
            }
        };
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(run_every(thread))).collect();
        for thread in running {
            grants += thread.join().expect("a schedule failed; its number is above");
        }
    });
    // A world in which nobody gets anything keeps all promises.
    assert!(grants > 10 * SCHEDULES, "only {grants} grants");
}
