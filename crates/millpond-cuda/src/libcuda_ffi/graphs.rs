//! Recording work, and running what was recorded.

use std::ffi::c_ulonglong;
use std::sync::Arc;

use cudarc::driver::sys::{CUgraph, CUgraphExec, CUstreamCaptureMode, CUstreamCaptureStatus};
use millpond::driver::CaptureMode;

use super::context::Context;
use super::library::Cuda;
use super::status::{Status, call};
use super::streams::LiveStream;

/// Whether a stream is being captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CaptureStatus {
    None,
    Active(u64),
    Invalidated,
}

/// Work that can be launched again and again, destroyed when dropped.
#[derive(Debug)]
pub(crate) struct OwnedGraph {
    context: Arc<Context>,
    raw: u64,
}

fn number_of(mode: CaptureMode) -> u32 {
    match mode {
        CaptureMode::Global => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL as u32,
        CaptureMode::ThreadLocal => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL as u32,
        CaptureMode::Relaxed => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED as u32,
    }
}

/// Changes this thread's mode; returns what it was.
pub(crate) fn exchange_capture_mode(cuda: &Cuda, mode: CaptureMode) -> Result<CaptureMode, Status> {
    let mut number = number_of(mode);
    // SAFETY: the mode is read from and written to a variable that is there.
    unsafe { call!(cuda, cuThreadExchangeStreamCaptureMode(&mut number)) }?;
    let modes = [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed];
    // A mode of a later CUDA is at most as strict as the strictest.
    Ok(modes.into_iter().find(|mode| number_of(*mode) == number).unwrap_or_default())
}

impl LiveStream {
    pub(crate) fn begin_capture(&self, context: &Context, mode: CaptureMode) -> Result<(), Status> {
        // SAFETY: the stream is alive.
        context
            .with(|cuda| unsafe { call!(cuda, cuStreamBeginCapture(self.raw(), number_of(mode))) })
    }

    pub(crate) fn capture_status(&self, context: &Context) -> Result<CaptureStatus, Status> {
        const ACTIVE: u32 = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE as u32;
        const NONE: u32 = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE as u32;
        let mut status = NONE;
        let mut id: c_ulonglong = 0;
        context.with(|cuda| {
            if cuda.functions.cuStreamGetCaptureInfo_12030.is_some() {
                let none = std::ptr::null_mut();
                // SAFETY: the stream is alive; the answer goes into variables that are there, and what is null is not answered.
                return unsafe {
                    call!(
                        cuda,
                        cuStreamGetCaptureInfo_12030(
                            self.raw(),
                            &mut status,
                            &mut id,
                            none,
                            none,
                            none,
                            none
                        )
                    )
                };
            }
            // SAFETY: as above.
            unsafe { call!(cuda, cuStreamGetCaptureInfo(self.raw(), &mut status, &mut id)) }
        })?;
        Ok(match status {
            NONE => CaptureStatus::None,
            ACTIVE => CaptureStatus::Active(id),
            _ => CaptureStatus::Invalidated,
        })
    }

    /// Ends a capture and makes what was recorded ready to be launched.
    pub(crate) fn end_capture(&self, context: &Arc<Context>) -> Result<OwnedGraph, Status> {
        context.with(|cuda| {
            let mut graph: CUgraph = std::ptr::null_mut();
            // SAFETY: the stream is alive; the handle goes into a variable that is there.
            unsafe { call!(cuda, cuStreamEndCapture(self.raw(), &mut graph)) }?;
            if graph.is_null() {
                return Err(Status::CAPTURE_INVALIDATED);
            }
            let mut raw: CUgraphExec = std::ptr::null_mut();
            // SAFETY: the graph is the one that was just made; it is not needed beside what was instantiated from it.
            let made = unsafe {
                let made = call!(cuda, cuGraphInstantiateWithFlags(&mut raw, graph, 0));
                let destroyed = call!(cuda, cuGraphDestroy(graph));
                made.and(destroyed)
            };
            made?;
            Ok(OwnedGraph { context: Arc::clone(context), raw: raw as u64 })
        })
    }
}

impl OwnedGraph {
    pub(crate) fn handle(&self) -> u64 {
        self.raw
    }

    pub(crate) fn launch(&self, stream: &LiveStream) -> Result<(), Status> {
        // SAFETY: graph and stream are alive.
        self.context.with(|cuda| unsafe {
            call!(cuda, cuGraphLaunch(self.raw as CUgraphExec, stream.raw()))
        })
    }
}

impl Drop for OwnedGraph {
    fn drop(&mut self) {
        // SAFETY: instantiated by `end_capture`, and nobody has it any more. Launches that are queued still run.
        let _ = self
            .context
            .with(|cuda| unsafe { call!(cuda, cuGraphExecDestroy(self.raw as CUgraphExec)) });
    }
}
