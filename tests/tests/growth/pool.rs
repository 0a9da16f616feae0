//! The pool: streams, threads and regions that come and go, with the background and without.

use std::collections::VecDeque;
use std::sync::Arc;

use millpond::Resource;
use millpond::driver::{DevicePtr, Driver, Stream, TouchKind};
use millpond::pool::{Pool, PoolConfig, RegionOptions};
use millpond_sim::SimGpu;

use super::{MIB, alone, assert_no_growth, gpu, in_a_thread, stream, work};

/// Without the background: nobody but those who call tidies up.
fn pool(gpu: &Arc<SimGpu>) -> Pool {
    let config = PoolConfig { enable_defrag: false, ..PoolConfig::default() };
    Pool::with_config(gpu.clone(), config).expect("right settings, and room")
}

fn allocate(gpu: &SimGpu, pool: &Pool, bytes: usize, stream: Stream) -> DevicePtr {
    let block = pool.allocate(bytes, stream).unwrap();
    work(gpu, TouchKind::Write, block, bytes, stream);
    block
}

const SIZES: [usize; 3] = [700, 40_000, 3 * MIB];

fn use_and_free(gpu: &SimGpu, pool: &Pool, round: usize, stream: Stream) {
    let bytes = SIZES[round % SIZES.len()];
    let block = allocate(gpu, pool, bytes, stream);
    pool.deallocate(block, bytes, stream).unwrap();
}

/// A stream for each request, of one thread.
#[test]
fn streams_come_and_go() {
    alone(|| {
        let gpu = gpu(1);
        let pool = pool(&gpu);
        assert_no_growth(|round| {
            let passing = stream(&gpu, round);
            use_and_free(&gpu, &pool, round, passing);
            gpu.synchronize_stream(passing).unwrap();
            gpu.destroy_stream(passing).unwrap();
        });
        assert_eq!(gpu.findings(), []);
    });
}

/// As above, and what the background does from time to time is done.
#[test]
fn streams_come_and_go_beside_the_background() {
    alone(|| {
        let gpu = gpu(2);
        let pool = pool(&gpu);
        assert_no_growth(|round| {
            let passing = stream(&gpu, round);
            use_and_free(&gpu, &pool, round, passing);
            gpu.destroy_stream(passing).unwrap();
            if round % 16 == 0 {
                pool.interval_has_passed();
            }
        });
        assert_eq!(gpu.findings(), []);
    });
}

/// A thread for each request, with a stream of its own.
#[test]
fn threads_come_and_go() {
    alone(|| {
        let gpu = gpu(3);
        let pool = pool(&gpu);
        assert_no_growth(|round| {
            in_a_thread(|| {
                use_and_free(&gpu, &pool, round, Stream::PER_THREAD);
                gpu.synchronize_stream(Stream::PER_THREAD).unwrap();
            });
        });
        assert_eq!(gpu.findings(), []);
    });
}

/// Blocks of one slab, which stays because of one of them, are freed by stream after stream.
#[test]
fn streams_that_free_into_one_slab_come_and_go() {
    alone(|| {
        let gpu = gpu(4);
        let config = PoolConfig {
            thread_cache_max_blocks: 0,
            global_cache_max_blocks: 0,
            ..pool(&gpu).config()
        };
        let pool = Pool::with_config(gpu.clone(), config).expect("right settings, and room");
        let owner = stream(&gpu, 0);
        let staying = allocate(&gpu, &pool, 700, owner);
        assert_no_growth(|round| {
            let passing = stream(&gpu, round);
            let block = allocate(&gpu, &pool, 700, owner);
            gpu.synchronize_stream(owner).unwrap();
            work(&gpu, TouchKind::Write, block, 700, passing);
            pool.deallocate(block, 700, passing).unwrap();
            gpu.synchronize_stream(passing).unwrap();
            gpu.destroy_stream(passing).unwrap();
            if round % 16 == 0 {
                pool.interval_has_passed();
            }
        });
        pool.deallocate(staying, 700, owner).unwrap();
        assert_eq!(gpu.findings(), []);
    });
}

#[test]
fn regions_come_and_go() {
    alone(|| {
        let gpu = gpu(5);
        let pool = pool(&gpu);
        let stream = stream(&gpu, 0);
        assert_no_growth(|round| {
            // Regions are large things to make.
            if round % 8 == 0 {
                let region = pool.region(&RegionOptions::default()).unwrap();
                let block = region.allocate(SIZES[round / 8 % SIZES.len()], stream).unwrap();
                drop(region);
                pool.deallocate_unsized(block, stream).unwrap();
                gpu.synchronize_stream(stream).unwrap();
            }
        });
        assert_eq!(gpu.findings(), []);
    });
}

/// A block that stays is read by stream after stream, and the pool is told of each.
#[test]
fn streams_that_use_one_block_come_and_go() {
    alone(|| {
        let gpu = gpu(6);
        let pool = pool(&gpu);
        let owner = stream(&gpu, 0);
        let staying = allocate(&gpu, &pool, 40_000, owner);
        gpu.synchronize_stream(owner).unwrap();
        assert_no_growth(|round| {
            let passing = stream(&gpu, round);
            work(&gpu, TouchKind::Read, staying, 40_000, passing);
            pool.record_stream(staying, passing).unwrap();
            gpu.destroy_stream(passing).unwrap();
        });
        pool.deallocate(staying, 40_000, owner).unwrap();
        let taken = allocate(&gpu, &pool, 40_000, owner);
        pool.deallocate(taken, 40_000, owner).unwrap();
        pool.trim();
        assert_eq!(pool.usage().reserved_bytes, 0);
        assert_eq!(gpu.findings(), []);
    });
}

/// Streams that stay, each with one small block for a while: what they have freed must not keep the device's memory.
#[test]
fn streams_that_stay_and_are_used_once_keep_no_slab_each() {
    const STREAMS: usize = 24_000;
    const LIVE: usize = 100;
    alone(|| {
        let gpu = gpu(7);
        let pool = pool(&gpu);
        // Large blocks among them: memory that they leave is what new slabs are made of.
        let mut rng = fastrand::Rng::with_seed(7);
        let mut live = VecDeque::new();
        let mut reserved_bytes = Vec::new();
        for number in 0..STREAMS {
            let sizes = [512, 4096, 70_000, MIB, 3 * MIB];
            let (bytes, stream) = (sizes[rng.usize(..sizes.len())], stream(&gpu, number));
            live.push_back((pool.allocate(bytes, stream).unwrap(), bytes, stream));
            if live.len() > LIVE {
                let (block, bytes, stream) = live.pop_front().expect("just added");
                pool.deallocate(block, bytes, stream).unwrap();
            }
            if number % (STREAMS / 6) == STREAMS / 6 - 1 {
                reserved_bytes.push(pool.usage().reserved_bytes);
            }
        }
        println!("reserved: {reserved_bytes:?}");
        let most_at_first = *reserved_bytes[..2].iter().max().expect("two");
        assert!(reserved_bytes[5] <= most_at_first + 32 * MIB, "{reserved_bytes:?}");
        for (block, bytes, stream) in live {
            pool.deallocate(block, bytes, stream).unwrap();
        }
        assert_eq!(gpu.findings(), []);
    });
}
