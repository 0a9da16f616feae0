//! The thread that gives back what nobody needs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use millpond::Resource;
use millpond::driver::{Driver, Stream};
use millpond::pool::{Pool, PoolConfig};
use millpond_sim::SimGpu;

use super::{MIB, alone, assert_no_findings, gpu, pool, stream, write};

/// Looked at so seldom that a test never sees it.
const NEVER_MS: u64 = 24 * 60 * 60 * 1000;

/// Waits until something is so. Not a measure of speed: it gives up only when nothing happens at all.
pub(super) fn eventually(gpu: &SimGpu, what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(60), "never: {what}");
        // The device's clock stands still while nobody calls, and what is held up would stay so.
        gpu.advance(Duration::from_millis(10));
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// With the background memory goes back by itself, without it stays; a block that is held stays in any case.
#[test]
fn unused_memory_goes_back_by_itself() {
    let gpu = gpu(0);
    let stream = stream(&gpu);
    let config = PoolConfig { defrag_interval_ms: 5, ..PoolConfig::default() };
    let off = PoolConfig { defrag_interval_ms: NEVER_MS, ..alone() };
    let (watched, unwatched) = (pool(&gpu, config.clone()), pool(&gpu, off));
    for pool in [&watched, &unwatched] {
        let held = pool.allocate(3 * MIB, stream).unwrap();
        let blocks: Vec<_> = (0..100).map(|_| pool.allocate(MIB, stream).unwrap()).collect();
        for block in blocks {
            write(&gpu, block, MIB, stream);
            pool.deallocate(block, MIB, stream).unwrap();
        }
        write(&gpu, held, 3 * MIB, stream);
    }
    gpu.synchronize_device().unwrap();
    let before = unwatched.usage().reserved_bytes;
    eventually(&gpu, "what was cached and freed has gone back", || {
        watched.usage().reserved_bytes <= 4 * MIB
    });
    assert_eq!(unwatched.usage().reserved_bytes, before);
    assert_eq!(watched.usage().live_bytes, 3 * MIB);
    assert!(watched.stats().pages_released > 0);
    watched.assert_valid();
    // Switched on later, and told to look sooner than it would have, it works as well.
    unwatched.set_config(config).unwrap();
    eventually(&gpu, "the other's too", || unwatched.usage().reserved_bytes <= 4 * MIB);
    assert_no_findings(&gpu);
}

/// The background works while threads allocate and free, and harms nothing.
#[test]
fn the_background_disturbs_nobody() {
    let gpu = gpu(3);
    let pool = pool(
        &gpu,
        PoolConfig { defrag_interval_ms: 1, defrag_threshold: 0.0, ..PoolConfig::default() },
    );
    std::thread::scope(|scope| {
        for thread in 0..3_u64 {
            let (gpu, pool) = (&gpu, &pool);
            scope.spawn(move || {
                let stream = stream(gpu);
                let mut rng = fastrand::Rng::with_seed(thread);
                let mut live = Vec::new();
                for _ in 0..3_000 {
                    let power = rng.u32(8..23);
                    let bytes = rng.usize(1..=1 << power);
                    let block = pool.allocate(bytes, stream).unwrap();
                    write(gpu, block, bytes, stream);
                    live.push((block, bytes));
                    if live.len() > 20 {
                        let (block, bytes) = live.swap_remove(rng.usize(0..live.len()));
                        pool.deallocate(block, bytes, stream).unwrap();
                    }
                }
                for (block, bytes) in live {
                    pool.deallocate(block, bytes, stream).unwrap();
                }
            });
        }
    });
    pool.assert_valid();
    assert_no_findings(&gpu);
    eventually(&gpu, "everything has gone back", || pool.usage().reserved_bytes == 0);
}

/// What was freed on a stream that is gone has no event: the background waits for it, so that nobody else need.
#[test]
fn the_background_waits_for_streams_that_are_gone() {
    let gpu = gpu(0);
    let pool = pool(&gpu, PoolConfig { defrag_interval_ms: 5, ..PoolConfig::default() });
    let (staying, passing) = (stream(&gpu), stream(&gpu));
    let known = pool.allocate(MIB, staying).unwrap();
    let block = pool.allocate(MIB, passing).unwrap();
    write(&gpu, block, MIB, passing);
    pool.deallocate(block, MIB, passing).unwrap();
    gpu.destroy_stream(passing).unwrap();
    pool.deallocate(known, MIB, staying).unwrap();
    eventually(&gpu, "everything has gone back", || pool.usage().reserved_bytes == 0);
    assert_no_findings(&gpu);
}

/// A pool of which more than 5 % lies in this thread's cache, and that has just asked the driver for more: who does that may wake the
/// background, but has not emptied the cache itself.
fn fragmented(gpu: &Arc<SimGpu>, stream: Stream, config: PoolConfig) -> Pool {
    let config = PoolConfig { slack: 0.15, ..config };
    let pool = pool(gpu, PoolConfig { enable_defrag: false, ..config.clone() });
    // Caches were emptied for a request just now: not again for the next few hundred.
    let cached = pool.allocate(MIB, stream).unwrap();
    pool.deallocate(cached, MIB, stream).unwrap();
    // So much that what the cache keeps is less than the slack.
    pool.allocate(210 * MIB, stream).unwrap();
    let blocks: Vec<_> = (0..30).map(|_| pool.allocate(MIB, stream).unwrap()).collect();
    // Now, while caches are empty: a change of settings empties them, too.
    pool.set_config(config).unwrap();
    for block in blocks {
        pool.deallocate(block, MIB, stream).unwrap();
    }
    assert!(pool.usage().largest_free_bytes < 4 * MIB, "all of it is in the cache");
    let asked = pool.stats().device_allocations;
    pool.allocate(5 * MIB, stream).unwrap();
    assert_eq!(pool.stats().device_allocations, asked + 1);
    pool
}

/// Too much that is nobody's wakes the background at once, however seldom it looks by itself.
#[test]
fn fragmentation_wakes_the_background() {
    let gpu = gpu(0);
    let stream = stream(&gpu);
    let defrag_threshold = 0.05;
    let seldom =
        PoolConfig { defrag_interval_ms: NEVER_MS, defrag_threshold, ..PoolConfig::default() };
    let asleep = [
        fragmented(&gpu, stream, PoolConfig { enable_defrag: false, ..seldom.clone() }),
        fragmented(&gpu, stream, PoolConfig { defrag_threshold: 1.0, ..seldom.clone() }),
    ];
    let woken = fragmented(&gpu, stream, seldom);
    eventually(&gpu, "what the cache kept was merged", || {
        woken.usage().largest_free_bytes >= 25 * MIB
    });
    for pool in asleep {
        assert!(pool.usage().largest_free_bytes < 6 * MIB, "nobody has woken it for this one");
    }
}

/// It is woken once an interval, and in the next one again.
#[test]
fn each_interval_fragmentation_wakes_anew() {
    let gpu = gpu(0);
    let stream = stream(&gpu);
    let seldom = PoolConfig {
        defrag_interval_ms: NEVER_MS,
        defrag_threshold: 0.05,
        ..PoolConfig::default()
    };
    let pool = fragmented(&gpu, stream, seldom);
    let is_merged = || pool.usage().largest_free_bytes >= 25 * MIB;
    eventually(&gpu, "what the cache kept was merged", is_merged);
    pool.interval_has_passed();
    let blocks: Vec<_> = (0..30).map(|_| pool.allocate(MIB, stream).unwrap()).collect();
    for block in blocks {
        pool.deallocate(block, MIB, stream).unwrap();
    }
    assert!(!is_merged(), "all of it is in the cache again");
    pool.allocate(80 * MIB, stream).unwrap();
    eventually(&gpu, "it was merged again", is_merged);
}

/// What is not above the threshold stays in caches, however often the background looks.
#[test]
fn caches_below_the_threshold_are_left_alone() {
    let gpu = gpu(0);
    let stream = stream(&gpu);
    let often =
        PoolConfig { defrag_interval_ms: 1, defrag_threshold: 0.05, ..PoolConfig::default() };
    let left_alone =
        fragmented(&gpu, stream, PoolConfig { defrag_threshold: 1.0, ..often.clone() });
    let merged = fragmented(&gpu, stream, often);
    for pool in [&left_alone, &merged] {
        // Kept by no cache. When it is gone, the background has looked, and would have merged before.
        let block = pool.allocate(20 * MIB, stream).unwrap();
        pool.deallocate(block, 20 * MIB, stream).unwrap();
        let released = pool.stats().pages_released;
        eventually(&gpu, "the block has gone", || pool.stats().pages_released >= released + 9);
    }
    assert!(left_alone.usage().largest_free_bytes < 10 * MIB, "{}", left_alone.stats());
    eventually(&gpu, "the cache's, too", || merged.usage().reserved_bytes <= 220 * MIB);
    assert!(left_alone.usage().reserved_bytes >= 244 * MIB, "{}", left_alone.stats());
}

/// By hand it is the same, and waits for nothing.
#[test]
fn defragmenting_by_hand_gives_back_what_is_unused() {
    let gpu = gpu(0);
    let stream = stream(&gpu);
    let pool = pool(&gpu, alone());
    let blocks: Vec<_> = (0..64).map(|_| pool.allocate(MIB, stream).unwrap()).collect();
    for block in &blocks[1..] {
        write(&gpu, *block, MIB, stream);
        pool.deallocate(*block, MIB, stream).unwrap();
    }
    assert_eq!(pool.defragment(), 0, "work still uses it, and nobody waits for that");
    gpu.synchronize_device().unwrap();
    assert!(pool.defragment() >= 60 * MIB);
    assert!(pool.usage().reserved_bytes <= 4 * MIB);
    pool.deallocate(blocks[0], MIB, stream).unwrap();
    pool.assert_valid();
    assert_no_findings(&gpu);
}

/// Many pools come and go while the background looks after them.
#[test]
fn pools_come_and_go() {
    let gpu = gpu(0);
    let stream = stream(&gpu);
    for _ in 0..200 {
        let pool = pool(&gpu, PoolConfig { defrag_interval_ms: 1, ..PoolConfig::default() });
        let block = pool.allocate(5 * MIB, stream).unwrap();
        pool.deallocate(block, 5 * MIB, stream).unwrap();
        drop(pool);
        assert_eq!(gpu.held().device_bytes(), 0, "gone when it is dropped");
    }
}
