//! How long memory is kept that nobody needs, interval by interval, without a clock.

use std::time::Duration;

use millpond::Resource;
use millpond::driver::{Driver, Stream};
use millpond::pool::{Pool, PoolConfig, RegionOptions};
use millpond_sim::{SimGpu, SimOptions};

use super::{MIB, alone, assert_no_findings, gpu_with, pool, stream, write};

/// Intervals after which everything is given back at the latest.
const ENOUGH: usize = 1_000;

/// Needs memory once more, and returns after how many intervals it was given back.
fn intervals_kept(gpu: &SimGpu, pool: &Pool, stream: Stream) -> usize {
    let block = pool.allocate(20 * MIB, stream).unwrap();
    write(gpu, block, 20 * MIB, stream);
    pool.deallocate(block, 20 * MIB, stream).unwrap();
    gpu.synchronize_device().unwrap();
    let passes = |_: &usize| {
        pool.interval_has_passed();
        pool.usage().reserved_bytes == 0
    };
    (1..ENOUGH).find(passes).unwrap_or_else(|| panic!("never given back: {}", pool.stats()))
}

/// Memory that had to be fetched again was given back too early: it is kept longer the next time. After a quiet while it is
/// given back as early as in the beginning.
#[test]
fn what_was_missed_is_kept_longer() {
    let gpu = gpu_with(SimOptions::default());
    let stream = stream(&gpu);
    let pool = pool(&gpu, alone());
    let kept: Vec<usize> = (0..4).map(|_| intervals_kept(&gpu, &pool, stream)).collect();
    assert_eq!(kept, [2, 3, 5, 9], "one interval more than it is patient for: 1, 2, 4, 8");
    for _ in 0..ENOUGH {
        pool.interval_has_passed();
    }
    assert_eq!(intervals_kept(&gpu, &pool, stream), 2);
    assert_no_findings(&gpu);
}

/// What was live at most, long ago, is no reason to reserve more than the slack beyond what is live now.
#[test]
fn an_old_peak_is_forgotten() {
    let after_a_peak = |forgets: bool| {
        let gpu = gpu_with(SimOptions::default());
        let stream = stream(&gpu);
        let pool = pool(&gpu, PoolConfig { slack: 0.15, ..alone() });
        let blocks: Vec<_> = (0..20).map(|_| pool.allocate(20 * MIB, stream).unwrap()).collect();
        for block in blocks {
            pool.deallocate(block, 20 * MIB, stream).unwrap();
        }
        match forgets {
            true => (0..ENOUGH).for_each(|_| pool.interval_has_passed()),
            false => drop(pool.trim()),
        }
        assert_eq!(pool.usage().reserved_bytes, 0);
        let blocks: Vec<_> = (0..8).map(|_| pool.allocate(4 * MIB, stream).unwrap()).collect();
        for block in blocks.iter().step_by(2) {
            pool.deallocate(*block, 4 * MIB, stream).unwrap();
        }
        // Too large for any of the holes, not for the memory in them.
        pool.allocate(14 * MIB, stream).unwrap();
        (pool.stats().page_moves, pool.usage().reserved_bytes)
    };
    let (moves, reserved) = after_a_peak(true);
    assert!(moves > 0 && reserved <= 34 * MIB, "{moves} moves, {reserved} bytes");
    let (moves, reserved) = after_a_peak(false);
    assert!(moves == 0 && reserved >= 44 * MIB, "{moves} moves, {reserved} bytes");
}

/// Regions are looked after with their pool: they keep what is dedicated, and one that was given up goes when its work is done.
#[test]
fn regions_give_back_what_they_do_not_need() {
    let gpu = gpu_with(SimOptions::default());
    let stream = stream(&gpu);
    let pool = pool(&gpu, alone());
    let dedicated = RegionOptions { dedicated_bytes: 6 * MIB, ..RegionOptions::default() };
    let (kept, given_up) = (pool.region(&dedicated).unwrap(), pool.region(&dedicated).unwrap());
    let addresses = gpu.held().reservations;
    for region in [&kept, &given_up] {
        let block = region.allocate(30 * MIB, stream).unwrap();
        write(&gpu, block, 30 * MIB, stream);
        region.deallocate(block, 30 * MIB, stream).unwrap();
    }
    drop(given_up);
    assert_eq!(gpu.held().reservations, addresses, "work still uses its memory");
    gpu.synchronize_device().unwrap();
    (0..10).for_each(|_| pool.interval_has_passed());
    assert_eq!(gpu.held().reservations, addresses - 1);
    assert_eq!(pool.usage().reserved_bytes, kept.usage().reserved_bytes);
    assert_eq!(kept.usage().reserved_bytes, 6 * MIB);
    assert_no_findings(&gpu);
}

/// With a threshold, memory goes back with the frees of large blocks: what was not used for a while, beyond the threshold, and no sooner.
#[test]
fn what_frees_find_unused_goes_back_beyond_the_threshold() {
    for (threshold, most) in [(None, 200), (Some(0), 16), (Some(100 * MIB), 110)] {
        let gpu = gpu_with(SimOptions::default());
        let stream = stream(&gpu);
        let pool = pool(&gpu, PoolConfig { release_threshold_bytes: threshold, ..alone() });
        let blocks: Vec<_> = (0..20).map(|_| pool.allocate(10 * MIB, stream).unwrap()).collect();
        for block in blocks {
            pool.deallocate(block, 10 * MIB, stream).unwrap();
        }
        let replace_one = |times: usize| {
            for _ in 0..times {
                let block = pool.allocate(10 * MIB, stream).unwrap();
                write(&gpu, block, 10 * MIB, stream);
                pool.deallocate(block, 10 * MIB, stream).unwrap();
                gpu.synchronize_stream(stream).unwrap();
            }
        };
        replace_one(100);
        assert_eq!(pool.usage().reserved_bytes, 200 * MIB, "{threshold:?}: not for so long");
        replace_one(200);
        let reserved = pool.usage().reserved_bytes / MIB;
        let least = threshold.map_or(200, |bytes| bytes / MIB);
        assert!((least..=most).contains(&reserved), "{threshold:?}: {reserved} MiB");
        pool.assert_valid();
        assert_eq!(gpu.findings(), []);
    }
}

/// A stream that is never idle keeps no memory that it does not use, although what is free merges with what it has just freed.
#[test]
fn unused_memory_goes_back_beside_a_busy_stream() {
    let gpu = gpu_with(SimOptions::default());
    let stream = stream(&gpu);
    let pool = pool(&gpu, alone());
    let blocks: Vec<_> = (0..20).map(|_| pool.allocate(10 * MIB, stream).unwrap()).collect();
    for block in blocks {
        pool.deallocate(block, 10 * MIB, stream).unwrap();
    }
    for _ in 0..8 {
        for _ in 0..10 {
            let block = pool.allocate(20 * MIB, stream).unwrap();
            write(&gpu, block, 20 * MIB, stream);
            pool.deallocate(block, 20 * MIB, stream).unwrap();
        }
        assert!(!gpu.query_stream(stream).unwrap(), "the stream is busy");
        pool.interval_has_passed();
        // Some of its work is done, and not all.
        gpu.advance(Duration::from_millis(2));
    }
    let reserved = pool.usage().reserved_bytes / MIB;
    assert!((20..=30).contains(&reserved), "{reserved} MiB");
    pool.assert_valid();
    assert_no_findings(&gpu);
}
