//! Streams.

use std::ffi::c_void;

use millpond::driver::{
    CaptureState, DevicePtr, Driver, DriverError, DriverErrorKind, Event, Kernel, Stream,
    StreamFlags,
};
use millpond_sim::{EventCapture, GraphMark};

use crate::code_number::{Answer, Code};
use crate::context::Owned;
use crate::device::Device;
use crate::entry::entries;
use crate::graphs::GraphHostCall;
use crate::host_calls;
use crate::raw_pointers::{Callback, Out, StreamCallback, UserData};
use crate::streams::StreamInfo;
use crate::world::current;

const NON_BLOCKING: u32 = 1;
const GREATEST_PRIORITY: i32 = -5;

fn create(out: Out<u64>, flags: u32, priority: i32) -> Answer {
    out.check()?;
    let current = current()?;
    if flags & !NON_BLOCKING != 0 {
        return Err(Code::INVALID_VALUE);
    }
    // CUDA takes the nearest priority there is.
    let priority = priority.clamp(GREATEST_PRIORITY, 0);
    let wanted = StreamFlags { non_blocking: flags & NON_BLOCKING != 0, priority };
    let stream = current.gpu().create_stream(wanted)?;
    let context = current.context.handle;
    current.device.streams.insert(stream, StreamInfo { flags, priority, context });
    current.context.own(Owned::Stream(stream));
    out.set(stream.0)
}

/// How a stream was created. The default streams always were.
fn info(handle: u64, null: Stream) -> Answer<StreamInfo> {
    let current = current()?;
    let (device, stream) = current.stream(handle, null)?;
    if matches!(stream, Stream::LEGACY | Stream::PER_THREAD) {
        return Ok(StreamInfo { flags: 0, priority: 0, context: current.context.handle });
    }
    device.streams.get(stream).ok_or(Code::INVALID_HANDLE)
}

/// Why a stream cannot wait for an event: CUDA tells by its numbers what of the two is in a capture.
fn refused_wait(device: &Device, stream: Stream, event: Event, error: DriverError) -> Code {
    if error.kind != DriverErrorKind::CaptureUnsupported {
        return error.into();
    }
    let is_capturing = device.gpu.capture_id(stream).is_some();
    match (is_capturing, device.gpu.event_capture(event)) {
        (_, EventCapture::Ended) => Code::CAPTURED_EVENT,
        (true, EventCapture::UnderWay(_)) => Code::STREAM_CAPTURE_MERGE,
        (true, EventCapture::None) => Code::STREAM_CAPTURE_ISOLATION,
        (false, _) => Code::STREAM_CAPTURE_IMPLICIT,
    }
}

/// A word that is written in the order of a stream.
fn write_word(handle: u64, ptr: u64, value: u32, null: Stream) -> Answer {
    let current = current()?;
    let (device, stream) = current.stream(handle, null)?;
    let (owner, memory) = current.world.allocation_at(ptr).ok_or(Code::INVALID_VALUE)?;
    let room = memory.bytes - (ptr - memory.start.0) as usize;
    if !ptr.is_multiple_of(4) || room < 4 || !std::ptr::eq(owner, device) {
        return Err(Code::INVALID_VALUE);
    }
    Ok(device.gpu.launch(&Kernel::Fill { dst: DevicePtr(ptr), value, count: 1 }, stream)?)
}

entries! {
    fn cuStreamCreate(stream: Out<u64>, flags: u32) {
        create(stream, flags, 0)
    }

    fn cuStreamCreateWithPriority(stream: Out<u64>, flags: u32, priority: i32) {
        create(stream, flags, priority)
    }

    fn cuStreamDestroy_v2(handle: u64) {
        let current = current()?;
        if handle <= 2 {
            return Err(Code::INVALID_HANDLE);
        }
        let (device, stream) = current.stream(handle, NULL_STREAM)?;
        device.gpu.destroy_stream(stream)?;
        device.streams.remove(stream);
        current.world.disown(device, Owned::Stream(stream));
        Ok(())
    }

    fn cuStreamSynchronize / cuStreamSynchronize_ptsz(handle: u64) {
        let (device, stream) = current()?.stream(handle, NULL_STREAM)?;
        Ok(device.gpu.synchronize_stream(stream)?)
    }

    fn cuStreamQuery / cuStreamQuery_ptsz(handle: u64) {
        let current = current()?;
        let (device, stream) = current.stream_at_once(handle, NULL_STREAM)?;
        let idle = !device.host_calls.are_pending(&device.gpu, stream);
        if idle && device.gpu.query_stream(stream)? { Ok(()) } else { Err(Code::NOT_READY) }
    }

    fn cuStreamWaitEvent / cuStreamWaitEvent_ptsz(handle: u64, event: u64, flags: u32) {
        let current = current()?;
        if flags > 1 {
            return Err(Code::INVALID_VALUE);
        }
        let (device, stream) = current.stream(handle, NULL_STREAM)?;
        let owner = current.world.device_of(event)?;
        let event = Event(event);
        if std::ptr::eq(owner, device) {
            let waits = device.gpu.wait_event(stream, event);
            return waits.map_err(|error| refused_wait(device, stream, event, error));
        }
        // Devices have clocks of their own; what one waits for on another, the host waits for.
        let waited = owner.gpu.synchronize_event(event);
        waited.map_err(|error| refused_wait(owner, stream, event, error))
    }

    fn cuStreamGetPriority / cuStreamGetPriority_ptsz(handle: u64, priority: Out<i32>) {
        priority.check()?;
        priority.set(info(handle, NULL_STREAM)?.priority)
    }

    fn cuStreamGetFlags / cuStreamGetFlags_ptsz(handle: u64, flags: Out<u32>) {
        flags.check()?;
        flags.set(info(handle, NULL_STREAM)?.flags)
    }

    fn cuStreamGetCtx / cuStreamGetCtx_ptsz(handle: u64, context: Out<u64>) {
        context.check()?;
        context.set(info(handle, NULL_STREAM)?.context)
    }

    fn cuStreamGetDevice / cuStreamGetDevice_ptsz(handle: u64, device: Out<i32>) {
        device.check()?;
        info(handle, NULL_STREAM)?;
        device.set(current()?.stream(handle, NULL_STREAM)?.0.ordinal as i32)
    }

    fn cuStreamGetId / cuStreamGetId_ptsz(handle: u64, id: Out<u64>) {
        id.check()?;
        let (device, stream) = current()?.stream_at_once(handle, NULL_STREAM)?;
        id.set(device.gpu.stream_id(stream)?.0)
    }

    fn cuStreamAddCallback / cuStreamAddCallback_ptsz(
        handle: u64,
        callback: StreamCallback,
        data: UserData,
        flags: u32,
    ) {
        let (device, stream) = current()?.stream_at_once(handle, NULL_STREAM)?;
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let StreamCallback(function) = callback;
        let function = function.ok_or(Code::INVALID_VALUE)?;
        host_calls::queue(device, stream, Box::new(move |code| function(handle, code.0, data)))
    }

    fn cuLaunchHostFunc / cuLaunchHostFunc_ptsz(handle: u64, callback: Callback, data: UserData) {
        let (device, stream) = current()?.stream_at_once(handle, NULL_STREAM)?;
        let Callback(function) = callback;
        let function = function.ok_or(Code::INVALID_VALUE)?;
        let call = GraphHostCall { function, data };
        if let CaptureState::Active(capture) = device.gpu.capture_state(stream)? {
            device.gpu.capture_mark(stream, GraphMark::HostCall)?;
            return current()?.world.graphs.call_in(capture, call);
        }
        call.queue(device, stream)
    }

    fn cuStreamWriteValue32_v2 / cuStreamWriteValue32_v2_ptsz(handle: u64, ptr: u64, value: u32, _flags: u32) {
        write_word(handle, ptr, value, NULL_STREAM)
    }

    fn cuStreamWriteValue32 / cuStreamWriteValue32_ptsz(handle: u64, ptr: u64, value: u32, _flags: u32) {
        write_word(handle, ptr, value, NULL_STREAM)
    }

    /// Attributes of streams are hints, and none is kept.
    fn cuStreamSetAttribute / cuStreamSetAttribute_ptsz(handle: u64, _attribute: i32, value: *const c_void) {
        current()?.stream_at_once(handle, NULL_STREAM)?;
        if value.is_null() { Err(Code::INVALID_VALUE) } else { Ok(()) }
    }
}
