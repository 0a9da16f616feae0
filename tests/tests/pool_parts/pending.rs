//! Blocks of 1 to 16 MiB that a thread has freed and that are given back with the next one that it takes: nobody may miss them meanwhile.

use std::thread;

use millpond::driver::Driver;
use millpond::pool::PoolConfig;
use millpond::{FreeError, Resource};

use super::{MIB, alone, assert_no_findings, gpu, pool, stream, write};

/// Memory comes first: nothing is left pending, and whatever were would show.
fn without_slack() -> PoolConfig {
    PoolConfig { slack: 0.0, ..alone() }
}

#[test]
fn neighbours_that_are_pending_merge_before_the_next_block_is_placed() {
    let gpu = gpu(1);
    let (stream, pool) = (stream(&gpu), pool(&gpu, alone()));
    let four: Vec<_> = (0..4).map(|_| pool.allocate(2 * MIB, stream).unwrap()).collect();
    let reserved = pool.usage().reserved_bytes;
    for block in four {
        pool.deallocate(block, 2 * MIB, stream).unwrap();
    }
    let all = pool.allocate(8 * MIB, stream).unwrap();
    assert_eq!(pool.usage().reserved_bytes, reserved);
    assert_eq!(pool.stats().page_moves, 0, "they lay side by side");
    pool.deallocate(all, 8 * MIB, stream).unwrap();
    // Also for a slab.
    let small = pool.allocate(4096, stream).unwrap();
    assert_eq!(pool.usage().reserved_bytes, reserved);
    pool.deallocate(small, 4096, stream).unwrap();
}

#[test]
fn a_pending_block_is_free() {
    let gpu = gpu(2);
    let (stream, pool) = (stream(&gpu), pool(&gpu, alone()));
    let block = pool.allocate(3 * MIB, stream).unwrap();
    for _ in 0..2 {
        // The first block asks for a place, the second finds one.
        let other = pool.allocate(3 * MIB, stream).unwrap();
        pool.deallocate(other, 3 * MIB, stream).unwrap();
        let again = pool.deallocate(other, 3 * MIB, stream);
        assert!(matches!(again, Err(FreeError::AlreadyFree { .. })), "{again:?}");
    }
    assert_eq!(pool.usage().live_bytes, 3 * MIB);
    pool.deallocate(block, 3 * MIB, stream).unwrap();
    assert_eq!((pool.usage().live_bytes, pool.stats().free_count), (0, 3));
    pool.trim();
    assert_eq!(pool.usage().reserved_bytes, 0);
}

#[test]
fn without_slack_other_streams_and_threads_find_what_was_freed() {
    let gpu = gpu(3);
    let (one, other, pool) = (stream(&gpu), stream(&gpu), pool(&gpu, without_slack()));
    let take_and_free = |stream| {
        let block = pool.allocate(10 * MIB, stream).unwrap();
        write(&gpu, block, 10 * MIB, stream);
        pool.deallocate(block, 10 * MIB, stream).unwrap();
        pool.usage().reserved_bytes
    };
    let reserved = take_and_free(one);
    thread::scope(|threads| {
        let in_thread = threads.spawn(|| take_and_free(one));
        assert_eq!(in_thread.join().unwrap(), reserved);
    });
    assert_eq!(take_and_free(one), reserved);
    assert_eq!(take_and_free(other), reserved);
    assert_eq!(take_and_free(other), reserved);
    assert_eq!(take_and_free(one), reserved);
    assert_no_findings(&gpu);
}

#[test]
fn what_an_idle_thread_left_pending_expires() {
    let gpu = gpu(4);
    let (stream, pool) = (stream(&gpu), pool(&gpu, alone()));
    // A block that stays, so that too little is free for caches to be emptied.
    let stays = pool.allocate(64 * MIB, stream).unwrap();
    for _ in 0..2 {
        let block = pool.allocate(8 * MIB, stream).unwrap();
        pool.deallocate(block, 8 * MIB, stream).unwrap();
    }
    gpu.synchronize_device().unwrap();
    (0..8).for_each(|_| pool.interval_has_passed());
    assert_eq!(pool.usage().reserved_bytes, 64 * MIB);
    pool.deallocate(stays, 64 * MIB, stream).unwrap();
}
