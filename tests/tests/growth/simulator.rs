//! The simulated GPU: streams, threads, marks of the detector.

use millpond::driver::{CaptureMode, Driver, EventTiming, Stream, TouchKind};

use super::{MIB, alone, assert_no_growth, gpu, in_a_thread, stream, work};

/// Streams that write and go, with an event that others wait for, and now and then the host. Nobody waits for the device.
#[test]
fn streams_come_and_go() {
    alone(|| {
        let gpu = gpu(1);
        let block = gpu.alloc(MIB).unwrap();
        let staying = gpu.create_stream(Default::default()).unwrap();
        assert_no_growth(|round| {
            let passing = stream(&gpu, round);
            let event = gpu.create_event(EventTiming::Disabled).unwrap();
            let piece = block.offset(round % 16 * 4096);
            gpu.record_event(event, staying).unwrap();
            gpu.wait_event(passing, event).unwrap();
            work(&gpu, TouchKind::Write, piece, 4096, passing);
            gpu.record_event(event, passing).unwrap();
            if round % 8 == 0 {
                gpu.synchronize_event(event).unwrap();
            }
            gpu.wait_event(staying, event).unwrap();
            gpu.destroy_event(event).unwrap();
            gpu.destroy_stream(passing).unwrap();
        });
        assert_eq!(gpu.findings(), []);
    });
}

/// Streams that nobody ever waits for: what comes before what must not name them for ever.
#[test]
fn streams_that_nobody_waits_for_come_and_go() {
    alone(|| {
        let gpu = gpu(2);
        let staying = stream(&gpu, 0);
        assert_no_growth(|round| {
            let passing = stream(&gpu, round);
            let block = gpu.alloc(4096).unwrap();
            work(&gpu, TouchKind::Write, block, 4096, passing);
            let event = gpu.create_event(EventTiming::Disabled).unwrap();
            gpu.record_event(event, passing).unwrap();
            gpu.wait_event(staying, event).unwrap();
            gpu.synchronize_stream(staying).unwrap();
            gpu.destroy_event(event).unwrap();
            gpu.destroy_stream(passing).unwrap();
            gpu.free(block).unwrap();
        });
        assert_eq!(gpu.findings(), []);
    });
}

/// Every thread has a stream of its own, and a capture mode.
#[test]
fn threads_come_and_go() {
    alone(|| {
        let gpu = gpu(3);
        let block = gpu.alloc(MIB).unwrap();
        assert_no_growth(|round| {
            in_a_thread(|| {
                work(&gpu, TouchKind::Write, block, 4096, Stream::PER_THREAD);
                // It is not set back.
                gpu.exchange_capture_mode(CaptureMode::Relaxed).unwrap();
                if round % 2 == 0 {
                    gpu.synchronize_stream(Stream::PER_THREAD).unwrap();
                }
            });
            work(&gpu, TouchKind::Write, block, 4096, Stream::LEGACY);
        });
        assert_eq!(gpu.findings(), []);
    });
}

/// Weights that are written once and read by every request's stream.
#[test]
fn streams_that_read_one_block_come_and_go() {
    alone(|| {
        let gpu = gpu(4);
        let block = gpu.alloc(MIB).unwrap();
        work(&gpu, TouchKind::Write, block, MIB, Stream::LEGACY);
        gpu.synchronize_device().unwrap();
        assert_no_growth(|round| {
            let passing = stream(&gpu, round);
            work(&gpu, TouchKind::Read, block, MIB, passing);
            if round % 3 == 0 {
                gpu.synchronize_stream(passing).unwrap();
            }
            gpu.destroy_stream(passing).unwrap();
        });
        assert_eq!(gpu.findings(), []);
    });
}

/// What is written in ever other pieces and as a whole again is remembered as a whole.
#[test]
fn pieces_of_memory_are_not_remembered_for_ever() {
    alone(|| {
        let gpu = gpu(5);
        let mut rng = fastrand::Rng::with_seed(5);
        let stream = stream(&gpu, 0);
        let blocks: Vec<_> = (0..64).map(|_| gpu.alloc(MIB).unwrap()).collect();
        assert_no_growth(|round| {
            let block = blocks[round % blocks.len()];
            for _ in 0..20 {
                let start = rng.usize(0..MIB / 2);
                work(&gpu, TouchKind::Write, block.offset(start), rng.usize(1..MIB / 2), stream);
            }
            work(&gpu, TouchKind::Write, block, MIB, stream);
            gpu.synchronize_stream(stream).unwrap();
        });
        assert_eq!(gpu.findings(), []);
    });
}

/// What was freed in the order of streams that are gone stands for no more than what it is.
#[test]
fn streams_that_free_into_a_pool_come_and_go() {
    alone(|| {
        let gpu = gpu(6);
        let pool = gpu.default_pool().unwrap();
        // Keeps the pool's memory from being given back.
        let staying = gpu.alloc_async(MIB, pool, Stream::LEGACY).unwrap();
        assert_no_growth(|round| {
            let passing = stream(&gpu, round);
            let block = gpu.alloc_async(64 << 10, pool, passing).unwrap();
            work(&gpu, TouchKind::Write, block, 64 << 10, passing);
            gpu.free_async(block, passing).unwrap();
            gpu.synchronize_stream(passing).unwrap();
            gpu.destroy_stream(passing).unwrap();
        });
        gpu.free_async(staying, Stream::LEGACY).unwrap();
        assert_eq!(gpu.findings(), []);
    });
}
