//! Streams.

use std::any::Any;
use std::ffi::c_ulonglong;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cudarc::driver::sys::{CUstream, CUstream_flags};
use millpond::driver::StreamFlags;

use super::context::Context;
use super::events::OwnedEvent;
use super::status::{Status, call};

/// A stream that is alive for as long as this is.
#[derive(Debug)]
pub(crate) struct StreamHandle {
    context: Arc<Context>,
    raw: u64,
    /// Another one for every stream there ever was, for drivers that do not number them.
    number: u64,
    owner: Owner,
}

/// Who destroys a stream.
enum Owner {
    /// The handle, when it is dropped.
    Handle,
    /// Somebody else, not while this is kept.
    Kept(#[allow(dead_code)] Arc<dyn Any + Send + Sync>),
    /// Nobody: a default stream.
    Always,
}

/// A stream for the length of a call.
#[derive(Debug)]
pub(crate) enum LiveStream {
    /// One of ours, or lent to us.
    Known(Arc<StreamHandle>),
    /// Somebody else's, by the word of whoever opened the device for such streams.
    Foreign(u64),
}

/// A number that no stream has had yet.
pub(crate) fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    // Relaxed: only that each comes once matters.
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl StreamHandle {
    pub(crate) fn create(
        context: &Arc<Context>,
        flags: StreamFlags,
    ) -> Result<StreamHandle, Status> {
        let kind = if flags.non_blocking {
            CUstream_flags::CU_STREAM_NON_BLOCKING
        } else {
            CUstream_flags::CU_STREAM_DEFAULT
        };
        let mut raw: CUstream = std::ptr::null_mut();
        // SAFETY: the handle goes into a variable that is there. Priorities out of range are clamped.
        context.with(|cuda| unsafe {
            call!(cuda, cuStreamCreateWithPriority(&mut raw, kind as u32, flags.priority))
        })?;
        Ok(StreamHandle {
            context: Arc::clone(context),
            raw: raw as u64,
            number: next_number(),
            owner: Owner::Handle,
        })
    }

    /// A default stream: 1 is the legacy one, 2 that of the calling thread.
    pub(crate) fn default_stream(context: &Arc<Context>, raw: u64) -> StreamHandle {
        assert!(matches!(raw, 1 | 2), "the default streams have these handles");
        StreamHandle {
            context: Arc::clone(context),
            raw,
            number: next_number(),
            owner: Owner::Always,
        }
    }

    /// A stream of somebody else's.
    ///
    /// # Safety
    /// It is a stream of this context, and alive while `keep` is.
    pub(crate) unsafe fn kept(
        context: &Arc<Context>,
        raw: u64,
        keep: Arc<dyn Any + Send + Sync>,
    ) -> StreamHandle {
        StreamHandle {
            context: Arc::clone(context),
            raw,
            number: next_number(),
            owner: Owner::Kept(keep),
        }
    }

    pub(crate) fn handle(&self) -> u64 {
        self.raw
    }

    /// Never another stream's.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn is_ours(&self) -> bool {
        matches!(self.owner, Owner::Handle)
    }
}

impl LiveStream {
    pub(super) fn raw(&self) -> CUstream {
        match self {
            LiveStream::Known(stream) => stream.raw as CUstream,
            LiveStream::Foreign(raw) => *raw as CUstream,
        }
    }

    /// The driver's own number for the stream, if it numbers streams (from 12.0 on).
    pub(crate) fn id(&self, context: &Context) -> Option<Result<u64, Status>> {
        context.cuda().functions.cuStreamGetId?;
        let mut id: c_ulonglong = 0;
        // SAFETY: the stream is alive; the number goes into a variable that is there.
        let asked = context.with(|cuda| unsafe { call!(cuda, cuStreamGetId(self.raw(), &mut id)) });
        Some(asked.map(|()| id))
    }

    pub(crate) fn synchronize(&self, context: &Context) -> Result<(), Status> {
        // SAFETY: the stream is alive.
        context.with(|cuda| unsafe { call!(cuda, cuStreamSynchronize(self.raw())) })
    }

    /// Whether everything queued has run.
    pub(crate) fn query(&self, context: &Context) -> Result<bool, Status> {
        // SAFETY: the stream is alive.
        match context.with(|cuda| unsafe { call!(cuda, cuStreamQuery(self.raw())) }) {
            Err(Status::NOT_READY) => Ok(false),
            answer => answer.map(|()| true),
        }
    }

    pub(crate) fn wait(&self, context: &Context, event: &OwnedEvent) -> Result<(), Status> {
        // SAFETY: stream and event are alive.
        context.with(|cuda| unsafe { call!(cuda, cuStreamWaitEvent(self.raw(), event.raw(), 0)) })
    }
}

impl Drop for StreamHandle {
    fn drop(&mut self) {
        if self.is_ours() {
            // SAFETY: created by `create`, and nobody has it any more. What is queued still runs.
            let _ = self
                .context
                .with(|cuda| unsafe { call!(cuda, cuStreamDestroy(self.raw as CUstream)) });
        }
    }
}

impl std::fmt::Debug for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Owner::Handle => "Handle",
            Owner::Kept(_) => "Kept",
            Owner::Always => "Always",
        })
    }
}
