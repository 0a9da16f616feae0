use millpond::driver::{
    CaptureMode, CaptureState, Driver, DriverErrorKind, EventTiming, Kernel, Stream, StreamFlags,
};

use super::{expect_error, fill, words};

/// Captured work runs when its graph is launched, each time, and not before.
///
/// # Panics
/// If the driver does it wrong.
pub fn capture_and_launch(driver: &dyn Driver) {
    let [stream, side] = [(); 2].map(|()| driver.create_stream(StreamFlags::NON_BLOCKING).unwrap());
    let [a, b] = [(); 2].map(|()| driver.alloc(4000).unwrap());
    let event = driver.create_event(EventTiming::Disabled).unwrap();
    fill(driver, a, 1, 1000, Stream::LEGACY);
    driver.synchronize_device().unwrap();

    driver.begin_capture(stream, CaptureMode::Global).unwrap();
    assert!(matches!(driver.capture_state(stream), Ok(CaptureState::Active(_))));
    assert_eq!(driver.capture_state(side), Ok(CaptureState::None));
    fill(driver, a, 2, 1000, stream);
    // An event carries the capture to another stream, and back.
    driver.record_event(event, stream).unwrap();
    driver.wait_event(side, event).unwrap();
    assert_eq!(driver.capture_state(side), driver.capture_state(stream));
    driver.copy(b, a, 4000, side).unwrap();
    driver.record_event(event, side).unwrap();
    driver.wait_event(stream, event).unwrap();
    let graph = driver.end_capture(stream).unwrap();
    assert_eq!(driver.capture_state(side), Ok(CaptureState::None));
    assert_eq!(words(driver, a, 1000, stream), [1; 1000], "nothing has run yet");

    for _ in 0..3 {
        driver.memset(b, 0, 4000, stream).unwrap();
        driver.launch_graph(graph, stream).unwrap();
        assert_eq!(words(driver, b, 1000, stream), [2; 1000]);
    }
    driver.launch_graph(graph, stream).unwrap();
    driver.destroy_graph(graph).unwrap();
    expect_error(driver.launch_graph(graph, stream), DriverErrorKind::InvalidHandle);
    driver.synchronize_device().unwrap();
    driver.destroy_event(event).unwrap();
    for ptr in [a, b] {
        driver.free(ptr).unwrap();
    }
    for stream in [stream, side] {
        driver.destroy_stream(stream).unwrap();
    }
}

/// A captured copy brings the bytes that were given to it, however often it is launched and whatever became of them since.
///
/// # Panics
/// If the driver does it wrong.
pub fn captured_copies_keep_their_bytes(driver: &dyn Driver) {
    let stream = driver.create_stream(StreamFlags::NON_BLOCKING).unwrap();
    let ptr = driver.alloc(4000).unwrap();
    let mut bytes = vec![7; 4000];
    driver.begin_capture(stream, CaptureMode::Global).unwrap();
    driver.copy_to_device(ptr, &bytes, stream).unwrap();
    bytes.fill(1);
    drop(bytes);
    let graph = driver.end_capture(stream).unwrap();
    let sevens = u32::from_ne_bytes([7; 4]);
    for _ in 0..2 {
        driver.memset(ptr, 0, 4000, stream).unwrap();
        driver.launch_graph(graph, stream).unwrap();
        assert_eq!(words(driver, ptr, 1000, stream), [sevens; 1000]);
    }
    driver.memset(ptr, 0, 4000, stream).unwrap();
    driver.launch_graph(graph, stream).unwrap();
    driver.destroy_graph(graph).unwrap();
    assert_eq!(words(driver, ptr, 1000, stream), [sevens; 1000], "what is queued still runs");

    // What would be read into memory that is borrowed cannot be captured, and spoils the capture.
    driver.begin_capture(stream, CaptureMode::Relaxed).unwrap();
    let read = driver.copy_to_host(&mut [0; 4], ptr, stream);
    expect_error(read, DriverErrorKind::CaptureUnsupported);
    expect_error(driver.end_capture(stream), DriverErrorKind::CaptureInvalidated);
    driver.free(ptr).unwrap();
    driver.destroy_stream(stream).unwrap();
}

/// While a stream is captured, unsafe calls are refused and spoil the capture, unless this thread relaxed.
///
/// # Panics
/// If the driver does it wrong.
pub fn capture_forbids_and_allows(driver: &dyn Driver) {
    let stream = driver.create_stream(StreamFlags::NON_BLOCKING).unwrap();
    let unsupported = DriverErrorKind::CaptureUnsupported;
    expect_error(driver.begin_capture(Stream::LEGACY, CaptureMode::Global), unsupported);

    driver.begin_capture(stream, CaptureMode::Global).unwrap();
    expect_error(driver.alloc(4096), unsupported);
    assert_eq!(driver.capture_state(stream), Ok(CaptureState::Invalidated));
    expect_error(driver.end_capture(stream), DriverErrorKind::CaptureInvalidated);
    assert_eq!(driver.capture_state(stream), Ok(CaptureState::None));

    driver.begin_capture(stream, CaptureMode::Global).unwrap();
    let was = driver.exchange_capture_mode(CaptureMode::Relaxed).unwrap();
    assert_eq!(was, CaptureMode::Global);
    let ptr = driver.alloc(4096).unwrap();
    assert_eq!(driver.exchange_capture_mode(was).unwrap(), CaptureMode::Relaxed);
    fill(driver, ptr, 6, 1000, stream);
    let graph = driver.end_capture(stream).unwrap();
    driver.launch_graph(graph, stream).unwrap();
    assert_eq!(words(driver, ptr, 1000, stream), [6; 1000]);
    driver.destroy_graph(graph).unwrap();

    driver.begin_capture(stream, CaptureMode::ThreadLocal).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| driver.free(ptr).unwrap());
    });
    expect_error(driver.synchronize_stream(stream), unsupported);
    let _ = driver.end_capture(stream);
    driver.destroy_stream(stream).unwrap();
}

/// Captures keep to themselves: they end where they began, with everything joined, and wait for nothing outside.
///
/// # Panics
/// If the driver does it wrong.
pub fn captures_keep_to_themselves(driver: &dyn Driver) {
    let unsupported = DriverErrorKind::CaptureUnsupported;
    let [a, b] = [(); 2].map(|()| driver.create_stream(StreamFlags::NON_BLOCKING).unwrap());
    let blocking = driver.create_stream(StreamFlags::default()).unwrap();
    let ptr = driver.alloc(4000).unwrap();
    let [event, other] = [(); 2].map(|()| driver.create_event(EventTiming::Disabled).unwrap());

    // What went to another stream has to come back.
    driver.begin_capture(a, CaptureMode::Relaxed).unwrap();
    driver.record_event(event, a).unwrap();
    driver.wait_event(b, event).unwrap();
    fill(driver, ptr, 1, 10, b);
    expect_error(driver.end_capture(b), DriverErrorKind::InvalidValue);
    expect_error(driver.end_capture(a), DriverErrorKind::CaptureInvalidated);
    assert_eq!(driver.capture_state(b), Ok(CaptureState::None));

    // Two captures cannot wait for each other, and an event is of the one that recorded it last.
    driver.begin_capture(a, CaptureMode::Relaxed).unwrap();
    driver.begin_capture(b, CaptureMode::Relaxed).unwrap();
    driver.record_event(event, a).unwrap();
    driver.record_event(event, b).unwrap();
    driver.wait_event(b, event).unwrap();
    driver.record_event(other, a).unwrap();
    expect_error(driver.wait_event(b, other), unsupported);
    for stream in [a, b] {
        expect_error(driver.end_capture(stream), DriverErrorKind::CaptureInvalidated);
    }

    // Nor can one wait for an event outside, or lose its stream.
    driver.record_event(event, blocking).unwrap();
    driver.begin_capture(a, CaptureMode::Relaxed).unwrap();
    expect_error(driver.destroy_stream(a), unsupported);
    expect_error(driver.wait_event(a, event), unsupported);
    expect_error(driver.end_capture(a), DriverErrorKind::CaptureInvalidated);

    // The legacy stream would wait for every blocking one, and cannot be captured by an event either.
    driver.begin_capture(blocking, CaptureMode::Relaxed).unwrap();
    let fill_on_legacy = Kernel::Fill { dst: ptr, value: 1, count: 1 };
    expect_error(driver.launch(&fill_on_legacy, Stream::LEGACY), unsupported);
    expect_error(driver.end_capture(blocking), DriverErrorKind::CaptureInvalidated);
    driver.begin_capture(a, CaptureMode::Relaxed).unwrap();
    driver.record_event(event, a).unwrap();
    expect_error(driver.wait_event(Stream::LEGACY, event), unsupported);
    expect_error(driver.end_capture(a), DriverErrorKind::CaptureInvalidated);

    // A capture that is not relaxed ends in the thread where it began.
    driver.begin_capture(a, CaptureMode::ThreadLocal).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| expect_error(driver.end_capture(a), unsupported));
    });
    let graph = driver.end_capture(a).unwrap();
    driver.destroy_graph(graph).unwrap();

    driver.free(ptr).unwrap();
    for event in [event, other] {
        driver.destroy_event(event).unwrap();
    }
    for stream in [a, b, blocking] {
        driver.destroy_stream(stream).unwrap();
    }
}
