//! How many driver calls a second the simulated GPU answers, on one core, in real time.
//!
//! `cargo run --release -p millpond-bench --bin driver_calls`

use std::hint::black_box;
use std::time::{Duration, Instant};

use millpond::driver::{
    Access, Driver, EventTiming, Kernel, PhysicalProperties, StreamFlags, Touch,
};
use millpond_sim::{Profile, SimGpu};

const RUNS: usize = 7;
const PAGE: usize = 2 << 20;

/// The median of a few runs, in calls a second.
fn measure(name: &str, calls_per_round: usize, rounds: usize, mut round: impl FnMut()) {
    (0..rounds / 10).for_each(|_| round());
    let mut times: Vec<Duration> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            (0..rounds).for_each(|_| round());
            start.elapsed()
        })
        .collect();
    times.sort();
    let rate = |time: Duration| (calls_per_round * rounds) as f64 / time.as_secs_f64() / 1e6;
    let (slowest, median, fastest) = (times[RUNS - 1], times[RUNS / 2], times[0]);
    println!("{name:<38}{:>8.2}{:>8.2}{:>8.2}", rate(median), rate(slowest), rate(fastest));
}

fn main() {
    let gpu = SimGpu::new(Profile::named("a100-80g").expect("built in"));
    let stream = gpu.create_stream(StreamFlags::NON_BLOCKING).expect("a stream");
    let event = gpu.create_event(EventTiming::Disabled).expect("an event");
    println!("{:<38}{:>8}{:>8}{:>8}", "million calls a second", "median", "slowest", "fastest");
    measure("memory_info", 1, 1_000_000, || {
        black_box(gpu.memory_info().expect("works"));
    });
    measure("stream_id", 1, 1_000_000, || {
        black_box(gpu.stream_id(stream).expect("works"));
    });
    measure("record_event + query_event", 2, 300_000, || {
        gpu.record_event(event, stream).expect("works");
        black_box(gpu.query_event(event).expect("works"));
    });
    measure("alloc + free, 4 KiB", 2, 200_000, || {
        gpu.free(gpu.alloc(4096).expect("fits")).expect("works");
    });
    measure("alloc + free, 64 MiB", 2, 200_000, || {
        gpu.free(gpu.alloc(64 << 20).expect("fits")).expect("works");
    });
    let pool = gpu.default_pool().expect("works");
    measure("alloc_async + free_async, 1 MiB", 2, 100_000, || {
        let ptr = gpu.alloc_async(1 << 20, pool, stream).expect("fits");
        gpu.free_async(ptr, stream).expect("works");
    });
    let range = gpu.reserve(PAGE, 0).expect("addresses");
    measure("create, map, set_access, unmap, release", 5, 100_000, || {
        let handle = gpu.create(PAGE, PhysicalProperties::default()).expect("fits");
        gpu.map(range, PAGE, handle).expect("works");
        gpu.set_access(range, PAGE, Access::ReadWrite).expect("works");
        gpu.unmap(range, PAGE).expect("works");
        gpu.release(handle).expect("works");
    });
    let block = gpu.alloc(1 << 20).expect("fits");
    let kernel =
        Kernel::Work { touches: vec![Touch::write(block, 1 << 20)], duration: Duration::ZERO };
    measure("launch", 1, 300_000, || gpu.launch(&kernel, stream).expect("works"));
}
