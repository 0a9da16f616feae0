//! The pool's memory in PyTorch's form, at any time and when it runs out.

use millpond::pool::{PoolConfig, RegionOptions};
use millpond::trace::{BlockState, Limits};
use millpond::{Resource, Trace};
use millpond_sim::SimOptions;

use super::{MIB, alone, gpu, gpu_with, pool, stream};

/// What a snapshot says is live, in bytes as asked for and blocks, and reserved.
fn read(trace: &Trace) -> (u64, usize, u64) {
    let segments = trace.devices.iter().flat_map(|device| &device.segments);
    let mut sums = (0, 0, 0);
    for segment in segments {
        sums.2 += segment.bytes;
        for block in &segment.blocks {
            if block.state == BlockState::Allocated {
                sums.0 += block.requested_bytes;
                sums.1 += 1;
            }
        }
    }
    sums
}

#[test]
fn a_snapshot_has_every_live_block_and_all_that_is_reserved() {
    for without_virtual_memory in [false, true] {
        let gpu = gpu_with(SimOptions { without_virtual_memory, ..SimOptions::default() });
        let stream = stream(&gpu);
        let pool = pool(&gpu, alone());
        let region = pool.region(&RegionOptions::default()).unwrap();
        let mut rng = fastrand::Rng::with_seed(11);
        let mut live = Vec::new();
        for step in 0..400 {
            let power = rng.u32(0..24);
            let bytes = rng.usize(1..=1 << power);
            let of: &dyn Resource = if step % 5 == 0 { &region } else { &pool };
            live.push((of.allocate(bytes, stream).unwrap(), bytes));
            if live.len() > 60 {
                let (block, bytes) = live.swap_remove(rng.usize(0..live.len()));
                pool.deallocate(block, bytes, stream).unwrap();
            }
        }
        let pickle = pool.snapshot().write_to(Vec::new()).unwrap();
        let trace = Trace::read(&pickle[..], Limits::default()).unwrap();
        let usage = pool.usage();
        let (bytes, blocks, reserved) = read(&trace);
        assert_eq!((bytes as usize, blocks), (usage.live_bytes, usage.live_blocks));
        assert_eq!(reserved as usize, usage.reserved_bytes);
    }
}

#[test]
fn a_pool_that_runs_out_leaves_a_snapshot() {
    let gpu = gpu(0);
    let stream = stream(&gpu);
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("oom.pickle");
    let _ = std::fs::remove_file(&path);
    let config = PoolConfig { oom_snapshot: Some(path.clone()), ..alone() };
    let pool = pool(&gpu, config);
    let error = loop {
        if let Err(error) = pool.allocate(30 * MIB, stream) {
            break error;
        }
    };
    assert!(
        error.to_string().ends_with(&format!("a snapshot is in {}", path.display())),
        "{error}"
    );
    let trace = Trace::open(&path).unwrap();
    let (bytes, _, reserved) = read(&trace);
    assert_eq!(bytes as usize, pool.usage().live_bytes);
    let millpond::AllocError::OutOfMemory(error) = error else { panic!("{error}") };
    // Pages that are mapped nowhere have no address to show.
    assert_eq!(reserved as usize + error.recoverable.release, pool.usage().reserved_bytes);
    // Nowhere to write: the request fails no differently, and says so.
    let nowhere = PoolConfig { oom_snapshot: Some("/nowhere/oom.pickle".into()), ..alone() };
    pool.set_config(nowhere).unwrap();
    let error = pool.allocate(30 * MIB, stream).unwrap_err();
    assert!(
        error.is_out_of_memory() && error.to_string().contains("/nowhere/oom.pickle"),
        "{error}"
    );
}

/// The error says what is held, and where memory that cannot serve the request lies.
#[test]
fn an_out_of_memory_error_explains_itself() {
    let gpu = gpu(0);
    let stream = stream(&gpu);
    let pool = pool(&gpu, alone());
    let blocks: Vec<_> = (0..10).map(|_| pool.allocate(100 * MIB, stream).unwrap()).collect();
    pool.deallocate(blocks[3], 100 * MIB, stream).unwrap();
    let Err(millpond::AllocError::OutOfMemory(error)) = pool.allocate(300 * MIB, stream) else {
        panic!("there are 124 MiB at most")
    };
    assert_eq!((error.requested_bytes, error.live_bytes), (300 * MIB, 900 * MIB));
    assert!(error.reserved_bytes >= 1000 * MIB && error.device_free_bytes <= 24 * MIB);
    assert!(error.largest_free_bytes >= 96 * MIB, "{error}");
    assert!(error.recoverable.r#move + error.recoverable.wait >= 98 * MIB, "{error}");
    pool.allocate(error.largest_free_bytes, stream).expect("what it says is free can be had");
}
