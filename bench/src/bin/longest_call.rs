//! The longest call of a pool that does not call the driver.
//!
//! `cargo run --release -p millpond-bench --bin longest_call`
//!
//! A clock on the wall shows, on a busy machine, when the thread did not run. Here each call is timed by the processor time of
//! its thread, and the same program of calls runs several times on a new pool: what a call takes is the least of its times, so
//! that an interrupt would have to hit the same call each time to be seen.

use std::sync::{Arc, Barrier};
use std::thread;

use millpond::driver::{DevicePtr, Driver, Stream, StreamFlags};
use millpond::pool::{Pool, PoolConfig};
use millpond::resource::Resource;
use millpond_sim::{Profile, SimGpu};
use rustix::time::{ClockId, clock_gettime};

const RUNS: usize = 7;
const PAIRS: usize = 40_000;
const LIVE: usize = 1000;
/// Threads that have filled their caches and sleep.
const IDLE_THREADS: usize = 8;

/// One call: how long it took, and whether the driver was called.
#[derive(Clone, Copy)]
struct Call {
    nanoseconds: u64,
    called_driver: bool,
}

fn thread_time_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn timed<T>(pool: &Pool, calls: &mut Vec<Call>, call: impl FnOnce() -> T) -> T {
    let before = pool.usage().driver_calls;
    let start = thread_time_ns();
    let answer = call();
    let nanoseconds = thread_time_ns() - start;
    calls.push(Call { nanoseconds, called_driver: pool.usage().driver_calls != before });
    answer
}

/// Sizes from 256 B to 10 MiB, as many of each doubling.
fn size(random: &mut Random) -> usize {
    let unit = (random.next() >> 11) as f64 / (1_u64 << 53) as f64;
    (256.0 * (unit * 40960_f64.ln()).exp()) as usize
}

/// Vigna's SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Keeps blocks and replaces random ones, all calls timed.
fn replace_random(pool: &Pool, stream: Stream) -> Vec<Call> {
    let mut calls = Vec::with_capacity(2 * (PAIRS + LIVE));
    let mut random = Random(42);
    let mut kept: Vec<(DevicePtr, usize)> = Vec::with_capacity(LIVE);
    for _ in 0..LIVE {
        let bytes = size(&mut random);
        let ptr = timed(pool, &mut calls, || pool.allocate(bytes, stream)).expect("fits");
        kept.push((ptr, bytes));
    }
    for _ in 0..PAIRS {
        let (ptr, old_bytes) = &mut kept[(random.next() % LIVE as u64) as usize];
        timed(pool, &mut calls, || pool.deallocate(*ptr, *old_bytes, stream)).expect("live");
        *old_bytes = size(&mut random);
        *ptr = timed(pool, &mut calls, || pool.allocate(*old_bytes, stream)).expect("fits");
    }
    calls
}

/// Lets other threads fill their caches and sleep while `run` runs. One after the other, so that every run is the same.
fn beside_idle_threads<T>(pool: &Pool, stream: Stream, run: impl FnOnce() -> T) -> T {
    let (filled, done) = (Barrier::new(2), Barrier::new(IDLE_THREADS + 1));
    thread::scope(|scope| {
        for seed in 0..IDLE_THREADS as u64 {
            let (filled, done) = (&filled, &done);
            scope.spawn(move || {
                let mut random = Random(seed);
                let sizes: Vec<usize> = (0..LIVE).map(|_| size(&mut random)).collect();
                let allocate = |bytes: &usize| pool.allocate(*bytes, stream).expect("fits");
                let blocks: Vec<DevicePtr> = sizes.iter().map(allocate).collect();
                for (ptr, bytes) in blocks.into_iter().zip(sizes) {
                    pool.deallocate(ptr, bytes, stream).expect("live");
                }
                filled.wait();
                done.wait();
            });
            filled.wait();
        }
        let answer = run();
        done.wait();
        answer
    })
}

fn measure(name: &str, slack: f64, idle_threads: bool) {
    let mut least: Vec<Call> = Vec::new();
    for _ in 0..RUNS {
        let gpu = Arc::new(SimGpu::new(Profile::named("a100-80g").expect("built in")));
        let stream = gpu.create_stream(StreamFlags::NON_BLOCKING).expect("a stream");
        let pool = Pool::new(gpu).expect("a pool");
        pool.set_config(PoolConfig { slack, enable_defrag: false, ..pool.config() })
            .expect("good settings");
        let calls = if idle_threads {
            beside_idle_threads(&pool, stream, || replace_random(&pool, stream))
        } else {
            replace_random(&pool, stream)
        };
        if least.is_empty() {
            least = calls;
            continue;
        }
        for (least, call) in least.iter_mut().zip(calls) {
            least.nanoseconds = least.nanoseconds.min(call.nanoseconds);
            least.called_driver |= call.called_driver;
        }
    }
    let (with, without): (Vec<Call>, Vec<Call>) =
        least.into_iter().partition(|call| call.called_driver);
    let mut without: Vec<u64> = without.into_iter().map(|call| call.nanoseconds).collect();
    without.sort_unstable();
    let at = |part: f64| without[((without.len() - 1) as f64 * part) as usize] as f64 / 1000.0;
    println!(
        "{name:<34}{:>10}{:>10}{:>10.1}{:>10.1}{:>10.1}",
        without.len(),
        with.len(),
        at(0.999),
        at(0.9999),
        at(1.0)
    );
}

fn main() {
    println!(
        "{:<34}{:>10}{:>10}{:>10}{:>10}{:>10}",
        "1000 live, 256 B … 10 MiB", "calls", "+ driver", "P99.9 µs", "P99.99", "longest"
    );
    measure("slack 0.15", 0.15, false);
    measure("slack 0.15, 8 threads idle", 0.15, true);
    measure("slack 0", 0.0, false);
    measure("slack 0, 8 threads idle", 0.0, true);
}
