//! How bytes get to the device that may change as soon as the call has returned.
//!
//! CUDA says of asynchronous copies from ordinary memory only that they *may* be finished with the source when they return. So the
//! bytes go through pinned memory of our own, a chunk at a time; a chunk is used again when the copy out of it has passed.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use millpond::driver::{CaptureMode, EventTiming};
use parking_lot::Mutex;

use crate::libcuda_ffi::{
    Context, Cuda, LiveStream, OwnedEvent, PinnedMemory, Status, exchange_capture_mode,
};

const CHUNK_BYTES: usize = 1 << 20;
/// As many chunks are kept. Copies beyond wait for the oldest of them.
const MOST_CHUNKS: usize = 8;

/// A piece of pinned memory, and when the last copy out of it has passed.
#[derive(Debug)]
struct Chunk {
    memory: PinnedMemory,
    passed: OwnedEvent,
}

/// The chunks that nobody fills at this moment, oldest copy first.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    chunks: Mutex<VecDeque<Chunk>>,
    /// What captures under way have recorded copies from: it must stay, since the graph reads it at every launch.
    captured: Mutex<HashMap<u64, Vec<PinnedMemory>>>,
}

impl Staging {
    /// Queues a copy of bytes that may change as soon as this returns, on a stream that is not being captured.
    pub(crate) fn copy_to_device(
        &self,
        context: &Arc<Context>,
        bytes: &[u8],
        dst: u64,
        stream: &LiveStream,
    ) -> Result<(), Status> {
        // Neither the waiting nor the memory have anything to do with what others capture.
        let _relaxed = RelaxedThread::enter(context.cuda());
        for (number, piece) in bytes.chunks(CHUNK_BYTES).enumerate() {
            let mut chunk = self.take(context)?;
            let at = dst.checked_add((number * CHUNK_BYTES) as u64).ok_or(Status::INVALID_VALUE)?;
            // A chunk that leaves by an error is freed, which waits for what may have been queued.
            chunk.memory.copy_to_device(piece, at, stream)?;
            chunk.passed.record(stream)?;
            let mut chunks = self.chunks.lock();
            if chunks.len() < MOST_CHUNKS {
                chunks.push_back(chunk);
            }
        }
        Ok(())
    }

    /// Records a copy in a capture, from memory that stays as long as the graph.
    pub(crate) fn capture_copy(
        &self,
        context: &Arc<Context>,
        capture: u64,
        bytes: &[u8],
        dst: u64,
        stream: &LiveStream,
    ) -> Result<(), Status> {
        let _relaxed = RelaxedThread::enter(context.cuda());
        let mut memory = PinnedMemory::alloc(context, bytes.len())?;
        memory.copy_to_device(bytes, dst, stream)?;
        self.captured.lock().entry(capture).or_default().push(memory);
        Ok(())
    }

    /// What a capture that has ended needs from now on.
    pub(crate) fn captured_by(&self, capture: u64) -> Vec<PinnedMemory> {
        self.captured.lock().remove(&capture).unwrap_or_default()
    }

    fn take(&self, context: &Arc<Context>) -> Result<Chunk, Status> {
        let oldest = {
            let mut chunks = self.chunks.lock();
            let full = chunks.len() >= MOST_CHUNKS;
            let passed = match chunks.front() {
                Some(chunk) => full || chunk.passed.query()?,
                None => false,
            };
            passed.then(|| chunks.pop_front()).flatten()
        };
        match oldest {
            Some(chunk) => {
                chunk.passed.synchronize()?;
                Ok(chunk)
            }
            None => Ok(Chunk {
                memory: PinnedMemory::alloc(context, CHUNK_BYTES)?,
                passed: OwnedEvent::create(context, EventTiming::Disabled)?,
            }),
        }
    }
}

/// While this lives, this thread's calls harm no capture and are refused because of none.
pub(crate) struct RelaxedThread<'a> {
    cuda: &'a Cuda,
    before: Option<CaptureMode>,
}

impl<'a> RelaxedThread<'a> {
    pub(crate) fn enter(cuda: &'a Cuda) -> RelaxedThread<'a> {
        RelaxedThread { cuda, before: exchange_capture_mode(cuda, CaptureMode::Relaxed).ok() }
    }
}

impl Drop for RelaxedThread<'_> {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            let _ = exchange_capture_mode(self.cuda, before);
        }
    }
}
