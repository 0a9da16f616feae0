//! Graphs, and what was made ready to launch of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millpond::driver::{DevicePtr, Driver, Graph, RelaxedCalls};
use millpond_sim::SimGpu;
use parking_lot::{Mutex, RwLock};

use crate::code_number::{Answer, Code};
use crate::device::Device;

/// Memory that was allocated while work was recorded: it is the graph's for as long as that is there. The driver would have it come
/// and go with launches, at the same address.
#[derive(Debug)]
pub(crate) struct GraphMemory {
    gpu: Arc<SimGpu>,
    ptr: DevicePtr,
    bytes: u64,
    counted: Arc<AtomicU64>,
}

impl Drop for GraphMemory {
    fn drop(&mut self) {
        let _relaxed = RelaxedCalls::enter(&*self.gpu);
        // A device that was reset has forgotten it already.
        let _ = self.gpu.free(self.ptr);
        // Relaxed: it is a figure, and orders nothing.
        self.counted.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Recorded work; it goes when neither a graph nor anything made of it has it any more.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub(crate) gpu: Arc<SimGpu>,
    pub(crate) graph: Graph,
    pub(crate) memory: Vec<GraphMemory>,
}

impl Drop for Recorded {
    fn drop(&mut self) {
        // A device that was reset or lost has forgotten it already.
        let _ = self.gpu.destroy_graph(self.graph);
    }
}

/// Graphs and executable graphs by their handles, of which no two are the same.
#[derive(Debug, Default)]
pub(crate) struct Graphs {
    graphs: RwLock<HashMap<u64, Arc<Recorded>>>,
    executables: RwLock<HashMap<u64, Arc<Recorded>>>,
    made: AtomicU64,
    /// Memory of what is being recorded, by the device's number.
    recording: Mutex<HashMap<usize, Vec<GraphMemory>>>,
    /// What graphs have of each device.
    reserved: RwLock<HashMap<usize, Arc<AtomicU64>>>,
}

impl Graphs {
    fn next_handle(&self) -> u64 {
        // Relaxed: the number only has to be different each time.
        0x6d67_0000_0000 + (self.made.fetch_add(1, Ordering::Relaxed) + 1) * 0x1000
    }

    /// Memory for what is being recorded on a device.
    pub(crate) fn allocate(&self, device: &Device, bytes: usize) -> Answer<DevicePtr> {
        let _relaxed = RelaxedCalls::enter(&*device.gpu);
        let ptr = device.gpu.alloc(bytes)?;
        let (gpu, bytes) = (device.gpu.clone(), bytes as u64);
        let counted = self.reserved.write().entry(device.ordinal).or_default().clone();
        counted.fetch_add(bytes, Ordering::Relaxed);
        let memory = GraphMemory { gpu, ptr, bytes, counted };
        self.recording.lock().entry(device.ordinal).or_default().push(memory);
        Ok(ptr)
    }

    /// What was allocated while something was recorded on a device.
    pub(crate) fn recorded_memory(&self, device: &Device) -> Vec<GraphMemory> {
        self.recording.lock().remove(&device.ordinal).unwrap_or_default()
    }

    /// Whether memory is a graph's, or that of what is being recorded.
    pub(crate) fn have(&self, ptr: DevicePtr) -> bool {
        let of_graph = |recorded: &Arc<Recorded>| recorded.memory.iter().any(|m| m.ptr == ptr);
        self.recording.lock().values().flatten().any(|memory| memory.ptr == ptr)
            || self.graphs.read().values().any(of_graph)
            || self.executables.read().values().any(of_graph)
    }

    /// What graphs have of a device.
    pub(crate) fn reserved_bytes(&self, device: usize) -> u64 {
        self.reserved.read().get(&device).map_or(0, |bytes| bytes.load(Ordering::Relaxed))
    }

    /// The handle of a graph that was captured.
    pub(crate) fn add(&self, recorded: Recorded) -> u64 {
        let handle = self.next_handle();
        self.graphs.write().insert(handle, Arc::new(recorded));
        handle
    }

    pub(crate) fn graph(&self, handle: u64) -> Answer<Arc<Recorded>> {
        self.graphs.read().get(&handle).cloned().ok_or(Code::INVALID_VALUE)
    }

    pub(crate) fn destroy(&self, handle: u64) -> Answer {
        self.graphs.write().remove(&handle).map(drop).ok_or(Code::INVALID_VALUE)
    }

    /// Makes a graph ready to launch.
    pub(crate) fn instantiate(&self, handle: u64) -> Answer<u64> {
        let recorded = self.graph(handle)?;
        let executable = self.next_handle();
        self.executables.write().insert(executable, recorded);
        Ok(executable)
    }

    pub(crate) fn executable(&self, handle: u64) -> Answer<Arc<Recorded>> {
        self.executables.read().get(&handle).cloned().ok_or(Code::INVALID_VALUE)
    }

    pub(crate) fn destroy_executable(&self, handle: u64) -> Answer {
        self.executables.write().remove(&handle).map(drop).ok_or(Code::INVALID_VALUE)
    }
}
