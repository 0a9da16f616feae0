//! Recording work instead of running it.

use std::ffi::c_void;

use millpond::driver::{CaptureMode, CaptureState, Driver, Stream};

use crate::code_number::{Answer, Code};
use crate::entry::entries;
use crate::graphs::Recorded;
use crate::raw_pointers::Out;
use crate::world::{current, world};

const MODES: [CaptureMode; 3] =
    [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed];

fn mode(number: i32) -> Answer<CaptureMode> {
    let index = usize::try_from(number).map_err(|_| Code::INVALID_VALUE)?;
    MODES.get(index).copied().ok_or(Code::INVALID_VALUE)
}

/// CUDA's status, and the id of the capture.
fn state(handle: u64, null: Stream) -> Answer<(i32, u64)> {
    let (device, stream) = current()?.stream_at_once(handle, null)?;
    // Asked of the legacy stream beside a capture that it would wait for.
    let implicit = |error: millpond::driver::DriverError| match Code::from(error) {
        Code::STREAM_CAPTURE_UNSUPPORTED => Code::STREAM_CAPTURE_IMPLICIT,
        code => code,
    };
    Ok(match device.gpu.capture_state(stream).map_err(implicit)? {
        CaptureState::None => (0, 0),
        CaptureState::Active(id) => (1, id.0),
        CaptureState::Invalidated => (2, 0),
    })
}

/// Of the graph that comes into being, and what is to come after what in it, nothing is told.
fn info(
    handle: u64,
    status: Out<i32>,
    id: Out<u64>,
    graph: Out<u64>,
    dependencies: Out<*const c_void>,
    count: Out<usize>,
    null: Stream,
) -> Answer {
    status.check()?;
    let (found, capture) = state(handle, null)?;
    status.set(found)?;
    id.set_if_wanted(capture)?;
    graph.set_if_wanted(0)?;
    dependencies.set_if_wanted(std::ptr::null())?;
    count.set_if_wanted(0)
}

entries! {
    fn cuStreamBeginCapture_v2 / cuStreamBeginCapture_v2_ptsz(handle: u64, number: i32) {
        let (device, stream) = current()?.stream(handle, NULL_STREAM)?;
        Ok(device.gpu.begin_capture(stream, mode(number)?)?)
    }

    fn cuStreamEndCapture / cuStreamEndCapture_ptsz(handle: u64, graph: Out<u64>) {
        graph.check()?;
        let current = current()?;
        let (device, stream) = current.stream(handle, NULL_STREAM)?;
        let ended = device.gpu.end_capture(stream);
        if ended.is_err() {
            graph.set(0)?;
        }
        let memory = current.world.graphs.recorded_memory(device);
        let recorded = Recorded { gpu: device.gpu.clone(), graph: ended?, memory };
        graph.set(current.world.graphs.add(recorded))
    }

    fn cuStreamIsCapturing / cuStreamIsCapturing_ptsz(handle: u64, status: Out<i32>) {
        status.check()?;
        status.set(state(handle, NULL_STREAM)?.0)
    }

    fn cuStreamGetCaptureInfo / cuStreamGetCaptureInfo_ptsz(handle: u64, status: Out<i32>, id: Out<u64>) {
        status.check()?;
        let (found, capture) = state(handle, NULL_STREAM)?;
        status.set(found)?;
        id.set_if_wanted(capture)
    }

    fn cuStreamGetCaptureInfo_v2 / cuStreamGetCaptureInfo_v2_ptsz(
        handle: u64,
        status: Out<i32>,
        id: Out<u64>,
        graph: Out<u64>,
        dependencies: Out<*const c_void>,
        count: Out<usize>,
    ) {
        info(handle, status, id, graph, dependencies, count, NULL_STREAM)
    }

    fn cuStreamGetCaptureInfo_v3 / cuStreamGetCaptureInfo_v3_ptsz(
        handle: u64,
        status: Out<i32>,
        id: Out<u64>,
        graph: Out<u64>,
        dependencies: Out<*const c_void>,
        edges: Out<*const c_void>,
        count: Out<usize>,
    ) {
        edges.set_if_wanted(std::ptr::null())?;
        info(handle, status, id, graph, dependencies, count, NULL_STREAM)
    }

    /// The mode is the thread's, on every device.
    fn cuThreadExchangeStreamCaptureMode(number: Out<i32>) {
        let wanted = mode(number.get()?)?;
        let mut before = CaptureMode::Global;
        for device in &world()?.devices {
            before = device.gpu.exchange_capture_mode(wanted)?;
        }
        number.set(MODES.iter().position(|mode| *mode == before).unwrap_or(0) as i32)
    }
}
