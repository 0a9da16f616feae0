//! Events.

use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::sys::{CUevent, CUevent_flags};
use millpond::driver::EventTiming;

use super::context::Context;
use super::status::{Status, call};
use super::streams::LiveStream;

/// An event, destroyed when dropped; waits queued on it stay in force.
#[derive(Debug)]
pub(crate) struct OwnedEvent {
    context: Arc<Context>,
    raw: u64,
}

impl OwnedEvent {
    pub(crate) fn create(
        context: &Arc<Context>,
        timing: EventTiming,
    ) -> Result<OwnedEvent, Status> {
        let flags = match timing {
            EventTiming::Enabled => CUevent_flags::CU_EVENT_DEFAULT,
            EventTiming::Disabled => CUevent_flags::CU_EVENT_DISABLE_TIMING,
        };
        let mut raw: CUevent = std::ptr::null_mut();
        // SAFETY: the handle goes into a variable that is there.
        context.with(|cuda| unsafe { call!(cuda, cuEventCreate(&mut raw, flags as u32)) })?;
        Ok(OwnedEvent { context: Arc::clone(context), raw: raw as u64 })
    }

    pub(crate) fn handle(&self) -> u64 {
        self.raw
    }

    pub(super) fn raw(&self) -> CUevent {
        self.raw as CUevent
    }

    pub(crate) fn record(&self, stream: &LiveStream) -> Result<(), Status> {
        // SAFETY: event and stream are alive.
        self.context.with(|cuda| unsafe { call!(cuda, cuEventRecord(self.raw(), stream.raw())) })
    }

    /// Whether its point has passed.
    pub(crate) fn query(&self) -> Result<bool, Status> {
        // SAFETY: the event is alive.
        match self.context.with(|cuda| unsafe { call!(cuda, cuEventQuery(self.raw())) }) {
            Err(Status::NOT_READY) => Ok(false),
            answer => answer.map(|()| true),
        }
    }

    pub(crate) fn synchronize(&self) -> Result<(), Status> {
        // SAFETY: the event is alive.
        self.context.with(|cuda| unsafe { call!(cuda, cuEventSynchronize(self.raw())) })
    }

    /// The time from this one to another.
    pub(crate) fn elapsed_until(&self, end: &OwnedEvent) -> Result<Duration, Status> {
        let mut milliseconds = 0.0_f32;
        // SAFETY: both are alive; the time goes into a variable that is there.
        self.context.with(|cuda| unsafe {
            call!(cuda, cuEventElapsedTime(&mut milliseconds, self.raw(), end.raw()))
        })?;
        // Events that passed in the other order have a negative time between them.
        Ok(Duration::from_secs_f64(f64::from(milliseconds.max(0.0)) / 1e3))
    }
}

impl Drop for OwnedEvent {
    fn drop(&mut self) {
        // SAFETY: created by `create`, and nobody has it any more.
        let _ = self.context.with(|cuda| unsafe { call!(cuda, cuEventDestroy(self.raw())) });
    }
}
