//! The pool: what it promises beyond every resource.

use std::sync::{Arc, Barrier};
use std::time::Duration;

use millpond::driver::{Call, DevicePtr, Driver, DriverResult, Kernel, Stream, StreamFlags, Touch};
use millpond::pool::{OpenError, Pool, PoolConfig};
use millpond::{AllocError, FreeError, Resource, Usage};
use millpond_sim::{Fault, Profile, RunOrder, SimGpu, SimOptions};
use millpond_tests::conformance;
use millpond_tests::conformance::Promises;

const POOL: Promises = Promises {
    coalesces: true,
    returns_upstream: true,
    reuses_across_streams: true,
    oom_complete: true,
    withstands_troubles: true,
    block_bytes: None,
};

/// Without the background, which does what it does when it likes, the same calls give the same answers.
fn alone() -> PoolConfig {
    PoolConfig { enable_defrag: false, ..PoolConfig::default() }
}

fn with_slack(driver: Arc<dyn Driver>, slack: f64) -> DriverResult<Pool> {
    made(Pool::with_config(driver, PoolConfig { slack, ..alone() }))
}

fn made(pool: Result<Pool, OpenError>) -> DriverResult<Pool> {
    pool.map_err(|error| match error {
        OpenError::Driver(error) => error,
        error => panic!("right settings: {error}"),
    })
}

/// Every tier switched off: all blocks come from slabs and free ranges, under locks.
fn without_caches(driver: Arc<dyn Driver>) -> DriverResult<Pool> {
    let config = PoolConfig {
        thread_cache_max_blocks: 0,
        global_cache_max_blocks: 0,
        batch_alloc_count: 1,
        ..alone()
    };
    made(Pool::with_config(driver, config))
}

/// A pool that checks itself whenever it is asked for its account, as the suite does after every step.
struct Checked(Pool);

impl Resource for Checked {
    fn allocate(&self, bytes: usize, stream: Stream) -> Result<DevicePtr, AllocError> {
        self.0.allocate(bytes, stream)
    }

    fn deallocate(&self, ptr: DevicePtr, bytes: usize, stream: Stream) -> Result<(), FreeError> {
        self.0.deallocate(ptr, bytes, stream)
    }

    fn usage(&self) -> Usage {
        self.0.assert_valid();
        self.0.usage()
    }

    fn trim(&self) -> usize {
        self.0.trim()
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.0.driver()
    }
}

conformance!(pool_without_caches, |driver| without_caches(driver).map(Checked), POOL, 2_000);
conformance!(pool, |driver| with_slack(driver, 0.15).map(Checked), POOL, 10_000);
conformance!(pool_without_slack, |driver| with_slack(driver, 0.0).map(Checked), POOL, 2_000);

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
        let pool = with_slack(gpu.clone(), [0.0, 0.05, 0.3][seed as usize % 3]).unwrap();
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
    let pool = Pool::with_config(gpu, alone()).unwrap();
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
    let pool = with_slack(gpu.clone(), 0.0).unwrap();
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
    let pool = Pool::with_config(gpu.clone(), alone()).unwrap();
    let (used, gone) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let thread = std::thread::spawn({
        let (pool, used, gone) = (pool.clone(), Arc::clone(&used), Arc::clone(&gone));
        let second = Pool::with_config(gpu.clone(), alone()).unwrap();
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
    let pool = Pool::with_config(gpu.clone(), alone()).unwrap();
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

#[test]
fn settings_are_read_changed_and_checked_while_the_pool_runs() {
    let gpu = gpu(RunOrder::Timed, 0);
    let stream = gpu.create_stream(StreamFlags::NON_BLOCKING).unwrap();
    let pool = Pool::new(gpu).unwrap();
    assert_eq!(pool.config(), PoolConfig::default());
    let wrong = [
        (PoolConfig { batch_alloc_count: 0, ..pool.config() }, "batch_alloc_count = 0: "),
        (
            PoolConfig { batch_alloc_count: 65, ..pool.config() },
            "must not exceed thread_cache_max_blocks",
        ),
        (
            PoolConfig { thread_cache_max_blocks: usize::MAX, ..pool.config() },
            "thread_cache_max_blocks = ",
        ),
        (
            PoolConfig { global_cache_max_blocks: usize::MAX, ..pool.config() },
            "global_cache_max_blocks = ",
        ),
        (PoolConfig { slack: -0.1, ..pool.config() }, "slack = -0.1: must be a fraction"),
        (PoolConfig { slack: f64::NAN, ..pool.config() }, "slack = NaN"),
    ];
    for (config, expected) in wrong {
        let error = pool.set_config(config).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert_eq!(pool.config(), PoolConfig::default(), "nothing changes");
    }
    // A thread cache that is switched off serves nothing; switched on, it does.
    let pairs = |pool: &Pool| {
        pool.reset_stats();
        for _ in 0..100 {
            let block = pool.allocate(1000, stream).unwrap();
            pool.deallocate(block, 1000, stream).unwrap();
        }
        pool.stats()
    };
    let off = PoolConfig { thread_cache_max_blocks: 0, batch_alloc_count: 1, ..alone() };
    pool.set_config(off.clone()).unwrap();
    assert_eq!(pairs(&pool).cache_hits, 0);
    pool.set_config(alone()).unwrap();
    assert!(pairs(&pool).cache_hits >= 99);
    // And a global cache that is off keeps nothing of what threads give up.
    pool.set_config(PoolConfig { global_cache_max_blocks: 0, ..off.clone() }).unwrap();
    pool.trim();
    assert_eq!(pairs(&pool).global_hits, 0);
    pool.set_config(off).unwrap();
    assert!(pairs(&pool).global_hits >= 99);
}

#[test]
fn statistics_count_every_tier_and_can_be_reset() {
    let gpu = gpu(RunOrder::Timed, 0);
    let stream = gpu.create_stream(StreamFlags::NON_BLOCKING).unwrap();
    let pool = Pool::with_config(gpu, alone()).unwrap();
    let block = pool.allocate(5 << 20, stream).unwrap();
    let small: Vec<_> = (0..40).map(|_| pool.allocate(700, stream).unwrap()).collect();
    for ptr in &small {
        pool.deallocate(*ptr, 700, stream).unwrap();
    }
    let stats = pool.stats();
    assert_eq!((stats.allocation_count, stats.free_count), (41, 40));
    assert_eq!(stats.total_allocated, (5 << 20) + 40 * 700);
    assert_eq!(stats.total_freed, 40 * 700);
    assert_eq!(stats.current_usage, 5 << 20);
    assert_eq!(stats.peak_usage, (5 << 20) + 40 * 700);
    assert_eq!(stats.fragmentation_bytes, stats.reserved_bytes - stats.current_usage);
    assert_eq!(stats.cache_hits + stats.cache_misses, 41);
    assert!(stats.cache_hits >= 30 && stats.device_allocations > 0 && stats.pages_created >= 3);
    let printed = stats.to_string();
    assert!(printed.contains("live                   5.0 MiB"), "{printed}");

    pool.reset_stats();
    let stats = pool.stats();
    assert_eq!((stats.allocation_count, stats.total_freed, stats.driver_calls), (0, 0, 0));
    assert_eq!((stats.current_usage, stats.peak_usage), (5 << 20, 5 << 20));
    pool.deallocate(block, 5 << 20, stream).unwrap();
    assert_eq!(pool.stats().free_count, 1);
}

#[test]
fn caches_are_trimmed_and_everything_unused_is_released() {
    let gpu = gpu(RunOrder::Timed, 0);
    let stream = gpu.create_stream(StreamFlags::NON_BLOCKING).unwrap();
    let pool = Pool::with_config(gpu.clone(), alone()).unwrap();
    let held = pool.allocate(3 << 20, stream).unwrap();
    let pattern = Kernel::Fill { dst: held, value: 77, count: 100 };
    gpu.launch(&pattern, stream).unwrap();
    let blocks: Vec<_> = (0..60).map(|_| pool.allocate(500_000, stream).unwrap()).collect();
    for block in blocks {
        pool.deallocate(block, 500_000, stream).unwrap();
    }
    assert!(pool.usage().largest_free_bytes < 20 << 20, "most of it is in the cache");
    pool.trim_cache();
    pool.assert_valid();
    assert!(pool.usage().largest_free_bytes >= 24 << 20, "and now merged");
    let reserved = pool.usage().reserved_bytes;
    let released = pool.release_all();
    pool.assert_valid();
    assert_eq!(pool.usage().reserved_bytes, reserved - released);
    assert!(pool.usage().reserved_bytes <= 6 << 20, "only the held block's pages are left");
    assert_eq!((pool.stats().allocation_count, pool.stats().current_usage), (0, 3 << 20));
    let mut bytes = [0; 400];
    gpu.copy_to_host(&mut bytes, held, stream).unwrap();
    assert!(
        bytes.chunks_exact(4).all(|word| word == 77_u32.to_le_bytes()),
        "the held block was not touched"
    );
    pool.deallocate(held, 3 << 20, stream).unwrap();
}

/// A request that nothing could serve is in no count, so that statistics can be reset before it and read after it.
#[test]
fn statistics_count_what_was_served() {
    let gpu = gpu(RunOrder::Timed, 0);
    let stream = gpu.create_stream(StreamFlags::NON_BLOCKING).unwrap();
    let pool = Pool::with_config(gpu, alone()).unwrap();
    for _ in 0..2 {
        pool.allocate(1000, stream).unwrap();
    }
    pool.reset_stats();
    assert!(pool.allocate(1 << 40, stream).is_err());
    let stats = pool.stats();
    assert_eq!((stats.allocation_count, stats.cache_hits, stats.cache_misses), (0, 0, 0));
}

/// Two blocks of their own meet in one of the stretches by which addresses are looked up.
#[test]
fn a_free_inside_a_block_is_told_apart_right_before_the_next() {
    let gpu = gpu(RunOrder::Timed, 0);
    let stream = gpu.create_stream(StreamFlags::NON_BLOCKING).unwrap();
    let pool = Pool::with_config(gpu, alone()).unwrap();
    let bytes = 33_280;
    let blocks: Vec<_> = (0..8).map(|_| pool.allocate(bytes, stream).unwrap()).collect();
    for block in blocks {
        let ptr = block.offset(bytes - 1);
        let answer = pool.deallocate_unsized(ptr, stream);
        assert_eq!(answer, Err(FreeError::Interior { ptr, block }));
    }
}

/// A batch from a slab is no way around what a thread may keep.
#[test]
fn thread_caches_that_are_off_keep_nothing() {
    let gpu = gpu(RunOrder::Timed, 0);
    let stream = gpu.create_stream(StreamFlags::NON_BLOCKING).unwrap();
    let pool = Pool::with_config(gpu, alone()).unwrap();
    for off in [
        PoolConfig { thread_cache_max_blocks: 0, ..alone() },
        PoolConfig { thread_cache_max_bytes: 0, ..alone() },
    ] {
        pool.set_config(off.clone()).unwrap();
        let blocks: Vec<_> = (0..100).map(|_| pool.allocate(1000, stream).unwrap()).collect();
        for block in blocks {
            pool.deallocate(block, 1000, stream).unwrap();
        }
        assert_eq!(pool.stats().cache_hits, 0, "{off:?}");
    }
}

/// A mapping fails halfway and cannot be undone: its addresses wait until it can, and nobody is sent there.
#[test]
fn what_cannot_be_unmapped_is_in_nobodys_way() {
    let gpu = gpu(RunOrder::Timed, 0);
    let stream = gpu.create_stream(StreamFlags::NON_BLOCKING).unwrap();
    let pool = Pool::with_config(gpu.clone(), alone()).unwrap();
    gpu.set_faults(&[Fault::All(Call::SetAccess), Fault::All(Call::Unmap)]);
    pool.allocate(7 << 20, stream).unwrap_err();
    pool.assert_valid();
    gpu.set_faults(&[]);
    let block = pool.allocate(7 << 20, stream).unwrap();
    pool.assert_valid();
    assert_eq!(pool.usage().reserved_bytes, gpu.held().device_bytes());
    pool.deallocate(block, 7 << 20, stream).unwrap();
    pool.trim();
    assert_eq!((pool.usage().reserved_bytes, gpu.held().device_bytes()), (0, 0));
    drop(pool);
    assert_eq!(gpu.held().reservations, 0);
}

/// A page has moved, and its old mapping cannot go: the page is not called given back while the driver still has it.
#[test]
fn memory_is_given_back_when_its_last_mapping_is_gone() {
    let gpu = gpu(RunOrder::Timed, 0);
    let stream = gpu.create_stream(StreamFlags::NON_BLOCKING).unwrap();
    let pool = with_slack(gpu.clone(), 0.0).unwrap();
    let freed = pool.allocate(4 << 20, stream).unwrap();
    let held = pool.allocate(100_000, stream).unwrap();
    pool.deallocate(freed, 4 << 20, stream).unwrap();
    // Too large for the hole, but not for its memory.
    let larger = pool.allocate(6 << 20, stream).unwrap();
    assert_eq!(pool.stats().page_moves, 2);
    pool.deallocate(larger, 6 << 20, stream).unwrap();
    gpu.set_faults(&[Fault::NthOf(Call::Unmap, 0)]);
    for _ in 0..2 {
        pool.trim();
        assert_eq!(pool.usage().reserved_bytes, gpu.held().device_bytes());
    }
    assert_eq!(pool.usage().reserved_bytes, 2 << 20);
    pool.deallocate(held, 100_000, stream).unwrap();
}

#[test]
fn statistics_are_read_and_reset_while_threads_run() {
    let gpu = gpu(RunOrder::Timed, 0);
    let stream = gpu.create_stream(StreamFlags::NON_BLOCKING).unwrap();
    let pool = Pool::with_config(gpu, alone()).unwrap();
    let work = || {
        for round in 0..2_000 {
            let bytes = [700, 90_000, 3 << 20][round % 3];
            let block = pool.allocate(bytes, stream).unwrap();
            pool.deallocate(block, bytes, stream).unwrap();
            if round % 100 == 0 {
                pool.release_all();
            }
        }
    };
    let look = || {
        for round in 0..2_000 {
            let (usage, stats) = (pool.usage(), pool.stats());
            assert!(usage.live_bytes < 1 << 40 && stats.fragmentation_bytes < 1 << 40);
            if round % 2 == 0 {
                pool.reset_stats();
            }
        }
    };
    std::thread::scope(|scope| {
        [scope.spawn(work), scope.spawn(work), scope.spawn(look), scope.spawn(look)]
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    });
    assert_eq!(pool.usage().live_bytes, 0);
}
