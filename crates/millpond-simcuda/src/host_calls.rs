//! Functions of the host that streams call.
//!
//! A thread of its own waits until the stream has come so far, and calls the function. Until it has returned, whoever
//! uses the stream waits, so that nothing queued after the function runs before it.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread;

use millpond::driver::{Driver, Event, EventTiming, Stream, StreamId};
use millpond_sim::SimGpu;
use parking_lot::{Condvar, Mutex};

use crate::code_number::{Answer, Code};
use crate::device::Device;

thread_local! {
    static IN_ONE: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is calling a function of the host now, from which the driver must not be used.
pub(crate) fn is_in_one() -> bool {
    IN_ONE.try_with(Cell::get).unwrap_or(false)
}

/// What is called, with the answer of the stream's work up to there.
pub(crate) type HostCall = Box<dyn FnOnce(Code) + Send>;

struct Job {
    gpu: Arc<SimGpu>,
    after: Event,
    stream: StreamId,
    call: HostCall,
    pending: Arc<Pending>,
}

#[derive(Debug, Default)]
struct Pending {
    /// How many there are: a fast look before the slow one.
    total: AtomicUsize,
    by_stream: Mutex<HashMap<StreamId, usize>>,
    one_is_done: Condvar,
}

/// The functions that a device's streams have still to call.
#[derive(Debug, Default)]
pub(crate) struct HostCalls {
    pending: Arc<Pending>,
}

impl HostCalls {
    /// Waits until no function is to be called on a stream. On the legacy stream, which waits for the others, on any.
    pub(crate) fn wait_for(&self, gpu: &SimGpu, stream: Stream) {
        // Acquire: what the function did comes before what the stream does next.
        if self.pending.total.load(Ordering::Acquire) == 0 {
            return;
        }
        let id = if stream == Stream::LEGACY { None } else { gpu.stream_id(stream).ok() };
        let legacy = gpu.stream_id(Stream::LEGACY).ok();
        let mut by_stream = self.pending.by_stream.lock();
        // Streams that order themselves with the legacy one wait for its functions; the others do so here, too.
        let is_pending = |by_stream: &HashMap<StreamId, usize>, id: Option<StreamId>| {
            id.is_some_and(|id| by_stream.contains_key(&id))
        };
        while match id {
            Some(_) => is_pending(&by_stream, id) || is_pending(&by_stream, legacy),
            None => !by_stream.is_empty(),
        } {
            self.pending.one_is_done.wait(&mut by_stream);
        }
    }

    /// Whether a function is still to be called on a stream.
    pub(crate) fn are_pending(&self, gpu: &SimGpu, stream: Stream) -> bool {
        // Acquire: as above.
        self.pending.total.load(Ordering::Acquire) > 0
            && gpu.stream_id(stream).is_ok_and(|id| self.pending.by_stream.lock().contains_key(&id))
    }

    /// Waits for all of them.
    pub(crate) fn wait_for_all(&self, gpu: &SimGpu) {
        self.wait_for(gpu, Stream::LEGACY);
    }
}

/// Has a stream call a function after everything queued so far.
pub(crate) fn queue(device: &Device, stream: Stream, call: HostCall) -> Answer {
    let gpu = &device.gpu;
    if gpu.capture_state(stream)? != millpond::driver::CaptureState::None {
        return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
    }
    let id = gpu.stream_id(stream)?;
    let after = gpu.create_event(EventTiming::Disabled)?;
    if let Err(error) = gpu.record_event(after, stream) {
        gpu.destroy_event(after)?;
        return Err(error.into());
    }
    let pending = Arc::clone(&device.host_calls.pending);
    *pending.by_stream.lock().entry(id).or_default() += 1;
    pending.total.fetch_add(1, Ordering::Relaxed);
    let job = Job { gpu: Arc::clone(gpu), after, stream: id, call, pending };
    caller().send(job).map_err(|_| Code::OPERATING_SYSTEM)
}

/// The thread that calls, begun with the first function.
fn caller() -> &'static Sender<Job> {
    static CALLER: OnceLock<Sender<Job>> = OnceLock::new();
    CALLER.get_or_init(|| {
        let (sender, jobs) = channel::<Job>();
        let begun = thread::Builder::new().name("millpond-host-calls".into()).spawn(move || {
            IN_ONE.set(true);
            jobs.into_iter().for_each(run);
        });
        // Without the thread the receiver is gone, and sending says so.
        drop(begun);
        sender
    })
}

fn run(job: Job) {
    let Job { gpu, after, stream, call, pending } = job;
    let waited = gpu.synchronize_event(after);
    let _ = gpu.destroy_event(after);
    call(waited.err().map_or(Code::SUCCESS, Code::from));
    let mut by_stream = pending.by_stream.lock();
    if let Some(left) = by_stream.get_mut(&stream) {
        *left -= 1;
        if *left == 0 {
            by_stream.remove(&stream);
        }
    }
    // Release: what the function did comes before whoever sees the smaller number.
    pending.total.fetch_sub(1, Ordering::Release);
    pending.one_is_done.notify_all();
}
