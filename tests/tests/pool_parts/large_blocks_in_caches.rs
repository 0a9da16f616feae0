//! How many blocks of their own, above the largest class of slabs and up to 1 MiB, a thread's cache keeps, to the block.
//!
//! ```text
//!   a shelf (blocks of one size)  at most thread_cache_max_blocks
//!   all shelves together          at most ¾ of thread_cache_max_bytes; the rest is for blocks of slabs, and if those
//!                                 have been granted some, less by that
//!   a miss                        fetches the one block that was asked for, no batch, from behind the global cache
//! ```
//!
//! The global cache, which serves such blocks in batches, is switched off here: `tiers` has it.

use millpond::Resource;
use millpond::driver::Stream;
use millpond::pool::{Pool, PoolConfig};

use super::{MIB, gpu, pool, stream};

const LARGEST_OF_SLABS_BYTES: usize = 32 << 10;

/// Without the global cache, and the background.
fn alone() -> PoolConfig {
    PoolConfig { global_cache_max_blocks: 0, ..super::alone() }
}

/// Frees some blocks of these sizes, in this order, and allocates as many again. Returns how many of each size the cache had kept.
fn kept(pool: &Pool, stream: Stream, sizes: &[(usize, usize)]) -> Vec<u64> {
    let take = |(bytes, count): (usize, usize)| -> Vec<_> {
        (0..count).map(|_| pool.allocate(bytes, stream).unwrap()).collect()
    };
    let free = |blocks: Vec<_>, bytes| {
        blocks.into_iter().for_each(|block| pool.deallocate(block, bytes, stream).unwrap());
    };
    let hits_of = |size: (usize, usize)| {
        let before = pool.stats().cache_hits;
        let blocks = take(size);
        (pool.stats().cache_hits - before, blocks)
    };
    let mut blocks = Vec::new();
    for size in sizes {
        let (hits, taken) = hits_of(*size);
        assert!(size.0 <= LARGEST_OF_SLABS_BYTES || hits == 0, "a miss fetched a batch");
        blocks.push(taken);
    }
    for (blocks, (bytes, _)) in blocks.into_iter().zip(sizes) {
        free(blocks, *bytes);
    }
    let mut hits = Vec::new();
    let mut all = Vec::new();
    for size in sizes {
        let (hit, taken) = hits_of(*size);
        hits.push(hit);
        all.push((taken, size.0));
    }
    all.into_iter().for_each(|(blocks, bytes)| free(blocks, bytes));
    pool.trim();
    hits
}

#[test]
fn a_cache_keeps_as_many_large_blocks_as_its_bounds_say() {
    let gpu = gpu(0);
    let stream = stream(&gpu);
    let pool = pool(&gpu, alone());
    let of = |bytes, count| kept(&pool, stream, &[(bytes, count)])[0];
    // By blocks: 64 of a shelf.
    assert_eq!(of(LARGEST_OF_SLABS_BYTES + 1, 100), 64);
    assert_eq!(of(100_000, 100), 64);
    assert_eq!(of(MIB / 2, 100), 64);
    // By bytes: three quarters of 64 MiB.
    assert_eq!(of(MIB, 100), 48);
    assert_eq!(of(768 << 10, 100), 64);
    // Sizes are eight to a doubling: this one is 832 KiB.
    assert_eq!(of(769 << 10, 100), 59);
    // Beyond what a cache keeps.
    assert_eq!(of(MIB + 1, 20), 0);
    // Several shelves have the bytes together: 64 × 512 KiB leave room for 51 of 300 KiB, which are 320.
    assert_eq!(kept(&pool, stream, &[(512 << 10, 100), (300 << 10, 100)]), [64, 51]);
    assert_eq!(kept(&pool, stream, &[(300 << 10, 100), (MIB, 100)]), [64, 28]);
}

#[test]
fn the_bounds_follow_the_settings() {
    let gpu = gpu(0);
    let stream = stream(&gpu);
    for (most_blocks, most_mib, of_100_kb, of_1_mib) in
        [(20, 64, 20, 20), (64, 8, 59, 6), (64, 4, 29, 3)]
    {
        let config = PoolConfig {
            thread_cache_max_blocks: most_blocks,
            thread_cache_max_bytes: most_mib * MIB,
            ..alone()
        };
        let pool = pool(&gpu, config);
        let of = |bytes| kept(&pool, stream, &[(bytes, 100)])[0];
        assert_eq!(
            (of(100 << 10), of(MIB)),
            (of_100_kb, of_1_mib),
            "{most_blocks} blocks, {most_mib} MiB"
        );
    }
}

/// What blocks of slabs were granted is taken from the three quarters.
#[test]
fn blocks_of_slabs_leave_less_for_large_ones() {
    let gpu = gpu(0);
    let stream = stream(&gpu);
    let pool = pool(&gpu, alone());
    // 64 slots of 32 KiB are 2 MiB.
    assert_eq!(kept(&pool, stream, &[(LARGEST_OF_SLABS_BYTES, 64), (MIB, 100)]), [64, 46]);
}
