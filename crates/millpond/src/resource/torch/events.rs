//! What freed blocks wait for.

use std::collections::{BTreeMap, VecDeque};

use crate::driver::{
    Counted, DevicePtr, Driver, DriverResult, Event, EventTiming, Stream, StreamId,
};

/// Events kept for the next time: creating one is dear.
const MOST_IDLE: usize = 32;

/// Events that stand for other streams' use of freed blocks, oldest first for each stream, so that a slow stream holds up only what it
/// uses.
#[derive(Debug, Default)]
pub(super) struct Events {
    waiting: BTreeMap<StreamId, VecDeque<(Event, DevicePtr)>>,
    idle: Vec<Event>,
}

impl Events {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Streams that something waits for.
    pub(super) fn streams(&self) -> Vec<StreamId> {
        self.waiting.keys().copied().collect()
    }

    /// An event of what is queued on a stream.
    pub(super) fn record(&mut self, stream: Stream, driver: &Counted) -> DriverResult<Event> {
        let event = match self.idle.pop() {
            Some(event) => event,
            None => driver.create_event(EventTiming::Disabled)?,
        };
        match driver.record_event(event, stream) {
            Ok(()) => Ok(event),
            Err(error) => {
                self.give_back(event, driver);
                Err(error)
            }
        }
    }

    /// A block waits for an event of a stream.
    pub(super) fn wait(&mut self, stream: StreamId, event: Event, block: DevicePtr) {
        self.waiting.entry(stream).or_default().push_back((event, block));
    }

    /// The next block of the stream's queue whose event has passed.
    pub(super) fn next_passed(
        &mut self,
        stream: StreamId,
        driver: &Counted,
    ) -> DriverResult<Option<DevicePtr>> {
        let Some(&(event, _)) = self.front(stream) else { return Ok(None) };
        Ok(if driver.query_event(event)? { self.pop(stream, driver) } else { None })
    }

    /// The next block of the stream's queue, once its event has passed.
    pub(super) fn next_awaited(
        &mut self,
        stream: StreamId,
        driver: &Counted,
    ) -> DriverResult<Option<DevicePtr>> {
        let Some(&(event, _)) = self.front(stream) else { return Ok(None) };
        driver.synchronize_event(event)?;
        Ok(self.pop(stream, driver))
    }

    fn front(&self, stream: StreamId) -> Option<&(Event, DevicePtr)> {
        self.waiting.get(&stream).and_then(VecDeque::front)
    }

    fn pop(&mut self, stream: StreamId, driver: &Counted) -> Option<DevicePtr> {
        let queue = self.waiting.get_mut(&stream)?;
        let (event, block) = queue.pop_front()?;
        if queue.is_empty() {
            self.waiting.remove(&stream);
        }
        self.give_back(event, driver);
        Some(block)
    }

    /// Keeps an event for the next time, or destroys it.
    pub(super) fn give_back(&mut self, event: Event, driver: &Counted) {
        // One that cannot be destroyed is kept after all: it is still ours.
        if self.idle.len() < MOST_IDLE || driver.destroy_event(event).is_err() {
            self.idle.push(event);
        }
    }

    /// Destroys everything.
    pub(super) fn destroy(&mut self, driver: &Counted) {
        let waiting = std::mem::take(&mut self.waiting).into_values().flatten();
        for event in waiting.map(|(event, _)| event).chain(self.idle.drain(..)) {
            // A driver that fails here has lost the event; there is nobody left to tell.
            let _ = driver.destroy_event(event);
        }
    }
}
