//! Graphs, and what was made ready to launch of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millpond::driver::{CaptureId, DevicePtr, Driver, Graph, Stream};
use millpond_sim::{GraphNode, SimGpu};
use parking_lot::{Mutex, RwLock};

use crate::code_number::{Answer, Code};
use crate::device::Device;
use crate::graph_memory::{GraphMemory, LaunchedMemory};
use crate::host_calls;
use crate::raw_pointers::UserData;

/// Flags of an executable graph.
pub(crate) const AUTO_FREE_ON_LAUNCH: u64 = 1;

/// How far apart handles are: a node's is its graph's and its number, counted from 1.
const HANDLE_STEP: u64 = 1 << 24;
const FIRST_HANDLE: u64 = 0x5d00_0000_0000;

/// Recorded work; it goes when neither a graph nor anything made of it has it any more.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub(crate) gpu: Arc<SimGpu>,
    pub(crate) device: usize,
    pub(crate) graph: Graph,
    memory: Vec<Arc<GraphMemory>>,
    /// What is freed in it.
    freed: Vec<DevicePtr>,
    /// Functions of the host that it calls, in the order of the nodes that do so.
    host_calls: Vec<GraphHostCall>,
}

/// A function of the host that every launch of a graph calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GraphHostCall {
    pub(crate) function: extern "C" fn(UserData),
    pub(crate) data: UserData,
}

impl GraphHostCall {
    /// Has a stream call it now, after everything queued so far.
    pub(crate) fn queue(self, device: &Device, stream: Stream) -> Answer {
        let call = move |code| {
            // As documented it is not called once the device is lost.
            if code == Code::SUCCESS {
                (self.function)(self.data);
            }
        };
        host_calls::queue(device, stream, Box::new(call))
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        // A device that was reset or lost has forgotten it already.
        let _ = self.gpu.destroy_graph(self.graph);
    }
}

impl Recorded {
    pub(crate) fn nodes(&self) -> Vec<GraphNode> {
        self.gpu.graph_nodes(self.graph).unwrap_or_default()
    }

    pub(crate) fn host_calls(&self) -> &[GraphHostCall] {
        &self.host_calls
    }

    fn frees(&self, ptr: DevicePtr) -> bool {
        self.freed.contains(&ptr)
    }

    fn allocates(&self, ptr: DevicePtr) -> bool {
        self.memory.iter().any(|memory| memory.ptr == ptr)
    }
}

/// A graph that was made ready to launch.
#[derive(Debug)]
pub(crate) struct Executable {
    pub(crate) recorded: Arc<Recorded>,
    pub(crate) flags: u64,
}

/// What is being recorded.
#[derive(Debug)]
struct Recording {
    /// The handle of the graph to be.
    graph: u64,
    memory: Vec<Arc<GraphMemory>>,
    freed: Vec<DevicePtr>,
    host_calls: Vec<GraphHostCall>,
    /// What a program was told last of each stream that comes before its next node. It may read that until it asks again.
    told: HashMap<Stream, Told>,
}

/// Nodes, and as many times the data of an edge: all zero, for edges have none.
#[derive(Debug, Default)]
struct Told {
    nodes: Vec<u64>,
    edges: Vec<u64>,
}

/// What a program is told of a capture: the graph to be, and the addresses of what comes before the next node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CaptureInfo {
    pub(crate) graph: u64,
    pub(crate) nodes: *const u64,
    pub(crate) edges: *const u64,
    pub(crate) count: usize,
}

/// Graphs and executable graphs by their handles, of which no two are the same.
#[derive(Debug, Default)]
pub(crate) struct Graphs {
    graphs: RwLock<HashMap<u64, Arc<Recorded>>>,
    executables: RwLock<HashMap<u64, Arc<Executable>>>,
    made: AtomicU64,
    recording: Mutex<HashMap<CaptureId, Recording>>,
    pub(crate) memory: LaunchedMemory,
}

/// The handle of a node of a graph.
pub(crate) fn node_handle(graph: u64, number: usize) -> u64 {
    graph + 1 + number as u64
}

impl Graphs {
    fn next_handle(&self) -> u64 {
        // Relaxed: the number only has to be different each time.
        FIRST_HANDLE + self.made.fetch_add(1, Ordering::Relaxed) * HANDLE_STEP
    }

    /// A capture has begun.
    pub(crate) fn begin(&self, capture: CaptureId) {
        let recording = Recording {
            graph: self.next_handle(),
            memory: Vec::new(),
            freed: Vec::new(),
            host_calls: Vec::new(),
            told: HashMap::new(),
        };
        self.recording.lock().insert(capture, recording);
    }

    /// A capture has ended; with the graph, if it came to one. The answer is that graph's handle.
    pub(crate) fn end(&self, capture: CaptureId, device: &Device, graph: Option<Graph>) -> u64 {
        let ended = self.recording.lock().remove(&capture);
        let (Some(ended), Some(graph)) = (ended, graph) else { return 0 };
        let recorded = Recorded {
            gpu: device.gpu.clone(),
            device: device.ordinal,
            graph,
            memory: ended.memory,
            freed: ended.freed,
            host_calls: ended.host_calls,
        };
        self.graphs.write().insert(ended.graph, Arc::new(recorded));
        ended.graph
    }

    /// What is known of a capture, where the next node of a stream would come after those.
    pub(crate) fn info(
        &self,
        capture: CaptureId,
        stream: Stream,
        ends: &[usize],
    ) -> Option<CaptureInfo> {
        let mut recording = self.recording.lock();
        let Recording { graph, told, .. } = recording.get_mut(&capture)?;
        let told = told.entry(stream).or_default();
        told.nodes = ends.iter().map(|number| node_handle(*graph, *number)).collect();
        told.edges = vec![0; ends.len()];
        let (nodes, edges) = match ends.len() {
            0 => (std::ptr::null(), std::ptr::null()),
            _ => (told.nodes.as_ptr(), told.edges.as_ptr()),
        };
        Some(CaptureInfo { graph: *graph, nodes, edges, count: ends.len() })
    }

    /// Memory for what is being recorded.
    pub(crate) fn allocate(
        &self,
        capture: CaptureId,
        device: &Device,
        bytes: usize,
    ) -> Answer<DevicePtr> {
        let memory = self.memory.allocate(device, bytes)?;
        let ptr = memory.ptr;
        let mut recording = self.recording.lock();
        recording.get_mut(&capture).ok_or(Code::INVALID_VALUE)?.memory.push(memory);
        Ok(ptr)
    }

    /// What is being recorded frees memory, its own or another graph's. `false`: it is none of a graph.
    pub(crate) fn free_in(&self, capture: CaptureId, ptr: DevicePtr) -> bool {
        let is_graphs = self.have(ptr);
        let mut recording = self.recording.lock();
        let Some(recording) = recording.get_mut(&capture).filter(|_| is_graphs) else {
            return false;
        };
        recording.freed.push(ptr);
        true
    }

    /// What is being recorded calls a function of the host.
    pub(crate) fn call_in(&self, capture: CaptureId, call: GraphHostCall) -> Answer {
        let mut recording = self.recording.lock();
        recording.get_mut(&capture).ok_or(Code::INVALID_VALUE)?.host_calls.push(call);
        Ok(())
    }

    /// Whether memory is a graph's, of what is being recorded, or was allocated by a launch.
    pub(crate) fn have(&self, ptr: DevicePtr) -> bool {
        let recorded = |recording: &Recording| recording.memory.iter().any(|m| m.ptr == ptr);
        self.memory.has(ptr)
            || self.recording.lock().values().any(recorded)
            || self.graphs.read().values().any(|graph| graph.allocates(ptr))
            || self.executables.read().values().any(|one| one.recorded.allocates(ptr))
    }

    pub(crate) fn graph(&self, handle: u64) -> Answer<Arc<Recorded>> {
        self.graphs.read().get(&handle).cloned().ok_or(Code::INVALID_VALUE)
    }

    /// The graph that a node is of, the graph's handle, and the node's number in it.
    pub(crate) fn node(&self, node: u64) -> Answer<(Arc<Recorded>, u64, usize)> {
        let within = node.checked_sub(FIRST_HANDLE).ok_or(Code::INVALID_VALUE)? % HANDLE_STEP;
        let number = within.checked_sub(1).ok_or(Code::INVALID_VALUE)? as usize;
        let handle = node - within;
        let recorded = self.graph(handle)?;
        if number >= recorded.nodes().len() {
            return Err(Code::INVALID_VALUE);
        }
        Ok((recorded, handle, number))
    }

    pub(crate) fn destroy(&self, handle: u64) -> Answer {
        let destroyed = self.graphs.write().remove(&handle);
        destroyed.map(drop).ok_or(Code::INVALID_VALUE)
    }

    /// Makes a graph ready to launch.
    pub(crate) fn instantiate(&self, handle: u64, flags: u64) -> Answer<u64> {
        let recorded = self.graph(handle)?;
        let executable = self.next_handle();
        self.executables.write().insert(executable, Arc::new(Executable { recorded, flags }));
        Ok(executable)
    }

    pub(crate) fn executable(&self, handle: u64) -> Answer<Arc<Executable>> {
        self.executables.read().get(&handle).cloned().ok_or(Code::INVALID_VALUE)
    }

    pub(crate) fn destroy_executable(&self, handle: u64) -> Answer {
        let destroyed = self.executables.write().remove(&handle);
        destroyed.map(drop).ok_or(Code::INVALID_VALUE)
    }

    /// Whether a graph can be launched as far as memory goes: what the last launch allocated was freed, and there is what this one
    /// frees of others.
    pub(crate) fn check_memory(&self, executable: &Executable) -> Answer {
        let Executable { recorded, flags } = executable;
        let stays = |memory: &Arc<GraphMemory>| {
            self.memory.is_live(memory.ptr) && !recorded.frees(memory.ptr)
        };
        let is_missing = |ptr: &DevicePtr| !recorded.allocates(*ptr) && !self.memory.is_live(*ptr);
        let is_still_there = flags & AUTO_FREE_ON_LAUNCH == 0 && recorded.memory.iter().any(stays);
        if is_still_there || recorded.freed.iter().any(is_missing) {
            return Err(Code::INVALID_VALUE);
        }
        Ok(())
    }

    /// A graph was launched: what it allocates is there, and what it frees is not.
    pub(crate) fn launched(&self, recorded: &Recorded) {
        for memory in recorded.memory.iter().filter(|memory| !recorded.frees(memory.ptr)) {
            self.memory.launch(recorded.device, memory);
        }
        for ptr in recorded.freed.iter().filter(|ptr| !recorded.allocates(**ptr)) {
            self.memory.free(*ptr);
        }
    }
}
