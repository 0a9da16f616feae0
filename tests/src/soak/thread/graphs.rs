//! A thread's graphs, and the blocks that they write.

use millpond::Resource;
use millpond::driver::{CaptureId, CaptureMode, CaptureState, Driver, Graph, Stream, StreamFlags};
use millpond::pool::tag;

use super::Fellow;
use crate::conformance::Wrong;
use crate::soak::block::Block;
use crate::soak::draws::any_size;

/// Graphs of a thread, at most.
const MOST_GRAPHS: usize = 3;

/// A graph, and the blocks that it writes.
#[derive(Clone)]
pub(super) struct Captured {
    graph: Graph,
    id: CaptureId,
    pub(super) stream: Stream,
    pub(super) blocks: Vec<Block>,
}

impl Fellow<'_> {
    /// Captures the filling of some blocks. One of them is freed again in the capture, for the next to get.
    pub(super) fn capture(&mut self) -> Result<(), Wrong> {
        if self.graphs.len() >= MOST_GRAPHS {
            return self.drop_graph();
        }
        let gpu = &*self.shared.gpu;
        let pool = &self.shared.pool;
        let stream = self.shared.says(gpu.create_stream(StreamFlags::NON_BLOCKING))?;
        // Others synchronise streams of their own meanwhile, which a global capture would forbid.
        self.shared.says(gpu.begin_capture(stream, CaptureMode::ThreadLocal))?;
        let CaptureState::Active(id) = self.shared.says(gpu.capture_state(stream))? else {
            return Err("a capture that was begun is not active".into());
        };
        let region = self.any_region().filter(|_| self.rng.bool());
        let mut blocks = Vec::new();
        for _ in 0..self.rng.usize(1..5) {
            let bytes = any_size(&mut self.rng).min(2 << 20);
            let name = self.rng.bool().then_some("captured");
            let scope = name.map(tag);
            let ptr = match &region {
                Some(region) => region.allocate(bytes, stream),
                None => pool.allocate(bytes, stream),
            };
            drop(scope);
            let ptr = ptr.map_err(|error| error.to_string())?;
            let pattern = self.new_pattern(ptr, bytes);
            self.shared.says(pattern.fill(gpu, stream))?;
            match self.rng.u32(0..4) {
                0 => pool.deallocate(ptr, bytes, stream).map_err(|error| error.to_string())?,
                _ => blocks.push(Block { pattern, name }),
            }
        }
        let graph = self.shared.says(gpu.end_capture(stream))?;
        self.shared.says(gpu.launch_graph(graph, stream))?;
        self.graphs.push(Captured { graph, id, stream, blocks });
        Ok(())
    }

    pub(super) fn relaunch(&mut self) -> Result<(), Wrong> {
        let Some(Captured { graph, stream, blocks, .. }) = self.rng.choice(&self.graphs).cloned()
        else {
            return Ok(());
        };
        self.shared.says(self.shared.gpu.launch_graph(graph, stream))?;
        blocks.iter().try_for_each(|block| self.read(&block.pattern, stream))
    }

    pub(super) fn drop_graph(&mut self) -> Result<(), Wrong> {
        let Some(Captured { graph, id, stream, blocks }) = self.graphs.pop() else { return Ok(()) };
        let gpu = &*self.shared.gpu;
        for block in &blocks {
            self.read(&block.pattern, stream)?;
        }
        // Some of it may be freed after the capture's memory was given up.
        let (before, after) = blocks.split_at(self.rng.usize(0..=blocks.len()));
        self.free_all(before, stream)?;
        self.shared.says(gpu.destroy_graph(graph))?;
        self.shared.says(self.shared.pool.release_capture(id, stream))?;
        self.free_all(after, stream)?;
        self.shared.says(gpu.synchronize_stream(stream))?;
        self.shared.says(gpu.destroy_stream(stream))
    }

    fn free_all(&self, blocks: &[Block], stream: Stream) -> Result<(), Wrong> {
        blocks.iter().try_for_each(|Block { pattern, .. }| {
            let freed = self.shared.pool.deallocate(pattern.ptr, pattern.bytes, stream);
            freed.map_err(|error| format!("a right free was refused: {error}"))
        })
    }
}
