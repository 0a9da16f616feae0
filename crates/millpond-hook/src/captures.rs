//! Streams that record instead of run, and what the graphs that come of it use.
//!
//! A call on such a stream gives the device nothing to do and does not wait at the gate. But while any stream captures nothing may
//! be synchronised, so whoever would close the gate for that waits until none does. A capture begins inside the gate.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::driver_ffi as driver;
use crate::touches::Id;

/// `CU_STREAM_PER_THREAD`, which is another stream in each thread.
pub(crate) const THREADS_OWN: u64 = 2;

/// A stream that captures. The thread matters for a thread's own stream only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Origin {
    stream: u64,
    thread: Option<std::thread::ThreadId>,
    context: u64,
}

/// What a graph uses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Uses {
    /// Of the device that it was captured on; `None` if nobody knows.
    pub(crate) allocations: Option<Arc<[Id]>>,
    /// Devices that have memory of which it uses some, by their numbers: a bit each.
    devices: u64,
}

impl Uses {
    pub(crate) fn has_memory_of(&self, device: i32) -> bool {
        self.devices & bit(device) != 0
    }
}

/// More devices than there are bits are no clients.
fn bit(device: i32) -> u64 {
    1_u64.checked_shl(device as u32).unwrap_or(0)
}

#[derive(Default)]
struct State {
    origins: HashSet<Origin>,
    used: HashSet<Id>,
    /// Something was recorded whose parameters nobody knows.
    anything: bool,
    /// The devices of what was recorded, if they are several.
    devices: u64,
    graphs: HashMap<u64, Uses>,
    executables: HashMap<u64, Uses>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Captures {
    /// `state.origins.len()`, to be read without the lock.
    in_progress: AtomicUsize,
    state: Mutex<State>,
}

impl Captures {
    /// Whether any stream captures.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.in_progress.load(Ordering::SeqCst) != 0
    }

    /// Whether a stream does: one that was told to, or one that waited for an event of such a one.
    #[inline]
    pub(crate) fn has(&self, stream: u64) -> bool {
        self.any() && is_capturing(stream)
    }

    pub(crate) fn begin(&self, stream: u64) {
        let mut state = self.state.lock();
        state.origins.insert(origin(stream));
        self.in_progress.store(state.origins.len(), Ordering::SeqCst);
    }

    /// A capture was to end, and did unless the driver says that it goes on. What was recorded meanwhile, by whatever stream, is
    /// held to be the graph's. True if no stream captures any more.
    pub(crate) fn end(&self, stream: u64, graph: Option<u64>) -> bool {
        let mut state = self.state.lock();
        if let Some(graph) = graph {
            let allocations = (!state.anything).then(|| state.used.iter().copied().collect());
            let uses = Uses { allocations, devices: state.devices };
            state.graphs.insert(graph, uses);
        }
        if graph.is_some() || !is_capturing(stream) {
            let ended = origin(stream);
            // Whatever context is current by now.
            state
                .origins
                .retain(|origin| (origin.stream, origin.thread) != (ended.stream, ended.thread));
        }
        self.ended(&mut state)
    }

    /// A stream or a context is gone, and what they were recording with it.
    pub(crate) fn gone(&self, stream: Option<u64>, context: Option<u64>) -> bool {
        let mut state = self.state.lock();
        state
            .origins
            .retain(|origin| Some(origin.stream) != stream && Some(origin.context) != context);
        self.ended(&mut state)
    }

    fn ended(&self, state: &mut State) -> bool {
        self.in_progress.store(state.origins.len(), Ordering::SeqCst);
        if !state.origins.is_empty() {
            return false;
        }
        state.used.clear();
        (state.anything, state.devices) = (false, 0);
        true
    }

    /// A recorded call names an allocation.
    pub(crate) fn record(&self, id: Id) {
        self.state.lock().used.insert(id);
    }

    /// Nobody knows what a recorded call uses.
    pub(crate) fn record_anything(&self) {
        self.state.lock().anything = true;
    }

    /// A recorded call uses memory of a device, among others.
    pub(crate) fn record_device(&self, device: i32) {
        self.state.lock().devices |= bit(device);
    }

    /// A graph can be launched under another handle too.
    pub(crate) fn instantiate(&self, graph: u64, executable: u64) {
        let mut state = self.state.lock();
        let uses = state.graphs.get(&graph).cloned().unwrap_or_default();
        state.executables.insert(executable, uses);
    }

    /// What a launch uses.
    pub(crate) fn used_by(&self, executable: u64) -> Uses {
        self.state.lock().executables.get(&executable).cloned().unwrap_or_default()
    }

    pub(crate) fn forget_graph(&self, graph: u64) {
        self.state.lock().graphs.remove(&graph);
    }

    pub(crate) fn forget_executable(&self, executable: u64) {
        self.state.lock().executables.remove(&executable);
    }
}

fn origin(stream: u64) -> Origin {
    let thread = (stream == THREADS_OWN).then(|| std::thread::current().id());
    Origin { stream, thread, context: driver::current_context() }
}

fn is_capturing(stream: u64) -> bool {
    let mut status = 0;
    driver::stream_capture_status(stream, &mut status).is_ok() && status != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The stand-in cannot record a copy between devices; the driver can.
    #[test]
    fn a_graph_is_known_to_use_what_was_recorded_on_whatever_device() {
        let captures = Captures::default();
        captures.begin(5);
        captures.record(3);
        captures.record_device(0);
        captures.record_device(1);
        assert!(captures.end(5, Some(9)));
        captures.instantiate(9, 10);
        let uses = captures.used_by(10);
        assert_eq!(uses.allocations.as_deref(), Some([3].as_slice()));
        assert!(uses.has_memory_of(0) && uses.has_memory_of(1) && !uses.has_memory_of(2));
        // The next one begins with nothing.
        captures.begin(5);
        captures.end(5, Some(11));
        captures.instantiate(11, 12);
        assert!(!captures.used_by(12).has_memory_of(1));
    }
}
