//! Blocks that more than one stream uses, and streams whose handles come again.

use std::sync::Arc;

use millpond::driver::{Around, Call, Driver, Stream, Watched};
use millpond::pool::{Pool, PoolConfig};
use millpond::{FreeError, Resource};
use millpond_sim::SimGpu;
use parking_lot::Mutex;

use super::{MIB, alone, assert_no_findings, gpu, pool, stream, write};

/// What `record_stream` is told of is waited for, whoever gets the memory next.
#[test]
fn a_block_used_on_another_stream_waits_for_it() {
    for seed in 0..60 {
        let gpu = gpu(seed);
        let (first, second, third) = (stream(&gpu), stream(&gpu), stream(&gpu));
        let pool = pool(&gpu, PoolConfig { slack: [0.0, 0.2][seed as usize % 2], ..alone() });
        for round in 0..20 {
            let bytes = [700, 40_000, 6 * MIB][round % 3];
            let block = pool.allocate(bytes, first).unwrap();
            write(&gpu, block, bytes, first);
            // The user orders the second stream after the first, and tells the pool.
            let event = gpu.create_event(millpond::driver::EventTiming::Disabled).unwrap();
            gpu.record_event(event, first).unwrap();
            gpu.wait_event(second, event).unwrap();
            gpu.destroy_event(event).unwrap();
            pool.record_stream(block, second).unwrap();
            pool.record_stream(block, second).unwrap();
            write(&gpu, block, bytes, second);
            pool.deallocate(block, bytes, first).unwrap();
            assert_eq!(
                pool.record_stream(block, second),
                Err(FreeError::AlreadyFree { ptr: block })
            );
            for next in [first, third] {
                let taken = pool.allocate(bytes, next).unwrap();
                write(&gpu, taken, bytes, next);
                pool.deallocate(taken, bytes, next).unwrap();
            }
            pool.assert_valid();
        }
        assert_no_findings(&gpu);
        pool.trim();
        assert_eq!(pool.usage().reserved_bytes, 0, "seed {seed}");
    }
}

#[test]
fn bad_addresses_cannot_be_told_of() {
    let gpu = gpu(0);
    let (stream, other) = (stream(&gpu), stream(&gpu));
    let pool = pool(&gpu, alone());
    let block = pool.allocate(5000, stream).unwrap();
    let inside = block.offset(256);
    assert_eq!(pool.record_stream(inside, other), Err(FreeError::Interior { ptr: inside, block }));
    let nowhere = millpond::driver::DevicePtr(12345);
    assert_eq!(pool.record_stream(nowhere, other), Err(FreeError::Foreign { ptr: nowhere }));
    assert!(pool.record_stream(millpond::driver::DevicePtr::NULL, other).is_ok());
}

/// Nobody but who asks for it waits for the work of a stream that is gone, and nobody gets its memory before it is done.
#[test]
fn memory_of_a_stream_that_is_gone_waits_for_its_work() {
    for seed in 0..40 {
        let gpu = gpu(seed);
        let pool = pool(&gpu, PoolConfig { slack: [0.0, 0.2][seed as usize % 2], ..alone() });
        let staying = stream(&gpu);
        let known = pool.allocate(3 * MIB, staying).unwrap();
        for round in 0..10 {
            let bytes = [700, 40_000, 3 * MIB][round % 3];
            let passing = stream(&gpu);
            let blocks: Vec<_> = (0..5).map(|_| pool.allocate(bytes, passing).unwrap()).collect();
            for block in blocks {
                write(&gpu, block, bytes, passing);
                pool.deallocate(block, bytes, passing).unwrap();
            }
            gpu.destroy_stream(passing).unwrap();
            let waits = gpu.calls(Call::SynchronizeDevice);
            pool.defragment();
            assert_eq!(gpu.calls(Call::SynchronizeDevice), waits, "seed {seed}");
            for _ in 0..3 {
                let taken = pool.allocate(bytes, staying).unwrap();
                write(&gpu, taken, bytes, staying);
                pool.deallocate(taken, bytes, staying).unwrap();
            }
            pool.assert_valid();
        }
        pool.deallocate(known, 3 * MIB, staying).unwrap();
        pool.trim();
        assert_eq!(pool.usage().reserved_bytes, 0, "seed {seed}");
        assert_no_findings(&gpu);
    }
}

/// A program that makes a stream for every request does not make the pool remember more and more.
#[test]
fn streams_that_are_gone_are_forgotten() {
    let gpu = gpu(3);
    let pool = pool(&gpu, alone());
    let remembered = || format!("{pool:?}").matches("has_unrecorded").count();
    let mut most = 0;
    for _ in 0..30 {
        for round in 0..20 {
            let bytes = [700, 40_000, 3 * MIB][round % 3];
            let passing = stream(&gpu);
            let block = pool.allocate(bytes, passing).unwrap();
            write(&gpu, block, bytes, passing);
            pool.deallocate(block, bytes, passing).unwrap();
            gpu.destroy_stream(passing).unwrap();
        }
        most = most.max(remembered());
        pool.trim();
    }
    assert!((1..=20).contains(&most), "{most} streams are remembered of 20 at a time");
    assert_eq!(remembered(), 0);
    assert_no_findings(&gpu);
}

/// What one stream's caches keep serves another, before the pool grows beyond its slack.
#[test]
fn streams_in_turn_need_no_more_than_one_of_them() {
    let gpu = gpu(0);
    let pool = pool(&gpu, alone());
    let streams = [stream(&gpu), stream(&gpu), stream(&gpu)];
    let mut reserved = Vec::new();
    for stream in streams.iter().cycle().take(9) {
        let blocks: Vec<_> = (0..500).map(|_| pool.allocate(5_840, *stream).unwrap()).collect();
        reserved.push(pool.usage().reserved_bytes);
        for block in blocks {
            write(&gpu, block, 5_840, *stream);
            pool.deallocate(block, 5_840, *stream).unwrap();
        }
    }
    assert!(reserved.iter().all(|bytes| *bytes == reserved[0]), "{reserved:?}");
    assert_no_findings(&gpu);
}

/// Streams that do the same again find what they have freed, also where their blocks lie side by side: nothing is recorded, waited for or
/// mapped.
#[test]
fn streams_find_their_own_blocks_without_the_driver() {
    const BYTES: usize = 3 * MIB;
    let gpu = gpu(5);
    let pool = pool(&gpu, alone());
    let streams: Vec<_> = (0..8).map(|_| stream(&gpu)).collect();
    let round = || {
        let pairs: Vec<_> = streams
            .iter()
            .map(|stream| [0; 2].map(|_| pool.allocate(BYTES, *stream).unwrap()))
            .collect();
        for (pair, stream) in pairs.iter().zip(&streams) {
            pair.iter().for_each(|block| write(&gpu, *block, BYTES, *stream));
        }
        for (pair, stream) in pairs.into_iter().zip(&streams) {
            pair.into_iter().for_each(|block| pool.deallocate(block, BYTES, *stream).unwrap());
        }
        pool.assert_valid();
    };
    (0..3).for_each(|_| round());
    let calls = || Call::ALL.iter().map(|call| (*call, gpu.calls(*call))).collect::<Vec<_>>();
    let before = calls();
    let of_the_test = 20 * 2 * streams.len() as u64;
    (0..20).for_each(|_| round());
    for ((call, before), (_, after)) in before.into_iter().zip(calls()) {
        let expected = if call == Call::Launch { of_the_test } else { 0 };
        assert_eq!(after - before, expected, "{}", call.name());
    }
    assert_no_findings(&gpu);
}

/// A stream waits once for another stream, however many of its blocks it takes.
#[test]
fn blocks_of_another_stream_are_waited_for_once() {
    const BYTES: usize = 3 * MIB;
    let gpu = gpu(6);
    let pool = pool(&gpu, alone());
    let (first, second) = (stream(&gpu), stream(&gpu));
    // Each has freed before: what streams free for the first time is not kept.
    for stream in [first, second] {
        let block = pool.allocate(BYTES, stream).unwrap();
        pool.deallocate(block, BYTES, stream).unwrap();
    }
    let blocks: Vec<_> = (0..6).map(|_| pool.allocate(BYTES, first).unwrap()).collect();
    for block in blocks {
        write(&gpu, block, BYTES, first);
        pool.deallocate(block, BYTES, first).unwrap();
    }
    let waits = gpu.calls(Call::WaitEvent);
    let taken: Vec<_> = (0..6).map(|_| pool.allocate(BYTES, second).unwrap()).collect();
    pool.assert_valid();
    assert_eq!(gpu.calls(Call::WaitEvent) - waits, 1);
    for block in taken {
        write(&gpu, block, BYTES, second);
        pool.deallocate(block, BYTES, second).unwrap();
    }
    assert_no_findings(&gpu);
}

/// Destroys a stream once the driver was asked so often for ids of streams: as another thread may do at any moment.
#[derive(Clone, Debug)]
struct Destroyer {
    gpu: Arc<SimGpu>,
    next: Arc<Mutex<Option<(u64, Stream)>>>,
}

impl Around for Destroyer {
    fn around<T>(&self, call: impl FnOnce() -> T) -> T {
        let answer = call();
        let next = &mut *self.next.lock();
        if let Some((_, stream)) =
            next.take_if(|(asked, _)| self.gpu.calls(Call::StreamId) >= *asked)
        {
            self.gpu.destroy_stream(stream).unwrap();
        }
        answer
    }
}

/// The pool finds a stream there and then asks whether it is captured. It may be gone by then.
#[test]
fn a_stream_that_goes_while_the_pool_asks_about_it_fails_no_request() {
    const BYTES: usize = 3 * MIB;
    let gpu = gpu(7);
    let destroyer = Destroyer { gpu: Arc::clone(&gpu), next: Arc::default() };
    let driver = Arc::new(Watched::with(gpu.clone(), destroyer.clone()));
    let pool = Pool::with_config(driver, PoolConfig { slack: 0.0, ..alone() }).unwrap();
    let (going, staying) = (stream(&gpu), stream(&gpu));
    let block = pool.allocate(BYTES, going).unwrap();
    write(&gpu, block, BYTES, going);
    pool.deallocate(block, BYTES, going).unwrap();
    // The pool asks once for the stream of the request, and once for the one that has freed the memory.
    *destroyer.next.lock() = Some((gpu.calls(Call::StreamId) + 2, going));
    let taken = pool.allocate(BYTES, staying).unwrap();
    assert_eq!(*destroyer.next.lock(), None, "the stream went meanwhile");
    write(&gpu, taken, BYTES, staying);
    pool.deallocate(taken, BYTES, staying).unwrap();
    pool.assert_valid();
    assert_no_findings(&gpu);
}

/// Memory is not out while another thread waits for what would serve a request.
#[test]
fn threads_whose_streams_come_and_go_do_not_run_out() {
    for seed in 0..40 {
        let gpu = gpu(seed);
        // So that blocks stay in caches of streams that are gone.
        let config = PoolConfig {
            slack: [0.0, 0.2][seed as usize % 2],
            thread_cache_max_blocks: 1000,
            thread_cache_max_bytes: 1000 * MIB,
            ..alone()
        };
        let pool = pool(&gpu, config);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (gpu, pool) = (&gpu, &pool);
                scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(seed * 4 + thread);
                    for _ in 0..60 {
                        let passing = stream(gpu);
                        let blocks: Vec<_> = (0..rng.usize(10..150))
                            .map(|_| pool.allocate(MIB, passing).unwrap())
                            .collect();
                        for block in blocks {
                            write(gpu, block, MIB, passing);
                            pool.deallocate(block, MIB, passing).unwrap();
                        }
                        gpu.destroy_stream(passing).unwrap();
                    }
                });
            }
        });
        pool.assert_valid();
        assert_no_findings(&gpu);
    }
}

/// Whoever waits for a block's last user comes after all users before that one: a rest beside the block keeps points of them all.
#[test]
fn memory_that_goes_round_is_waited_for_once_a_turn() {
    const STREAMS: usize = 8;
    const ROUNDS: usize = 20;
    for seed in 0..20 {
        let gpu = gpu(seed);
        let pool = pool(&gpu, PoolConfig { slack: 0.0, ..alone() });
        let streams: Vec<_> = (0..STREAMS).map(|_| stream(&gpu)).collect();
        // Less than its two pages: the rest stays free, and merges again each time.
        let bytes = 4 * MIB - 100_000;
        for _ in 0..ROUNDS {
            for stream in &streams {
                let block = pool.allocate(bytes, *stream).unwrap();
                write(&gpu, block, bytes, *stream);
                pool.deallocate(block, bytes, *stream).unwrap();
            }
        }
        assert_no_findings(&gpu);
        let waits = pool.stats().cross_stream_waits as usize;
        assert!(waits <= STREAMS * ROUNDS, "{waits} waits, seed {seed}");
    }
}

/// What a stream freed before it was made to wait for another does not come after that one's work.
#[test]
fn a_wait_says_nothing_of_what_was_freed_before_it() {
    for seed in 0..60 {
        let gpu = gpu(seed);
        let [first, second, third, fourth] = std::array::from_fn(|_| stream(&gpu));
        let pool = pool(&gpu, PoolConfig { slack: 0.0, ..alone() });
        let bytes = 2 * MIB;
        for _ in 0..10 {
            // Side by side.
            let users = [second, first, third, first, third];
            let blocks = users.map(|stream| pool.allocate(bytes, stream).unwrap());
            for (block, stream) in blocks.iter().zip(users) {
                write(&gpu, *block, bytes, stream);
            }
            for place in [0, 1, 3] {
                pool.deallocate(blocks[place], bytes, users[place]).unwrap();
            }
            // Fits the hole that the first stream has left by itself: the second one waits for the first, after its free.
            let taken = pool.allocate(bytes, second).unwrap();
            write(&gpu, taken, bytes, second);
            pool.deallocate(blocks[2], bytes, third).unwrap();
            let three = pool.allocate(3 * bytes, fourth).unwrap();
            write(&gpu, three, 3 * bytes, fourth);
            pool.deallocate(three, 3 * bytes, fourth).unwrap();
            pool.deallocate(taken, bytes, second).unwrap();
            pool.deallocate(blocks[4], bytes, third).unwrap();
            pool.assert_valid();
        }
        assert_no_findings(&gpu);
    }
}
