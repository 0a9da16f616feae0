//! Streams that are captured: their blocks are theirs alone, and the pool disturbs no capture.

use std::sync::Arc;

use millpond::driver::{CaptureMode, CaptureState, Driver, Stream, StreamFlags};
use millpond::pool::RegionOptions;
use millpond::{FreeError, Resource};
use millpond_sim::{Profile, SimGpu};

use super::{MIB, alone, assert_no_findings, gpu, pool, stream, write};

pub(crate) fn capture_id(gpu: &SimGpu, stream: Stream) -> millpond::driver::CaptureId {
    match gpu.capture_state(stream).unwrap() {
        CaptureState::Active(id) => id,
        state => panic!("not captured: {state:?}"),
    }
}

/// A graph is launched again and again while the pool serves others: what the graph writes is nobody else's.
#[test]
fn a_graphs_memory_is_its_own_until_it_is_released() {
    for seed in 0..30 {
        let gpu = gpu(seed);
        let (captured, other) = (stream(&gpu), stream(&gpu));
        let pool = pool(&gpu, alone());
        // Blocks that the caches of the captured stream keep from before.
        for bytes in [1000, 100_000, 3 * MIB] {
            let before = pool.allocate(bytes, captured).unwrap();
            write(&gpu, before, bytes, captured);
            pool.deallocate(before, bytes, captured).unwrap();
        }
        gpu.begin_capture(captured, CaptureMode::Global).unwrap();
        let id = capture_id(&gpu, captured);
        let mut in_graph = Vec::new();
        for bytes in [1000, 100_000, 3 * MIB, 20 * MIB] {
            let block = pool.allocate(bytes, captured).unwrap();
            write(&gpu, block, bytes, captured);
            in_graph.push((block, bytes));
        }
        let (freed, bytes) = in_graph.remove(1);
        pool.deallocate(freed, bytes, captured).unwrap();
        let again = pool.allocate(bytes, captured).unwrap();
        assert_eq!(again, freed, "within a capture memory is reused");
        in_graph.push((again, bytes));
        let graph = gpu.end_capture(captured).expect("the pool has not spoiled the capture");
        assert_eq!(pool.captures(), [id]);
        // The program lets go of its blocks; the graph still uses them.
        for (block, bytes) in &in_graph {
            pool.deallocate(*block, *bytes, captured).unwrap();
        }
        let is_of_graph = |ptr| in_graph.iter().any(|(block, _)| *block == ptr);
        for round in 0..20 {
            gpu.launch_graph(graph, captured).unwrap();
            for bytes in [1000, 100_000, 3 * MIB, 20 * MIB] {
                for eager in [captured, other] {
                    let block = pool.allocate(bytes, eager).unwrap();
                    assert!(!is_of_graph(block), "seed {seed}, round {round}");
                    write(&gpu, block, bytes, eager);
                    pool.deallocate(block, bytes, eager).unwrap();
                }
            }
        }
        let held = pool.stats().captured_bytes;
        assert!(held >= 24 << 20);
        pool.trim();
        assert_eq!(pool.stats().captured_bytes, held, "trimming does not take a graph's memory");
        gpu.destroy_graph(graph).unwrap();
        pool.release_capture(id, captured).unwrap();
        pool.trim();
        pool.assert_valid();
        assert_eq!(pool.captures(), []);
        assert_eq!((pool.usage().reserved_bytes, pool.stats().captured_bytes), (0, 0));
        assert_no_findings(&gpu);
    }
}

/// Graphs that are launched one after the other may have the same memory: one region's, if it was asked for. Nobody else gets it.
#[test]
fn graphs_of_a_region_that_shares_captures_have_memory_in_common() {
    for seed in 0..10 {
        for shares_captures in [true, false] {
            let gpu = gpu(seed);
            let (captured, other) = (stream(&gpu), stream(&gpu));
            let pool = pool(&gpu, alone());
            let options = RegionOptions { shares_captures, ..RegionOptions::default() };
            let region = pool.region(&options).unwrap();
            let mut graphs = Vec::new();
            let mut in_graphs = Vec::new();
            for _ in 0..4 {
                gpu.begin_capture(captured, CaptureMode::Global).unwrap();
                let (kept, scratch) = (1000, 20 * MIB);
                let blocks = [kept, scratch].map(|bytes| region.allocate(bytes, captured).unwrap());
                write(&gpu, blocks[0], kept, captured);
                write(&gpu, blocks[1], scratch, captured);
                pool.deallocate(blocks[1], scratch, captured).unwrap();
                graphs.push(gpu.end_capture(captured).unwrap());
                in_graphs.push(blocks);
            }
            let held = pool.stats().captured_bytes;
            let expected = if shares_captures { 20..30 } else { 80..100 };
            assert!(expected.contains(&(held >> 20)), "{held} with {shares_captures}");
            assert!(
                in_graphs.windows(2).all(|two| two[0][0] != two[1][0]),
                "what is held is not shared"
            );
            for round in 0..5 {
                for graph in &graphs {
                    gpu.launch_graph(*graph, captured).unwrap();
                }
                for stream in [captured, other] {
                    let block = pool.allocate(20 * MIB, stream).unwrap();
                    assert!(!in_graphs.as_flattened().contains(&block), "round {round}");
                    write(&gpu, block, 20 * MIB, stream);
                    pool.deallocate(block, 20 * MIB, stream).unwrap();
                }
            }
            for (graph, blocks) in graphs.into_iter().zip(in_graphs) {
                gpu.destroy_graph(graph).unwrap();
                pool.deallocate(blocks[0], 1000, captured).unwrap();
            }
            pool.trim();
            assert_eq!(pool.stats().captured_bytes, held, "a graph may still be launched");
            region.release_captures(captured).unwrap();
            drop(region);
            pool.trim();
            pool.assert_valid();
            assert_eq!((pool.usage().reserved_bytes, pool.stats().captured_bytes), (0, 0));
            assert_no_findings(&gpu);
        }
    }
}

/// A capture that needs memory of the driver, waits and events of others beside it: none of it spoils the capture.
#[test]
fn the_pool_works_beside_captures_in_every_mode() {
    for (seed, mode) in [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed]
        .into_iter()
        .enumerate()
    {
        let gpu = gpu(seed as u64);
        // A stream that orders itself with the legacy one makes that one untouchable meanwhile.
        let captured = gpu.create_stream(StreamFlags::default()).unwrap();
        let others = [stream(&gpu), stream(&gpu), Stream::LEGACY, Stream::PER_THREAD];
        let pool = pool(&gpu, millpond::pool::PoolConfig { slack: 0.0, ..alone() });
        let mut rng = fastrand::Rng::with_seed(seed as u64);
        let mut live = Vec::new();
        let free_some = |live: &mut Vec<(_, usize, Stream)>, rng: &mut fastrand::Rng, most| {
            while live.len() > most {
                let (block, bytes, of) = live.swap_remove(rng.usize(0..live.len()));
                pool.deallocate(block, bytes, of).unwrap();
            }
        };
        for of in others.into_iter().chain([captured]) {
            for bytes in [500, 70_000, 5 * MIB] {
                let block = pool.allocate(bytes, of).unwrap();
                write(&gpu, block, bytes, of);
                live.push((block, bytes, of));
            }
        }
        gpu.begin_capture(captured, mode).unwrap();
        let id = capture_id(&gpu, captured);
        let mut of_capture = Vec::new();
        for _ in 0..200 {
            let power = rng.u32(0..24);
            let bytes = rng.usize(1..=1 << power);
            let of = if rng.u8(0..4) == 0 { captured } else { others[rng.usize(0..2)] };
            let block = pool.allocate(bytes, of).unwrap();
            write(&gpu, block, bytes, of);
            if of == captured { &mut of_capture } else { &mut live }.push((block, bytes, of));
            free_some(&mut live, &mut rng, 20);
            free_some(&mut of_capture, &mut rng, 10);
            pool.assert_valid();
        }
        let graph = gpu.end_capture(captured).expect("the capture is whole");
        gpu.launch_graph(graph, captured).unwrap();
        for (block, bytes, of) in live.into_iter().chain(of_capture) {
            pool.deallocate(block, bytes, of).unwrap();
        }
        pool.release_capture(id, captured).unwrap();
        pool.trim();
        assert_eq!(pool.usage().reserved_bytes, 0, "{mode:?}");
        assert_no_findings(&gpu);
    }
}

/// A block that outlives its capture's release is nobody else's until it is freed.
#[test]
fn a_held_block_outlives_the_release_of_its_capture() {
    let gpu = gpu(0);
    let captured = stream(&gpu);
    let pool = pool(&gpu, alone());
    gpu.begin_capture(captured, CaptureMode::Global).unwrap();
    let id = capture_id(&gpu, captured);
    let block = pool.allocate(3 * MIB, captured).unwrap();
    let graph = gpu.end_capture(captured).unwrap();
    gpu.launch_graph(graph, captured).unwrap();
    pool.release_capture(id, captured).unwrap();
    pool.release_capture(id, captured).unwrap();
    pool.trim();
    assert_eq!(pool.usage().live_bytes, 3 * MIB);
    let wrong = pool.deallocate(block, 4 * MIB, captured);
    assert!(matches!(wrong, Err(FreeError::WrongSize { .. })), "{wrong:?}");
    let inside = pool.deallocate(block.offset(MIB), 1, captured);
    assert_eq!(inside, Err(FreeError::Interior { ptr: block.offset(MIB), block }));
    write(&gpu, block, 3 * MIB, captured);
    pool.deallocate(block, 3 * MIB, captured).unwrap();
    pool.trim();
    assert_eq!(pool.usage().reserved_bytes, 0);
    assert_no_findings(&gpu);
}

/// A graph of two streams: neither gets what the other has freed, since nobody knows their order.
#[test]
fn streams_of_one_capture_do_not_share() {
    let gpu: Arc<SimGpu> = gpu(0);
    let (first, second) = (stream(&gpu), stream(&gpu));
    let pool = pool(&gpu, alone());
    gpu.begin_capture(first, CaptureMode::Global).unwrap();
    let (fork, join) = (event(&gpu), event(&gpu));
    gpu.record_event(fork, first).unwrap();
    gpu.wait_event(second, fork).unwrap();
    let block = pool.allocate(MIB, first).unwrap();
    write(&gpu, block, MIB, first);
    pool.deallocate(block, MIB, first).unwrap();
    let other = pool.allocate(MIB, second).unwrap();
    assert_ne!(block, other);
    write(&gpu, other, MIB, second);
    // Freed by the other stream of the capture: withheld until the end.
    pool.deallocate(other, MIB, first).unwrap();
    assert_ne!(pool.allocate(MIB, second).unwrap(), other);
    gpu.record_event(join, second).unwrap();
    gpu.wait_event(first, join).unwrap();
    gpu.end_capture(first).expect("the capture is whole");
    pool.assert_valid();
    assert_no_findings(&gpu);
}

fn event(gpu: &SimGpu) -> millpond::driver::Event {
    gpu.create_event(millpond::driver::EventTiming::Disabled).unwrap()
}

/// What was spoiled by others says so.
#[test]
fn a_spoiled_capture_is_an_error() {
    let gpu = gpu(0);
    let captured = stream(&gpu);
    let pool = pool(&gpu, alone());
    gpu.begin_capture(captured, CaptureMode::Global).unwrap();
    gpu.synchronize_device().unwrap_err();
    let error = pool.allocate(1000, captured).unwrap_err().to_string();
    assert!(error.contains("invalidated"), "{error}");
    gpu.end_capture(captured).unwrap_err();
    pool.allocate(1000, captured).unwrap();
}

/// A block of a stream that is captured cannot be waited for; another stream's can, whichever is found first.
#[test]
fn memory_is_not_out_while_a_stream_that_is_not_captured_has_freed_a_block() {
    for captured in [0, 1] {
        let text = "base = 'v100-16g'\n[memory]\ncapacity = '64MiB'\n";
        let gpu = Arc::new(SimGpu::new(Profile::parse("small", text).unwrap()));
        let streams = [stream(&gpu), stream(&gpu)];
        let asking = stream(&gpu);
        let pool = pool(&gpu, alone());
        let mut blocks = [Vec::new(), Vec::new()];
        'full: loop {
            for (of, stream) in blocks.iter_mut().zip(streams) {
                // By the slab, so that each slab is of one stream.
                for _ in 0..64 {
                    match pool.allocate(4096, stream) {
                        Ok(block) => of.push(block),
                        Err(error) if error.is_out_of_memory() => break 'full,
                        Err(error) => panic!("{error}"),
                    }
                }
            }
        }
        for (of, stream) in blocks.iter_mut().zip(streams) {
            pool.deallocate(of.remove(0), 4096, stream).unwrap();
        }
        gpu.begin_capture(streams[captured], CaptureMode::Relaxed).unwrap();
        let block = pool.allocate(4096, asking);
        assert!(block.is_ok(), "with stream {captured} captured: {}", block.unwrap_err());
        let graph = gpu.end_capture(streams[captured]).unwrap();
        gpu.destroy_graph(graph).unwrap();
        pool.assert_valid();
    }
}
