//! What a simulated device costs the host. Alone in its process, since it measures the process.

use millpond::driver::{Driver, Stream};
use millpond_sim::{Profile, SimGpu};

/// What this process holds of the host's memory, in MiB.
fn resident_mib() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * 4096 / (1 << 20)
}

#[test]
fn memory_costs_the_host_nothing_until_it_is_touched_and_nothing_after_it_is_freed() {
    let before = resident_mib();
    let gpu = SimGpu::new(Profile::named("a100-80g").unwrap());
    let most = gpu.alloc(79 << 30).unwrap();
    let managed = gpu.alloc_managed(100 << 30).unwrap();
    assert!(resident_mib() - before < 100, "{before} MiB, then {} MiB", resident_mib());
    gpu.memset(most, 1, 64 << 20, Stream::LEGACY).unwrap();
    gpu.memset(managed, 1, 64 << 20, Stream::LEGACY).unwrap();
    gpu.synchronize_device().unwrap();
    assert!(resident_mib() - before >= 128, "the bytes are real");
    gpu.free(most).unwrap();
    gpu.free(managed).unwrap();
    assert!(resident_mib() - before < 100, "{before} MiB, then {} MiB", resident_mib());
}
