//! What the detector finds, and what it does not mistake for a fault.

use std::sync::Arc;
use std::time::Duration;

use millpond::driver::{
    Access, DevicePtr, Driver, DriverErrorKind, EventTiming, Kernel, PhysicalProperties, Stream,
    StreamFlags, Touch,
};
use millpond_sim::{AddressWord, Finding, Profile, RunOrder, SimGpu, SimOptions, UnknownKernel};

const PAGE: usize = 2 << 20;

fn gpu(run_order: RunOrder, seed: u64) -> SimGpu {
    let profile = Profile::named("v100-16g").unwrap();
    SimGpu::with_options(profile, SimOptions { run_order, seed, ..SimOptions::default() })
}

fn write(gpu: &SimGpu, ptr: DevicePtr, bytes: usize, took: Duration, stream: Stream) {
    let kernel = Kernel::Work { touches: vec![Touch::write(ptr, bytes)], duration: took };
    gpu.launch(&kernel, stream).unwrap();
}

#[test]
fn memory_unmapped_under_a_running_kernel_is_found_always() {
    for seed in 0..100 {
        let gpu = gpu(RunOrder::Adversarial, seed);
        let stream = gpu.create_stream(StreamFlags::NON_BLOCKING).unwrap();
        let range = gpu.reserve(PAGE, 0).unwrap();
        let handle = gpu.create(PAGE, PhysicalProperties::default()).unwrap();
        gpu.map(range, PAGE, handle).unwrap();
        gpu.set_access(range, PAGE, Access::ReadWrite).unwrap();
        write(&gpu, range, PAGE, Duration::from_secs(1), stream);
        gpu.advance(Duration::from_millis(seed));
        gpu.unmap(range, PAGE).unwrap();
        let error = gpu.synchronize_device().unwrap_err();
        assert_eq!(error.kind, DriverErrorKind::IllegalAddress, "seed {seed}");
        assert!(matches!(gpu.findings()[..], [Finding::IllegalAddress { .. }]), "seed {seed}");
    }
}

/// An address among a kernel's parameters may be of a field that nobody set: what it leads to costs nobody the device.
#[test]
fn what_a_kernel_may_touch_is_suspected_and_never_found() {
    for seed in 0..100 {
        let gpu = gpu(RunOrder::Adversarial, seed);
        let streams: Vec<Stream> =
            (0..2).map(|_| gpu.create_stream(StreamFlags::NON_BLOCKING).unwrap()).collect();
        let range = gpu.reserve(PAGE, 0).unwrap();
        let handle = gpu.create(PAGE, PhysicalProperties::default()).unwrap();
        gpu.map(range, PAGE, handle).unwrap();
        gpu.set_access(range, PAGE, Access::ReadWrite).unwrap();
        let word = AddressWord { ptr: range.offset(512), offset: 24, parameter_bytes: Some(32) };
        let duration = Duration::from_millis(1);
        let name = "many_tensors".to_owned();
        let kernel = Arc::new(UnknownKernel { name, addresses: vec![word], duration });
        write(&gpu, range, PAGE, Duration::ZERO, streams[0]);
        gpu.launch_unknown(&kernel, streams[1]).unwrap();
        assert_eq!(gpu.findings(), [], "seed {seed}: not even a race");
        gpu.synchronize_stream(streams[0]).unwrap();
        gpu.unmap(range, PAGE).unwrap();
        gpu.synchronize_device().unwrap();
        let suspicions = gpu.suspicions();
        // It may have ended before the memory went.
        assert!(suspicions.iter().all(|it| it.word == word && it.reason.starts_with("unmapped")));
        assert!(suspicions.len() <= 1, "seed {seed}: {suspicions:?}");
        assert_eq!(gpu.findings(), [], "seed {seed}");
    }
}

/// What is refused takes nothing from under anything.
#[test]
fn an_unmap_that_is_refused_harms_nothing() {
    let gpu = gpu(RunOrder::Timed, 0);
    let range = gpu.reserve(2 * PAGE, 0).unwrap();
    let handle = gpu.create(2 * PAGE, PhysicalProperties::default()).unwrap();
    gpu.map(range, 2 * PAGE, handle).unwrap();
    gpu.set_access(range, 2 * PAGE, Access::ReadWrite).unwrap();
    write(&gpu, range, PAGE, Duration::from_secs(1), Stream::LEGACY);
    assert_eq!(gpu.unmap(range, PAGE).unwrap_err().kind, DriverErrorKind::InvalidValue);
    gpu.synchronize_device().unwrap();
    assert_eq!(gpu.findings(), []);
}

#[test]
fn an_alias_may_be_unmapped_while_the_other_is_in_use() {
    let gpu = gpu(RunOrder::Timed, 0);
    let range = gpu.reserve(2 * PAGE, 0).unwrap();
    let handle = gpu.create(PAGE, PhysicalProperties::default()).unwrap();
    gpu.map(range, PAGE, handle).unwrap();
    gpu.map(range.offset(PAGE), PAGE, handle).unwrap();
    gpu.set_access(range, 2 * PAGE, Access::ReadWrite).unwrap();
    write(&gpu, range, PAGE, Duration::from_secs(1), Stream::LEGACY);
    gpu.unmap(range.offset(PAGE), PAGE).unwrap();
    gpu.synchronize_device().unwrap();
    assert_eq!(gpu.findings(), []);
}

/// Waiting for an event that has long passed orders all the same, and the legacy stream carries it on.
#[test]
fn a_wait_for_a_passed_event_is_an_order_that_the_legacy_stream_extends() {
    let gpu = gpu(RunOrder::Timed, 0);
    let free = gpu.create_stream(StreamFlags::NON_BLOCKING).unwrap();
    let blocking = gpu.create_stream(StreamFlags::default()).unwrap();
    let block = gpu.alloc(4096).unwrap();
    let event = gpu.create_event(EventTiming::Disabled).unwrap();
    for (waits, writes) in [(Stream::LEGACY, blocking), (blocking, Stream::LEGACY)] {
        write(&gpu, block, 4096, Duration::ZERO, free);
        gpu.record_event(event, free).unwrap();
        gpu.advance(Duration::from_secs(1));
        gpu.wait_event(waits, event).unwrap();
        write(&gpu, block, 4096, Duration::ZERO, writes);
        gpu.record_event(event, writes).unwrap();
        gpu.wait_event(free, event).unwrap();
    }
    gpu.synchronize_device().unwrap();
    assert_eq!(gpu.findings(), []);
}

#[test]
fn what_the_host_has_seen_is_known() {
    let gpu = gpu(RunOrder::Timed, 0);
    let [a, b] = [(); 2].map(|()| gpu.create_stream(StreamFlags::NON_BLOCKING).unwrap());
    let block = gpu.alloc(4096).unwrap();
    let [start, end] = [(); 2].map(|()| gpu.create_event(EventTiming::Enabled).unwrap());
    gpu.record_event(start, a).unwrap();
    write(&gpu, block, 4096, Duration::ZERO, a);
    gpu.record_event(end, a).unwrap();
    gpu.advance(Duration::from_secs(1));
    gpu.elapsed(start, end).unwrap();
    write(&gpu, block, 4096, Duration::ZERO, b);
    gpu.synchronize_device().unwrap();
    assert_eq!(gpu.findings(), [], "a time that was told is a point that has passed");
    write(&gpu, block, 4096, Duration::ZERO, a);
    gpu.advance(Duration::from_secs(1));
    write(&gpu, block, 4096, Duration::ZERO, b);
    gpu.synchronize_device().unwrap();
    assert!(matches!(gpu.findings()[..], [Finding::Race { .. }]), "time alone orders nothing");
}

#[test]
fn pool_memory_is_used_only_between_allocation_and_free() {
    let pool_gpu = || {
        let gpu = gpu(RunOrder::Timed, 0);
        let pool = gpu.default_pool().unwrap();
        let block = gpu.alloc_async(PAGE, pool, Stream::LEGACY).unwrap();
        // Keeps the chunk in the pool.
        gpu.alloc_async(PAGE, pool, Stream::LEGACY).unwrap();
        write(&gpu, block, PAGE, Duration::ZERO, Stream::LEGACY);
        gpu.synchronize_device().unwrap();
        assert_eq!(gpu.findings(), []);
        (gpu, block)
    };
    let late_use = |gpu: &SimGpu, ptr: DevicePtr| {
        write(gpu, ptr, 512, Duration::ZERO, Stream::LEGACY);
        gpu.synchronize_device().unwrap();
        assert!(matches!(gpu.findings()[..], [Finding::UseOfFreed { .. }]), "{:?}", gpu.findings());
    };
    let (gpu, block) = pool_gpu();
    gpu.free_async(block, Stream::LEGACY).unwrap();
    late_use(&gpu, block);
    let (gpu, block) = pool_gpu();
    gpu.free(block).unwrap();
    late_use(&gpu, block);
    let (gpu, block) = pool_gpu();
    late_use(&gpu, block.offset(3 * PAGE));
}

#[test]
fn a_device_without_virtual_memory_or_pools_says_so() {
    let options =
        SimOptions { without_virtual_memory: true, without_pools: true, ..SimOptions::default() };
    let gpu = SimGpu::with_options(Profile::named("p100-16g").unwrap(), options);
    assert!(!gpu.device().virtual_memory && !gpu.device().memory_pools);
    let not_supported = DriverErrorKind::NotSupported;
    assert_eq!(gpu.reserve(PAGE, 0).unwrap_err().kind, not_supported);
    assert_eq!(gpu.create(PAGE, PhysicalProperties::default()).unwrap_err().kind, not_supported);
    assert_eq!(gpu.default_pool().unwrap_err().kind, not_supported);
    gpu.alloc(4096).unwrap();
}
