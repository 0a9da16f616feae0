//! What cannot be right is refused by its kind, and nothing is lost.

use std::sync::Arc;

use millpond::driver::{Driver, DriverErrorKind, Stream};
use millpond::pool::{OpenError, Pool, PoolConfig, RegionOptions};
use millpond::{AllocError, FreeError, Resource};
use millpond_sim::SimGpu;

use super::{MIB, alone, assert_no_findings, gpu, pool, stream};

#[test]
fn sizes_that_no_device_has_are_too_large() {
    let gpu = gpu(0);
    let stream = stream(&gpu);
    for alignment in [256, 4096, 2 * MIB] {
        let pool = pool(&gpu, PoolConfig { alignment, ..alone() });
        for bytes in [usize::MAX, usize::MAX - 1, usize::MAX - 511, usize::MAX / 2, 1 << 50] {
            assert_eq!(pool.allocate(bytes, stream), Err(AllocError::TooLarge { bytes }));
            assert_eq!(pool.allocate_now(bytes, stream), Err(AllocError::TooLarge { bytes }));
            assert_eq!(pool.preallocate(bytes, 1), Err(AllocError::TooLarge { bytes }));
            let options = RegionOptions { dedicated_bytes: bytes, ..RegionOptions::default() };
            assert_eq!(pool.region(&options).err(), Some(AllocError::TooLarge { bytes }));
            let freed = pool.deallocate(millpond::driver::DevicePtr(0x1000), bytes, stream);
            assert!(matches!(freed, Err(FreeError::Foreign { .. })), "{freed:?}");
        }
        let error = pool.allocate(1 << 40, stream).unwrap_err();
        assert!(matches!(error, AllocError::OutOfMemory(_)), "{error}");
        assert_eq!(pool.allocate(0, stream), Ok(millpond::driver::DevicePtr::NULL));
        assert!(pool.deallocate(millpond::driver::DevicePtr::NULL, 0, stream).is_ok());
        assert_eq!(pool.preallocate(0, 5), Ok(()));
        pool.assert_valid();
        assert_eq!(pool.usage().live_bytes, 0);
    }
}

#[test]
fn a_request_that_fails_leaves_the_device_to_others() {
    let gpu = gpu(0);
    let stream = stream(&gpu);
    let (greedy, other) = (pool(&gpu, alone()), pool(&gpu, alone()));
    let kept = greedy.allocate(5 * MIB, stream).unwrap();
    let before = greedy.usage().reserved_bytes;
    for bytes in [1 << 30, (1 << 30) - 4 * MIB, 2 << 30] {
        let error = greedy.allocate(bytes, stream).unwrap_err();
        let AllocError::OutOfMemory(why) = &error else { panic!("{error}") };
        assert_eq!((why.reserved_bytes, why.recoverable.release), (before, 0), "{error}");
        assert_eq!(greedy.usage().reserved_bytes, before);
        let block = other.allocate(1000 * MIB, stream).unwrap();
        other.deallocate(block, 1000 * MIB, stream).unwrap();
        other.trim();
    }
    greedy.deallocate(kept, 5 * MIB, stream).unwrap();
    greedy.assert_valid();
}

/// What was taken for a request that fails is counted, as what goes back is.
#[test]
fn pages_of_a_request_that_fails_are_counted() {
    let gpu = gpu(0);
    let stream = stream(&gpu);
    let pool = pool(&gpu, alone());
    let kept = pool.allocate(5 * MIB, stream).unwrap();
    let page_bytes = gpu.device().granularity_bytes;
    assert!(pool.allocate((1 << 30) - 4 * MIB, stream).is_err());
    let stats = pool.stats();
    assert!(stats.pages_released > 0, "{stats}");
    let held = (pool.usage().reserved_bytes / page_bytes) as u64;
    assert_eq!(stats.pages_created - stats.pages_released, held, "{stats}");
    pool.deallocate(kept, 5 * MIB, stream).unwrap();
}

#[test]
fn what_is_larger_than_the_device_is_refused_before_anything_is_taken() {
    let gpu = gpu(0);
    let stream = stream(&gpu);
    let pool = pool(&gpu, alone());
    let kept = pool.allocate(5 * MIB, stream).unwrap();
    let (before, peak) = (pool.stats(), pool.usage().peak_reserved_bytes);
    for bytes in [(1 << 30) + 1, 81 << 30, 1 << 40] {
        let error = pool.allocate(bytes, stream).unwrap_err();
        let AllocError::OutOfMemory(why) = &error else { panic!("{error}") };
        assert_eq!((why.requested_bytes, why.live_bytes), (bytes, 5 * MIB), "{error}");
    }
    let after = pool.stats();
    let pages = |stats: &millpond::pool::PoolStats| (stats.pages_created, stats.pages_released);
    assert_eq!(pages(&after), pages(&before));
    assert_eq!(pool.usage().peak_reserved_bytes, peak);
    let calls = after.driver_calls - before.driver_calls;
    assert!(calls < 100, "{calls} calls to refuse three requests");
    pool.deallocate(kept, 5 * MIB, stream).unwrap();
    pool.assert_valid();
}

#[test]
fn a_stream_of_another_device_is_refused() {
    let (gpu, elsewhere): (Arc<SimGpu>, Arc<SimGpu>) = (gpu(0), gpu(1));
    let own = stream(&gpu);
    // One that only the other device has.
    let foreign = (0..8).map(|_| stream(&elsewhere)).max().unwrap();
    let pool = pool(&gpu, alone());
    let block = pool.allocate(1000, own).unwrap();
    for wrong in [foreign, Stream(0xdead_beef)] {
        let is_refused = |kind| kind == DriverErrorKind::InvalidHandle;
        match pool.allocate(1000, wrong) {
            Err(AllocError::Driver(error)) => assert!(is_refused(error.kind), "{error}"),
            answer => panic!("{answer:?}"),
        }
        match pool.deallocate(block, 1000, wrong) {
            Err(FreeError::Driver(error)) => assert!(is_refused(error.kind), "{error}"),
            answer => panic!("{answer:?}"),
        }
        match pool.record_stream(block, wrong) {
            Err(FreeError::Driver(error)) => assert!(is_refused(error.kind), "{error}"),
            answer => panic!("{answer:?}"),
        }
        assert!(pool.release_capture(millpond::driver::CaptureId(1), wrong).is_err());
    }
    pool.deallocate(block, 1000, own).unwrap();
    pool.assert_valid();
}

/// A device that is lost refuses everything; the pool says so, and can still be dropped.
#[test]
fn a_pool_outlives_its_device() {
    let gpu = gpu(0);
    let stream = stream(&gpu);
    let pool = pool(&gpu, alone());
    let block = pool.allocate(5 * MIB, stream).unwrap();
    // Work on memory that is not there loses the device to the process.
    let nowhere = millpond::driver::Touch::write(millpond::driver::DevicePtr(0x10), 100);
    let kernel = millpond::driver::Kernel::Work {
        touches: vec![nowhere],
        duration: std::time::Duration::ZERO,
    };
    let _ = gpu.launch(&kernel, stream);
    let _ = gpu.synchronize_device();
    assert!(gpu.memory_info().is_err(), "the device is lost");
    let error = pool.allocate(100 * MIB, stream).unwrap_err();
    assert!(error.to_string().contains("illegal address"), "{error}");
    pool.deallocate(block, 5 * MIB, stream).unwrap();
    pool.trim();
    pool.defragment();
    pool.assert_valid();
    drop(pool);
}

#[test]
fn settings_in_the_wrong_order_are_refused_by_name() {
    let gpu = gpu(0);
    let pool = pool(&gpu, alone());
    let before = pool.config();
    let wrong = [
        (PoolConfig { batch_alloc_count: 65, ..alone() }, "batch_alloc_count"),
        (PoolConfig { alignment: 384, ..alone() }, "alignment"),
        (PoolConfig { alignment: 0, ..alone() }, "alignment"),
        (PoolConfig { defrag_threshold: 30.0, ..alone() }, "defrag_threshold"),
        (PoolConfig { slack: f64::NAN, ..alone() }, "slack"),
    ];
    for (config, field) in wrong {
        assert_eq!(pool.set_config(config.clone()).unwrap_err().field, field);
        assert_eq!(pool.config(), before);
        match Pool::with_config(gpu.clone(), config) {
            Err(OpenError::Config(error)) => assert_eq!(error.field, field),
            answer => panic!("{answer:?}"),
        }
    }
}

/// Blocks are aligned as asked, also those from caches, and also after a change.
#[test]
fn blocks_are_aligned_as_configured() {
    let gpu = gpu(0);
    let stream = stream(&gpu);
    let pool = pool(&gpu, alone());
    let mut rng = fastrand::Rng::with_seed(7);
    for alignment in [256, 512, 4096, 32 << 10, 64 << 10, 2 * MIB, 256] {
        pool.set_config(PoolConfig { alignment, ..alone() }).unwrap();
        let mut live = Vec::new();
        for _ in 0..400 {
            let power = rng.u32(0..22);
            let bytes = rng.usize(1..=1 << power);
            let block = pool.allocate(bytes, stream).unwrap();
            assert!(block.is_aligned_to(alignment), "{bytes} bytes at {block}, not {alignment}");
            live.push((block, bytes));
            if live.len() > 30 {
                let (block, bytes) = live.swap_remove(rng.usize(0..live.len()));
                pool.deallocate(block, bytes, stream).unwrap();
            }
        }
        for (block, bytes) in live {
            pool.deallocate(block, bytes, stream).unwrap();
        }
        pool.assert_valid();
    }
    assert_no_findings(&gpu);
}

/// The block that was handed out last has a path of its own, which believes what was noted of it: also of one that was freed since, whose
/// shelf has had others, or of which nothing is noted any more.
#[test]
fn the_block_that_was_handed_out_last_is_looked_at_like_any_other() {
    let gpu = gpu(2);
    let (stream, pool) = (stream(&gpu), pool(&gpu, alone()));
    for bytes in [1, 300, 4096, 40_000, MIB, 3 * MIB] {
        let wrong_sizes = [0, bytes - 1, bytes + 1, bytes + 256, usize::MAX];
        let assert_wrong = |block| {
            for given in wrong_sizes {
                let freed = pool.deallocate(block, given, stream);
                assert!(matches!(freed, Err(FreeError::WrongSize { .. })), "{given}: {freed:?}");
            }
        };
        let take = || pool.allocate(bytes, stream).unwrap();
        let free = |block| pool.deallocate(block, bytes, stream);
        // Two that caches keep, so that what follows are hits.
        let (first, second) = (take(), take());
        free(first).unwrap();
        free(second).unwrap();
        let (other, last) = (take(), take());
        assert_wrong(last);
        free(other).unwrap();
        assert_wrong(last);
        free(last).unwrap();
        let again = free(last);
        assert!(matches!(again, Err(FreeError::AlreadyFree { .. })), "{again:?}");
        let last = take();
        // Everything that caches keep is taken away, and with it what is noted.
        pool.trim();
        assert_wrong(last);
        free(last).unwrap();
        let again = free(last);
        assert!(matches!(again, Err(FreeError::AlreadyFree { .. })), "{again:?}");
        pool.assert_valid();
    }
    assert_eq!((pool.usage().live_bytes, pool.usage().live_blocks), (0, 0));
}
