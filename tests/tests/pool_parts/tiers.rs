//! Each box of the design's chart: what it does, seen by switching it off.
//!
//! ```text
//!   allocate: too large → driver │ thread cache → global cache → reserve → a batch of new blocks │ statistics │ fragmentation
//!   free:     too large → driver │ thread cache, past a limit half of it → global cache          │ statistics
//!   background: fragmented? → merge → compact → expire            (background.rs)
//!   release all: global cache, reserve, stream caches, statistics
//! ```

use millpond::driver::{DevicePtr, Driver, Stream};
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
