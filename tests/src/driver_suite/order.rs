use std::collections::HashSet;
use std::time::Duration;

use millpond::driver::{Driver, DriverErrorKind, EventTiming, Kernel, Stream, StreamFlags};

use super::{expect_error, fill, words};

fn busy(duration: Duration) -> Kernel {
    Kernel::Work { touches: Vec::new(), duration }
}

/// A stream that waits for an event comes after what was queued before the event, whatever follows it.
///
/// # Panics
/// If the driver does it wrong.
pub fn events_order_streams(driver: &dyn Driver) {
    let [a, b] = [(); 2].map(|()| driver.create_stream(StreamFlags::NON_BLOCKING).unwrap());
    let ptr = driver.alloc(4000).unwrap();
    let event = driver.create_event(EventTiming::Disabled).unwrap();
    assert!(driver.query_event(event).unwrap(), "an event that was never recorded has passed");
    for round in 0..50 {
        driver.launch(&busy(Duration::from_micros(300)), a).unwrap();
        fill(driver, ptr, round, 1000, a);
        driver.record_event(event, a).unwrap();
        driver.wait_event(b, event).unwrap();
        assert_eq!(words(driver, ptr, 1000, b), vec![round; 1000]);
        // The wait is for the point of the record, not for later ones.
        driver.launch(&busy(Duration::from_millis(1)), a).unwrap();
        driver.record_event(event, b).unwrap();
        driver.synchronize_event(event).unwrap();
        assert!(driver.query_event(event).unwrap() && driver.query_stream(b).unwrap());
        driver.wait_event(a, event).unwrap();
    }
    driver.destroy_event(event).unwrap();
    driver.synchronize_stream(a).unwrap();
    assert!(driver.query_stream(a).unwrap());
    driver.free(ptr).unwrap();
    driver.destroy_stream(a).unwrap();
    driver.destroy_stream(b).unwrap();
}

/// Elapsed time is the device's, and only between timed events that have passed.
///
/// # Panics
/// If the driver does it wrong.
pub fn events_tell_time(driver: &dyn Driver) {
    let stream = driver.create_stream(StreamFlags::NON_BLOCKING).unwrap();
    let [start, end] = [(); 2].map(|()| driver.create_event(EventTiming::Enabled).unwrap());
    driver.record_event(start, stream).unwrap();
    driver.launch(&busy(Duration::from_millis(20)), stream).unwrap();
    driver.record_event(end, stream).unwrap();
    expect_error(driver.elapsed(start, end), DriverErrorKind::NotReady);
    driver.synchronize_event(end).unwrap();
    let elapsed = driver.elapsed(start, end).unwrap();
    assert!(elapsed >= Duration::from_millis(20), "{elapsed:?}");
    let untimed = driver.create_event(EventTiming::Disabled).unwrap();
    driver.record_event(untimed, stream).unwrap();
    driver.synchronize_event(untimed).unwrap();
    expect_error(driver.elapsed(start, untimed), DriverErrorKind::InvalidHandle);
    for event in [start, end, untimed] {
        driver.destroy_event(event).unwrap();
    }
    driver.destroy_stream(stream).unwrap();
}

/// The legacy default stream waits for blocking streams and they for it; non-blocking ones do not.
///
/// # Panics
/// If the driver does it wrong.
pub fn legacy_stream_orders_blocking_streams(driver: &dyn Driver) {
    let blocking = driver.create_stream(StreamFlags::default()).unwrap();
    let free = driver.create_stream(StreamFlags::NON_BLOCKING).unwrap();
    let ptr = driver.alloc(4000).unwrap();
    for round in 0..50 {
        driver.launch(&busy(Duration::from_micros(200)), blocking).unwrap();
        fill(driver, ptr, round, 1000, blocking);
        assert_eq!(words(driver, ptr, 1000, Stream::LEGACY), vec![round; 1000]);
        driver.launch(&busy(Duration::from_micros(200)), Stream::LEGACY).unwrap();
        fill(driver, ptr, round + 1000, 1000, Stream::LEGACY);
        assert_eq!(words(driver, ptr, 1000, blocking), vec![round + 1000; 1000]);
    }
    driver.launch(&busy(Duration::from_millis(500)), Stream::LEGACY).unwrap();
    driver.synchronize_stream(free).unwrap();
    assert!(!driver.query_stream(Stream::LEGACY).unwrap());
    driver.free(ptr).unwrap();
    driver.destroy_stream(blocking).unwrap();
    driver.destroy_stream(free).unwrap();
}

/// Every thread has a default stream of its own.
///
/// # Panics
/// If the driver does it wrong.
pub fn per_thread_streams_differ(driver: &dyn Driver) {
    let id = || {
        let first = driver.stream_id(Stream::PER_THREAD).unwrap();
        assert_eq!(driver.stream_id(Stream::PER_THREAD).unwrap(), first);
        first
    };
    let ids: HashSet<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(id)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).chain([id()]).collect()
    });
    assert_eq!(ids.len(), 5);
    assert!(!ids.contains(&driver.stream_id(Stream::LEGACY).unwrap()));
}

/// A new stream may get the handle of a destroyed one, never its id; queued work outlives the handle.
///
/// # Panics
/// If the driver does it wrong.
pub fn stream_handles_are_recycled_and_ids_are_not(driver: &dyn Driver) {
    let mut ids = HashSet::new();
    let ptr = driver.alloc(4000).unwrap();
    for round in 0..50 {
        let stream = driver.create_stream(StreamFlags::NON_BLOCKING).unwrap();
        assert!(ids.insert(driver.stream_id(stream).unwrap()), "an id came twice");
        driver.launch(&busy(Duration::from_micros(100)), stream).unwrap();
        fill(driver, ptr, round, 1000, stream);
        driver.destroy_stream(stream).unwrap();
        expect_error(driver.stream_id(stream), DriverErrorKind::InvalidHandle);
        driver.synchronize_device().unwrap();
        assert_eq!(words(driver, ptr, 1000, Stream::LEGACY), vec![round; 1000]);
    }
    driver.free(ptr).unwrap();
}
