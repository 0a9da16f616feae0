//! Whoever runs for days, with threads and streams that come and go, needs no more of the host's memory than on the first.
//!
//! Bytes are counted as they are asked of the host's allocator, so that whatever grows is found, wherever it is.

mod pool;
mod simulator;

use std::sync::Arc;
use std::time::Duration;

use millpond::driver::{DevicePtr, Driver, Kernel, Stream, StreamFlags, Touch, TouchKind};
use millpond_sim::{Profile, RunOrder, SimGpu, SimOptions};
use parking_lot::Mutex;
use peak_alloc::PeakAlloc;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// One test at a time, and each in a thread that has ended before the next: they share the count.
fn alone(test: impl FnOnce() + Send) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock();
    in_a_thread(test);
}

const MIB: usize = 1 << 20;
/// What may be more in the end: lists that double at times of their own. One that grows by 8 bytes a round is beyond it.
const MOST_GROWN: usize = 64 << 10;
/// Rounds until everything has the size that it needs, and rounds over which the most is looked for.
const ROUNDS: usize = 1000;
/// Rounds between.
const MANY_ROUNDS: usize = 10 * ROUNDS;

/// Does something again and again: the most that it takes must not become more.
fn assert_no_growth(mut round: impl FnMut(usize)) {
    let mut peak = |rounds: std::ops::Range<usize>| {
        HEAP.reset_peak_usage();
        rounds.for_each(&mut round);
        HEAP.peak_usage()
    };
    peak(0..ROUNDS);
    let first = peak(ROUNDS..2 * ROUNDS);
    peak(2 * ROUNDS..MANY_ROUNDS);
    let last = peak(MANY_ROUNDS..MANY_ROUNDS + ROUNDS);
    let grown = last.saturating_sub(first);
    println!("{first} bytes at most at first, {last} after {MANY_ROUNDS} rounds");
    assert!(grown <= MOST_GROWN, "grown by {grown} bytes, from {first} to {last}");
}

/// A device of 1 GiB whose streams run in adversarial order.
fn gpu(seed: u64) -> Arc<SimGpu> {
    let options = SimOptions { seed, run_order: RunOrder::Adversarial, ..SimOptions::default() };
    let text = "base = 'v100-16g'\n[memory]\ncapacity = '1GiB'\n";
    let profile = Profile::parse("growth", text).expect("a right profile");
    Arc::new(SimGpu::with_options(profile, options))
}

fn stream(gpu: &SimGpu, number: usize) -> Stream {
    let non_blocking = number.is_multiple_of(2);
    gpu.create_stream(StreamFlags { non_blocking, ..StreamFlags::default() }).expect("a stream")
}

/// Work that uses some memory and takes a while.
fn work(gpu: &SimGpu, kind: TouchKind, ptr: DevicePtr, bytes: usize, stream: Stream) {
    let touches = vec![Touch { ptr, bytes, kind }];
    let kernel = Kernel::Work { touches, duration: Duration::from_micros(30) };
    gpu.launch(&kernel, stream).expect("the device works");
}

/// In a thread of its own, which has ended then.
fn in_a_thread(run: impl FnOnce() + Send) {
    std::thread::scope(|scope| scope.spawn(run).join()).expect("the thread does not panic");
}
