//! Resources on any driver, a real one included: what can be checked without a device that tells on them.
//!
//! Every block is filled with a word of its own when it is allocated and looked at before it is freed, by work on its stream. Two blocks
//! that overlap, memory that is reused before its time, a page that was mapped under the wrong address: each shows in the bytes.

use std::sync::Arc;

use fastrand::Rng;
use millpond::driver::{DevicePtr, Driver, Kernel, Stream, StreamFlags};
use millpond::resource::{ALIGNMENT, Resource};
use millpond::stack;

const STREAMS: usize = 4;
const STEPS: usize = 600;
const MOST_LIVE_BYTES: usize = 512 << 20;
const THREADS: u64 = 4;

struct Block {
    ptr: DevicePtr,
    bytes: usize,
    stream: usize,
    word: u32,
}

/// Seeded programs with a stack of this name, by one thread and by several at once, and memory that runs out.
///
/// # Panics
/// If the resource does something wrong. The message has the seed.
pub fn stack_on(driver: &Arc<dyn Driver>, name: &str, seeds: std::ops::Range<u64>) {
    let before = driver.held();
    for seed in seeds {
        let resource = stack::build(name, Arc::clone(driver)).unwrap();
        program(driver, &*resource, seed);
        std::thread::scope(|scope| {
            let resource = &resource;
            let run = |thread| program(driver, &**resource, seed * 1000 + thread);
            let threads =
                Vec::from_iter((0..THREADS).map(|number| scope.spawn(move || run(number))));
            // Joined, for the scope alone does not wait for what threads do at their very end, such as giving caches back.
            for thread in threads {
                thread.join().unwrap();
            }
        });
        assert_eq!(resource.usage().live_bytes, 0, "{name}, seed {seed}");
        bad_frees(&*resource, name);
        exhaustion(driver, &*resource, name);
    }
    driver.synchronize_device().unwrap();
    let after = driver.held();
    assert_eq!(
        (after.total_bytes(), after.streams, after.events, after.reservations, after.handles),
        (before.total_bytes(), before.streams, before.events, before.reservations, before.handles),
        "{name} left something behind"
    );
}

fn program(driver: &Arc<dyn Driver>, resource: &dyn Resource, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let mut streams: Vec<Stream> =
        (0..STREAMS).map(|_| driver.create_stream(StreamFlags::NON_BLOCKING).unwrap()).collect();
    streams.push(Stream::PER_THREAD);
    let mut live: Vec<Block> = Vec::new();
    let mut live_bytes = 0;
    for step in 0..STEPS {
        let full = live_bytes > MOST_LIVE_BYTES / THREADS as usize;
        if !live.is_empty() && (full || rng.u32(..100) < 45) {
            let block = live.swap_remove(rng.usize(..live.len()));
            live_bytes -= block.bytes;
            check_and_free(driver, resource, &streams, block, seed);
            continue;
        }
        let bytes = 4 * (1 + (2_f64.powf(rng.f64() * 22.0)) as usize);
        let stream = rng.usize(..streams.len());
        let ptr = resource.allocate(bytes, streams[stream]).unwrap();
        assert!(ptr.is_aligned_to(ALIGNMENT), "seed {seed}: {ptr}");
        let word = (seed as u32).wrapping_mul(0x9e37_79b9).wrapping_add(step as u32);
        let fill = Kernel::Fill { dst: ptr, value: word, count: bytes / 4 };
        driver.launch(&fill, streams[stream]).unwrap();
        live.push(Block { ptr, bytes, stream, word });
        live_bytes += bytes;
    }
    for block in live {
        check_and_free(driver, resource, &streams, block, seed);
    }
    for stream in streams.into_iter().filter(|stream| *stream != Stream::PER_THREAD) {
        driver.destroy_stream(stream).unwrap();
    }
}

fn check_and_free(
    driver: &Arc<dyn Driver>,
    resource: &dyn Resource,
    streams: &[Stream],
    block: Block,
    seed: u64,
) {
    let stream = streams[block.stream];
    // Looking waits, so only now and then; the first and last word, where neighbours would reach in.
    if block.word.is_multiple_of(4) {
        for at in [0, block.bytes - 4] {
            let mut word = [0; 4];
            driver.copy_to_host(&mut word, block.ptr.offset(at), stream).unwrap();
            assert_eq!(
                u32::from_le_bytes(word),
                block.word,
                "seed {seed}: byte {at} of {}",
                block.bytes
            );
        }
    }
    resource.deallocate(block.ptr, block.bytes, stream).unwrap();
}

fn bad_frees(resource: &dyn Resource, name: &str) {
    let ptr = resource.allocate(4096, Stream::LEGACY).unwrap();
    let usage = resource.usage();
    assert!(resource.deallocate(DevicePtr(0xdead_0000), 4096, Stream::LEGACY).is_err(), "{name}");
    assert!(resource.deallocate(ptr.offset(256), 4096, Stream::LEGACY).is_err(), "{name}");
    assert_eq!(resource.usage().live_bytes, usage.live_bytes, "{name}");
    resource.deallocate(ptr, 4096, Stream::LEGACY).unwrap();
    assert!(resource.deallocate(ptr, 4096, Stream::LEGACY).is_err(), "{name}: freed twice");
}

/// What does not fit is refused, what fits is there again.
fn exhaustion(driver: &Arc<dyn Driver>, resource: &dyn Resource, name: &str) {
    let total = driver.memory_info().unwrap().total_bytes;
    assert!(resource.allocate(total * 2, Stream::LEGACY).is_err(), "{name}");
    let ptr = resource.allocate(64 << 20, Stream::LEGACY).unwrap();
    resource.deallocate(ptr, 64 << 20, Stream::LEGACY).unwrap();
}
