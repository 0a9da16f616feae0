//! Many threads at once, each on its own stream, that free each other's blocks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use millpond::driver::{
    DevicePtr, Driver, Event, EventTiming, Held, Kernel, Stream, StreamFlags, Touch,
};
use millpond::{Resource, Usage};
use millpond_sim::SimGpu;
use parking_lot::Mutex;

use super::Subject;
use super::lab::{MOST_EVENTS_KEPT, Wrong, count_simulated, test_gpu};
use super::seeds::{Seeds, replay_command};

const THREADS: u64 = 4;
const OPERATIONS: usize = 400;
/// Seeds to try where nothing else is asked for.
const SEEDS: u64 = 8;

/// A block on its way between threads: usable once the event has passed.
struct Parcel {
    ptr: DevicePtr,
    bytes: usize,
    ready: Event,
}

struct Shared {
    gpu: Arc<SimGpu>,
    resource: Box<dyn Resource>,
    live: Mutex<BTreeMap<DevicePtr, usize>>,
    parcels: Mutex<Vec<Parcel>>,
}

/// Threads allocate, use, hand over and free at random; no two live blocks overlap, no access is
/// unordered, and at the end all accounts are even.
///
/// # Errors
/// What was wrong, and the command that tries it again.
pub fn threads(subject: &Subject) -> Result<(), Wrong> {
    threads_in(subject, SEEDS)
}

/// As [`threads`], with so many seeds.
///
/// # Errors
/// As there.
pub fn threads_in(subject: &Subject, seeds: u64) -> Result<(), Wrong> {
    for seed in Seeds::first(seeds) {
        let gpu = Arc::new(test_gpu(seed, subject.device));
        let outcome = run(subject, seed, &gpu);
        count_simulated(&gpu);
        outcome.map_err(|wrong| {
            let replay = replay_command(subject.name, "threads", seed);
            format!(
                "{} with seed {seed}: {wrong}\nreplay (threads may differ): {replay}",
                subject.name
            )
        })?;
    }
    Ok(())
}

fn run(subject: &Subject, seed: u64, gpu: &Arc<SimGpu>) -> Result<(), Wrong> {
    let shared = Shared {
        resource: (subject.make)(gpu.clone()).map_err(|error| error.to_string())?,
        gpu: Arc::clone(gpu),
        live: Mutex::default(),
        parcels: Mutex::default(),
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn({
                    let shared = &shared;
                    move || work(shared, seed * THREADS + thread)
                })
            })
            .collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| "a thread panicked")?)
    })?;
    for parcel in shared.parcels.lock().drain(..) {
        take_back(&shared, &parcel, Stream::LEGACY)?;
    }
    gpu.synchronize_device().map_err(|error| error.to_string())?;
    if let Some(finding) = gpu.findings().first() {
        return Err(finding.to_string());
    }
    let Usage { live_bytes, live_blocks, .. } = shared.resource.usage();
    if (live_bytes, live_blocks) != (0, 0) {
        return Err(format!(
            "nothing is held, but {live_bytes} bytes in {live_blocks} blocks are live"
        ));
    }
    shared.resource.trim();
    let events = gpu.held().events;
    if events > MOST_EVENTS_KEPT {
        return Err(format!("nothing is held, but {events} events are left"));
    }
    drop(shared);
    match gpu.held() {
        left if left == Held::default() => Ok(()),
        left => Err(format!("something was left behind: {left:?}")),
    }
}

fn work(shared: &Shared, seed: u64) -> Result<(), Wrong> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let gpu = &shared.gpu;
    let stream = match seed % 2 {
        0 => Stream::PER_THREAD,
        _ => gpu.create_stream(StreamFlags::NON_BLOCKING).map_err(|error| error.to_string())?,
    };
    let mut mine: Vec<(DevicePtr, usize)> = Vec::new();
    for _ in 0..OPERATIONS {
        match rng.u32(0..10) {
            0..5 if mine.len() < 32 => {
                let power = rng.u32(4..19);
                let bytes = rng.usize(1..(1 << power));
                match shared.resource.allocate(bytes, stream) {
                    Ok(ptr) => {
                        claim(shared, ptr, bytes)?;
                        touch(gpu, ptr, bytes, stream)?;
                        mine.push((ptr, bytes));
                    }
                    Err(error) => return Err(format!("refused with little live: {error}")),
                }
            }
            5..8 if !mine.is_empty() => {
                let (ptr, bytes) = mine.swap_remove(rng.usize(0..mine.len()));
                release(shared, ptr, bytes, stream)?;
            }
            8 if !mine.is_empty() => {
                let (ptr, bytes) = mine.swap_remove(rng.usize(0..mine.len()));
                let ready = gpu.create_event(EventTiming::Disabled).map_err(|e| e.to_string())?;
                gpu.record_event(ready, stream).map_err(|error| error.to_string())?;
                shared.parcels.lock().push(Parcel { ptr, bytes, ready });
            }
            _ => {
                let parcel = shared.parcels.lock().pop();
                if let Some(parcel) = parcel {
                    take_back(shared, &parcel, stream)?;
                }
            }
        }
    }
    mine.into_iter().try_for_each(|(ptr, bytes)| release(shared, ptr, bytes, stream))?;
    match stream {
        Stream::PER_THREAD => Ok(()),
        // With work still queued, and memory freed on it that others may take.
        created => gpu.destroy_stream(created).map_err(|error| error.to_string()),
    }
}

fn claim(shared: &Shared, ptr: DevicePtr, bytes: usize) -> Result<(), Wrong> {
    let mut live = shared.live.lock();
    let before = live.range(..ptr.offset(bytes)).next_back();
    if let Some((other, size)) = before.filter(|(other, size)| other.offset(**size) > ptr) {
        return Err(format!("blocks overlap: {bytes} bytes at {ptr}, {size} bytes at {other}"));
    }
    live.insert(ptr, bytes);
    Ok(())
}

fn touch(gpu: &SimGpu, ptr: DevicePtr, bytes: usize, stream: Stream) -> Result<(), Wrong> {
    let kernel = Kernel::Work { touches: vec![Touch::write(ptr, bytes)], duration: Duration::ZERO };
    gpu.launch(&kernel, stream).map_err(|error| error.to_string())
}

fn release(shared: &Shared, ptr: DevicePtr, bytes: usize, stream: Stream) -> Result<(), Wrong> {
    touch(&shared.gpu, ptr, bytes, stream)?;
    // Out of the model first: from the free on, another thread may get the address.
    shared.live.lock().remove(&ptr);
    shared
        .resource
        .deallocate(ptr, bytes, stream)
        .map_err(|error| format!("a right free was refused: {error}"))
}

fn take_back(shared: &Shared, parcel: &Parcel, stream: Stream) -> Result<(), Wrong> {
    let gpu = &shared.gpu;
    gpu.wait_event(stream, parcel.ready).map_err(|error| error.to_string())?;
    gpu.destroy_event(parcel.ready).map_err(|error| error.to_string())?;
    release(shared, parcel.ptr, parcel.bytes, stream)
}
