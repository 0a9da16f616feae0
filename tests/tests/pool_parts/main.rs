//! What the pool has beyond allocating and freeing, part by part.

mod background;
mod bad_input;
mod captures;
mod fork_process;
mod forks;
mod growing_ahead;
mod handles;
mod large_blocks_in_caches;
mod patience;
mod pending;
mod plain_memory;
mod regions;
mod regressions;
mod several_streams;
mod slack;
mod snapshots;
mod tags;
mod tiers;
mod urgent;

use std::sync::Arc;
use std::time::Duration;

use millpond::driver::{DevicePtr, Driver, Kernel, Stream, StreamFlags, Touch};
use millpond::pool::{Pool, PoolConfig};
use millpond_sim::{Profile, RunOrder, SimGpu, SimOptions};

const MIB: usize = 1 << 20;

/// A device of 1 GiB whose streams run in adversarial order.
fn gpu(seed: u64) -> Arc<SimGpu> {
    gpu_with(SimOptions { seed, run_order: RunOrder::Adversarial, ..SimOptions::default() })
}

fn gpu_with(options: SimOptions) -> Arc<SimGpu> {
    let text = "base = 'v100-16g'\n[memory]\ncapacity = '1GiB'\n";
    let profile = Profile::parse("parts", text).expect("a right profile");
    Arc::new(SimGpu::with_options(profile, options))
}

fn stream(gpu: &SimGpu) -> Stream {
    gpu.create_stream(StreamFlags::NON_BLOCKING).expect("streams can be had")
}

/// Without the background, which does what it does when it likes.
fn alone() -> PoolConfig {
    PoolConfig { enable_defrag: false, ..PoolConfig::default() }
}

fn pool(gpu: &Arc<SimGpu>, config: PoolConfig) -> Pool {
    Pool::with_config(gpu.clone(), config).expect("right settings, and room")
}

/// Work that writes a block and takes a while.
fn write(gpu: &SimGpu, ptr: DevicePtr, bytes: usize, stream: Stream) {
    let duration = Duration::from_micros(300);
    let kernel = Kernel::Work { touches: vec![Touch::write(ptr, bytes)], duration };
    gpu.launch(&kernel, stream).expect("the device works");
}

/// Everything has run, and nothing was found wrong with it.
fn assert_no_findings(gpu: &SimGpu) {
    gpu.synchronize_device().expect("the device works");
    assert_eq!(gpu.findings(), []);
}
