//! Memory that is created before a request wants it.

use millpond::Resource;
use millpond::driver::{Call, Driver};
use millpond::pool::{Pool, PoolConfig};
use millpond_sim::SimGpu;

use super::background::eventually;
use super::{MIB, alone, assert_no_findings, gpu, pool, stream, write};

const BLOCK: usize = 4 * MIB;
/// From here on a thirty-second of what is reserved is more than a block.
const GROWN: usize = 256 * MIB;

fn ahead() -> PoolConfig {
    PoolConfig { grow_ahead: true, ..alone() }
}

/// Grows a pool to so much, block by block. Returns how often the driver was asked for memory in a request.
fn grow(gpu: &SimGpu, pool: &Pool, up_to: usize, between: impl Fn(&Pool)) -> u64 {
    let stream = stream(gpu);
    let mut creates = 0;
    while pool.usage().live_bytes < up_to {
        let before = gpu.calls(Call::Create);
        let block = pool.allocate(BLOCK, stream).unwrap();
        creates += gpu.calls(Call::Create) - before;
        write(gpu, block, BLOCK, stream);
        between(pool);
        pool.assert_valid();
    }
    creates
}

#[test]
fn requests_find_memory_that_was_created_before() {
    let gpu = gpu(0);
    let pool = pool(&gpu, ahead());
    grow(&gpu, &pool, GROWN, |_| ());
    let most = |pool: &Pool| {
        let usage = pool.usage();
        assert!(usage.reserved_bytes as f64 <= 1.08 * usage.live_bytes as f64, "{usage:?}");
    };
    assert!(pool.grow_ahead() > 0);
    assert_eq!(pool.grow_ahead(), 0, "enough of it lies ready");
    let between = |pool: &Pool| {
        pool.grow_ahead();
        most(pool);
    };
    assert_eq!(grow(&gpu, &pool, 2 * GROWN, between), 0, "no request waits for a create");
    assert_eq!(pool.stats().page_moves, 0, "memory that lies ready moves from nowhere");
    assert_no_findings(&gpu);
}

#[test]
fn nothing_is_created_ahead_unless_told_to() {
    let gpu = gpu(0);
    let pool = pool(&gpu, alone());
    let between = |pool: &Pool| assert_eq!(pool.grow_ahead(), 0);
    assert!(grow(&gpu, &pool, GROWN, between) > 0);
    assert_eq!(pool.usage().reserved_bytes, pool.usage().live_bytes);
}

/// Once growth has stopped, what lies ready goes back like anything that nothing uses.
#[test]
fn what_lies_ready_and_is_not_wanted_goes_back() {
    let gpu = gpu(0);
    let pool = pool(&gpu, ahead());
    grow(&gpu, &pool, GROWN, |_| ());
    let created = pool.grow_ahead();
    assert_eq!(pool.usage().reserved_bytes, GROWN + created);
    pool.interval_has_passed();
    assert_eq!(pool.usage().reserved_bytes, GROWN + created, "it may be wanted any moment");
    (0..3).for_each(|_| pool.interval_has_passed());
    assert_eq!(pool.usage().reserved_bytes, GROWN);
    pool.assert_valid();
}

/// What lies ready is not lost to requests: all of the device can be had.
#[test]
fn all_of_the_device_can_be_had() {
    let gpu = gpu(0);
    let capacity = gpu.device().capacity_bytes;
    let pool = pool(&gpu, ahead());
    grow(&gpu, &pool, capacity, |pool| {
        pool.grow_ahead();
    });
    assert_eq!(pool.usage().live_bytes, capacity);
    pool.allocate(BLOCK, stream(&gpu)).unwrap_err();
    assert_eq!(pool.grow_ahead(), 0);
    assert_no_findings(&gpu);
}

/// A driver that has no more says so to the requests that want it, not to what grows ahead.
#[test]
fn a_driver_without_memory_ends_growth_ahead() {
    let gpu = gpu(0);
    let pool = pool(&gpu, ahead());
    grow(&gpu, &pool, GROWN, |_| ());
    let free = gpu.memory_info().unwrap().free_bytes;
    let other = gpu.alloc(free).unwrap();
    assert_eq!(pool.grow_ahead(), 0);
    gpu.free(other).unwrap();
    assert!(pool.grow_ahead() > 0, "growth goes on by itself");
    pool.assert_valid();
}

/// The background does it by itself, beside threads that want the same memory, and none of them runs out while some is on its way.
#[test]
fn the_background_grows_ahead_of_threads() {
    for seed in 0..10 {
        let gpu = gpu(seed);
        let capacity = gpu.device().capacity_bytes;
        let pool = pool(&gpu, PoolConfig { grow_ahead: true, ..PoolConfig::default() });
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let stream = stream(&gpu);
                    for _ in 0..capacity / BLOCK / 4 {
                        pool.allocate(BLOCK, stream).unwrap();
                    }
                });
            }
        });
        assert_eq!(pool.usage().live_bytes, capacity, "seed {seed}");
        pool.assert_valid();
    }
}

#[test]
fn growth_wakes_the_background() {
    let gpu = gpu(0);
    let pool = pool(&gpu, PoolConfig { grow_ahead: true, ..PoolConfig::default() });
    grow(&gpu, &pool, GROWN, |_| ());
    eventually(&gpu, "memory lies ready", || pool.usage().reserved_bytes > GROWN);
}
