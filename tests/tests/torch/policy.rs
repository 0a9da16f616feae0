//! What only PyTorch's allocator does, one rule at a time.

use std::sync::Arc;
use std::time::Duration;

use millpond::driver::{Call, DevicePtr, Driver, EventTiming, Kernel, Stream, StreamFlags, Touch};
use millpond::resource::PyTorchCaching;
use millpond::{FreeError, Resource};
use millpond_sim::{Profile, RunOrder, SimGpu, SimOptions};

const MIB: usize = 1 << 20;

/// A device of 256 MiB in adversarial order.
fn gpu(seed: u64) -> Arc<SimGpu> {
    let text = "base = 'v100-16g'\n[memory]\ncapacity = '256MiB'\n";
    let profile = Profile::parse("small", text).expect("a right profile");
    let options = SimOptions { seed, run_order: RunOrder::Adversarial, ..SimOptions::default() };
    Arc::new(SimGpu::with_options(profile, options))
}

fn torch(gpu: &Arc<SimGpu>, settings: &str) -> PyTorchCaching {
    let config = settings.parse().expect("right settings");
    PyTorchCaching::with_config(gpu.clone(), config).expect("right settings")
}

fn stream(gpu: &SimGpu) -> Stream {
    gpu.create_stream(StreamFlags::NON_BLOCKING).expect("a stream")
}

fn write(gpu: &SimGpu, ptr: DevicePtr, bytes: usize, stream: Stream, duration: Duration) {
    let kernel = Kernel::Work { touches: vec![Touch::write(ptr, bytes)], duration };
    gpu.launch(&kernel, stream).expect("a right kernel");
}

/// Makes work of `later` come after what is queued on `earlier`.
fn order(gpu: &SimGpu, earlier: Stream, later: Stream) {
    let event = gpu.create_event(EventTiming::Disabled).unwrap();
    gpu.record_event(event, earlier).unwrap();
    gpu.wait_event(later, event).unwrap();
    gpu.destroy_event(event).unwrap();
}

const LONG: Duration = Duration::from_millis(100);

#[test]
fn a_recorded_stream_is_waited_for() {
    let gpu = gpu(0);
    let (own, other) = (stream(&gpu), stream(&gpu));
    let torch = torch(&gpu, "");
    let block = torch.allocate(5 * MIB, own).unwrap();
    torch.record_stream(block, other).unwrap();
    torch.record_stream(block, own).unwrap();
    write(&gpu, block, 5 * MIB, other, LONG);
    torch.deallocate(block, 5 * MIB, own).unwrap();
    assert_eq!(torch.usage().live_bytes, 0);
    assert_eq!(torch.record_stream(block, other), Err(FreeError::AlreadyFree { ptr: block }));
    assert_eq!(torch.deallocate(block, 5 * MIB, own), Err(FreeError::AlreadyFree { ptr: block }));

    let elsewhere = torch.allocate(5 * MIB, own).unwrap();
    assert_ne!(elsewhere, block, "the other stream may still write to it");
    gpu.synchronize_stream(other).unwrap();
    assert_eq!(torch.allocate(5 * MIB, own).unwrap(), block);
    assert_eq!(gpu.findings(), []);
}

/// In adversarial order, with frees on any stream, streams that are destroyed and a thread's own.
#[test]
fn blocks_of_several_streams_are_never_reused_too_early() {
    for seed in 0..60 {
        let gpu = gpu(seed);
        let mut rng = fastrand::Rng::with_seed(seed);
        let settings = ["", "expandable_segments:True", "max_split_size_mb:20"][seed as usize % 3];
        let torch = torch(&gpu, settings);
        let mut streams = [stream(&gpu), stream(&gpu), Stream::PER_THREAD, Stream::LEGACY];
        for _ in 0..40 {
            let bytes = [700, 40_000, 3 * MIB, 12 * MIB][rng.usize(0..4)];
            let [first, second, freed_on] = [(); 3].map(|()| streams[rng.usize(0..4)]);
            let block = torch.allocate(bytes, first).unwrap();
            write(&gpu, block, bytes, first, Duration::ZERO);
            order(&gpu, first, second);
            torch.record_stream(block, second).unwrap();
            write(&gpu, block, bytes, second, Duration::from_micros(rng.u64(0..300)));
            if rng.u32(0..8) == 0 {
                // The stream goes, with its work still queued; its handle comes again.
                order(&gpu, streams[0], Stream::LEGACY);
                gpu.destroy_stream(streams[0]).unwrap();
                streams[0] = stream(&gpu);
            }
            let freed_on = if freed_on == second { first } else { freed_on };
            if [first, second].contains(&freed_on) || rng.bool() {
                torch.deallocate(block, bytes, freed_on).unwrap();
            } else {
                order(&gpu, second, freed_on);
                std::thread::scope(|scope| {
                    let freed = scope.spawn(|| torch.deallocate(block, bytes, freed_on));
                    freed.join().expect("no panic").unwrap();
                });
            }
            torch.usage();
        }
        gpu.synchronize_device().unwrap();
        assert_eq!(gpu.findings(), [], "seed {seed}");
        torch.trim();
        assert_eq!(torch.usage().reserved_bytes, 0, "seed {seed}");
    }
}

#[test]
fn a_free_on_another_stream_counts_as_use_there() {
    let gpu = gpu(0);
    let (own, other) = (stream(&gpu), stream(&gpu));
    let torch = torch(&gpu, "");
    let block = torch.allocate(1000, own).unwrap();
    write(&gpu, block, 1000, other, LONG);
    torch.deallocate(block, 1000, other).unwrap();
    assert_ne!(torch.allocate(1000, own).unwrap(), block);
}

#[test]
fn a_streams_blocks_are_its_own_until_they_are_given_back() {
    let gpu = gpu(0);
    let (first, second) = (stream(&gpu), stream(&gpu));
    let torch = torch(&gpu, "");
    let block = torch.allocate(100 * MIB, first).unwrap();
    torch.deallocate(block, 100 * MIB, first).unwrap();
    torch.allocate(100 * MIB, second).unwrap();
    assert_eq!(torch.usage().reserved_bytes, 200 * MIB);
    // Memory is out: what the first stream has cached goes back to the driver.
    torch.allocate(100 * MIB, second).unwrap();
    assert_eq!(torch.usage().reserved_bytes, 200 * MIB);
    assert_eq!(gpu.calls(Call::Free), 1);
}

#[test]
fn ties_are_broken_by_the_lowest_address() {
    let gpu = gpu(0);
    let torch = torch(&gpu, "");
    let own = stream(&gpu);
    let mut blocks = [(); 4].map(|()| torch.allocate(16 * MIB, own).unwrap());
    for &block in &[blocks[2], blocks[0], blocks[3], blocks[1]] {
        torch.deallocate(block, 16 * MIB, own).unwrap();
    }
    blocks.sort();
    assert_eq!([(); 4].map(|()| torch.allocate(16 * MIB, own).unwrap()), blocks);
}

#[test]
fn neighbours_merge_within_a_segment() {
    let gpu = gpu(0);
    let torch = torch(&gpu, "");
    let own = stream(&gpu);
    let blocks = [(); 4].map(|()| torch.allocate(5 * MIB, own).unwrap());
    assert_eq!(blocks, [0, 5, 10, 15].map(|mib| blocks[0].offset(mib * MIB)));
    for &block in &[blocks[0], blocks[2], blocks[1]] {
        torch.deallocate(block, 5 * MIB, own).unwrap();
    }
    assert_eq!(torch.usage().largest_free_bytes, 15 * MIB);
    assert_eq!(torch.trim(), 0, "the last quarter is live");
    torch.deallocate(blocks[3], 5 * MIB, own).unwrap();
    assert_eq!(torch.trim(), 20 * MIB);
}

#[test]
fn a_fraction_limits_what_is_reserved() {
    let gpu = gpu(0);
    let torch = torch(&gpu, "per_process_memory_fraction:0.5");
    let own = stream(&gpu);
    let block = torch.allocate(100 * MIB, own).unwrap();
    assert!(torch.allocate(30 * MIB, own).unwrap_err().is_out_of_memory());
    torch.deallocate(block, 100 * MIB, own).unwrap();
    torch.allocate(128 * MIB, own).unwrap();
}

#[test]
fn segments_unused_for_long_are_collected() {
    let gpu = gpu(0);
    let torch = torch(&gpu, "garbage_collection_threshold:0.4,per_process_memory_fraction:0.99");
    let own = stream(&gpu);
    let old = torch.allocate(60 * MIB, own).unwrap();
    torch.deallocate(old, 60 * MIB, own).unwrap();
    // The old one gets older with every search; the new one is used again and again.
    for _ in 0..10 {
        let young = torch.allocate(64 * MIB, own).unwrap();
        torch.deallocate(young, 64 * MIB, own).unwrap();
    }
    assert_eq!(torch.usage().reserved_bytes, 124 * MIB);
    torch.allocate(80 * MIB, own).unwrap();
    assert_eq!(torch.usage().reserved_bytes, (64 + 80) * MIB);
}

#[test]
fn blocks_too_large_to_split_are_given_back_first() {
    let gpu = gpu(0);
    let torch = torch(&gpu, "max_split_size_mb:40");
    let own = stream(&gpu);
    let blocks = [50, 60, 70].map(|mib| (torch.allocate(mib * MIB, own).unwrap(), mib * MIB));
    for (block, bytes) in blocks {
        torch.deallocate(block, bytes, own).unwrap();
    }
    // 180 of 256 MiB are cached, and none of it may serve this.
    torch.allocate(30 * MIB, own).unwrap();
    assert_eq!(torch.usage().reserved_bytes, 210 * MIB);
    // The largest goes, and is not enough; so does the next.
    torch.allocate(110 * MIB, own).unwrap();
    assert_eq!(torch.usage().reserved_bytes, (30 + 50 + 110) * MIB);
}

#[test]
fn an_expandable_segment_grows_at_its_end() {
    let gpu = gpu(0);
    let torch = torch(&gpu, "expandable_segments:True");
    let own = stream(&gpu);
    let first = torch.allocate(15 * MIB, own).unwrap();
    let second = torch.allocate(30 * MIB, own).unwrap();
    assert_eq!(second, first.offset(15 * MIB), "5 MiB were left of the first 20");
    assert_eq!(torch.usage().reserved_bytes, 60 * MIB);
    assert_eq!((gpu.calls(Call::Reserve), gpu.calls(Call::Create)), (1, 3));

    // What was unmapped in the middle is filled before the end grows.
    torch.deallocate(first, 15 * MIB, own).unwrap();
    let third = torch.allocate(2 * MIB, own).unwrap();
    assert_eq!(third, first);
    torch.deallocate(third, 2 * MIB, own).unwrap();
    let fourth = torch.allocate(60 * MIB, own).unwrap();
    torch.deallocate(second, 30 * MIB, own).unwrap();
    assert_eq!(torch.trim(), 40 * MIB, "the third page has the end of what is live");
    assert_eq!(torch.allocate(25 * MIB, own).unwrap(), first);
    torch.deallocate(first, 25 * MIB, own).unwrap();
    torch.deallocate(fourth, 60 * MIB, own).unwrap();
    torch.trim();
    assert_eq!(gpu.held().reservations, 0);
}

#[test]
fn what_an_expandable_segment_cannot_map_goes_back_at_once() {
    let gpu = gpu(0);
    let torch = torch(&gpu, "expandable_segments:True");
    // There are addresses for it, but not the memory.
    assert!(torch.allocate(270 * MIB, stream(&gpu)).unwrap_err().is_out_of_memory());
    assert_eq!(torch.usage().reserved_bytes, 0);
    assert!(gpu.calls(Call::Create) > 1);
}

/// A device without virtual memory management has plain segments instead, as in PyTorch.
#[test]
fn without_virtual_memory_segments_are_plain() {
    let profile = Profile::named("a100-80g").expect("built in");
    let options = SimOptions { without_virtual_memory: true, ..SimOptions::default() };
    let gpu = Arc::new(SimGpu::with_options(profile, options));
    let torch = torch(&gpu, "expandable_segments:True");
    torch.allocate(MIB, Stream::LEGACY).unwrap();
    assert_eq!((gpu.calls(Call::Alloc), gpu.calls(Call::Reserve)), (1, 0));
}

#[test]
fn a_lost_device_is_reported_and_nothing_is_handed_out_twice() {
    let gpu = gpu(0);
    let torch = torch(&gpu, "");
    let own = stream(&gpu);
    let block = torch.allocate(1000, own).unwrap();
    write(&gpu, DevicePtr(0x10), 4, own, Duration::ZERO);
    assert!(gpu.synchronize_device().is_err());
    assert!(torch.allocate(100 * MIB, own).is_err());
    assert_eq!(
        torch.deallocate(block, 999, own),
        Err(FreeError::WrongSize { ptr: block, given_bytes: 999, allocated_bytes: 1000 })
    );
}
