//! Each box of the design's chart: what it does, seen by switching it off.
//!
//! ```text
//!   allocate: too large → driver │ thread cache → global cache → reserve → a batch of new blocks │ statistics │ fragmentation
//!   free:     too large → driver │ thread cache, past a limit half of it → global cache          │ statistics
//!   background: fragmented? → merge → compact → expire            (background.rs)
//!   release all: global cache, reserve, stream caches, statistics
//! ```

use millpond::driver::{CaptureMode, DevicePtr, Driver, Stream};
use millpond::pool::{Pool, PoolConfig, PoolStats};
use millpond::{FreeError, Resource};

use super::{MIB, alone, gpu, pool, stream};

/// Allocates and frees blocks of one size, in rounds.
fn churn(config: PoolConfig, bytes: usize, blocks: usize, prepare: impl Fn(&Pool)) -> PoolStats {
    let gpu = gpu(0);
    let stream = stream(&gpu);
    let pool = pool(&gpu, config);
    prepare(&pool);
    for _ in 0..3 {
        let live: Vec<_> = (0..blocks).map(|_| pool.allocate(bytes, stream).unwrap()).collect();
        for block in live {
            pool.deallocate(block, bytes, stream).unwrap();
        }
    }
    pool.stats()
}

fn nothing(_: &Pool) {}

#[test]
fn thread_cache() {
    let none = PoolConfig { thread_cache_max_blocks: 0, batch_alloc_count: 1, ..alone() };
    // Of a slab, where a batch serves even the first round; and blocks of their own.
    for (bytes, hits) in [(1000, 140), (100_000, 100)] {
        let on = churn(alone(), bytes, 50, nothing);
        let off = churn(none.clone(), bytes, 50, nothing);
        assert!(on.cache_hits >= hits && off.cache_hits == 0, "{on}\n\n{off}");
    }
}

/// Blocks that another thread has freed are their owner's next ones.
#[test]
fn what_others_free_comes_home() {
    let gpu = gpu(0);
    let stream = stream(&gpu);
    let pool = pool(&gpu, alone());
    for bytes in [32 << 10, 100_000] {
        let take = || (0..48).map(|_| pool.allocate(bytes, stream).unwrap());
        let mut blocks: Vec<_> = take().collect();
        let free = |block: &DevicePtr| pool.deallocate(*block, bytes, stream).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| blocks.iter().for_each(free)).join().unwrap();
        });
        let mut again: Vec<_> = take().collect();
        blocks.sort_unstable();
        again.sort_unstable();
        assert_eq!(again, blocks, "{bytes} bytes");
    }
}

#[test]
fn global_cache() {
    let on = churn(alone(), 1000, 300, nothing);
    let off = churn(PoolConfig { global_cache_max_blocks: 0, ..alone() }, 1000, 300, nothing);
    assert!(on.global_hits > 0 && off.global_hits == 0, "{on}\n\n{off}");
    assert!(off.reuse_hits + off.device_allocations > on.reuse_hits + on.device_allocations);
}

/// The global cache serves blocks of up to 1 MiB, in batches, and gives them up before the pool grows.
#[test]
fn blocks_of_up_to_1_mib_go_by_the_global_cache() {
    for bytes in [40_000, 300_000, MIB] {
        let gpu = gpu(0);
        let stream = stream(&gpu);
        let config =
            PoolConfig { thread_cache_max_blocks: 16, batch_alloc_count: 8, slack: 0.0, ..alone() };
        let pool = pool(&gpu, config.clone());
        let blocks: Vec<_> = (0..32).map(|_| pool.allocate(bytes, stream).unwrap()).collect();
        for block in &blocks[..24] {
            pool.deallocate(*block, bytes, stream).unwrap();
        }
        pool.reset_stats();
        let take = || (0..8).map(|_| pool.allocate(bytes, stream).unwrap()).collect::<Vec<_>>();
        let mut elsewhere = std::thread::scope(|scope| scope.spawn(take).join().unwrap());
        let stats = pool.stats();
        assert_eq!((stats.global_hits, stats.cache_misses, stats.cache_hits), (1, 1, 7), "{stats}");
        elsewhere.sort_unstable();
        let mut older = blocks[..8].to_vec();
        older.sort_unstable();
        assert_eq!(elsewhere, older, "the older half of the full cache");
        // The other thread has ended; its blocks and the rest are there for something larger.
        for block in elsewhere.iter().chain(&blocks[24..]) {
            pool.deallocate(*block, bytes, stream).unwrap();
        }
        pool.assert_valid();
        let reserved = pool.usage().reserved_bytes;
        let whole = pool.allocate(31 * bytes, stream).unwrap();
        assert_eq!(pool.usage().reserved_bytes, reserved, "nothing new was needed");
        pool.deallocate(whole, 31 * bytes, stream).unwrap();
        // Within bounds, and not at all.
        for (most, hits) in [(2, true), (0, false)] {
            let config = PoolConfig { global_cache_max_blocks: most, ..config.clone() };
            let stats = churn(config, bytes, 40, nothing);
            assert_eq!(stats.global_hits > 0, hits, "{stats}");
        }
        pool.trim();
        assert_eq!((pool.usage().live_bytes, pool.usage().reserved_bytes), (0, 0));
    }
}

#[test]
fn reserve() {
    for bytes in [1000, 5 * MIB] {
        let on = churn(alone(), bytes, 20, |pool| pool.preallocate(bytes, 20).unwrap());
        let off = churn(alone(), bytes, 20, nothing);
        assert!(on.reserve_hits > 0 && off.reserve_hits == 0, "{on}\n\n{off}");
    }
    // Blocks set aside serve without a call to the driver for memory.
    let gpu = gpu(0);
    let stream = stream(&gpu);
    let pool = pool(&gpu, alone());
    pool.preallocate(5 * MIB, 4).unwrap();
    pool.preallocate(4096, 20).unwrap();
    pool.reset_stats();
    for _ in 0..4 {
        pool.allocate(5 * MIB, stream).unwrap();
    }
    for _ in 0..20 {
        pool.allocate(4096, stream).unwrap();
    }
    assert_eq!(pool.stats().device_allocations, 0, "{}", pool.stats());
    // More than there is: nothing is set aside.
    let before = pool.usage();
    let error = pool.preallocate(20 * MIB, 100).unwrap_err();
    assert!(error.is_out_of_memory(), "{error}");
    pool.trim();
    pool.assert_valid();
    assert!(pool.usage().reserved_bytes <= before.reserved_bytes);
}

/// What was set aside comes before the blocks that slabs have left.
#[test]
fn the_reserve_comes_before_slabs() {
    let gpu = gpu(0);
    let stream = stream(&gpu);
    let pool = pool(&gpu, PoolConfig { batch_alloc_count: 1, ..alone() });
    pool.allocate(4096, stream).unwrap();
    pool.preallocate(4096, 3).unwrap();
    let served = |pool: &Pool| (pool.stats().reserve_hits, pool.stats().reuse_hits);
    let (_, from_slabs) = served(&pool);
    for served_before in 1..=3 {
        pool.allocate(4096, stream).unwrap();
        assert_eq!(served(&pool), (served_before, from_slabs));
    }
    pool.allocate(4096, stream).unwrap();
    assert_eq!(served(&pool), (3, from_slabs + 1), "the slab of the first has blocks left");
}

/// A smaller thread cache takes smaller batches.
#[test]
fn a_batch_is_lowered_to_the_cache_that_it_goes_into() {
    let gpu = gpu(0);
    let stream = stream(&gpu);
    let pool = pool(&gpu, alone());
    for (most, batch) in [(128, 16), (8, 8), (64, 8), (0, 8)] {
        let config = PoolConfig { thread_cache_max_blocks: most, ..pool.config() };
        pool.set_config(config).unwrap();
        let config = pool.config();
        assert_eq!((config.thread_cache_max_blocks, config.batch_alloc_count), (most, batch));
        pool.allocate(1000, stream).unwrap();
    }
}

#[test]
fn batches_of_new_blocks() {
    let on = churn(alone(), 1000, 60, nothing);
    let off = churn(PoolConfig { batch_alloc_count: 1, ..alone() }, 1000, 60, nothing);
    assert!(on.cache_misses < off.cache_misses, "{on}\n\n{off}");
}

/// One block too many, and the older half is there for other threads at once.
#[test]
fn half_of_a_full_cache_goes_on_to_the_global_cache() {
    let gpu = gpu(0);
    let stream = stream(&gpu);
    let pool =
        pool(&gpu, PoolConfig { thread_cache_max_blocks: 16, batch_alloc_count: 8, ..alone() });
    // Three batches: what was fetched is taken to the last block.
    let blocks: Vec<_> = (0..24).map(|_| pool.allocate(1000, stream).unwrap()).collect();
    let taken_elsewhere = || {
        let take = || (0..8).map(|_| pool.allocate(1000, stream).unwrap()).collect::<Vec<_>>();
        let mut taken = std::thread::scope(|scope| scope.spawn(take).join().unwrap());
        taken.sort_unstable();
        taken
    };
    for block in &blocks[..16] {
        pool.deallocate(*block, 1000, stream).unwrap();
    }
    let others = taken_elsewhere();
    assert!(others.iter().all(|block| !blocks.contains(block)), "a full cache keeps its blocks");
    pool.deallocate(blocks[16], 1000, stream).unwrap();
    let mut older = blocks[..8].to_vec();
    older.sort_unstable();
    assert_eq!(taken_elsewhere(), older);
}

#[test]
fn too_large_for_the_pool() {
    let direct = |above| {
        let gpu = gpu(0);
        let stream = stream(&gpu);
        let pool = pool(&gpu, PoolConfig { direct_above_bytes: above, ..alone() });
        let block = pool.allocate(3 * MIB, stream).unwrap();
        let small = pool.allocate(MIB, stream).unwrap();
        let plain = gpu.held().plain_bytes;
        assert_eq!(pool.usage().reserved_bytes, gpu.held().device_bytes());
        let wrong = pool.deallocate(block, 2 * MIB, stream);
        assert!(matches!(wrong, Err(FreeError::WrongSize { .. })), "{wrong:?}");
        let inside = pool.deallocate_unsized(block.offset(5), stream);
        assert!(matches!(inside, Err(FreeError::Interior { .. })), "{inside:?}");
        pool.deallocate(block, 3 * MIB, stream).unwrap();
        pool.deallocate(block, 3 * MIB, stream).unwrap_err();
        pool.deallocate(small, MIB, stream).unwrap();
        assert_eq!((pool.usage().live_bytes, gpu.held().plain_bytes), (0, 0));
        plain
    };
    assert!(direct(Some(MIB)) >= 3 * MIB);
    assert_eq!(direct(None), 0);
}

#[test]
fn statistics() {
    let on = churn(alone(), 1000, 10, nothing);
    assert_eq!((on.allocation_count, on.free_count, on.total_allocated), (30, 30, 30_000));
    assert_eq!((on.current_usage, on.peak_usage, on.total_freed), (0, 10_000, 30_000));
    let off = churn(PoolConfig { enable_stats: false, ..alone() }, 1000, 10, nothing);
    assert_eq!((off.allocation_count, off.cache_hits, off.total_allocated), (0, 0, 0), "{off}");
}

/// What is printed: the rate that the threshold is compared with, allocations by time, and the hit rate of every tier.
#[test]
fn statistics_as_text() {
    let stats = PoolStats {
        fragmentation_rate: 0.25,
        seconds: 2.0,
        allocation_count: 200,
        cache_hits: 100,
        cache_misses: 100,
        global_hits: 60,
        reserve_hits: 10,
        reuse_hits: 20,
        device_allocations: 10,
        ..PoolStats::default()
    };
    let text = stats.to_string();
    for (what, figure) in [
        ("fragmentation", "25.0 %"),
        ("allocations", "100 per second"),
        ("thread cache", "100 hits, 50.0 %"),
        ("global cache", "60 hits, 60.0 %"),
        ("reserve", "10 hits, 25.0 %"),
        ("reuse", "20 hits, 66.7 %"),
        ("device", "10, 5.0 %"),
    ] {
        let line = text.lines().find(|line| line.starts_with(&format!("{what} "))).unwrap();
        assert!(line.contains(figure), "{line}");
    }
    // As the background sees it.
    let gpu = gpu(0);
    let stream = stream(&gpu);
    let pool = pool(&gpu, alone());
    pool.allocate(3 * MIB, stream).unwrap();
    let stats = pool.stats();
    let rate = stats.fragmentation_bytes as f64 / stats.reserved_bytes as f64;
    assert!((stats.fragmentation_rate - rate).abs() < 1e-9 && rate > 0.0, "{stats}");
    assert!(stats.seconds > 0.0 && stats.allocations_per_second() > 0.0, "{stats}");
}

/// What is live is known with the statistics off, too, and they may be switched while blocks are held.
#[test]
fn live_bytes_are_right_whether_or_not_statistics_are_kept() {
    let gpu = gpu(0);
    let stream = stream(&gpu);
    let pool = pool(&gpu, alone());
    let sizes = [100, 1000, 40_000, 3 * MIB];
    let sum: usize = sizes.iter().sum();
    let mut live = Vec::new();
    for round in 0..6 {
        pool.set_config(PoolConfig { enable_stats: round % 2 == 0, ..alone() }).unwrap();
        live.extend(sizes.map(|bytes| (pool.allocate(bytes, stream).unwrap(), bytes)));
        assert_eq!(pool.usage().live_bytes, sum * live.len() / 4, "round {round}");
        if round % 2 == 1 {
            for (block, bytes) in live.drain(..4) {
                pool.deallocate(block, bytes, stream).unwrap();
            }
        }
        let left: usize = live.iter().map(|(_, bytes)| bytes).sum();
        assert_eq!((pool.usage().live_bytes, pool.usage().live_blocks), (left, live.len()));
    }
}

#[test]
fn release_all_takes_every_tier() {
    let gpu = gpu(0);
    let stream = stream(&gpu);
    let pool = pool(&gpu, alone());
    let held = pool.allocate(1000, stream).unwrap();
    pool.preallocate(5 * MIB, 3).unwrap();
    let blocks: Vec<_> = (0..300).map(|_| pool.allocate(20_000, stream).unwrap()).collect();
    for block in blocks {
        pool.deallocate(block, 20_000, stream).unwrap();
    }
    assert!(pool.release_all() >= 15 * MIB);
    assert!(pool.usage().reserved_bytes <= 2 * MIB, "a page for the block that is held");
    assert_eq!(pool.stats().allocation_count, 0);
    pool.deallocate(held, 1000, stream).unwrap();
    pool.release_all();
    assert_eq!(pool.usage().reserved_bytes, 0);
}

/// One pool for the whole process, made by whoever asks first, and as many others as are wanted.
#[test]
fn the_process_has_one_pool_that_all_share() {
    let make = || Pool::new(gpu(0));
    let failing = || Err("no device");
    assert_eq!(Pool::instance(failing).err(), Some("no device"));
    let first = Pool::instance(make).unwrap();
    let second = Pool::instance(|| -> Result<Pool, &str> { panic!("it is there") }).unwrap();
    let stream = first.driver().create_stream(millpond::driver::StreamFlags::NON_BLOCKING).unwrap();
    let block = first.allocate(1000, stream).unwrap();
    second.deallocate(block, 1000, stream).unwrap();
    let other = make().unwrap();
    assert_ne!(other.usage().driver_calls, first.usage().driver_calls);
}

/// What is set aside has served nobody yet.
#[test]
fn preallocating_is_nobodys_request() {
    let gpu = gpu(0);
    let pool = pool(&gpu, alone());
    pool.preallocate(4096, 20).unwrap();
    pool.preallocate(5 * MIB, 4).unwrap();
    let stats = pool.stats();
    assert!(stats.pages_created > 0, "{stats}");
    assert_eq!(
        (stats.reuse_hits, stats.device_allocations, stats.reserve_hits),
        (0, 0, 0),
        "{stats}"
    );
}

/// A thread that uses two pools in turn, on a stream with the same handle, as programs with several devices do on the default stream.
#[test]
fn two_pools_are_remembered_at_once() {
    let gpu = gpu(0);
    let pools = [pool(&gpu, alone()), pool(&gpu, alone())];
    let replace_all = || {
        for pool in &pools {
            let ptr = pool.allocate(4096, Stream::LEGACY).unwrap();
            pool.deallocate(ptr, 4096, Stream::LEGACY).unwrap();
        }
    };
    replace_all();
    replace_all();
    let calls = || pools.each_ref().map(|pool| pool.usage().driver_calls);
    let before = calls();
    (0..10).for_each(|_| replace_all());
    assert_eq!(calls(), before, "nothing has to be asked about a stream that is known");
}

fn assert_tiers_add_up(stats: &PoolStats) {
    let tiers =
        stats.global_hits + stats.reserve_hits + stats.reuse_hits + stats.device_allocations;
    assert_eq!(tiers, stats.cache_misses, "{stats}");
    assert_eq!(stats.cache_hits + stats.cache_misses, stats.allocation_count, "{stats}");
}

/// Every allocation is one tier's: the thread cache's, or that of the one behind it that served it.
#[test]
fn tiers_add_up_to_the_misses() {
    let gpu = gpu(0);
    let stream = stream(&gpu);
    let pool = pool(&gpu, alone());
    pool.preallocate(4096, 20).unwrap();
    for _ in 0..400 {
        pool.allocate(4096, stream).unwrap();
    }
    let stats = pool.stats();
    assert_tiers_add_up(&stats);
    assert!(stats.reserve_hits > 0, "{stats}");
}

/// A request that fails was served by no tier, and one that is tried again by one.
#[test]
fn requests_that_fail_are_no_tiers() {
    let gpu = gpu(0);
    let stream = stream(&gpu);
    let pool = pool(&gpu, alone());
    for bytes in [1000, 100_000, 5 * MIB] {
        pool.allocate(2048 * MIB, stream).unwrap_err();
        pool.allocate_now(bytes, stream).ok();
        pool.allocate(bytes, stream).unwrap();
        pool.allocate_now(bytes, stream).ok();
        assert_tiers_add_up(&pool.stats());
    }
}

/// Whatever is done, with several threads and streams, with blocks of the driver's own, with work that is captured, and short of memory.
#[test]
fn tiers_add_up_whatever_is_done() {
    for seed in 0..24 {
        let gpu = gpu(seed);
        let streams = [stream(&gpu), stream(&gpu), stream(&gpu)];
        let config = PoolConfig {
            slack: [0.0, 0.1][seed as usize % 2],
            thread_cache_max_blocks: [0, 16, 64][seed as usize % 3],
            global_cache_max_blocks: [0, 8, 1024][seed as usize / 3 % 3],
            direct_above_bytes: [None, Some(20 * MIB)][seed as usize % 2],
            ..alone()
        };
        let pool = pool(&gpu, config);
        pool.preallocate(4096, 30).unwrap();
        pool.preallocate(200_000, 5).unwrap();
        let program = |seed: u64| {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut live = Vec::new();
            for _ in 0..400 {
                let stream = *rng.choice(&streams).unwrap();
                let power = rng.u32(0..27);
                let bytes = match rng.u32(0..4) {
                    0 => 4096,
                    1 => 200_000,
                    _ => rng.usize(1..=1 << power),
                };
                match rng.u32(0..20) {
                    0 => pool.trim_cache(),
                    1..11 => live.extend(pool.allocate(bytes, stream).ok().map(|ptr| (ptr, bytes))),
                    11 => {
                        live.extend(pool.allocate_now(bytes, stream).ok().map(|ptr| (ptr, bytes)));
                    }
                    _ if !live.is_empty() => {
                        let (ptr, bytes) = live.swap_remove(rng.usize(0..live.len()));
                        pool.deallocate(ptr, bytes, stream).unwrap();
                    }
                    _ => {}
                }
            }
            live
        };
        let live = std::thread::scope(|scope| {
            let other = scope.spawn(|| program(seed + 1000));
            let mut live = program(seed);
            live.extend(other.join().unwrap());
            live
        });
        assert_tiers_add_up(&pool.stats());
        // What the other thread has allocated comes home by its inbox, or goes.
        for (ptr, bytes) in live {
            pool.deallocate(ptr, bytes, streams[0]).unwrap();
        }
        gpu.begin_capture(streams[1], CaptureMode::Global).unwrap();
        for bytes in [1000, 200_000, 3 * MIB] {
            let ptr = pool.allocate(bytes, streams[1]).unwrap();
            pool.deallocate(ptr, bytes, streams[1]).unwrap();
            pool.allocate(bytes, streams[0]).unwrap();
        }
        gpu.end_capture(streams[1]).unwrap();
        assert_tiers_add_up(&pool.stats());
        pool.reset_stats();
        pool.allocate(4096, streams[0]).unwrap();
        assert_tiers_add_up(&pool.stats());
    }
}

/// The pool does the same whether or not it counts: what it knows of itself without statistics is no less.
#[test]
fn statistics_change_nothing_else() {
    let program = |enable_stats: [bool; 2]| {
        let gpu = gpu(0);
        let stream = stream(&gpu);
        let pool = pool(&gpu, PoolConfig { enable_stats: enable_stats[0], ..alone() });
        let mut rng = fastrand::Rng::with_seed(1);
        let mut live = Vec::new();
        // Relative to the first: where a device's addresses begin is another matter.
        let (mut first, mut addresses) = (None::<DevicePtr>, Vec::new());
        for step in 0..20_000 {
            if step == 5_000 {
                pool.set_config(PoolConfig { enable_stats: enable_stats[1], ..alone() }).unwrap();
            }
            if live.len() == 64 {
                let (ptr, bytes) = live.swap_remove(rng.usize(0..64));
                pool.deallocate(ptr, bytes, stream).unwrap();
            }
            let bytes = rng.usize(256..MIB);
            let ptr = pool.allocate(bytes, stream).unwrap();
            live.push((ptr, bytes));
            addresses.push(ptr.0.wrapping_sub(first.get_or_insert(ptr).0));
        }
        addresses
    };
    let kept = program([true, true]);
    assert!(program([false, false]) == kept, "never kept");
    assert!(program([true, false]) == kept, "switched off");
    assert!(program([false, true]) == kept, "switched on");
}
