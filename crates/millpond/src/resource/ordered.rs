//! Streams and the frees on them: who may use freed memory, and after what.
//!
//! Every stream has one event, which stands for its newest free, as in RMM's stream-ordered resources. A free is a
//! number of its stream. While a resource has seen one stream only, nothing is recorded: a stream orders itself.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::driver::{Driver, DriverResult, Event, EventTiming, Stream, StreamEpoch, StreamId};

/// Streams and events beyond which it is worth asking which are done with.
const MANY: usize = 32;

/// A stream, as a resource numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct StreamSlot(u32);

impl StreamSlot {
    pub(super) const FIRST: StreamSlot = StreamSlot(0);

    pub(super) const fn next(self) -> StreamSlot {
        StreamSlot(self.0 + 1)
    }

    pub(super) const fn at(index: usize) -> StreamSlot {
        StreamSlot(index as u32)
    }

    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A moment in a stream: after its free of this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    pub(super) slot: StreamSlot,
    pub(super) number: u64,
}

/// One stream. `passed ≤ recorded ≤ newest`.
#[derive(Debug)]
struct StreamState {
    id: StreamId,
    handle: Stream,
    /// The number of its newest free.
    newest: u64,
    /// The event stands for this free.
    recorded: u64,
    /// All frees up to this one are known to have run.
    passed: u64,
    event: Option<Event>,
    /// Other streams' frees that this stream comes after, because it has waited for them: of each the newest.
    comes_after: BTreeMap<StreamSlot, u64>,
}

/// The streams that a resource has seen.
///
/// Every slot is of a stream in `by_id`, or vacant. A vacant slot's frees have all passed, so whoever gets the slot next may have
/// its memory.
#[derive(Debug, Default)]
pub(super) struct Ordered {
    streams: Vec<StreamState>,
    by_id: HashMap<StreamId, StreamSlot>,
    vacant: Vec<StreamSlot>,
    spare_events: Vec<Event>,
    /// How many streams it takes until the next search for those that are gone.
    search_at: usize,
    /// While this stays, handles mean what they meant.
    epoch: Option<Arc<StreamEpoch>>,
    by_handle: HashMap<Stream, StreamSlot>,
    by_handle_epoch: u64,
    /// The handle that was named last, when, and its stream.
    last: Option<Named>,
}

#[derive(Clone, Copy, Debug)]
struct Named {
    handle: Stream,
    epoch: u64,
    slot: StreamSlot,
}

impl Ordered {
    pub(super) fn new(driver: &dyn Driver) -> Ordered {
        Ordered { epoch: driver.stream_epoch(), search_at: MANY, ..Ordered::default() }
    }

    /// The stream behind a handle. Handles are recycled, and the per-thread one is another stream in each thread.
    #[inline]
    pub(super) fn slot(&mut self, handle: Stream, driver: &dyn Driver) -> DriverResult<StreamSlot> {
        match &self.last {
            Some(last) if last.handle == handle && self.epoch() == Some(last.epoch) => {
                Ok(last.slot)
            }
            _ => self.find_slot(handle, driver),
        }
    }

    #[inline]
    fn epoch(&self) -> Option<u64> {
        self.epoch.as_ref().map(|epoch| epoch.now())
    }

    #[inline(never)]
    fn find_slot(&mut self, handle: Stream, driver: &dyn Driver) -> DriverResult<StreamSlot> {
        let epoch = self.epoch().filter(|_| handle != Stream::PER_THREAD);
        if epoch.is_some_and(|now| now != self.by_handle_epoch) {
            self.by_handle.clear();
        }
        if let Some(now) = epoch
            && let Some(&slot) = self.by_handle.get(&handle)
        {
            self.last = Some(Named { handle, epoch: now, slot });
            return Ok(slot);
        }
        let id = driver.stream_id(handle)?;
        let slot = match self.by_id.get(&id) {
            Some(slot) => *slot,
            None => self.add(id, handle, driver),
        };
        if let Some(now) = epoch {
            self.by_handle.insert(handle, slot);
            self.by_handle_epoch = now;
            self.last = Some(Named { handle, epoch: now, slot });
        }
        Ok(slot)
    }

    fn add(&mut self, id: StreamId, handle: Stream, driver: &dyn Driver) -> StreamSlot {
        if self.by_id.len() >= self.search_at {
            self.find_vacant(driver);
            self.search_at = (2 * self.by_id.len()).max(MANY);
        }
        let slot = match self.vacant.pop() {
            Some(slot) => {
                let state = &mut self.streams[slot.index()];
                (state.id, state.handle) = (id, handle);
                state.comes_after.clear();
                slot
            }
            None => {
                let (newest, recorded, passed, event) = (0, 0, 0, None);
                let comes_after = BTreeMap::new();
                let state =
                    StreamState { id, handle, newest, recorded, passed, event, comes_after };
                self.streams.push(state);
                StreamSlot(self.streams.len() as u32 - 1)
            }
        };
        self.by_id.insert(id, slot);
        slot
    }

    /// Streams that are gone and whose frees have run leave their slots to others.
    fn find_vacant(&mut self, driver: &dyn Driver) {
        self.poll(driver);
        let slots: Vec<(StreamId, StreamSlot)> =
            self.by_id.iter().map(|(id, slot)| (*id, *slot)).collect();
        for (id, slot) in slots {
            let state = &self.streams[slot.index()];
            if state.passed == state.newest && driver.stream_id(state.handle) != Ok(id) {
                self.by_id.remove(&id);
                self.vacant.push(slot);
            }
        }
        self.by_handle.clear();
        self.last = None;
    }

    /// The moment after everything that is queued on a stream now. `handle` is how the caller names it.
    ///
    /// What cannot be recorded now is recorded when somebody needs it.
    #[inline]
    pub(super) fn point(&mut self, slot: StreamSlot, handle: Stream, driver: &dyn Driver) -> Point {
        let is_alone = self.streams.len() == 1;
        let state = &mut self.streams[slot.index()];
        state.newest += 1;
        let point = Point { slot, number: state.newest };
        if !is_alone {
            let _ = self.record(slot, handle, driver);
        }
        point
    }

    /// The newest free of a stream.
    pub(super) fn newest(&self, slot: StreamSlot) -> Point {
        Point { slot, number: self.streams[slot.index()].newest }
    }

    fn record(
        &mut self,
        slot: StreamSlot,
        handle: Stream,
        driver: &dyn Driver,
    ) -> DriverResult<()> {
        let state = &mut self.streams[slot.index()];
        let event = match state.event {
            Some(event) => event,
            None => match self.spare_events.pop() {
                Some(event) => *state.event.insert(event),
                None => *state.event.insert(driver.create_event(EventTiming::Disabled)?),
            },
        };
        driver.record_event(event, handle)?;
        state.recorded = state.newest;
        Ok(())
    }

    /// Records what is unrecorded of a stream that is not the caller's.
    #[cold]
    fn record_other(&mut self, slot: StreamSlot, driver: &dyn Driver) -> DriverResult<()> {
        let StreamState { id, handle, .. } = self.streams[slot.index()];
        if driver.stream_id(handle) == Ok(id) {
            return self.record(slot, handle, driver);
        }
        // The handle names another stream by now, or is another thread's own. The old stream's work can only be waited
        // for with everything else.
        driver.synchronize_device()?;
        for state in &mut self.streams {
            (state.recorded, state.passed) = (state.newest, state.newest);
        }
        Ok(())
    }

    #[inline]
    fn has_passed(&self, point: Point) -> bool {
        point.number <= self.streams[point.slot.index()].passed
    }

    /// Whether work of `taker` comes after a point by itself, as far as is known.
    #[inline]
    fn comes_after(&self, taker: StreamSlot, point: Point) -> bool {
        let known = || self.streams[taker.index()].comes_after.get(&point.slot);
        point.slot == taker
            || self.has_passed(point)
            || known().is_some_and(|known| *known >= point.number)
    }

    /// Makes later work of `taker` come after a point.
    #[inline]
    pub(super) fn order(
        &mut self,
        point: Point,
        taker: StreamSlot,
        handle: Stream,
        driver: &dyn Driver,
    ) -> DriverResult<()> {
        if self.comes_after(taker, point) {
            return Ok(());
        }
        self.make_wait(point, taker, handle, driver)
    }

    fn make_wait(
        &mut self,
        point: Point,
        taker: StreamSlot,
        handle: Stream,
        driver: &dyn Driver,
    ) -> DriverResult<()> {
        if self.streams[point.slot.index()].recorded < point.number {
            self.record_other(point.slot, driver)?;
            if self.has_passed(point) {
                return Ok(());
            }
        }
        let StreamState { event, recorded, .. } = self.streams[point.slot.index()];
        driver.wait_event(handle, event.expect("what is recorded has an event"))?;
        // The event stands for the stream's newest free, and so for all before it.
        self.streams[taker.index()].comes_after.insert(point.slot, recorded);
        Ok(())
    }

    /// The host waits for every free.
    pub(super) fn wait_for_all(&mut self, driver: &dyn Driver) -> DriverResult<()> {
        for index in 0..self.streams.len() {
            let slot = StreamSlot(index as u32);
            if self.streams[index].recorded < self.streams[index].newest {
                self.record_other(slot, driver)?;
            }
            let state = &mut self.streams[index];
            if state.passed < state.recorded {
                driver.synchronize_event(state.event.expect("what is recorded has an event"))?;
                state.passed = state.recorded;
            }
        }
        Ok(())
    }

    /// Finds out which frees have run, without waiting, and lets go of events that nobody needs.
    pub(super) fn poll(&mut self, driver: &dyn Driver) {
        for state in &mut self.streams {
            let Some(event) = state.event else { continue };
            if state.passed < state.recorded && driver.query_event(event) == Ok(true) {
                state.passed = state.recorded;
            }
            if state.passed == state.recorded {
                state.event = None;
                self.spare_events.push(event);
            }
        }
        while self.spare_events.len() > MANY
            && driver.destroy_event(self.spare_events[MANY]).is_ok()
        {
            self.spare_events.swap_remove(MANY);
        }
    }

    /// Gives all events back. Nothing may be freed or taken any more.
    pub(super) fn close(&mut self, driver: &dyn Driver) {
        let events = self.streams.iter_mut().filter_map(|state| state.event.take());
        for event in events.chain(self.spare_events.drain(..)) {
            // A driver that refuses has lost it; there is nobody left to tell.
            let _ = driver.destroy_event(event);
        }
    }
}
