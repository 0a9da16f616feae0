//! Events.

use millpond::driver::{Driver, DriverError, DriverErrorKind, Event, EventTiming, Stream};

use crate::code_number::{Answer, Code};
use crate::context::Owned;
use crate::entry::entries;
use crate::raw_pointers::Out;
use crate::world::{current, world};

/// Blocking sync, disable timing, interprocess.
const KNOWN_FLAGS: u32 = 7;
const DISABLE_TIMING: u32 = 2;
const INTERPROCESS: u32 = 4;

fn record(event: u64, handle: u64, null: Stream) -> Answer {
    let current = current()?;
    let (device, stream) = current.stream(handle, null)?;
    if !std::ptr::eq(current.world.device_of(event)?, device) {
        return Err(Code::INVALID_HANDLE);
    }
    Ok(device.gpu.record_event(Event(event), stream)?)
}

/// What is refused here because of a capture is refused because the event is part of one.
fn of_event(error: DriverError) -> Code {
    match error.kind {
        DriverErrorKind::CaptureUnsupported => Code::CAPTURED_EVENT,
        kind => kind.into(),
    }
}

fn elapsed(milliseconds: Out<f32>, start: u64, end: u64) -> Answer {
    milliseconds.check()?;
    let world = world()?;
    let device = world.device_of(start)?;
    if !std::ptr::eq(device, world.device_of(end)?) {
        return Err(Code::INVALID_HANDLE);
    }
    let elapsed = device.gpu.elapsed(Event(start), Event(end)).map_err(of_event)?;
    milliseconds.set((elapsed.as_secs_f64() * 1e3) as f32)
}

entries! {
    fn cuEventCreate(event: Out<u64>, flags: u32) {
        event.check()?;
        let current = current()?;
        if flags & !KNOWN_FLAGS != 0 || flags & (INTERPROCESS | DISABLE_TIMING) == INTERPROCESS {
            return Err(Code::INVALID_VALUE);
        }
        let timing =
            if flags & DISABLE_TIMING == 0 { EventTiming::Enabled } else { EventTiming::Disabled };
        let made = current.gpu().create_event(timing)?;
        current.context.own(Owned::Event(made));
        event.set(made.0)
    }

    fn cuEventDestroy_v2(event: u64) {
        let world = world()?;
        let made = Event(event);
        let device = world.device_of(event)?;
        device.gpu.destroy_event(made)?;
        world.disown(device, Owned::Event(made));
        Ok(())
    }

    fn cuEventRecord / cuEventRecord_ptsz(event: u64, stream: u64) {
        record(event, stream, NULL_STREAM)
    }

    fn cuEventRecordWithFlags / cuEventRecordWithFlags_ptsz(event: u64, stream: u64, flags: u32) {
        if flags & !1 != 0 {
            return Err(Code::INVALID_VALUE);
        }
        record(event, stream, NULL_STREAM)
    }

    fn cuEventQuery(event: u64) {
        let passed = world()?.device_of(event)?.gpu.query_event(Event(event)).map_err(of_event)?;
        if passed { Ok(()) } else { Err(Code::NOT_READY) }
    }

    fn cuEventSynchronize(event: u64) {
        world()?.device_of(event)?.gpu.synchronize_event(Event(event)).map_err(of_event)
    }

    fn cuEventElapsedTime(milliseconds: Out<f32>, start: u64, end: u64) {
        elapsed(milliseconds, start, end)
    }

    fn cuEventElapsedTime_v2(milliseconds: Out<f32>, start: u64, end: u64) {
        elapsed(milliseconds, start, end)
    }
}
