//! From recorded events to steps.

use std::collections::HashMap;

use super::program::Extent;
use super::{FailedRequest, Step};
use crate::trace::{Event, EventKind, InitialBlock};

/// Turns events into steps. What it keeps is what is live.
#[derive(Debug, Default)]
pub(super) struct Compiler {
    steps: Vec<Step>,
    live: HashMap<u64, Live>,
    unused: Vec<u32>,
    live_bytes: u64,
    events: u64,
    extent: Extent,
    /// Of `live`, when it was looked at last.
    seen_capacity: usize,
}

/// A block that is live.
#[derive(Clone, Copy, Debug)]
struct Live {
    bytes: u64,
    block: u32,
    stream: u32,
}

impl Compiler {
    /// A block that was there before the first event.
    pub(super) fn initial(&mut self, block: &InitialBlock) {
        let InitialBlock { addr, bytes, stream, .. } = *block;
        self.allocate(Step { time_us: 0, addr, bytes, block: 0, stream, event: 0, thread: 0 });
    }

    /// Goes on by one event. A request that failed is no step, but told.
    pub(super) fn event(&mut self, event: &Event) -> Option<FailedRequest> {
        let Event { time_us, addr, bytes, stream, thread, .. } = *event;
        let number = u32::try_from(self.events).unwrap_or(u32::MAX);
        self.events += 1;
        let step = Step { time_us, addr, bytes, block: 0, stream, event: number, thread };
        match event.kind {
            EventKind::Alloc => self.allocate(step),
            EventKind::FreeCompleted => self.free(Some(stream), step),
            _ => return FailedRequest::of(event, number, self.live_bytes),
        }
        None
    }

    fn allocate(&mut self, step: Step) {
        // Its free was not recorded.
        self.free(None, step);
        if step.bytes == 0 {
            return;
        }
        let block = self.unused.pop().unwrap_or_else(|| {
            self.extent.blocks += 1;
            self.extent.blocks - 1
        });
        self.live.insert(step.addr, Live { bytes: step.bytes, block, stream: step.stream });
        // A hostile trace saturates.
        self.live_bytes = self.live_bytes.saturating_add(step.bytes);
        self.extent.peak_live_bytes = self.extent.peak_live_bytes.max(self.live_bytes);
        self.push(Step { block, ..step });
    }

    /// On the stream it was allocated on, if none is given.
    fn free(&mut self, stream: Option<u32>, step: Step) {
        let Some(live) = self.live.remove(&step.addr) else { return };
        self.unused.push(live.block);
        self.live_bytes = self.live_bytes.saturating_sub(live.bytes);
        let stream = stream.unwrap_or(live.stream);
        self.push(Step { bytes: 0, block: live.block, stream, ..step });
    }

    fn push(&mut self, step: Step) {
        let extent = &mut self.extent;
        extent.steps += 1;
        extent.allocations += u64::from(step.bytes > 0);
        extent.streams = extent.streams.max(step.stream.saturating_add(1));
        extent.threads = extent.threads.max(u16::from(step.thread) + 1);
        self.steps.push(step);
    }

    /// The steps that were not taken yet.
    pub(super) fn steps(&self) -> &[Step] {
        &self.steps
    }

    pub(super) fn take_steps(&mut self) -> Vec<Step> {
        std::mem::take(&mut self.steps)
    }

    pub(super) fn forget_steps(&mut self) {
        self.steps.clear();
    }

    /// How far the numbers of the steps so far go.
    pub(super) fn extent(&self) -> Extent {
        self.extent
    }

    /// Whether it holds more memory than when this was asked last.
    pub(super) fn has_grown(&mut self) -> bool {
        let capacity = self.live.capacity();
        std::mem::replace(&mut self.seen_capacity, capacity) < capacity
    }

    /// What it keeps of live blocks, with what growing takes.
    pub(super) fn held_bytes(&self) -> u64 {
        let live = 2 * self.live.capacity() * size_of::<(u64, Live)>();
        (live + 3 * self.unused.capacity() * size_of::<u32>()) as u64
    }
}
