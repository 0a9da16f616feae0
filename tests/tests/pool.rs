//! The pool: what it promises beyond every resource.

use std::sync::{Arc, Barrier};
use std::time::Duration;

use millpond::driver::{DevicePtr, Driver, Kernel, Stream, StreamFlags, Touch};
use millpond::pool::Pool;
use millpond::{FreeError, Resource};
use millpond_sim::{Profile, RunOrder, SimGpu, SimOptions};
use millpond_tests::conformance;
use millpond_tests::conformance::Promises;

const POOL: Promises = Promises {
    coalesces: true,
    returns_upstream: true,
    reuses_across_streams: true,
    oom_complete: true,
};

conformance!(pool, |driver| Pool::new(driver, 0.15), POOL, 2_000);
conformance!(pool_without_slack, |driver| Pool::new(driver, 0.0), POOL, 2_000);

fn gpu(run_order: RunOrder, seed: u64) -> Arc<SimGpu> {
    let profile = Profile::named("p100-16g").unwrap();
    Arc::new(SimGpu::with_options(profile, SimOptions { run_order, seed, ..SimOptions::default() }))
}

/// Everything holds after every step, whatever the steps.
#[test]
fn invariants_hold_after_every_step() {
    for seed in 0..20 {
        let gpu = gpu(RunOrder::Adversarial, seed);
        let streams: Vec<Stream> =
            (0..3).map(|_| gpu.create_stream(StreamFlags::NON_BLOCKING).unwrap()).collect();
        let pool = Pool::new(gpu.clone(), [0.0, 0.05, 0.3][seed as usize % 3]).unwrap();
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut live: Vec<(DevicePtr, usize, Stream)> = Vec::new();
        for step in 0..400 {
            match rng.u32(0..20) {
                0 => drop(pool.trim()),
                1..11 if live.len() < 100 => {
                    let power = rng.u32(0..25);
                    let (bytes, stream) =
                        (rng.usize(1..=1 << power), *rng.choice(&streams).unwrap());
                    let ptr = pool.allocate(bytes, stream).unwrap();
                    let kernel = Kernel::Work {
                        touches: vec![Touch::write(ptr, bytes)],
                        duration: Duration::from_micros(rng.u64(0..500)),
                    };
                    gpu.launch(&kernel, stream).unwrap();
                    live.push((ptr, bytes, stream));
                }
                _ if !live.is_empty() => {
                    let (ptr, bytes, stream) = live.swap_remove(rng.usize(0..live.len()));
                    let with_size = rng.bool();
                    let freed = if with_size {
                        pool.deallocate(ptr, bytes, stream)
                    } else {
                        pool.deallocate_unsized(ptr, stream)
                    };
                    freed.unwrap_or_else(|error| panic!("seed {seed}, step {step}: {error}"));
                }
                _ => {}
            }
            pool.assert_valid();
            let expected: usize = live.iter().map(|(_, bytes, _)| bytes).sum();
            assert_eq!(pool.usage().live_bytes, expected, "seed {seed}, step {step}");
        }
        gpu.synchronize_device().unwrap();
        assert_eq!(gpu.findings(), [], "seed {seed}");
    }
}

/// Two threads free one block at the same moment. One of them is told so, at once or when its cache drains; the block is
/// never handed out twice.
#[test]
fn of_two_racing_frees_one_counts() {
    let gpu = gpu(RunOrder::Timed, 0);
    let stream = gpu.create_stream(StreamFlags::NON_BLOCKING).unwrap();
    let pool = Pool::new(gpu, 0.1).unwrap();
    let barrier = Barrier::new(2);
    for round in 0..3_000 {
        let bytes = [512, 100_000, 3 << 20][round % 3];
        let block = pool.allocate(bytes, stream).unwrap();
        let race = |_| {
            barrier.wait();
            let answer = pool.deallocate(block, bytes, stream);
            // A free that comes after the block was handed out again is a free of that, and right.
            barrier.wait();
            (answer, pool.allocate(bytes, stream).unwrap())
        };
        let outcomes = std::thread::scope(|scope| {
            let other = scope.spawn(|| race(1));
            [race(0), other.join().unwrap()]
        });
        let [(first, got), (second, got_too)] = outcomes;
        assert_ne!(got, got_too, "round {round}: one block was handed out twice");
        assert!(first.is_ok() || second.is_ok(), "round {round}");
        for answer in [first, second] {
            assert!(
                matches!(
                    answer,
                    Ok(()) | Err(FreeError::AlreadyFree { .. } | FreeError::Foreign { .. })
                ),
                "round {round}: {answer:?}"
            );
        }
        for ptr in [got, got_too] {
            pool.deallocate(ptr, bytes, stream).unwrap();
        }
    }
}

/// What an idle thread keeps is there for others.
#[test]
fn idle_threads_caches_are_reclaimed() {
    let gpu = gpu(RunOrder::Timed, 0);
    let stream = gpu.create_stream(StreamFlags::NON_BLOCKING).unwrap();
    let pool = Pool::new(gpu.clone(), 0.0).unwrap();
    let (idle, done) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let blocks: Vec<_> = (0..30).map(|_| pool.allocate(1 << 20, stream).unwrap()).collect();
            for block in blocks {
                pool.deallocate(block, 1 << 20, stream).unwrap();
            }
            idle.wait();
            done.wait();
        });
        idle.wait();
        let reserved = pool.usage().reserved_bytes;
        assert!(reserved >= 30 << 20);
        pool.allocate(28 << 20, stream).unwrap();
        assert_eq!(pool.usage().reserved_bytes, reserved, "the idle thread's memory was used");
        done.wait();
    });
}

#[test]
fn threads_and_pools_may_end_in_any_order() {
    let gpu = gpu(RunOrder::Timed, 0);
    let stream = gpu.create_stream(StreamFlags::NON_BLOCKING).unwrap();
    // The thread outlives the pool that it has a cache of.
    let pool = Pool::new(gpu.clone(), 0.1).unwrap();
    let (used, gone) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let thread = std::thread::spawn({
        let (pool, used, gone) = (pool.clone(), Arc::clone(&used), Arc::clone(&gone));
        let second = Pool::new(gpu.clone(), 0.1).unwrap();
        move || {
            let block = pool.allocate(1000, stream).unwrap();
            pool.deallocate(block, 1000, stream).unwrap();
            drop(pool);
            used.wait();
            gone.wait();
            let block = second.allocate(1000, stream).unwrap();
            second.deallocate(block, 1000, stream).unwrap();
        }
    });
    used.wait();
    drop(pool);
    gone.wait();
    thread.join().unwrap();
    // The pool outlives threads, and a new thread takes over what an old one kept.
    let pool = Pool::new(gpu.clone(), 0.1).unwrap();
    let blocks: Vec<DevicePtr> = (0..20)
        .map(|_| {
            let pool = &pool;
            std::thread::scope(|scope| {
                scope.spawn(|| pool.allocate(70_000, stream).unwrap()).join().unwrap()
            })
        })
        .collect();
    for block in blocks {
        pool.deallocate(block, 70_000, stream).unwrap();
    }
    assert_eq!(pool.usage().live_bytes, 0);
    pool.trim();
    assert_eq!(pool.usage().reserved_bytes, 0);
    drop(pool);
    assert_eq!(gpu.held().total_bytes(), 0);
}
