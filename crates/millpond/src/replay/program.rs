//! What to allocate and free, in order.

use std::collections::HashMap;

use crate::trace::{DeviceTrace, Event, EventKind};

/// One allocation or free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// When, in microseconds of the recorder's clock; 0 where it kept none.
    pub time_us: u64,
    /// How much is allocated; 0 for a free.
    pub bytes: u64,
    /// Which block: a number that is used again when the block is gone.
    pub block: u32,
    /// On which stream: an index below [`Program::streams`].
    pub stream: u32,
    /// The number of the event, from 0; that of the first for blocks that were there before it.
    pub event: u32,
}

/// The allocations and frees of one device.
#[derive(Clone, Debug, Default)]
pub struct Program {
    steps: Vec<Step>,
    events: usize,
    blocks: u32,
    streams: usize,
}

impl Program {
    /// What a trace says.
    pub fn of(device: &DeviceTrace) -> Program {
        let mut compiler = Compiler::default();
        for block in device.initial_blocks() {
            compiler.allocate(block.addr, block.bytes, block.stream, 0, 0);
        }
        for (number, event) in device.events.iter().enumerate() {
            compiler.event(event, u32::try_from(number).unwrap_or(u32::MAX));
        }
        let Compiler { steps, blocks, streams, .. } = compiler;
        Program { steps, events: device.events.len(), blocks, streams }
    }

    /// Everything to be done.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// How many events were recorded.
    pub fn events(&self) -> usize {
        self.events
    }

    /// The numbers of blocks are less than this: the most that are live at a time.
    pub fn blocks(&self) -> usize {
        self.blocks as usize
    }

    /// The numbers of streams are less than this.
    pub fn streams(&self) -> usize {
        self.streams
    }

    /// The most bytes that are live at a time.
    pub fn peak_live_bytes(&self) -> u64 {
        let mut sizes = vec![0; self.blocks()];
        let (mut live, mut peak) = (0_u64, 0);
        for step in &self.steps {
            let size = &mut sizes[step.block as usize];
            live = live - *size + step.bytes;
            *size = step.bytes;
            peak = peak.max(live);
        }
        peak
    }
}

/// A block that is live.
struct Live {
    block: u32,
    stream: u32,
}

#[derive(Default)]
struct Compiler {
    steps: Vec<Step>,
    live: HashMap<u64, Live>,
    unused: Vec<u32>,
    blocks: u32,
    streams: usize,
}

impl Compiler {
    fn event(&mut self, event: &Event, number: u32) {
        let Event { addr, bytes, stream, time_us, .. } = *event;
        match event.kind {
            EventKind::Alloc => self.allocate(addr, bytes, stream, time_us, number),
            EventKind::FreeCompleted => self.free(addr, Some(stream), time_us, number),
            _ => {}
        }
    }

    fn allocate(&mut self, addr: u64, bytes: u64, stream: u32, time_us: u64, event: u32) {
        // Its free was not recorded.
        self.free(addr, None, time_us, event);
        if bytes == 0 {
            return;
        }
        let block = self.unused.pop().unwrap_or_else(|| {
            self.blocks += 1;
            self.blocks - 1
        });
        self.live.insert(addr, Live { block, stream });
        self.push(Step { time_us, bytes, block, stream, event });
    }

    /// On the stream it was allocated on, if none is given.
    fn free(&mut self, addr: u64, stream: Option<u32>, time_us: u64, event: u32) {
        let Some(Live { block, stream: allocated_on }) = self.live.remove(&addr) else { return };
        self.unused.push(block);
        let stream = stream.unwrap_or(allocated_on);
        self.push(Step { time_us, bytes: 0, block, stream, event });
    }

    fn push(&mut self, step: Step) {
        self.streams = self.streams.max(step.stream as usize + 1);
        self.steps.push(step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: EventKind, addr: u64, bytes: u64) -> Event {
        Event { time_us: 7, addr, bytes, stream: 1, pool: 0, kind }
    }

    #[test]
    fn blocks_are_numbered_and_numbers_used_again() {
        use EventKind::{Alloc, FreeCompleted, FreeRequested, SegmentAlloc};
        let events = vec![
            event(SegmentAlloc, 0, 1000),
            event(Alloc, 0, 100),
            event(Alloc, 512, 50),
            event(FreeRequested, 0, 100),
            event(FreeCompleted, 0, 100),
            event(FreeCompleted, 4096, 1),
            event(Alloc, 0, 70),
            // The free of what was here is missing.
            event(Alloc, 512, 30),
            event(Alloc, 8192, 0),
        ];
        let device = DeviceTrace { device: 0, events, segments: Vec::new() };
        let program = Program::of(&device);
        let steps: Vec<(u32, u32, u64)> =
            program.steps().iter().map(|step| (step.event, step.block, step.bytes)).collect();
        assert_eq!(steps, [(1, 0, 100), (2, 1, 50), (4, 0, 0), (6, 0, 70), (7, 1, 0), (7, 1, 30)]);
        assert_eq!((program.blocks(), program.streams(), program.events()), (2, 2, 9));
        assert_eq!(program.peak_live_bytes(), 150);
    }
}
