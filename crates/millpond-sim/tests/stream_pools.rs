//! What the driver's pools of stream-ordered memory use again.

use std::time::Duration;

use millpond::driver::{DevicePtr, Driver, PoolAttribute, Stream, StreamFlags};
use millpond_sim::{Profile, RunOrder, SimGpu, SimOptions};

const MIB: usize = 1 << 20;

/// A device that comes to nothing of what is queued for a long time.
fn gpu_far_behind() -> SimGpu {
    let profile = Profile::named("v100-16g").unwrap();
    let run_order = RunOrder::Behind(Duration::from_secs(3600));
    SimGpu::with_options(profile, SimOptions { run_order, ..SimOptions::default() })
}

fn streams(gpu: &SimGpu) -> [Stream; 2] {
    [(); 2].map(|()| gpu.create_stream(StreamFlags::NON_BLOCKING).unwrap())
}

/// Blocks of two streams lie side by side. Each stream has its own again at once, although the other's are not free yet.
#[test]
fn a_stream_uses_its_own_memory_again_beside_that_of_others() {
    let gpu = gpu_far_behind();
    let pool = gpu.default_pool().unwrap();
    let [one, other] = streams(&gpu);
    for _ in 0..100 {
        let blocks: Vec<(DevicePtr, Stream)> = (0..8)
            .map(|number| if number % 2 == 0 { one } else { other })
            .map(|stream| (gpu.alloc_async(4 * MIB, pool, stream).unwrap(), stream))
            .collect();
        for (ptr, stream) in blocks {
            gpu.free_async(ptr, stream).unwrap();
        }
    }
    let reserved = gpu.pool_attribute(pool, PoolAttribute::ReservedHigh).unwrap();
    assert_eq!(reserved, 32 * MIB as u64);
}

/// What is free in pieces serves a larger block, if it may be had: the stream's own, and what was never used.
#[test]
fn pieces_side_by_side_serve_a_larger_block() {
    let gpu = gpu_far_behind();
    let pool = gpu.default_pool().unwrap();
    let [one, other] = streams(&gpu);
    let blocks = [one, one, other].map(|stream| gpu.alloc_async(8 * MIB, pool, stream).unwrap());
    for (ptr, stream) in blocks.into_iter().zip([one, one, other]) {
        gpu.free_async(ptr, stream).unwrap();
    }
    assert_eq!(gpu.alloc_async(16 * MIB, pool, one).unwrap(), blocks[0]);
    let reserved = || gpu.pool_attribute(pool, PoolAttribute::ReservedCurrent).unwrap();
    assert_eq!(reserved(), 32 * MIB as u64);
    // Of the rest 8 MiB are the other's, with what was never used beside them.
    assert_eq!(gpu.alloc_async(16 * MIB, pool, other).unwrap(), blocks[2]);
    assert_eq!(reserved(), 32 * MIB as u64);
    for (ptr, stream) in [(blocks[0], one), (blocks[2], other)] {
        gpu.free_async(ptr, stream).unwrap();
    }
    // Once the device has done everything, all of it is one again, and goes back as it is above the threshold.
    gpu.synchronize_device().unwrap();
    assert_eq!(reserved(), 0);
}
