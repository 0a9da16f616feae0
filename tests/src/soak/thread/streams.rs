//! A thread's streams, and blocks that several of them use.

use millpond::driver::{Driver, Stream, StreamFlags};

use super::Fellow;
use crate::conformance::Wrong;

impl Fellow<'_> {
    pub(super) fn new_stream(&mut self) -> Result<Stream, Wrong> {
        let flags = StreamFlags { non_blocking: self.rng.u32(0..8) > 0, priority: 0 };
        self.shared.says(self.shared.gpu.create_stream(flags))
    }

    pub(super) fn any_stream(&mut self) -> usize {
        self.rng.usize(0..self.streams.len())
    }

    pub(super) fn read_elsewhere(&mut self) -> Result<(), Wrong> {
        let Some(mine) = self.rng.choice(&self.blocks).cloned() else { return Ok(()) };
        let (home, other) = (self.streams[mine.stream], self.any_stream());
        let other = self.streams[other];
        if home == other {
            return self.read(&mine.block.pattern, home);
        }
        self.shared.order(home, other)?;
        self.read(&mine.block.pattern, other)?;
        self.shared.order(other, home)
    }

    pub(super) fn record_stream(&mut self) -> Result<(), Wrong> {
        let Some(mine) = self.rng.choice(&self.blocks).cloned() else { return Ok(()) };
        let (home, other) = (self.streams[mine.stream], self.any_stream());
        let other = self.streams[other];
        self.shared.order(home, other)?;
        self.read(&mine.block.pattern, other)?;
        let told = self.shared.pool.record_stream(mine.block.pattern.ptr, other);
        told.map_err(|error| format!("a live block is not known: {error}"))
    }

    pub(super) fn replace_stream(&mut self) -> Result<(), Wrong> {
        let index = self.rng.usize(1..self.streams.len());
        let old = self.streams[index];
        // What used the blocks there comes before the thread's own stream, which uses them from now on.
        self.shared.order(old, self.streams[0])?;
        for mine in self.blocks.iter_mut().filter(|mine| mine.stream == index) {
            mine.stream = 0;
        }
        self.shared.says(self.shared.gpu.destroy_stream(old))?;
        self.streams[index] = self.new_stream()?;
        Ok(())
    }
}
