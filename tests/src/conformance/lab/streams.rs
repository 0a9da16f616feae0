//! The streams of a lab, and which comes after which.

use std::time::Duration;

use millpond::driver::{DevicePtr, Driver, EventTiming, Stream, StreamFlags, StreamId};

use super::{Block, Lab, STREAMS, Wrong};

impl Lab {
    /// A stream by its number.
    pub fn stream(&self, number: usize) -> Stream {
        self.streams[number % STREAMS]
    }

    /// Makes one stream wait for what is queued on another.
    pub fn order(&self, before: usize, after: usize) -> Result<(), Wrong> {
        let (before, after) = (self.stream(before), self.stream(after));
        self.driver_says(|gpu| {
            let event = gpu.create_event(EventTiming::Disabled)?;
            gpu.record_event(event, before)?;
            gpu.wait_event(after, event)?;
            gpu.destroy_event(event)
        })
    }

    /// Destroys a stream with work still queued, and creates one that gets its handle.
    pub fn recycle_stream(&mut self, stream: usize) -> Result<(), Wrong> {
        let number = stream % STREAMS;
        if number < 2 {
            return Ok(());
        }
        self.leave_stream(number)?;
        let old = self.stream(number);
        let old_id = self.driver_says(|gpu| gpu.stream_id(old))?;
        self.driver_says(|gpu| gpu.destroy_stream(old))?;
        let new = self.driver_says(|gpu| gpu.create_stream(StreamFlags::NON_BLOCKING))?;
        let new_id: StreamId = self.driver_says(|gpu| gpu.stream_id(new))?;
        assert!(new == old && new_id != old_id, "the device recycles handles");
        self.streams[number] = new;
        Ok(())
    }

    /// Makes the first stream, instead of this one, use all blocks that it uses.
    pub fn leave_stream(&mut self, stream: usize) -> Result<(), Wrong> {
        let number = stream % STREAMS;
        let uses = |block: &&Block| block.used_on.contains(&number);
        let used: Vec<DevicePtr> =
            self.blocks.values().filter(uses).map(|block| block.ptr).collect();
        used.into_iter().try_for_each(|ptr| self.order_onto(ptr, 0))
    }

    /// The host waits for a stream.
    pub fn synchronize(&self, stream: usize) -> Result<(), Wrong> {
        self.driver_says(|gpu| gpu.synchronize_stream(self.stream(stream)))
    }

    /// The host is busy elsewhere.
    pub fn pass_time(&self, time: Duration) {
        self.gpu.advance(time);
    }

    /// Makes `stream` the only one whose queued work uses the block.
    pub(super) fn order_onto(&mut self, ptr: DevicePtr, stream: usize) -> Result<(), Wrong> {
        let number = stream % STREAMS;
        let used_on = std::mem::take(&mut self.blocks.get_mut(&ptr).expect("held").used_on);
        for other in used_on.into_iter().filter(|other| *other != number) {
            self.order(other, number)?;
        }
        self.blocks.get_mut(&ptr).expect("held").used_on.insert(number);
        Ok(())
    }
}
