//! What slack is spent on, and when memory is mapped once more instead.

use millpond::Resource;
use millpond::driver::{DevicePtr, Stream};
use millpond::pool::{Pool, PoolConfig};
use millpond_sim::SimOptions;

use super::{MIB, alone, assert_no_findings, gpu_with, pool, stream};

fn allocate(pool: &Pool, count: usize, bytes: usize, stream: Stream) -> Vec<DevicePtr> {
    (0..count).map(|_| pool.allocate(bytes, stream).unwrap()).collect()
}

/// Allocates what no hole between the blocks is large enough for; returns the pages that were mapped once more and the bytes that are new.
fn place(pool: &Pool, bytes: usize, stream: Stream) -> (u64, usize) {
    let before = (pool.stats().page_moves, pool.usage().reserved_bytes);
    pool.allocate(bytes, stream).unwrap();
    (pool.stats().page_moves - before.0, pool.usage().reserved_bytes - before.1)
}

/// New memory comes first as long as all of a block is within the slack; after that, memory that nothing uses is mapped once more.
#[test]
fn slack_is_spent_before_memory_is_mapped_again() {
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
    assert_eq!(place(&pool, 14 * MIB, stream), (0, 14 * MIB), "{reserved} bytes are reserved");
    assert_no_findings(&gpu);
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
