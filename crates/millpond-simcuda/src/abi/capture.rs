//! Recording work instead of running it.

use millpond::driver::{CaptureId, CaptureMode, CaptureState, Driver, Stream};
use millpond_sim::Unfinished;

use crate::code_number::{Answer, Code};
use crate::entry::entries;
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
        CaptureState::Active(id) => (ACTIVE, id.0),
        CaptureState::Invalidated => (2, 0),
    })
}

/// Where a program wants to be told of a capture.
struct Wanted {
    status: Out<i32>,
    id: Out<u64>,
    graph: Out<u64>,
    dependencies: Out<*const u64>,
    edges: Out<*const u64>,
    count: Out<usize>,
}

impl Wanted {
    /// Besides the status everything is told of a capture under way only.
    fn tell(self, handle: u64, null: Stream) -> Answer {
        self.status.check()?;
        let (found, capture) = state(handle, null)?;
        self.status.set(found)?;
        if found != ACTIVE {
            return Ok(());
        }
        let current = current()?;
        let (device, stream) = current.stream_at_once(handle, null)?;
        let ends = device.gpu.capture_ends(stream).unwrap_or_default();
        let info = current.world.graphs.info(CaptureId(capture), stream, &ends);
        let info = info.ok_or(Code::STREAM_CAPTURE_INVALIDATED)?;
        self.id.set_if_wanted(capture)?;
        self.graph.set_if_wanted(info.graph)?;
        self.dependencies.set_if_wanted(info.nodes)?;
        self.edges.set_if_wanted(info.edges)?;
        self.count.set_if_wanted(info.count)
    }
}

/// `CUstreamCaptureStatus`.
const ACTIVE: i32 = 1;

entries! {
    fn cuStreamBeginCapture_v2 / cuStreamBeginCapture_v2_ptsz(handle: u64, number: i32) {
        let (device, stream) = current()?.stream(handle, NULL_STREAM)?;
        device.gpu.begin_capture(stream, mode(number)?)?;
        if let Some(capture) = device.gpu.capture_id(stream) {
            current()?.world.graphs.begin(capture);
        }
        Ok(())
    }

    fn cuStreamEndCapture / cuStreamEndCapture_ptsz(handle: u64, graph: Out<u64>) {
        graph.check()?;
        let current = current()?;
        let (device, stream) = current.stream(handle, NULL_STREAM)?;
        let capture = device.gpu.capture_id(stream);
        let unfinished = device.gpu.unfinished(stream);
        let ended = device.gpu.end_capture(stream);
        let mut handle = 0;
        // One that was asked to end elsewhere than it began goes on.
        if let Some(capture) = capture.filter(|_| device.gpu.capture_id(stream).is_none()) {
            handle = current.world.graphs.end(capture, device, ended.as_ref().ok().copied());
        }
        graph.set(handle)?;
        match (ended, unfinished) {
            (Ok(_), _) => Ok(()),
            (Err(_), Some(why)) => Err(match why {
                Unfinished::OtherStream => Code::STREAM_CAPTURE_UNMATCHED,
                Unfinished::OtherThread => Code::STREAM_CAPTURE_WRONG_THREAD,
                Unfinished::Spoiled => Code::STREAM_CAPTURE_INVALIDATED,
                Unfinished::Unjoined => Code::STREAM_CAPTURE_UNJOINED,
            }),
            (Err(error), None) => Err(error.into()),
        }
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
        dependencies: Out<*const u64>,
        count: Out<usize>,
    ) {
        let edges = Out::null();
        Wanted { status, id, graph, dependencies, edges, count }.tell(handle, NULL_STREAM)
    }

    fn cuStreamGetCaptureInfo_v3 / cuStreamGetCaptureInfo_v3_ptsz(
        handle: u64,
        status: Out<i32>,
        id: Out<u64>,
        graph: Out<u64>,
        dependencies: Out<*const u64>,
        edges: Out<*const u64>,
        count: Out<usize>,
    ) {
        Wanted { status, id, graph, dependencies, edges, count }.tell(handle, NULL_STREAM)
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
