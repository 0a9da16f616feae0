//! What resources do beyond what all of them must: their settings, and their own rules between streams.

use std::sync::Arc;

use millpond::driver::{DevicePtr, EventTiming, Kernel, StreamFlags, Touch};
use millpond::resource::{
    Arena, Async, AsyncConfig, BestFit, BestFitConfig, Bfc, BfcConfig, Binning, BinningConfig,
    Direct, FixedSize, FixedSizeConfig, MakeError, Slab, SlabConfig,
};
use millpond::{AllocError, Driver, Resource, Stream, stack};
use millpond_sim::{Profile, SimGpu};

const MIB: usize = 1 << 20;

fn gpu() -> Arc<SimGpu> {
    Arc::new(SimGpu::new(Profile::named("v100-16g").unwrap()))
}

fn direct(gpu: &Arc<SimGpu>) -> Arc<Direct> {
    Arc::new(Direct::new(gpu.clone()))
}

fn two_streams(gpu: &SimGpu) -> [Stream; 2] {
    [0; 2].map(|_| gpu.create_stream(StreamFlags::NON_BLOCKING).unwrap())
}

/// Work that takes a while.
fn busy(gpu: &SimGpu, ptr: DevicePtr, stream: Stream) {
    let touches = vec![Touch::write(ptr, 256)];
    let duration = std::time::Duration::from_millis(5);
    gpu.launch(&Kernel::Work { touches, duration }, stream).unwrap();
}

/// Where a block lies that another stream has freed, and where the next one of the same size on this stream does.
fn freed_and_taken(config: AsyncConfig, waits: bool) -> (DevicePtr, DevicePtr) {
    let gpu = gpu();
    let [one, two] = two_streams(&gpu);
    let resource = Async::with_config(gpu.clone(), config).unwrap();
    let freed = resource.allocate(MIB, one).unwrap();
    busy(&gpu, freed, one);
    resource.deallocate(freed, MIB, one).unwrap();
    if waits {
        gpu.synchronize_device().unwrap();
    }
    (freed, resource.allocate(MIB, two).unwrap())
}

#[test]
fn the_drivers_pool_reuses_as_it_is_told() {
    let off = AsyncConfig {
        follow_event_dependencies: false,
        allow_opportunistic: false,
        allow_internal_dependencies: false,
        ..AsyncConfig::default()
    };
    let (freed, taken) = freed_and_taken(off, true);
    assert_ne!(freed, taken, "what another stream has freed is not reused at all");
    let (freed, taken) = freed_and_taken(AsyncConfig { allow_opportunistic: true, ..off }, true);
    assert_eq!(freed, taken, "what has run is reused");
    let (freed, taken) = freed_and_taken(AsyncConfig { allow_opportunistic: true, ..off }, false);
    assert_ne!(freed, taken, "what has not run is not");
}

#[test]
fn the_drivers_pool_follows_events_that_streams_wait_for() {
    for follow_event_dependencies in [false, true] {
        let gpu = gpu();
        let [one, two] = two_streams(&gpu);
        let config = AsyncConfig {
            follow_event_dependencies,
            allow_opportunistic: false,
            allow_internal_dependencies: false,
            ..AsyncConfig::default()
        };
        let resource = Async::with_config(gpu.clone(), config).unwrap();
        let freed = resource.allocate(MIB, one).unwrap();
        busy(&gpu, freed, one);
        resource.deallocate(freed, MIB, one).unwrap();
        let event = gpu.create_event(EventTiming::Disabled).unwrap();
        gpu.record_event(event, one).unwrap();
        gpu.wait_event(two, event).unwrap();
        let taken = resource.allocate(MIB, two).unwrap();
        assert_eq!(taken == freed, follow_event_dependencies);
    }
}

#[test]
fn the_drivers_pool_makes_streams_wait_when_there_is_nothing_else() {
    for allow_internal_dependencies in [false, true] {
        let gpu = gpu();
        let [one, two] = two_streams(&gpu);
        let config = AsyncConfig {
            maximum_bytes: Some(32 * MIB),
            follow_event_dependencies: false,
            allow_opportunistic: false,
            allow_internal_dependencies,
            ..AsyncConfig::default()
        };
        let resource = Async::with_config(gpu.clone(), config).unwrap();
        let freed = resource.allocate(30 * MIB, one).unwrap();
        busy(&gpu, freed, one);
        resource.deallocate(freed, 30 * MIB, one).unwrap();
        let answer = resource.allocate(30 * MIB, two);
        assert_eq!(answer.is_ok(), allow_internal_dependencies, "{answer:?}");
    }
}

#[test]
fn a_slab_that_becomes_empty_goes_back_unless_its_cache_keeps_it() {
    for empty_slabs_kept in [0, 1, 2] {
        let config = SlabConfig { slab_bytes: MIB, empty_slabs_kept, ..SlabConfig::default() };
        let gpu = gpu();
        let resource = Slab::with_config(direct(&gpu), config).unwrap();
        // Four to a slab, so three slabs.
        let blocks: Vec<_> =
            (0..12).map(|_| resource.allocate(256 << 10, Stream::LEGACY).unwrap()).collect();
        assert_eq!(resource.usage().reserved_bytes, 3 * MIB);
        for block in &blocks[..11] {
            resource.deallocate(*block, 256 << 10, Stream::LEGACY).unwrap();
        }
        let expected = 1 + empty_slabs_kept.min(2);
        assert_eq!(resource.usage().reserved_bytes, expected * MIB, "one object keeps its slab");
        resource.deallocate(blocks[11], 256 << 10, Stream::LEGACY).unwrap();
        assert_eq!(resource.usage().reserved_bytes, empty_slabs_kept * MIB);
    }
}

#[test]
fn the_drivers_pool_keeps_what_its_threshold_allows() {
    for (release_threshold_bytes, kept) in [(Some(0), false), (None, true)] {
        let gpu = gpu();
        let config =
            AsyncConfig { release_threshold_bytes, initial_bytes: 40 * MIB, ..Default::default() };
        let resource = Async::with_config(gpu.clone(), config).unwrap();
        assert!(resource.usage().reserved_bytes >= 40 * MIB, "it begins with its initial size");
        gpu.synchronize_device().unwrap();
        assert_eq!(resource.usage().reserved_bytes > 0, kept);
        assert_eq!(resource.trim() > 0, kept);
        assert_eq!(gpu.held().pool_bytes, 0);
    }
}

#[test]
fn best_fit_takes_from_its_own_stream_first_then_from_others_and_grows_last() {
    let gpu = gpu();
    let [one, two] = two_streams(&gpu);
    let config = BestFitConfig { initial_bytes: 8 * MIB, maximum_bytes: Some(16 * MIB) };
    let resource = BestFit::with_config(direct(&gpu), config).unwrap();
    let allocate = |mib: usize, stream| resource.allocate(mib * MIB, stream).unwrap();
    let free = |ptr, mib: usize, stream| resource.deallocate(ptr, mib * MIB, stream).unwrap();
    // The initial block is the default stream's; these take it apart.
    let blocks = [allocate(2, one), allocate(2, one), allocate(2, two), allocate(2, two)];
    assert_eq!(resource.usage().reserved_bytes, 8 * MIB);
    free(blocks[0], 2, one);
    free(blocks[2], 2, two);
    assert_eq!(allocate(1, two), blocks[2], "its own");
    assert_eq!(allocate(2, two), blocks[0], "the other's, since nothing of its own is left");
    free(blocks[1], 2, one);
    free(blocks[3], 2, two);
    // Neither stream has three in a row: both lists become one, and still there are none.
    allocate(4, one);
    assert_eq!(resource.usage().reserved_bytes, 12 * MIB, "half of what is left to the maximum");
    let error = resource.allocate(5 * MIB, one).unwrap_err();
    assert!(error.is_out_of_memory(), "{error}");
}

#[test]
fn bfc_gives_unused_regions_back_to_get_a_larger_one_if_it_may() {
    for releases_regions in [false, true] {
        let gpu = gpu();
        let config =
            BfcConfig { maximum_bytes: Some(16 * MIB), releases_regions, ..Default::default() };
        let resource = Bfc::with_config(direct(&gpu), config).unwrap();
        let blocks: Vec<_> =
            (0..3).map(|_| resource.allocate(4 * MIB, Stream::LEGACY).unwrap()).collect();
        for block in blocks {
            resource.deallocate(block, 4 * MIB, Stream::LEGACY).unwrap();
        }
        assert_eq!(resource.usage().reserved_bytes, 16 * MIB, "4 MiB, as much again, then 8");
        let answer = resource.allocate(14 * MIB, Stream::LEGACY);
        assert_eq!(answer.is_ok(), releases_regions);
        assert_eq!(resource.usage().reserved_bytes, 16 * MIB);
    }
}

#[test]
fn an_arenas_large_blocks_are_freed_when_their_stream_is_done() {
    let gpu = gpu();
    let [one, two] = two_streams(&gpu);
    let resource = Arena::new(gpu.clone()).unwrap();
    let (small, large) =
        (resource.allocate(1000, one).unwrap(), resource.allocate(3 * MIB, one).unwrap());
    busy(&gpu, large, one);
    resource.deallocate(small, 1000, one).unwrap();
    assert!(!gpu.query_stream(one).unwrap(), "a small block goes back without waiting");
    resource.deallocate(large, 3 * MIB, one).unwrap();
    assert!(gpu.query_stream(one).unwrap(), "a large one after the stream");
    let small = resource.allocate(1000, one).unwrap();
    let other = resource.allocate(1000, two).unwrap();
    assert!(other.0.abs_diff(small.0) >= MIB as u64, "each stream has superblocks of its own");
}

#[test]
fn a_block_that_is_larger_than_all_is_refused_with_a_remedy() {
    let resource = FixedSize::new(gpu()).unwrap();
    let error = resource.allocate(MIB + 1, Stream::LEGACY).unwrap_err();
    assert_eq!(error, AllocError::LargerThanBlocks { bytes: MIB + 1, block_bytes: MIB });
    assert!(error.to_string().ends_with("make blocks larger, or use binning"), "{error}");
}

#[test]
fn settings_that_make_no_sense_are_refused_in_one_line() {
    let gpu = gpu();
    let wrong: [Result<Box<dyn Resource>, MakeError>; 5] = [
        BestFit::with_config(
            direct(&gpu),
            BestFitConfig { initial_bytes: 512, maximum_bytes: Some(256) },
        )
        .map(|made| Box::new(made) as _),
        FixedSize::with_config(
            direct(&gpu),
            FixedSizeConfig { block_bytes: 1000, ..Default::default() },
        )
        .map(|made| Box::new(made) as _),
        Binning::with_config(
            direct(&gpu),
            BinningConfig { least_exponent: 4, ..Default::default() },
        )
        .map(|made| Box::new(made) as _),
        Slab::with_config(
            direct(&gpu),
            SlabConfig { largest_object_bytes: 4 * MIB, ..Default::default() },
        )
        .map(|made| Box::new(made) as _),
        Bfc::with_config(direct(&gpu), BfcConfig { maximum_bytes: Some(0), ..Default::default() })
            .map(|made| Box::new(made) as _),
    ];
    for answer in wrong {
        let message = answer.err().expect("is refused").to_string();
        assert!(!message.contains('\n') && message.contains("_"), "{message}");
    }
}

/// Streams come and go by the thousand: what a resource keeps for them does not grow with their number, but for those whose originals keep a
/// part for each stream (arena, torch, binning over them).
#[test]
fn streams_that_are_gone_leave_nothing_behind() {
    for stack in ["bestfit", "bfc", "buddy", "slab", "fixed"] {
        let gpu = gpu();
        let resource = stack::build(stack, gpu.clone()).unwrap();
        let mut most_reserved_early = 0;
        for round in 0..3000 {
            let stream = gpu.create_stream(StreamFlags::NON_BLOCKING).unwrap();
            let blocks = [700, 90_000].map(|bytes| {
                let ptr = resource.allocate(bytes, stream).unwrap();
                busy(&gpu, ptr, stream);
                (ptr, bytes)
            });
            for (ptr, bytes) in blocks {
                resource.deallocate(ptr, bytes, stream).unwrap();
            }
            gpu.destroy_stream(stream).unwrap();
            if round % 20 == 0 {
                gpu.synchronize_device().unwrap();
            }
            if round < 100 {
                most_reserved_early = resource.usage().peak_reserved_bytes;
            }
        }
        assert_eq!(resource.usage().peak_reserved_bytes, most_reserved_early);
        assert!(gpu.held().events < 200, "{} events", gpu.held().events);
        gpu.synchronize_device().unwrap();
        assert!(gpu.findings().is_empty());
    }
}

/// A block that is freed right after it was allocated is kept in hand. Looking at the account ends that, so two of a kind, one of which
/// is looked at all the time, must give the same addresses.
#[test]
fn a_block_in_hand_changes_no_address() {
    const STACKS: [&str; 6] = [
        "bestfit",
        "bestfit:initial_bytes=4MiB",
        "bfc",
        "arena:arena_bytes=64MiB",
        "buddy:region_bytes=3000000",
        "torch",
    ];
    for stack in STACKS {
        for seed in 0..60 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let (gpus, mut blocks, mut first) = ([gpu(), gpu()], Vec::new(), None);
            let streams = gpus.each_ref().map(|gpu| two_streams(gpu));
            let resources = gpus.each_ref().map(|gpu| stack::build(stack, gpu.clone()).unwrap());
            for step in 0..400 {
                let stream = rng.usize(0..2);
                if blocks.is_empty() || rng.u8(0..8) < 5 && blocks.len() < 40 {
                    let bytes = 256 << rng.usize(0..14);
                    let allocate = |of: usize| resources[of].allocate(bytes, streams[of][stream]);
                    let mut ptrs = [0, 1].map(|of| allocate(of).unwrap());
                    // Now and then it is freed at once, and as much is asked for again.
                    if rng.bool() {
                        for of in [0, 1] {
                            resources[of].deallocate(ptrs[of], bytes, streams[of][stream]).unwrap();
                            resources[1].usage();
                        }
                        ptrs = [0, 1].map(|of| allocate(of).unwrap());
                    }
                    let firsts = *first.get_or_insert(ptrs);
                    let offsets = [0, 1].map(|of| ptrs[of].0.wrapping_sub(firsts[of].0));
                    assert_eq!(offsets[0], offsets[1], "{stack} with seed {seed}, step {step}");
                    blocks.push((ptrs, bytes));
                } else {
                    let (ptrs, bytes) = blocks.swap_remove(rng.usize(0..blocks.len()));
                    for of in [0, 1] {
                        resources[of].deallocate(ptrs[of], bytes, streams[of][stream]).unwrap();
                    }
                }
                resources[1].usage();
            }
        }
    }
}
