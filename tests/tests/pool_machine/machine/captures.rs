//! Captures of streams, and the graphs that come of them.

use millpond::driver::{CaptureId, CaptureMode, CaptureState, DevicePtr, Driver, Graph};
use millpond_tests::conformance::{STREAMS, Wrong};
use millpond_tests::pattern::Pattern;

use super::Machine;
use super::tags::Scopes;
use crate::transition::{MOST_CAPTURES, Name, Tiers};

/// The first stream that can be captured: before it are the legacy one, and each thread's own.
const FIRST_STREAM: usize = 2;

/// A capture that was not released.
#[derive(Clone)]
struct Capture {
    id: CaptureId,
    stream: usize,
    /// `None` while work is recorded.
    graph: Option<Graph>,
    /// Blocks that are held, which the graph fills.
    blocks: Vec<Pattern>,
    /// All memory that the graph may write, of blocks that were freed, too.
    memory: Vec<(DevicePtr, usize)>,
    /// Whether the pool was asked for memory.
    has_asked: bool,
}

/// Captures that were not released, the oldest first.
#[derive(Default)]
pub(super) struct Captures(Vec<Capture>);

impl Captures {
    /// Whether a stream is being captured.
    pub(super) fn record(&self, stream: usize) -> bool {
        self.0.iter().any(|capture| capture.stream == stream && capture.graph.is_none())
    }

    pub(super) fn record_something(&self) -> bool {
        self.0.iter().any(|capture| capture.graph.is_none())
    }

    /// Whether a stream is captured, or runs a graph.
    pub(super) fn use_stream(&self, stream: usize) -> bool {
        self.0.iter().any(|capture| capture.stream == stream)
    }

    /// What a graph may write is handed out to nobody else.
    pub(super) fn check_memory(
        &self,
        ptr: DevicePtr,
        bytes: usize,
        by: Option<CaptureId>,
    ) -> Result<(), Wrong> {
        let others = self.0.iter().filter(|capture| Some(capture.id) != by);
        let overlaps = |(start, of): &&(DevicePtr, usize)| {
            *start < ptr.offset(bytes) && ptr < start.offset(*of)
        };
        match others.flat_map(|capture| &capture.memory).find(overlaps) {
            Some((start, of)) => Err(format!(
                "{bytes} bytes at {ptr} were handed out while a graph has {of} bytes at {start}"
            )),
            None => Ok(()),
        }
    }

    /// The number of one that records, or of one that has a graph and whose stream is not captured again.
    fn find(&self, number: usize, records: bool) -> Option<usize> {
        let fits = |capture: &Capture| {
            capture.graph.is_none() == records && (records || !self.record(capture.stream))
        };
        let fitting: Vec<usize> = (0..self.0.len()).filter(|at| fits(&self.0[*at])).collect();
        Some(fitting[number.checked_rem(fitting.len())?])
    }
}

impl Machine {
    pub(super) fn begin_capture(&mut self, stream: usize, mode: CaptureMode) -> Result<(), Wrong> {
        let is_usable = (FIRST_STREAM..STREAMS).contains(&stream) && !self.captures.record(stream);
        if !is_usable || self.captures.0.len() == MOST_CAPTURES {
            return Ok(());
        }
        // What uses blocks there could not be waited for while the stream is captured.
        self.lab.leave_stream(stream)?;
        let handle = self.lab.stream(stream);
        self.lab.drive(|gpu| gpu.begin_capture(handle, mode))?;
        let CaptureState::Active(id) = self.lab.drive(|gpu| gpu.capture_state(handle))? else {
            return Err("a capture that was begun is not active".into());
        };
        let (blocks, memory) = (Vec::new(), Vec::new());
        self.captures.0.push(Capture { id, stream, graph: None, blocks, memory, has_asked: false });
        self.lab.is_counted_in_parts();
        Ok(())
    }

    pub(super) fn allocate_captured(
        &mut self,
        capture: usize,
        bytes: usize,
        thread: usize,
        of: Tiers,
        name: Name,
    ) -> Result<(), Wrong> {
        let Some(at) = self.captures.find(capture, true) else { return Ok(()) };
        let Capture { id, stream, .. } = self.captures.0[at];
        let must_be_served = bytes <= self.certainly_free_bytes();
        let handle = self.lab.stream(stream);
        let region = self.regions.of(of);
        let target = self.target(region);
        let answer = self.by(thread, move |_| {
            let _scopes = Scopes::enter(name);
            target.allocate(bytes, handle)
        });
        self.captures.0[at].has_asked |= bytes > 0;
        let pattern = match self.lab.hold_apart(bytes, answer)? {
            Ok(Some(pattern)) => pattern,
            Ok(None) => return Ok(()),
            Err(error) if error.is_out_of_memory() && !must_be_served => return Ok(()),
            Err(error) => return Err(format!("refused for no reason: {error}")),
        };
        self.check_alignment(pattern.ptr)?;
        self.captures.check_memory(pattern.ptr, bytes, Some(id))?;
        self.lab.drive(|gpu| pattern.fill(gpu, handle))?;
        self.regions.captured(region, pattern.ptr);
        self.tags.allocated(pattern.ptr, bytes, name);
        let capture = &mut self.captures.0[at];
        capture.blocks.push(pattern);
        capture.memory.push((pattern.ptr, bytes));
        Ok(())
    }

    pub(super) fn free_captured(
        &mut self,
        number: usize,
        block: usize,
        thread: usize,
    ) -> Result<(), Wrong> {
        let records = number.is_multiple_of(2);
        let Some(at) = self.captures.find(number, records) else { return Ok(()) };
        let capture = &mut self.captures.0[at];
        let Some(index) = block.checked_rem(capture.blocks.len()) else { return Ok(()) };
        let (pattern, stream) = (capture.blocks.swap_remove(index), capture.stream);
        if !records {
            self.lab.read_apart(&pattern, stream)?;
        }
        let handle = self.lab.stream(stream);
        let Pattern { ptr, bytes, .. } = pattern;
        let freed = self.by(thread, move |pool| {
            use millpond::Resource;
            pool.deallocate(ptr, bytes, handle)
        });
        freed.map_err(|error| format!("a right free of a capture's block was refused: {error}"))?;
        self.freed(ptr, bytes);
        self.lab.let_go(&pattern)
    }

    /// The pool has not spoiled the capture, and what it captured gives the blocks their patterns.
    pub(super) fn end_capture(&mut self, number: usize) -> Result<(), Wrong> {
        let Some(at) = self.captures.find(number, true) else { return Ok(()) };
        let handle = self.lab.stream(self.captures.0[at].stream);
        let graph = self.lab.drive(|gpu| gpu.end_capture(handle))?;
        self.captures.0[at].graph = Some(graph);
        self.launch(at)
    }

    pub(super) fn launch_graph(&mut self, number: usize) -> Result<(), Wrong> {
        match self.captures.find(number, false) {
            Some(at) => self.launch(at),
            None => Ok(()),
        }
    }

    fn launch(&mut self, at: usize) -> Result<(), Wrong> {
        let Capture { stream, graph, blocks, .. } = self.captures.0[at].clone();
        let (handle, graph) = (self.lab.stream(stream), graph.expect("ended"));
        self.lab.drive(|gpu| gpu.launch_graph(graph, handle))?;
        blocks.iter().try_for_each(|pattern| self.lab.read_apart(pattern, stream))
    }

    pub(super) fn release_capture(&mut self, number: usize, stream: usize) -> Result<(), Wrong> {
        let Some(at) = self.captures.find(number, false) else { return Ok(()) };
        let stream = self.usable_stream(stream);
        let Capture { id, stream: own, graph, blocks, .. } = self.captures.0.remove(at);
        self.lab.drive(|gpu| gpu.destroy_graph(graph.expect("ended")))?;
        if stream != own {
            self.lab.order(own, stream)?;
        }
        let handle = self.lab.stream(stream);
        let released = self.by(0, move |pool| pool.release_capture(id, handle));
        released.map_err(|error| format!("a capture cannot be released: {error}"))?;
        blocks.iter().for_each(|pattern| self.lab.take_over(pattern, own));
        Ok(())
    }

    pub(super) fn release_captures(&mut self) -> Result<(), Wrong> {
        while self.captures.find(0, true).is_some() {
            self.end_capture(0)?;
        }
        while let Some(capture) = self.captures.0.first() {
            self.release_capture(0, capture.stream)?;
        }
        Ok(())
    }

    /// The pool knows of each capture that has asked for memory and was not released.
    pub(super) fn check_captures(&self) -> Result<(), Wrong> {
        let asked = self.captures.0.iter().filter(|capture| capture.has_asked);
        let mut expected: Vec<CaptureId> = asked.map(|capture| capture.id).collect();
        expected.sort_unstable();
        match self.pool.captures() {
            said if said == expected => Ok(()),
            said => Err(format!("{expected:?} have memory, but the pool says {said:?}")),
        }
    }
}
