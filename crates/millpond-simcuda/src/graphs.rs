//! Graphs, and what was made ready to launch of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millpond::driver::{Driver, Graph};
use millpond_sim::SimGpu;
use parking_lot::RwLock;

use crate::code_number::{Answer, Code};

/// Recorded work; it goes when neither a graph nor anything made of it has it any more.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub(crate) gpu: Arc<SimGpu>,
    pub(crate) graph: Graph,
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
}

impl Graphs {
    fn next_handle(&self) -> u64 {
        // Relaxed: the number only has to be different each time.
        0x6d67_0000_0000 + (self.made.fetch_add(1, Ordering::Relaxed) + 1) * 0x1000
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
