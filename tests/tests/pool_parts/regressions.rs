//! What once went wrong.

use std::sync::Arc;
use std::time::Duration;

use millpond::Resource;
use millpond::driver::*;
use millpond::pool::{PoolConfig, RegionOptions, tag};
use millpond_sim::{Profile, RunOrder, SimGpu, SimOptions};

use super::captures::capture_id;
use super::{MIB, alone, assert_no_findings, pool, stream};

fn gpu_of(capacity: &str, seed: u64) -> Arc<SimGpu> {
    device(capacity, SimOptions { seed, run_order: RunOrder::Adversarial, ..SimOptions::default() })
}

fn timed(capacity: &str) -> Arc<SimGpu> {
    device(capacity, SimOptions::default())
}

fn device(capacity: &str, options: SimOptions) -> Arc<SimGpu> {
    let text = format!("base = 'v100-16g'\n[memory]\ncapacity = '{capacity}'\n");
    Arc::new(SimGpu::with_options(Profile::parse("small", &text).unwrap(), options))
}

/// Work that writes a block for so many microseconds.
fn work(gpu: &SimGpu, ptr: DevicePtr, bytes: usize, stream: Stream, micros: u64) {
    let duration = Duration::from_micros(micros);
    gpu.launch(&Kernel::Work { touches: vec![Touch::write(ptr, bytes)], duration }, stream)
        .unwrap();
}

#[test]
fn preallocate_beyond_capacity_small() {
    let gpu = gpu_of("64MiB", 0);
    let pool = pool(&gpu, alone());
    let r = pool.preallocate(4096, 100 * MIB / 4096);
    assert!(r.is_err(), "100 MiB set aside on a 64 MiB device?");
}
#[test]
fn preallocate_capacity_overflow() {
    let gpu = gpu_of("64MiB", 0);
    let pool = pool(&gpu, alone());
    let r = pool.preallocate(1 << 20, usize::MAX);
    assert!(r.is_err());
}
#[test]
fn reserve_ignores_points() {
    for seed in 0..20 {
        let gpu = gpu_of("1GiB", seed);
        let (s, t) = (stream(&gpu), stream(&gpu));
        let pool = pool(&gpu, alone());
        let x = pool.allocate(100_000, t).unwrap(); // the second stream is known
        pool.preallocate(4096, 2).unwrap();
        let a = pool.allocate(4096, s).unwrap();
        let b = pool.allocate(4096, s).unwrap();
        work(&gpu, a, 4096, s, 3000);
        pool.deallocate(a, 4096, s).unwrap();
        pool.trim_cache();
        pool.preallocate(4096, 15).unwrap();
        let mut got = vec![];
        for _ in 0..15 {
            let p = pool.allocate(4096, t).unwrap();
            work(&gpu, p, 4096, t, 1);
            got.push(p);
        }
        assert!(got.contains(&a), "not the scenario");
        let _ = (b, x);
        assert_no_findings(&gpu);
    }
}
#[test]
fn oom_while_waiting_would_serve() {
    let gpu = timed("64MiB");
    let (s, t) = (stream(&gpu), stream(&gpu));
    let pool = pool(&gpu, alone());
    let x = pool.allocate(1100 * 1024, t).unwrap();
    let mut blocks = vec![];
    while let Ok(p) = pool.allocate(3 * MIB / 2, s) {
        blocks.push(p);
    }
    let freed = blocks.remove(11);
    work(&gpu, freed, 3 * MIB / 2, s, 5000);
    pool.deallocate(freed, 3 * MIB / 2, s).unwrap();
    let r = pool.allocate(3 * MIB / 2, t);
    let _ = x;
    assert!(r.is_ok(), "{}", r.unwrap_err());
}
#[test]
fn oom_while_a_hole_is_deep_in_its_bin() {
    let gpu = timed("64MiB");
    let s = stream(&gpu);
    let pool = pool(&gpu, PoolConfig { slack: 0.0, ..alone() });
    let (small, exact, gap) = (2050 * 512, 2100 * 512, 40 << 10);
    let mut holes = vec![];
    let e = pool.allocate(exact, s).unwrap();
    let mut keep = vec![pool.allocate(gap, s).unwrap()];
    for _ in 0..20 {
        holes.push(pool.allocate(small, s).unwrap());
        keep.push(pool.allocate(gap, s).unwrap());
    }
    for bytes in [8 * MIB, MIB + 512 * 1024, 64 << 10, 33 << 10] {
        while let Ok(p) = pool.allocate(bytes, s) {
            keep.push(p);
        }
    }
    pool.deallocate(e, exact, s).unwrap();
    for h in holes {
        pool.deallocate(h, small, s).unwrap();
    }
    let r = pool.allocate(exact, s);
    assert!(r.is_ok(), "{}", r.unwrap_err());
}
#[test]
fn stats_after_region_is_gone() {
    let gpu = gpu_of("1GiB", 0);
    let s = stream(&gpu);
    let pool = pool(&gpu, alone());
    let region = pool.region(&RegionOptions::default()).unwrap();
    let p = region.allocate(100 * MIB, s).unwrap();
    pool.reset_stats();
    region.deallocate(p, 100 * MIB, s).unwrap();
    drop(region);
    pool.trim();
    let st = pool.stats();
    assert_eq!((st.allocation_count, st.free_count, st.total_freed), (0, 1, 100 << 20));
}
#[test]
fn stats_and_regions_agree() {
    let gpu = gpu_of("1GiB", 0);
    let s = stream(&gpu);
    let pool = pool(&gpu, alone());
    let region = pool.region(&RegionOptions::default()).unwrap();
    let _p = region.allocate(100 * MIB, s).unwrap();
    let st = pool.stats();
    assert_eq!(st.total_allocated - st.total_freed, st.current_usage);
}
#[test]
fn capture_in_region_freed_to_pool() {
    let gpu = gpu_of("1GiB", 0);
    let s = stream(&gpu);
    let pool = pool(&gpu, alone());
    let region = pool.region(&RegionOptions::default()).unwrap();
    gpu.begin_capture(s, CaptureMode::Relaxed).unwrap();
    capture_id(&gpu, s);
    let p = region.allocate(5 * MIB, s).unwrap();
    work(&gpu, p, 5 * MIB, s, 10);
    let _g = gpu.end_capture(s).unwrap();
    assert_eq!(pool.deallocate(p, 5 * MIB, s), Ok(()));
}
#[test]
fn capture_in_region_use_after_drop() {
    let gpu = gpu_of("1GiB", 0);
    let s = stream(&gpu);
    let pool = pool(&gpu, alone());
    let region = pool.region(&RegionOptions::default()).unwrap();
    gpu.begin_capture(s, CaptureMode::Relaxed).unwrap();
    let p = region.allocate(5 * MIB, s).unwrap();
    work(&gpu, p, 5 * MIB, s, 10);
    let g = gpu.end_capture(s).unwrap();
    drop(region); // p is still held: "its memory goes back with its last block"
    gpu.launch_graph(g, s).unwrap();
    assert_no_findings(&gpu);
}
#[test]
fn direct_in_capture() {
    let gpu = gpu_of("1GiB", 0);
    let s = stream(&gpu);
    let pool = pool(&gpu, PoolConfig { direct_above_bytes: Some(MIB), ..alone() });
    gpu.begin_capture(s, CaptureMode::Relaxed).unwrap();
    let p = pool.allocate(5 * MIB, s).unwrap();
    let _g = gpu.end_capture(s).unwrap();
    assert_eq!(pool.deallocate(p, 5 * MIB, s), Ok(()));
}
#[test]
fn direct_in_region() {
    let gpu = gpu_of("1GiB", 0);
    let s = stream(&gpu);
    let pool = pool(&gpu, PoolConfig { direct_above_bytes: Some(MIB), ..alone() });
    let region = pool
        .region(&RegionOptions {
            dedicated_bytes: 20 * MIB,
            peer_accessible: true,
            ..RegionOptions::default()
        })
        .unwrap();
    let p = region.allocate(5 * MIB, s).unwrap();
    assert_eq!(pool.deallocate(p, 5 * MIB, s), Ok(()));
}
#[test]
fn direct_alignment() {
    let gpu = gpu_of("1GiB", 0);
    let s = stream(&gpu);
    let pool =
        pool(&gpu, PoolConfig { direct_above_bytes: Some(1000), alignment: 1 << 16, ..alone() });
    for _ in 0..10 {
        let p = pool.allocate(2000, s).unwrap();
        assert_eq!(p.0 % (1 << 16), 0, "{p}");
    }
}
#[test]
fn direct_tags() {
    let gpu = gpu_of("1GiB", 0);
    let s = stream(&gpu);
    let pool = pool(&gpu, PoolConfig { direct_above_bytes: Some(1000), ..alone() });
    let _t = tag("x");
    let _p = pool.allocate(2000, s).unwrap();
    assert_eq!(pool.live_by_tag().iter().map(|t| t.live_bytes).sum::<u64>(), 2000);
}
#[test]
fn release_capture_forgets_other_streams() {
    for seed in 0..20 {
        let gpu = gpu_of("1GiB", seed);
        let (s, t, u) = (stream(&gpu), stream(&gpu), stream(&gpu));
        let pool = pool(&gpu, PoolConfig { slack: 0.0, ..alone() });
        for x in [s, t, u] {
            let p = pool.allocate(1000, x).unwrap();
            pool.deallocate(p, 1000, x).unwrap();
        }
        gpu.begin_capture(s, CaptureMode::Relaxed).unwrap();
        let cid = capture_id(&gpu, s);
        let p = pool.allocate(40 * MIB, s).unwrap();
        work(&gpu, p, 40 * MIB, s, 10);
        let g = gpu.end_capture(s).unwrap();
        gpu.launch_graph(g, s).unwrap();
        let e = gpu.create_event(EventTiming::Disabled).unwrap();
        gpu.record_event(e, s).unwrap();
        gpu.wait_event(t, e).unwrap();
        work(&gpu, p, 40 * MIB, t, 20_000); // the result is read on another stream
        pool.deallocate(p, 40 * MIB, t).unwrap();
        gpu.destroy_graph(g).unwrap();
        gpu.synchronize_stream(s).unwrap();
        pool.release_capture(cid, s).unwrap();
        let q = pool.allocate(40 * MIB, u).unwrap();
        work(&gpu, q, 40 * MIB, u, 10);
        assert_no_findings(&gpu);
    }
}
#[test]
fn dropping_a_region_waits() {
    let gpu = timed("1GiB");
    let s = stream(&gpu);
    let pool = pool(&gpu, alone());
    let region = pool.region(&RegionOptions::default()).unwrap();
    let p = region.allocate(40 * MIB, s).unwrap();
    work(&gpu, p, 40 * MIB, s, 1_000_000);
    region.deallocate(p, 40 * MIB, s).unwrap();
    let before = gpu.now();
    drop(region);
    assert!(gpu.now() - before < Duration::from_millis(100));
}
#[test]
fn peak_of_producer_consumer() {
    let gpu = gpu_of("1GiB", 0);
    let s = stream(&gpu);
    let pool = pool(&gpu, alone());
    let (tx, rx) = std::sync::mpsc::sync_channel::<DevicePtr>(0);
    std::thread::scope(|sc| {
        sc.spawn(|| {
            for p in rx {
                pool.deallocate(p, 100 * MIB, s).unwrap();
            }
        });
        for _ in 0..100 {
            if let Ok(p) = pool.allocate(100 * MIB, s) {
                tx.send(p).unwrap();
            }
        }
        drop(tx);
    });
    assert!(pool.stats().peak_usage <= 1 << 30);
}
#[test]
fn config_reaches_regions() {
    let gpu = gpu_of("1GiB", 0);
    let s = stream(&gpu);
    let pool = pool(&gpu, alone());
    let region = pool.region(&RegionOptions::default()).unwrap();
    pool.set_config(PoolConfig { alignment: 1 << 20, ..alone() }).unwrap();
    for _ in 0..5 {
        let p = region.allocate(5000, s).unwrap();
        assert_eq!(p.0 % (1 << 20), 0, "{p}");
    }
}
#[test]
fn tiers_sum_up_to_misses() {
    let gpu = gpu_of("1GiB", 0);
    let s = stream(&gpu);
    let pool = pool(&gpu, PoolConfig { global_cache_max_blocks: 0, ..alone() });
    let mut v = vec![];
    for _ in 0..100 {
        v.push(pool.allocate(1000, s).unwrap());
    }
    let st = pool.stats();
    assert_eq!(
        st.global_hits + st.reserve_hits + st.reuse_hits + st.device_allocations,
        st.cache_misses
    );
}
#[test]
fn scopes_out_of_order() {
    let gpu = gpu_of("1GiB", 0);
    let s = stream(&gpu);
    let pool = pool(&gpu, alone());
    let a = tag("a");
    let b = tag("b");
    drop(a);
    drop(b);
    let _p = pool.allocate(1000, s).unwrap();
    assert!(pool.live_by_tag().is_empty(), "{:?}", pool.live_by_tag());
}
#[test]
fn pool_uses_what_a_region_does_not_need() {
    let gpu = gpu_of("1GiB", 0);
    let s = stream(&gpu);
    let pool = pool(&gpu, PoolConfig { slack: 0.0, ..alone() });
    let region = pool.region(&RegionOptions::default()).unwrap();
    let p = region.allocate(200 * MIB, s).unwrap();
    region.deallocate(p, 200 * MIB, s).unwrap();
    gpu.synchronize_device().unwrap();
    let _q = pool.allocate(200 * MIB, s).unwrap();
    let r = pool.usage().reserved_bytes >> 20;
    assert!(r <= 204, "{r} MiB reserved for 200 live");
}
#[test]
fn what_is_freed_beside_a_capture_does_not_spoil_the_addresses() {
    for bytes in [1000, 32 << 10, 200 << 10, 2 * MIB] {
        for trims in [false, true] {
            let gpu = timed("256MiB");
            let (s, t) = (stream(&gpu), stream(&gpu));
            let pool = pool(&gpu, alone());
            let blocks = [(); 3].map(|()| pool.allocate(bytes, s).unwrap());
            pool.deallocate(blocks[2], bytes, t).unwrap();
            gpu.begin_capture(t, CaptureMode::Global).unwrap();
            if trims {
                pool.trim();
            }
            let taken = pool.allocate(2 * MIB, s);
            assert!(taken.is_ok(), "{bytes} bytes, trimmed: {trims}: {}", taken.unwrap_err());
            gpu.end_capture(t).unwrap();
        }
    }
}
#[test]
fn what_the_only_stream_freed_before_its_capture_does_not_spoil_the_addresses() {
    for bytes in [1000, 32 << 10, 200 << 10, 2 * MIB] {
        for trims in [false, true] {
            let gpu = timed("256MiB");
            let (s, t) = (stream(&gpu), stream(&gpu));
            let pool = pool(&gpu, alone());
            let block = pool.allocate(bytes, t).unwrap();
            pool.deallocate(block, bytes, t).unwrap();
            gpu.begin_capture(t, CaptureMode::Global).unwrap();
            if trims {
                pool.trim();
            }
            let taken = pool.allocate(2 * MIB, s);
            assert!(taken.is_ok(), "{bytes} bytes, trimmed: {trims}: {}", taken.unwrap_err());
            gpu.end_capture(t).unwrap();
        }
    }
}
#[test]
fn what_a_region_that_was_given_up_gives_back_counts() {
    let gpu = timed("256MiB");
    let s = stream(&gpu);
    for exportable in [false, true] {
        let pool = pool(&gpu, alone());
        let properties = PhysicalProperties { exportable, ..PhysicalProperties::default() };
        let options = RegionOptions { properties, ..RegionOptions::default() };
        let region = pool.region(&options).unwrap();
        let p = region.allocate(20 * MIB, s).unwrap();
        work(&gpu, p, 20 * MIB, s, 1000);
        region.deallocate(p, 20 * MIB, s).unwrap();
        drop(region);
        let reserved = pool.usage().reserved_bytes;
        assert!(reserved >= 20 * MIB, "work still uses it");
        assert_eq!(pool.trim(), reserved);
    }
}
#[test]
fn memory_of_a_region_that_was_given_up_serves_the_pool() {
    let gpu = timed("256MiB");
    let s = stream(&gpu);
    let pool = pool(&gpu, alone());
    let properties = PhysicalProperties { exportable: true, ..PhysicalProperties::default() };
    let region = pool.region(&RegionOptions { properties, ..RegionOptions::default() }).unwrap();
    // To the last page: of what the device had left, the pool could give something back, and try again for that.
    let mut blocks = vec![];
    while let Ok(p) = region.allocate(2 * MIB, s) {
        work(&gpu, p, 2 * MIB, s, 1000);
        blocks.push(p);
    }
    for p in blocks {
        region.deallocate(p, 2 * MIB, s).unwrap();
    }
    drop(region);
    let r = pool.allocate(200 * MIB, s);
    assert!(r.is_ok(), "{}", r.unwrap_err());
}
#[test]
fn a_peak_does_not_grow_with_what_goes_from_thread_to_thread() {
    let gpu = gpu_of("4GiB", 0);
    let stream = stream(&gpu);
    let pool = pool(&gpu, alone());
    // Much was reserved once: that says nothing of what is live later.
    let once = pool.allocate(1 << 30, stream).unwrap();
    pool.deallocate(once, 1 << 30, stream).unwrap();
    pool.reset_stats();
    let (to_consumer, blocks) = std::sync::mpsc::sync_channel::<Vec<DevicePtr>>(0);
    let (done, next) = std::sync::mpsc::sync_channel(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for blocks in blocks {
                blocks.into_iter().for_each(|block| pool.deallocate(block, MIB, stream).unwrap());
                done.send(()).unwrap();
            }
        });
        for _ in 0..50 {
            let blocks = (0..16).map(|_| pool.allocate(MIB, stream).unwrap()).collect();
            to_consumer.send(blocks).unwrap();
            next.recv().unwrap();
        }
        drop(to_consumer);
    });
    let peak = pool.stats().peak_usage as usize;
    // Besides what is live, what the cache may keep.
    assert!((16 * MIB..=(16 + 64) * MIB).contains(&peak), "{peak}");
    pool.reset_stats();
    assert_eq!(pool.stats().peak_usage, 0);
}

#[test]
fn peaks_outlive_their_region() {
    let gpu = timed("256MiB");
    let s = stream(&gpu);
    let pool = pool(&gpu, alone());
    let region = pool.region(&RegionOptions::default()).unwrap();
    let p = region.allocate(20 * MIB, s).unwrap();
    region.deallocate(p, 20 * MIB, s).unwrap();
    drop(region);
    pool.trim();
    let usage = pool.usage();
    assert!(
        usage.peak_live_bytes >= 20 * MIB && usage.peak_reserved_bytes >= 20 * MIB,
        "{usage:?}"
    );
    pool.reset_stats();
    assert_eq!(pool.stats().peak_usage, 0);
}
#[test]
fn a_capture_that_shows_late_costs_no_memory() {
    let gpu = timed("256MiB");
    let (s, t) = (stream(&gpu), stream(&gpu));
    let pool = pool(&gpu, alone());
    let block = pool.allocate(2 * MIB, t).unwrap();
    pool.deallocate(block, 2 * MIB, t).unwrap();
    gpu.begin_capture(t, CaptureMode::Global).unwrap();
    let taken = pool.allocate(200 * MIB, s);
    assert!(taken.is_ok(), "{}", taken.unwrap_err());
    gpu.end_capture(t).unwrap();
}

/// Caches know the lower 32 bits of a size.
#[test]
fn beyond_four_gibibytes_sizes_are_told_apart() {
    let gpu = timed("16GiB");
    let pool = pool(&gpu, alone());
    let stream = stream(&gpu);
    let bytes = (5 << 30) + 4000;
    let ptr = pool.allocate(bytes, stream).unwrap();
    for wrong in [4000, 4096, (1 << 30) + 4000, bytes - 1, bytes + 1] {
        let error = pool.deallocate(ptr, wrong, stream).unwrap_err();
        assert!(error.to_string().contains("allocated with 5368713120 bytes"), "{error}");
    }
    assert_eq!(pool.usage().live_bytes, bytes);
    pool.deallocate(ptr, bytes, stream).unwrap();
    assert_eq!((pool.usage().live_bytes, pool.deallocate(ptr, bytes, stream).is_err()), (0, true));
}
