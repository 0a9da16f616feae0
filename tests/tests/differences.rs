//! No two resources are the same: for each pair there is a short trace on which they put blocks elsewhere, and not only take other amounts
//! of memory.

use std::sync::Arc;

use millpond::driver::DevicePtr;
use millpond::resource::{Managed, Pinned};
use millpond::stack::{self, RESOURCES};
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

const TRACES: [&[Step]; 6] = [
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
    // Whether small and large blocks lie apart.
    &[Allocate(300), Allocate(1500 * KIB), Allocate(300), Allocate(1500 * KIB)],
    // Whether what is left of a hole that is less than twice too large serves the next.
    &[Allocate(64 * KIB), Allocate(256), Free(0), Allocate(40 * KIB), Allocate(20 * KIB)],
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

/// Resources that begin with 64 MiB if they can be told to, so that they differ by where they put blocks and not by when they grow; and
/// blocks of one size that hold all sizes here.
const OF_64_MIB: [&str; 5] = [
    "bestfit:initial_bytes=64MiB",
    "arena:arena_bytes=64MiB",
    "bfc:first_region_bytes=64MiB",
    "buddy:region_bytes=64MiB",
    "fixed:block_bytes=2MiB,blocks_per_chunk=32",
];

fn stack_of(name: &'static str) -> &'static str {
    let is_it = |stack: &&&'static str| stack.split(':').next() == Some(name);
    OF_64_MIB.iter().find(is_it).copied().unwrap_or(name)
}

/// What can be seen of a resource while a trace runs: addresses, counted from the first block's, and what is reserved.
fn seen(stack: &str, trace: &[Step]) -> Vec<(i64, usize)> {
    let gpu: Arc<dyn Driver> = Arc::new(SimGpu::new(Profile::named("v100-16g").unwrap()));
    let resource = stack::build(stack, gpu).unwrap();
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

fn addresses(stack: &str, trace: &[Step]) -> Vec<i64> {
    seen(stack, trace).into_iter().map(|(address, _)| address).collect()
}

#[test]
fn every_two_resources_put_blocks_elsewhere_on_a_short_trace() {
    /// The driver decides where their blocks lie.
    const WHERE_THE_DRIVER_LIKES: [&str; 4] = ["direct", "managed", "pinned", "async"];
    let names: Vec<&str> = RESOURCES.iter().map(|entry| entry.name).collect();
    for (index, name) in names.iter().enumerate() {
        for other in &names[..index] {
            if [name, other].into_iter().all(|name| WHERE_THE_DRIVER_LIKES.contains(name)) {
                continue;
            }
            let differs = |trace: &&&[Step]| {
                addresses(stack_of(name), trace) != addresses(stack_of(other), trace)
            };
            let trace = TRACES.iter().find(differs);
            assert!(trace.is_some(), "{name} and {other} put blocks at the same places");
        }
    }
}

#[test]
fn the_drivers_pool_keeps_what_plain_allocations_give_back() {
    let trace = [Allocate(300), Free(0)];
    assert_eq!(seen("direct", &trace).last().unwrap().1, 0);
    assert!(seen("async", &trace).last().unwrap().1 > 0);
}

#[test]
fn managed_and_pinned_memory_are_counted_apart() {
    let gpu = Arc::new(SimGpu::new(Profile::named("v100-16g").unwrap()));
    let (managed, pinned) = (Managed::new(gpu.clone()), Pinned::new(gpu.clone()));
    managed.allocate(1000, Stream::LEGACY).unwrap();
    pinned.allocate(3000, Stream::LEGACY).unwrap();
    assert_eq!((gpu.held().managed_bytes, gpu.held().pinned_bytes), (1000, 3000));
    assert_eq!(gpu.held().total_bytes(), 4000, "and none of it is the device's");
}

/// The traces on which policies are told apart, one by one.
#[test]
fn each_policy_shows_in_its_own_way() {
    let reserved = |name: &str, steps: &[Step]| seen(name, steps).last().unwrap().1;
    let two = [Allocate(300), Allocate(300)];
    // As much again as there is; 2 MiB; 64 MiB; a slab; 128 blocks of 1 MiB, and of 256 KiB.
    assert_eq!(reserved("bestfit", &two), 1024);
    assert_eq!(reserved("bfc", &two), 2 << 20);
    assert_eq!(reserved("buddy", &two), 64 << 20);
    assert_eq!(reserved("slab", &two), 2 << 20);
    assert_eq!(reserved("fixed", &two), 128 << 20);
    assert_eq!(reserved("binning", &two), 32 << 20);
    // The first hole, the hole that is not too large to be split, the block of the right order.
    let address = |name: &'static str| addresses(stack_of(name), TRACES[2])[9] as usize;
    assert_eq!(address("arena"), 0, "the first hole, of 200 KiB");
    assert_eq!(address("bfc"), 200 * KIB + 256, "the hole of 40 KiB");
    assert_eq!(
        address("buddy"),
        256 * KIB + 64 * KIB,
        "the free block of 64 KiB of the lowest address"
    );
}

/// Where the driver places blocks, resources differ in what they take from it, and in what they give back.
#[test]
fn every_two_resources_that_leave_the_place_to_the_driver_hold_something_else() {
    let held = ["direct", "managed", "pinned", "async"].map(|name| {
        let gpu = Arc::new(SimGpu::new(Profile::named("v100-16g").unwrap()));
        let resource = stack::build(name, gpu.clone()).unwrap();
        let block = resource.allocate(3 << 20, Stream::LEGACY).unwrap();
        let while_live = gpu.held();
        resource.deallocate(block, 3 << 20, Stream::LEGACY).unwrap();
        (name, while_live, gpu.held())
    });
    for (index, (name, live, after)) in held.iter().enumerate() {
        for (other, other_live, other_after) in &held[..index] {
            assert!((live, after) != (other_live, other_after), "{name} and {other} hold the same");
        }
    }
}
