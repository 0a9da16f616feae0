//! A device whose clock is real time. Nothing here is measured by the wall: the device's own times are exact, whenever the host
//! looks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millpond::driver::{
    CaptureMode, Driver, DriverErrorKind, EventTiming, Kernel, Stream, StreamFlags,
};
use millpond_sim::{Profile, SimClock, SimGpu, SimOptions};

fn gpu(times: f64) -> SimGpu {
    let clock = SimClock::real(times).unwrap();
    let options = SimOptions { clock, ..SimOptions::default() };
    SimGpu::with_options(Profile::named("v100-16g").unwrap(), options)
}

fn work(duration: Duration) -> Kernel {
    Kernel::Work { duration, touches: Vec::new() }
}

const KERNEL: Duration = Duration::from_millis(20);

#[test]
fn work_takes_its_time_on_the_device_and_the_host_waits_for_it() {
    let gpu = gpu(1.0);
    let events: Vec<_> = (0..2).map(|_| gpu.create_event(EventTiming::Enabled).unwrap()).collect();
    let before = gpu.now();
    gpu.record_event(events[0], Stream::LEGACY).unwrap();
    gpu.launch(&work(KERNEL), Stream::LEGACY).unwrap();
    gpu.launch(&work(KERNEL), Stream::LEGACY).unwrap();
    gpu.record_event(events[1], Stream::LEGACY).unwrap();
    gpu.synchronize_event(events[1]).unwrap();
    assert!(gpu.now() - before >= 2 * KERNEL);
    let took = gpu.elapsed(events[0], events[1]).unwrap();
    assert!(took >= 2 * KERNEL, "{took:?}");
    assert!(gpu.query_stream(Stream::LEGACY).unwrap());
}

#[test]
fn time_passes_without_calls() {
    let gpu = gpu(1000.0);
    gpu.launch(&work(KERNEL), Stream::LEGACY).unwrap();
    let end = gpu.now() + KERNEL;
    while gpu.now() < end {
        std::thread::yield_now();
    }
    assert!(gpu.query_stream(Stream::LEGACY).unwrap(), "nobody waited, and yet it is done");
    let before = gpu.now();
    gpu.advance(KERNEL);
    assert!(gpu.now() - before >= KERNEL);
}

#[test]
fn work_of_a_stream_that_is_gone_is_waited_for() {
    let gpu = gpu(1.0);
    let stream = gpu.create_stream(StreamFlags::NON_BLOCKING).unwrap();
    let before = gpu.now();
    gpu.launch(&work(KERNEL), stream).unwrap();
    gpu.destroy_stream(stream).unwrap();
    gpu.synchronize_device().unwrap();
    assert!(gpu.now() - before >= KERNEL, "{:?}", gpu.now() - before);
}

#[test]
fn a_thread_that_waits_does_not_keep_others_from_calling() {
    let gpu = gpu(1.0);
    let stream = gpu.create_stream(StreamFlags::default()).unwrap();
    gpu.launch(&work(Duration::from_secs(1)), stream).unwrap();
    let waiting = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            waiting.store(true, Ordering::SeqCst);
            gpu.synchronize_stream(stream).unwrap();
        });
        while !waiting.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        let mut calls = 0;
        while !gpu.query_stream(stream).unwrap() {
            calls += 1;
            gpu.alloc_pinned(4096).unwrap();
            // Another kind of wait, in a third thread.
            if calls == 1 {
                scope.spawn(|| gpu.synchronize_device().unwrap());
            }
        }
        assert!(calls > 1, "every call waited for the other thread's");
        waiter.join().unwrap();
    });
}

#[test]
fn of_two_frees_at_once_one_succeeds() {
    let gpu = gpu(100.0);
    for round in 0..20 {
        let block = match round % 3 {
            0 => gpu.alloc(4096).unwrap(),
            1 => gpu.alloc_managed(4096).unwrap(),
            _ => {
                let pool = gpu.default_pool().unwrap();
                gpu.alloc_async(4096, pool, Stream::LEGACY).unwrap()
            }
        };
        gpu.launch(&work(Duration::from_millis(50)), Stream::LEGACY).unwrap();
        let answers: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..2).map(|_| scope.spawn(|| gpu.free(block))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let freed = answers.iter().filter(|answer| answer.is_ok()).count();
        assert_eq!(freed, 1, "{answers:?}");
        let refused = answers.iter().find_map(|answer| answer.as_ref().err()).unwrap();
        assert_eq!(refused.kind, DriverErrorKind::InvalidValue);
    }
    assert_eq!(gpu.held().device_bytes(), 0);
}

#[test]
fn a_graph_runs_its_work_in_order() {
    let gpu = gpu(100.0);
    let stream = gpu.create_stream(StreamFlags::default()).unwrap();
    let block = gpu.alloc(4096).unwrap();
    gpu.begin_capture(stream, CaptureMode::Relaxed).unwrap();
    for value in [1, 2] {
        gpu.launch(&Kernel::Fill { dst: block, value, count: 1024 }, stream).unwrap();
        gpu.launch(&work(KERNEL), stream).unwrap();
    }
    let graph = gpu.end_capture(stream).unwrap();
    let before = gpu.now();
    gpu.launch_graph(graph, stream).unwrap();
    gpu.destroy_graph(graph).unwrap();
    let mut word = [0; 4];
    gpu.copy_to_host(&mut word, block, stream).unwrap();
    assert_eq!(u32::from_le_bytes(word), 2);
    assert!(gpu.now() - before >= 2 * KERNEL);
}

#[test]
fn calls_take_what_they_cost() {
    let gpu = gpu(1.0);
    let (before, cost_before) = (gpu.now(), gpu.call_time());
    for _ in 0..20 {
        let block = gpu.alloc(64 << 20).unwrap();
        gpu.free(block).unwrap();
    }
    let (passed, cost) = (gpu.now() - before, gpu.call_time() - cost_before);
    assert!(cost > Duration::from_millis(1) && passed >= cost, "{passed:?} {cost:?}");
}
