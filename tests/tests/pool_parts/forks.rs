//! A forked child has no device memory, and does its parent no harm.

use std::sync::atomic::{AtomicBool, Ordering};

use millpond::pool::{Pool, PoolConfig, RegionOptions};
use millpond::{AllocError, Resource};

use super::fork_process::in_child;
use super::{MIB, assert_no_findings, gpu, pool, stream, write};

/// Which of several things was wrong: none is 0.
fn first_wrong(checks: &[bool]) -> u8 {
    checks.iter().position(|ok| !ok).map_or(0, |at| at as u8 + 1)
}

#[test]
fn a_forked_child_is_refused_and_its_parent_goes_on() {
    let gpu = gpu(0);
    let stream = stream(&gpu);
    let pool = pool(&gpu, PoolConfig { defrag_interval_ms: 1, ..PoolConfig::default() });
    let region = pool.region(&RegionOptions::default()).unwrap();
    let small = pool.allocate(1000, stream).unwrap();
    let large = pool.allocate(5 * MIB, stream).unwrap();
    let cached = pool.allocate(2000, stream).unwrap();
    pool.deallocate(cached, 2000, stream).unwrap();
    let usage = pool.usage();
    let stop = AtomicBool::new(false);
    let code = std::thread::scope(|scope| {
        // Another thread holds locks again and again, perhaps when the process forks.
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let _ = pool.stats();
            }
        });
        let mut codes = Vec::new();
        for _ in 0..20 {
            codes.push(in_child(|| {
                let mut ok = vec![
                    pool.allocate(2000, stream) == Err(AllocError::Forked),
                    pool.allocate(70 * MIB, stream) == Err(AllocError::Forked),
                    pool.allocate_now(1000, stream) == Err(AllocError::Forked),
                    region.allocate(1000, stream) == Err(AllocError::Forked),
                    pool.preallocate(1000, 1) == Err(AllocError::Forked),
                    pool.region(&RegionOptions::default()).is_err(),
                    pool.stats().allocation_count == 0 && pool.live_by_tag().is_empty(),
                    pool.deallocate(small, 1000, stream).is_ok(),
                    pool.deallocate_unsized(large, stream).is_ok(),
                    pool.record_stream(small, stream).is_ok(),
                    pool.trim() == 0 && pool.defragment() == 0,
                    pool.set_config(PoolConfig::default()).is_ok(),
                ];
                pool.trim_cache();
                // The child drops its copy of the handle, as a program that ends does.
                let copy: Pool = pool.clone();
                drop(copy);
                ok.push(pool.usage().live_bytes == 0);
                first_wrong(&ok)
            }));
        }
        stop.store(true, Ordering::Relaxed);
        codes
    });
    assert_eq!(code, [0; 20]);
    let after = pool.usage();
    assert_eq!((after.live_bytes, after.live_blocks), (usage.live_bytes, usage.live_blocks));
    write(&gpu, small, 1000, stream);
    pool.deallocate(small, 1000, stream).unwrap();
    pool.deallocate(large, 5 * MIB, stream).unwrap();
    drop(region);
    pool.trim();
    assert_eq!(pool.usage().reserved_bytes, 0);
    assert_no_findings(&gpu);
}

/// A child may make a pool of its own, with a driver of its own.
#[test]
fn a_forked_child_can_have_a_pool_of_its_own() {
    let gpu_of_parent = gpu(0);
    let of_parent = pool(&gpu_of_parent, PoolConfig::default());
    let code = in_child(|| {
        let gpu = gpu(1);
        let stream = stream(&gpu);
        let pool = pool(&gpu, PoolConfig::default());
        let Ok(block) = pool.allocate(5 * MIB, stream) else { return 1 };
        let freed = pool.deallocate(block, 5 * MIB, stream).is_ok();
        pool.trim();
        let empty = pool.usage().reserved_bytes == 0;
        let refused = of_parent.allocate(100, stream) == Err(AllocError::Forked);
        drop(pool);
        first_wrong(&[freed, empty, refused])
    });
    assert_eq!(code, 0);
}
