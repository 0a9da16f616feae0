//! Streams whose work is recorded instead of run, and the graphs that come of it.
//!
//! A graph keeps its work in the order it was captured and runs it in that order. CUDA may run
//! branches that were captured on different streams beside each other; this model does not.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::thread::ThreadId;

use millpond::driver::{Call, CaptureId, CaptureMode, CaptureState, DriverErrorKind, Event, Graph};

use crate::order::StreamIndex;
use crate::per_thread::PerThread;
use crate::schedule::LEGACY;
use crate::work::Work;

#[derive(Debug)]
struct Capture {
    origin: StreamIndex,
    mode: CaptureMode,
    thread: ThreadId,
    /// Streams with work that nothing leads back to the origin yet.
    unjoined: HashSet<StreamIndex>,
    /// Events that stand for points of the capture.
    events: HashMap<Event, CapturedPoint>,
    nodes: Vec<GraphNode>,
    /// For each stream, the nodes that its next one comes after.
    ends: HashMap<StreamIndex, Vec<usize>>,
    invalidated: bool,
}

/// Why a capture does not end in a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfinished {
    /// It began on another stream, and goes on.
    OtherStream,
    /// It began in another thread, and goes on.
    OtherThread,
    /// Something was asked of it that cannot be captured.
    Spoiled,
    /// Work of another stream was not joined.
    Unjoined,
}

/// A point of a capture: the stream that it was recorded on, and the nodes that come before it.
#[derive(Debug)]
struct CapturedPoint {
    stream: StreamIndex,
    after: Vec<usize>,
}

/// A piece of work in a graph, and the nodes that it comes directly after.
#[derive(Clone, Debug)]
pub(crate) struct GraphNode {
    pub(crate) work: Work,
    pub(crate) after: Vec<usize>,
}

/// A graph: its work in the order it runs in, and what comes after what in it.
#[derive(Clone, Debug)]
struct CapturedGraph {
    work: Arc<[Work]>,
    after: Arc<[Vec<usize>]>,
}

/// Captures under way, by id, and finished graphs. A stream is in at most one capture.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    active: HashMap<CaptureId, Capture>,
    by_stream: HashMap<StreamIndex, CaptureId>,
    graphs: HashMap<Graph, CapturedGraph>,
    /// Of threads whose mode is not the default.
    modes: PerThread<CaptureMode>,
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
        let mode = self.modes.get().copied().unwrap_or_default();
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
        let before = self.modes.get().copied().unwrap_or_default();
        if mode == CaptureMode::default() {
            self.modes.clear();
        } else {
            self.modes.take_ended();
            self.modes.set(mode);
        }
        before
    }

    pub(crate) fn state(&self, stream: StreamIndex) -> CaptureState {
        match self.by_stream.get(&stream) {
            None => CaptureState::None,
            Some(id) if self.active[id].invalidated => CaptureState::Invalidated,
            Some(id) => CaptureState::Active(*id),
        }
    }

    /// The capture that a stream is in.
    pub(crate) fn id(&self, stream: StreamIndex) -> Option<CaptureId> {
        self.by_stream.get(&stream).copied()
    }

    pub(crate) fn is_capturing(&self, stream: StreamIndex) -> bool {
        !self.by_stream.is_empty() && self.by_stream.contains_key(&stream)
    }

    /// Every stream that is being captured.
    pub(crate) fn streams(&self) -> impl Iterator<Item = StreamIndex> + '_ {
        self.by_stream.keys().copied()
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
                unjoined: HashSet::new(),
                events: HashMap::new(),
                nodes: Vec::new(),
                ends: HashMap::new(),
                invalidated: false,
            },
        );
        Ok(())
    }

    /// Why a capture could not be ended on a stream.
    pub(crate) fn unfinished(&self, stream: StreamIndex) -> Option<Unfinished> {
        let capture = &self.active[self.by_stream.get(&stream)?];
        let elsewhere = capture.thread != std::thread::current().id();
        if capture.origin != stream {
            Some(Unfinished::OtherStream)
        } else if capture.mode != CaptureMode::Relaxed && elsewhere {
            Some(Unfinished::OtherThread)
        } else if capture.invalidated {
            Some(Unfinished::Spoiled)
        } else if !capture.unjoined.is_empty() {
            Some(Unfinished::Unjoined)
        } else {
            None
        }
    }

    pub(crate) fn end(&mut self, stream: StreamIndex) -> Result<Graph, DriverErrorKind> {
        let id = *self.by_stream.get(&stream).ok_or(DriverErrorKind::InvalidValue)?;
        let unfinished = self.unfinished(stream);
        match unfinished {
            Some(Unfinished::OtherStream) => return Err(DriverErrorKind::InvalidValue),
            Some(Unfinished::OtherThread) => return Err(DriverErrorKind::CaptureUnsupported),
            Some(Unfinished::Spoiled | Unfinished::Unjoined) | None => {}
        }
        let capture = self.active.remove(&id).expect("just found");
        self.by_stream.retain(|_, of| *of != id);
        if unfinished.is_some() {
            return Err(DriverErrorKind::CaptureInvalidated);
        }
        self.next_id += 1;
        let graph = Graph(self.next_id);
        let (work, after): (Vec<_>, Vec<_>) =
            capture.nodes.into_iter().map(|node| (node.work, node.after)).unzip();
        self.graphs.insert(graph, CapturedGraph { work: work.into(), after: after.into() });
        Ok(graph)
    }

    /// Records work of a captured stream.
    pub(crate) fn record(
        &mut self,
        stream: StreamIndex,
        work: Work,
    ) -> Result<(), DriverErrorKind> {
        let capture = self.capture_of(stream)?;
        if stream != capture.origin {
            capture.unjoined.insert(stream);
        }
        let node = capture.nodes.len();
        let after = capture.ends.insert(stream, vec![node]).unwrap_or_default();
        capture.nodes.push(GraphNode { work, after });
        Ok(())
    }

    /// The nodes that the next work of a captured stream comes after.
    pub(crate) fn ends(&self, stream: StreamIndex) -> Option<Vec<usize>> {
        let capture = &self.active[self.by_stream.get(&stream)?];
        Some(capture.ends.get(&stream).cloned().unwrap_or_default())
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
        self.capture_of(stream)?;
        self.forget_event(event);
        let capture = self.capture_of(stream)?;
        let after = capture.ends.get(&stream).cloned().unwrap_or_default();
        capture.events.insert(event, CapturedPoint { stream, after });
        Ok(())
    }

    /// Forgets that an event stands for a point of a capture.
    pub(crate) fn forget_event(&mut self, event: Event) {
        for capture in self.active.values_mut() {
            capture.events.remove(&event);
        }
    }

    /// The capture under way that an event stands for a point of.
    pub(crate) fn capture_of_event(&self, event: Event) -> Option<CaptureId> {
        let has_it = |(_, capture): &(&CaptureId, &Capture)| capture.events.contains_key(&event);
        self.active.iter().find(has_it).map(|(id, _)| *id)
    }

    /// A stream that waits for a captured event joins that capture; what the event stands for is then joined
    /// by that stream. `false`: neither the stream nor the event is captured.
    pub(crate) fn wait(
        &mut self,
        stream: StreamIndex,
        event: Event,
    ) -> Result<bool, DriverErrorKind> {
        let of_stream = self.by_stream.get(&stream).copied();
        let of_event = self.capture_of_event(event);
        let id = match (of_stream, of_event) {
            (None, None) => return Ok(false),
            (None, Some(_)) if stream == LEGACY => return self.spoil(&[of_event]),
            (None, Some(id)) => id,
            (Some(one), Some(other)) if one == other => one,
            // A capture can wait neither for what is outside it nor for another capture.
            _ => return self.spoil(&[of_stream, of_event]),
        };
        let capture = self.active.get_mut(&id).expect("just found");
        let point = &capture.events[&event];
        if point.stream != stream {
            capture.unjoined.remove(&point.stream);
        }
        join(capture.ends.entry(stream).or_default(), &point.after);
        if stream != capture.origin {
            capture.unjoined.insert(stream);
        }
        self.by_stream.insert(stream, id);
        Ok(true)
    }

    fn spoil<T>(&mut self, captures: &[Option<CaptureId>]) -> Result<T, DriverErrorKind> {
        for id in captures.iter().flatten() {
            self.active.get_mut(id).expect("an active capture").invalidated = true;
        }
        Err(DriverErrorKind::CaptureUnsupported)
    }

    /// A stream that is being captured was asked for something that cannot be captured.
    pub(crate) fn refuse(&mut self, stream: StreamIndex) -> DriverErrorKind {
        let id = self.by_stream.get(&stream).copied();
        self.spoil::<()>(&[id]).expect_err("spoiling is refusing")
    }

    /// Work on the legacy stream would wait for every blocking stream, and a captured one cannot be waited for.
    pub(crate) fn check_legacy(
        &mut self,
        is_blocking: impl Fn(StreamIndex) -> bool,
    ) -> Result<(), DriverErrorKind> {
        let harmed =
            self.by_stream.iter().find(|(stream, _)| is_blocking(**stream)).map(|(_, id)| *id);
        if harmed.is_some() { self.spoil(&[harmed]) } else { Ok(()) }
    }

    pub(crate) fn graph(&self, graph: Graph) -> Option<Arc<[Work]>> {
        self.graphs.get(&graph).map(|graph| Arc::clone(&graph.work))
    }

    /// The work of some of a graph's nodes, one after the other.
    pub(crate) fn graph_part(&self, graph: Graph, nodes: Range<usize>) -> Option<Arc<[Work]>> {
        self.graphs.get(&graph)?.work.get(nodes).map(Arc::from)
    }

    /// The nodes that each node of a graph comes directly after.
    pub(crate) fn graph_dependencies(&self, graph: Graph) -> Option<Arc<[Vec<usize>]>> {
        self.graphs.get(&graph).map(|graph| Arc::clone(&graph.after))
    }

    pub(crate) fn destroy_graph(&mut self, graph: Graph) -> bool {
        self.graphs.remove(&graph).is_some()
    }
}

/// Adds nodes to a list that has each once.
fn join(nodes: &mut Vec<usize>, others: &[usize]) {
    for other in others {
        if !nodes.contains(other) {
            nodes.push(*other);
        }
    }
}
