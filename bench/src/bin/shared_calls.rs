//! What calls cost on a device that is shared through a broker, beside a device of one process, in real time.
//!
//! `cargo run --release -p millpond-bench --bin shared_calls`
//!
//! The clock is real time at its fastest in both, so that modelled latencies are not what is measured.

use std::hint::black_box;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use millpond::driver::{Driver, Kernel, PhysicalProperties, Stream};
use millpond_sim::{Profile, SharedName, Sharing, SimClock, SimGpu, SimOptions};

/// What is measured, on a device.
type Round = fn(&SimGpu);

const RUNS: usize = 7;
const ROUNDS: u32 = 5_000;
const PAGE: usize = 2 << 20;

/// The median time of a round, over a few runs.
fn measure(mut round: impl FnMut()) -> Duration {
    (0..ROUNDS / 10).for_each(|_| round());
    let mut times: Vec<Duration> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            (0..ROUNDS).for_each(|_| round());
            start.elapsed() / ROUNDS
        })
        .collect();
    times.sort();
    times[RUNS / 2]
}

fn main() -> ExitCode {
    // This program is its own broker.
    if std::env::args_os().len() > 1 {
        return millpond_sim::broker::run_program(std::env::args_os().skip(1));
    }
    let profile = Profile::named("a100-80g").expect("built in");
    let clock = SimClock::Real { speed: *SimClock::SPEEDS.end() };
    let options = SimOptions { clock, ..SimOptions::default() };
    let name = SharedName::new(&format!("bench-{}", std::process::id())).expect("a name");
    let program = std::env::current_exe().expect("this program");
    let own = SimGpu::with_options(profile.clone(), options);
    let shared = SimGpu::join(profile, options, &Sharing::new(name, program)).expect("a broker");

    let calls: [(&str, Round); 4] = [
        ("create and release a page", |gpu| {
            let handle = gpu.create(PAGE, PhysicalProperties::default()).expect("there is room");
            gpu.release(handle).expect("it is ours");
        }),
        ("alloc and free 64 MiB", |gpu| {
            gpu.free(gpu.alloc(64 << 20).expect("there is room")).expect("it is ours");
        }),
        ("memory_info", |gpu| {
            black_box(gpu.memory_info().expect("works"));
        }),
        ("launch, which asks the board nothing", |gpu| {
            let kernel = Kernel::Work { duration: Duration::ZERO, touches: Vec::new() };
            gpu.launch(&kernel, Stream::LEGACY).expect("works");
        }),
    ];
    println!("{:<38}{:>10}{:>10}{:>8}", "µs", "own", "shared", "ratio");
    for (name, call) in calls {
        let [own, shared] = [&own, &shared].map(|gpu| measure(|| call(gpu)).as_secs_f64() * 1e6);
        println!("{name:<38}{own:>10.3}{shared:>10.3}{:>8.1}", shared / own);
    }
    ExitCode::SUCCESS
}
