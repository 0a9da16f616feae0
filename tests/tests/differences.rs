//! No two resources are the same: for each pair there is a short trace on which they place blocks or take memory differently.

use std::sync::Arc;

use millpond::driver::DevicePtr;
use millpond::resource::{
    Arena, ArenaConfig, Async, BestFit, Bfc, Binning, Buddy, Direct, FixedSize, Managed, Pinned,
    Slab,
};
use millpond::{Driver, Resource, Stream};
use millpond_sim::{Profile, SimGpu};

/// A step of a trace. Blocks are numbered in the order of their allocation.
#[derive(Clone, Copy, Debug)]
enum Step {
    Allocate(usize),
    Free(usize),
}
use Step::{Allocate, Free};

const KIB: usize = 1 << 10;

/// Sizes up to 1 MiB, which even blocks of one size hold.
const TRACES: [&[Step]; 4] = [
    // What is taken for a first small block.
    &[Allocate(300)],
    // Where further blocks lie, and what is taken for them.
    &[Allocate(3 * KIB), Allocate(5 * KIB), Allocate(600 * KIB), Allocate(700 * KIB)],
    // Which hole a block is put into: too small, just right, much too large.
    &[
        Allocate(200 * KIB),
        Allocate(256),
        Allocate(40 * KIB),
        Allocate(256),
        Allocate(64 * KIB),
        Allocate(256),
        Free(0),
        Free(2),
        Free(4),
        Allocate(36 * KIB),
        Allocate(40 * KIB),
    ],
    // Whether freed neighbours become one.
    &[
        Allocate(64 * KIB),
        Allocate(64 * KIB),
        Allocate(64 * KIB),
        Free(0),
        Free(1),
        Allocate(128 * KIB),
        Allocate(900 * KIB),
    ],
];

type Make = fn(Arc<dyn Driver>) -> Box<dyn Resource>;

const RESOURCES: [(&str, Make); 12] = [
    ("direct", |driver| Box::new(Direct::new(driver))),
    ("async", |driver| Box::new(Async::new(driver).unwrap())),
    ("managed", |driver| Box::new(Managed::new(driver))),
    ("pinned", |driver| Box::new(Pinned::new(driver))),
    ("bestfit", |driver| Box::new(BestFit::new(driver).unwrap())),
    ("bfc", |driver| Box::new(Bfc::new(driver).unwrap())),
    ("arena", |driver| {
        let config = ArenaConfig { arena_bytes: Some(2 << 20) };
        Box::new(Arena::with_config(Arc::new(Direct::new(driver)), config).unwrap())
    }),
    ("buddy", |driver| Box::new(Buddy::new(driver).unwrap())),
    ("slab", |driver| Box::new(Slab::new(driver).unwrap())),
    ("fixed", |driver| Box::new(FixedSize::new(driver).unwrap())),
    ("binning", |driver| Box::new(Binning::new(driver).unwrap())),
    // With a region of the size of the arena's, they differ by how they place blocks alone.
    ("buddy of 2 MiB", |driver| {
        use millpond::resource::BuddyConfig;
        let config = BuddyConfig { region_bytes: 2 << 20, maximum_bytes: None };
        Box::new(Buddy::with_config(Arc::new(Direct::new(driver)), config).unwrap())
    }),
];

/// What can be seen of a resource while a trace runs: addresses, counted from the first block's, and what is reserved.
fn seen(make: Make, trace: &[Step]) -> Vec<(i64, usize)> {
    let gpu: Arc<dyn Driver> = Arc::new(SimGpu::new(Profile::named("v100-16g").unwrap()));
    let resource = make(gpu);
    let mut blocks: Vec<(DevicePtr, usize)> = Vec::new();
    let step = |step: &Step| {
        let ptr = match *step {
            Allocate(bytes) => {
                let ptr = resource.allocate(bytes, Stream::LEGACY).unwrap();
                blocks.push((ptr, bytes));
                ptr
            }
            Free(number) => {
                let (ptr, bytes) = blocks[number];
                resource.deallocate(ptr, bytes, Stream::LEGACY).unwrap();
                ptr
            }
        };
        (ptr.0.wrapping_sub(blocks[0].0.0) as i64, resource.usage().reserved_bytes)
    };
    trace.iter().map(step).collect()
}

#[test]
fn every_two_resources_differ_on_a_short_trace() {
    for (index, (name, make)) in RESOURCES.iter().enumerate() {
        for (other_name, other_make) in &RESOURCES[..index] {
            let differs = |trace: &&&[Step]| seen(*make, trace) != seen(*other_make, trace);
            let trace = TRACES.iter().find(differs);
            // Where blocks lie beside each other is the same for these two: they differ in what memory it is.
            let is_host_memory = |name: &str| ["managed", "pinned"].contains(&name);
            if is_host_memory(name) && is_host_memory(other_name) {
                continue;
            }
            assert!(trace.is_some(), "{name} and {other_name} do the same on all traces");
        }
    }
}

#[test]
fn managed_and_pinned_memory_are_counted_apart() {
    let gpu = Arc::new(SimGpu::new(Profile::named("v100-16g").unwrap()));
    let (managed, pinned) = (Managed::new(gpu.clone()), Pinned::new(gpu.clone()));
    managed.allocate(1000, Stream::LEGACY).unwrap();
    pinned.allocate(3000, Stream::LEGACY).unwrap();
    assert_eq!((gpu.held().managed_bytes, gpu.held().pinned_bytes), (1000, 3000));
}

/// The traces on which policies are told apart, one by one.
#[test]
fn each_policy_shows_in_its_own_way() {
    let reserved = |make: Make, steps: &[Step]| seen(make, steps).last().unwrap().1;
    let of = |name: &str| RESOURCES.iter().find(|(known, _)| *known == name).unwrap().1;
    let two = [Allocate(300), Allocate(300)];
    // As much again as there is; 2 MiB; 64 MiB; a slab; 128 blocks of 1 MiB, and of 256 KiB.
    assert_eq!(reserved(of("bestfit"), &two), 1024);
    assert_eq!(reserved(of("bfc"), &two), 2 << 20);
    assert_eq!(reserved(of("buddy"), &two), 64 << 20);
    assert_eq!(reserved(of("slab"), &two), 2 << 20);
    assert_eq!(reserved(of("fixed"), &two), 128 << 20);
    assert_eq!(reserved(of("binning"), &two), 32 << 20);
    // The best hole, the first hole, the hole that is not too large to be split, the block of the right order.
    let address = |name: &str| seen(of(name), TRACES[2])[9].0 as usize;
    assert_eq!(address("arena"), 0, "the first hole, of 200 KiB");
    assert_eq!(address("bfc"), 200 * KIB + 256, "the hole of 40 KiB");
    assert_eq!(
        address("buddy"),
        256 * KIB + 64 * KIB,
        "the free block of 64 KiB of the lowest address"
    );
}
