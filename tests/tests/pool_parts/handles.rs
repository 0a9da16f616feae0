//! Memory in handles of several pages, with several addresses.

use std::sync::Arc;

use millpond::Resource;
use millpond::driver::{Call, DevicePtr, Driver, Stream};
use millpond::pool::{Pool, PoolConfig};
use millpond_sim::{Fault, Profile, RunOrder, SimGpu, SimOptions};

use super::{MIB, alone, assert_no_findings, pool, stream, write};

/// A device so large that handles may have 64 pages.
fn large_gpu(seed: u64) -> Arc<SimGpu> {
    let text = "base = 'v100-16g'\n[memory]\ncapacity = '300GiB'\n";
    let profile = Profile::parse("large", text).expect("a right profile");
    let options = SimOptions { seed, run_order: RunOrder::Adversarial, ..SimOptions::default() };
    Arc::new(SimGpu::with_options(profile, options))
}

struct Held {
    ptr: DevicePtr,
    bytes: usize,
    stream: Stream,
}

/// Random blocks of 512 KiB to 256 MiB on three streams, written to by work that takes a while, and freed on other streams, too; while now
/// and then a driver call fails.
fn run_program(seed: u64, slack: f64) {
    const MOST_LIVE: usize = 3 << 30;
    let gpu = large_gpu(seed);
    let pool = pool(&gpu, PoolConfig { slack, ..alone() });
    let streams = [stream(&gpu), stream(&gpu), stream(&gpu)];
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut held: Vec<Held> = Vec::new();
    let free = |held: Held, rng: &mut fastrand::Rng| {
        let other = streams[rng.usize(0..streams.len())];
        if rng.u8(0..4) == 0 {
            write(&gpu, held.ptr, held.bytes, held.stream);
            pool.record_stream(held.ptr, held.stream).unwrap();
            pool.deallocate(held.ptr, held.bytes, other).unwrap();
        } else {
            pool.deallocate(held.ptr, held.bytes, held.stream).unwrap();
        }
    };
    for step in 0..400 {
        let live: usize = held.iter().map(|held| held.bytes).sum();
        if rng.u8(0..5) < 3 && live < MOST_LIVE || held.is_empty() {
            let power = rng.usize(19..28);
            let bytes = rng.usize(1 << power..=2 << power);
            let stream = streams[rng.usize(0..streams.len())];
            let fails = rng.u8(0..6) == 0;
            if fails {
                gpu.set_faults(&[Fault::Nth(rng.u64(0..16))]);
            }
            let ptr = pool.allocate(bytes, stream);
            gpu.set_faults(&[]);
            match ptr {
                Ok(ptr) => {
                    write(&gpu, ptr, bytes, stream);
                    held.push(Held { ptr, bytes, stream });
                }
                Err(error) => assert!(fails, "{error}"),
            }
        } else {
            let block = held.swap_remove(rng.usize(0..held.len()));
            free(block, &mut rng);
        }
        if step % 16 == 0 {
            pool.assert_valid();
        }
        if rng.u8(0..200) == 0 {
            pool.trim();
            pool.interval_has_passed();
        }
    }
    held.into_iter().for_each(|held| free(held, &mut rng));
    pool.trim();
    pool.assert_valid();
    assert_eq!(pool.usage().reserved_bytes, 0, "nothing is held");
    assert_eq!(gpu.held().device_bytes(), 0);
    assert_no_findings(&gpu);
}

#[test]
fn programs_of_large_blocks_on_several_streams() {
    for seed in 0..200 {
        println!("seed {seed}");
        run_program(seed, [0.0, 0.02, 0.08, 0.3][seed as usize % 4]);
    }
}

fn mapping_calls(gpu: &SimGpu) -> u64 {
    [Call::Create, Call::Map, Call::Unmap].map(|call| gpu.calls(call)).iter().sum()
}

/// Whatever a step allocated in memory of a second address it finds there in the next step.
#[test]
fn a_step_that_repeats_makes_no_driver_call() {
    let gpu = large_gpu(1);
    let stream = stream(&gpu);
    let pool = pool(&gpu, alone());
    let sizes = [300, 77, 12, 150, 41, 9, 200, 64].map(|mib| mib * MIB + 12_345 * 512);
    let mut settled = 0;
    for step in 0..8 {
        // In the second half of a step there is no hole that is large enough, but memory enough.
        let first: Vec<_> = sizes.map(|bytes| pool.allocate(bytes, stream).unwrap()).into();
        for (ptr, bytes) in first.iter().zip(sizes).step_by(2) {
            pool.deallocate(*ptr, bytes, stream).unwrap();
        }
        let second = pool.allocate(500 * MIB, stream).unwrap();
        for (ptr, bytes) in first.iter().zip(sizes).skip(1).step_by(2) {
            pool.deallocate(*ptr, bytes, stream).unwrap();
        }
        pool.deallocate(second, 500 * MIB, stream).unwrap();
        if step == 3 {
            settled = mapping_calls(&gpu);
        }
    }
    assert!(pool.stats().page_moves > 0, "some memory has a second address");
    assert_eq!(mapping_calls(&gpu), settled);
    assert_no_findings(&gpu);
}

/// What is free of a handle that is partly used serves a block that has no place at its addresses.
#[test]
fn the_free_end_of_a_handle_is_used_through_another_address() {
    let gpu = large_gpu(2);
    let stream = stream(&gpu);
    let pool = pool(&gpu, PoolConfig { slack: 0.0, ..alone() });
    pool.set_config(PoolConfig { slack: 0.5, ..pool.config() }).unwrap();
    let blocks =
        [pool.allocate(128 * MIB, stream).unwrap(), pool.allocate(128 * MIB, stream).unwrap()];
    for block in blocks {
        pool.deallocate(block, 128 * MIB, stream).unwrap();
    }
    pool.set_config(PoolConfig { slack: 0.0, ..pool.config() }).unwrap();
    let before = pool.usage().reserved_bytes;
    let _middle = pool.allocate(100 * MIB, stream).unwrap();
    let _rest = pool.allocate(150 * MIB, stream).unwrap();
    assert_eq!(pool.usage().reserved_bytes, before);
    pool.assert_valid();
    assert_no_findings(&gpu);
}

/// Mappings that nothing uses any more go when there are many.
#[test]
fn old_mappings_go() {
    let gpu = large_gpu(3);
    let stream = stream(&gpu);
    let pool: Pool = pool(&gpu, PoolConfig { slack: 0.0, ..alone() });
    let mut rng = fastrand::Rng::with_seed(3);
    let mut held = std::collections::VecDeque::new();
    for _ in 0..4_000 {
        let bytes = rng.usize(3 * MIB..60 * MIB);
        held.push_back((pool.allocate(bytes, stream).unwrap(), bytes));
        if held.len() > 12 {
            let at = rng.usize(0..held.len());
            let (block, bytes) = held.swap_remove_back(at).expect("it is held");
            pool.deallocate(block, bytes, stream).unwrap();
        }
        gpu.synchronize_device().unwrap();
    }
    let (mapped, unmapped) = (gpu.calls(Call::Map), gpu.calls(Call::Unmap));
    assert!(unmapped > 0, "{mapped} mappings stay");
    let handles = pool.usage().reserved_bytes / (2 * MIB);
    assert!(mapped - unmapped <= 5 * handles as u64, "{} of {handles}", mapped - unmapped);
    pool.assert_valid();
    assert_no_findings(&gpu);
}
