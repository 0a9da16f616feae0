//! Streams whose work is recorded instead of run, and the graphs that come of it.
//!
//! A graph keeps its work in the order it was captured and runs it in that order. CUDA may run
//! branches that were captured on different streams beside each other; this model does not.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::thread::ThreadId;

use millpond::driver::{Call, CaptureId, CaptureMode, CaptureState, DriverErrorKind, Event, Graph};

use crate::order::StreamIndex;
use crate::work::Work;

#[derive(Debug)]
struct Capture {
    origin: StreamIndex,
    mode: CaptureMode,
    thread: ThreadId,
    streams: HashSet<StreamIndex>,
    events: HashSet<Event>,
    work: Vec<Work>,
    invalidated: bool,
}

/// Captures under way, by id, and finished graphs. A stream is in at most one capture.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    active: HashMap<CaptureId, Capture>,
    by_stream: HashMap<StreamIndex, CaptureId>,
    graphs: HashMap<Graph, Arc<[Work]>>,
    modes: HashMap<ThreadId, CaptureMode>,
    next_id: u64,
}

impl Captures {
    pub(crate) fn new(first_handle: u64) -> Captures {
        Captures { next_id: first_handle, ..Captures::default() }
    }

    /// Whether this thread may make a call now. A refused call spoils the captures it could have harmed.
    pub(crate) fn check(&mut self, call: Call) -> Result<(), DriverErrorKind> {
        if self.active.is_empty() || !call.unsafe_during_capture() {
            return Ok(());
        }
        let thread = std::thread::current().id();
        let mode = self.modes.get(&thread).copied().unwrap_or_default();
        let mut refused = false;
        for capture in self.active.values_mut() {
            let harmed = match (mode, capture.mode) {
                (CaptureMode::Relaxed, _) | (_, CaptureMode::Relaxed) => false,
                (CaptureMode::Global, CaptureMode::Global) => true,
                _ => capture.thread == thread,
            };
            if harmed {
                capture.invalidated = true;
                refused = true;
            }
        }
        if refused { Err(DriverErrorKind::CaptureUnsupported) } else { Ok(()) }
    }

    pub(crate) fn exchange_mode(&mut self, mode: CaptureMode) -> CaptureMode {
        self.modes.insert(std::thread::current().id(), mode).unwrap_or_default()
    }

    pub(crate) fn state(&self, stream: StreamIndex) -> CaptureState {
        match self.by_stream.get(&stream) {
            None => CaptureState::None,
            Some(id) if self.active[id].invalidated => CaptureState::Invalidated,
            Some(id) => CaptureState::Active(*id),
        }
    }

    pub(crate) fn is_capturing(&self, stream: StreamIndex) -> bool {
        !self.by_stream.is_empty() && self.by_stream.contains_key(&stream)
    }

    pub(crate) fn begin(
        &mut self,
        stream: StreamIndex,
        mode: CaptureMode,
    ) -> Result<(), DriverErrorKind> {
        if self.is_capturing(stream) {
            return Err(DriverErrorKind::CaptureUnsupported);
        }
        self.next_id += 1;
        let id = CaptureId(self.next_id);
        self.by_stream.insert(stream, id);
        self.active.insert(
            id,
            Capture {
                origin: stream,
                mode,
                thread: std::thread::current().id(),
                streams: HashSet::from([stream]),
                events: HashSet::new(),
                work: Vec::new(),
                invalidated: false,
            },
        );
        Ok(())
    }

    pub(crate) fn end(&mut self, stream: StreamIndex) -> Result<Graph, DriverErrorKind> {
        let id = *self.by_stream.get(&stream).ok_or(DriverErrorKind::InvalidValue)?;
        if self.active[&id].origin != stream {
            return Err(DriverErrorKind::InvalidValue);
        }
        let capture = self.active.remove(&id).expect("just found");
        self.by_stream.retain(|_, of| *of != id);
        if capture.invalidated {
            return Err(DriverErrorKind::CaptureInvalidated);
        }
        self.next_id += 1;
        let graph = Graph(self.next_id);
        self.graphs.insert(graph, capture.work.into());
        Ok(graph)
    }

    /// Records work of a captured stream.
    pub(crate) fn record(
        &mut self,
        stream: StreamIndex,
        work: Work,
    ) -> Result<(), DriverErrorKind> {
        let capture = self.capture_of(stream)?;
        if matches!(work, Work::PoolAlloc { .. } | Work::PoolFree { .. }) {
            capture.invalidated = true;
            return Err(DriverErrorKind::CaptureUnsupported);
        }
        capture.work.push(work);
        Ok(())
    }

    fn capture_of(&mut self, stream: StreamIndex) -> Result<&mut Capture, DriverErrorKind> {
        let id = self.by_stream.get(&stream).ok_or(DriverErrorKind::InvalidValue)?;
        let capture = self.active.get_mut(id).expect("captured streams have captures");
        if capture.invalidated { Err(DriverErrorKind::CaptureInvalidated) } else { Ok(capture) }
    }

    /// An event recorded on a captured stream stands for a point of the capture.
    pub(crate) fn record_event(
        &mut self,
        stream: StreamIndex,
        event: Event,
    ) -> Result<(), DriverErrorKind> {
        self.capture_of(stream)?.events.insert(event);
        Ok(())
    }

    /// Forgets that an event stands for a point of a capture.
    pub(crate) fn forget_event(&mut self, event: Event) {
        for capture in self.active.values_mut() {
            capture.events.remove(&event);
        }
    }

    pub(crate) fn has_event(&self, event: Event) -> bool {
        self.active.values().any(|capture| capture.events.contains(&event))
    }

    /// A stream that waits for a captured event joins that capture. `false`: the event is not captured.
    pub(crate) fn join(&mut self, stream: StreamIndex, event: Event) -> bool {
        let Some((id, capture)) =
            self.active.iter_mut().find(|(_, capture)| capture.events.contains(&event))
        else {
            return false;
        };
        capture.streams.insert(stream);
        self.by_stream.insert(stream, *id);
        true
    }

    pub(crate) fn graph(&self, graph: Graph) -> Option<Arc<[Work]>> {
        self.graphs.get(&graph).cloned()
    }

    pub(crate) fn destroy_graph(&mut self, graph: Graph) -> bool {
        self.graphs.remove(&graph).is_some()
    }
}
