//! What slack is spent on, and when pages move instead.

use millpond::Resource;
use millpond::driver::{DevicePtr, Stream};
use millpond::pool::{Pool, PoolConfig};
use millpond_sim::SimOptions;

use super::{MIB, alone, assert_no_findings, gpu_with, pool, stream};

fn allocate(pool: &Pool, count: usize, bytes: usize, stream: Stream) -> Vec<DevicePtr> {
    (0..count).map(|_| pool.allocate(bytes, stream).unwrap()).collect()
}

/// Allocates what no hole between the blocks is large enough for; returns the pages that moved and the bytes that are new.
fn place(pool: &Pool, bytes: usize, stream: Stream) -> (u64, usize) {
    let before = (pool.stats().page_moves, pool.usage().reserved_bytes);
    pool.allocate(bytes, stream).unwrap();
    (pool.stats().page_moves - before.0, pool.usage().reserved_bytes - before.1)
}

/// Slack that turned out too little is not spent on other places either, until there is another slack.
#[test]
fn slack_that_was_too_little_is_no_longer_spent() {
    let gpu = gpu_with(SimOptions::default());
    let stream = stream(&gpu);
    let pool = pool(&gpu, PoolConfig { slack: 0.15, ..alone() });
    let free_half = |blocks: Vec<DevicePtr>| {
        for block in blocks.into_iter().step_by(2) {
            pool.deallocate(block, 4 * MIB, stream).unwrap();
        }
    };
    free_half(allocate(&pool, 40, 4 * MIB, stream));
    assert_eq!(place(&pool, 14 * MIB, stream), (0, 14 * MIB), "174 of 184 MiB");
    assert_eq!(place(&pool, 14 * MIB, stream), (7, 0), "188 MiB would be too much");
    // More is live, and the slack of that is larger than what is not.
    free_half(allocate(&pool, 100, 4 * MIB, stream));
    let reserved = pool.usage().reserved_bytes;
    assert_eq!(place(&pool, 14 * MIB, stream), (7, 0), "{reserved} bytes are reserved");
    pool.set_config(PoolConfig { slack: 0.2, ..pool.config() }).unwrap();
    assert_eq!(place(&pool, 14 * MIB, stream), (0, 14 * MIB), "{reserved} bytes are reserved");
    assert_no_findings(&gpu);
}

/// A request for which new memory is needed anyway takes what is spare first, but in the beginning.
#[test]
fn a_peak_after_the_beginning_takes_what_is_spare_first() {
    let at_the_peak = |rounds_before: usize| {
        let gpu = gpu_with(SimOptions::default());
        let stream = stream(&gpu);
        let pool = pool(&gpu, PoolConfig { slack: 0.15, ..alone() });
        for _ in 0..rounds_before {
            for block in allocate(&pool, 10, 20 * MIB, stream) {
                pool.deallocate(block, 20 * MIB, stream).unwrap();
            }
        }
        let blocks = allocate(&pool, 10, 20 * MIB, stream);
        pool.deallocate(blocks[4], 20 * MIB, stream).unwrap();
        let placed = place(&pool, 30 * MIB, stream);
        assert_no_findings(&gpu);
        placed
    };
    assert_eq!(at_the_peak(0), (0, 30 * MIB));
    assert_eq!(at_the_peak(1), (0, 30 * MIB), "as much was freed as is reserved, but only once");
    assert_eq!(at_the_peak(2), (10, 10 * MIB));
}

/// A request that fails was never live: it does not widen what may be reserved.
#[test]
fn a_request_that_fails_leaves_the_slack_as_it_was() {
    let gpu = gpu_with(SimOptions::default());
    let stream = stream(&gpu);
    let pool = pool(&gpu, PoolConfig { slack: 0.15, ..alone() });
    let blocks = allocate(&pool, 20, 4 * MIB, stream);
    pool.allocate(1024 * MIB, stream).unwrap_err();
    pool.trim();
    assert_eq!(pool.usage().reserved_bytes, 80 * MIB);
    for block in blocks.into_iter().step_by(2) {
        pool.deallocate(block, 4 * MIB, stream).unwrap();
    }
    assert_eq!(place(&pool, 14 * MIB, stream), (7, 0), "94 MiB are more than 92");
    assert_no_findings(&gpu);
}
