//! Moments in streams after which memory may be used again.
//!
//! A free is a point in its stream. Nothing is recorded for it at first: points are numbered, and an event is
//! recorded when a stream's points leave for others to use, so that one event stands for many frees.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::driver::{
    Call, CaptureState, Driver, DriverError, DriverErrorKind, DriverResult, Event, EventTiming,
    RelaxedCalls, Stream, StreamId,
};

/// Events kept for the next time.
const MOST_SPARE_EVENTS: usize = 32;
/// Events of a stream after which it is worth asking which have passed.
const MOST_RECORDED: usize = 32;

/// A stream, as the pool numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct StreamSlot(pub(super) u32);

impl StreamSlot {
    /// Whoever takes memory for no stream in particular: what it takes must have passed.
    pub(super) const NOBODY: StreamSlot = StreamSlot(u32::MAX);
}

/// After everything queued on a stream up to some number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    stream: StreamSlot,
    number: u64,
}

/// Points of several streams, the newest of each. Usually one, so the first is kept in place.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Points {
    first: Option<Point>,
    more: Vec<Point>,
}

// Not derived: every placement clones points, and nearly always there is one.
impl Clone for Points {
    #[inline]
    fn clone(&self) -> Points {
        let more = if self.more.is_empty() { Vec::new() } else { self.more.clone() };
        Points { first: self.first, more }
    }
}

impl Points {
    pub(super) fn add(&mut self, point: Point) {
        let Some(first) = &mut self.first else {
            self.first = Some(point);
            return;
        };
        let mut known = std::iter::once(first).chain(&mut self.more);
        match known.find(|old| old.stream == point.stream) {
            Some(old) => old.number = old.number.max(point.number),
            None => self.more.push(point),
        }
    }

    pub(super) fn merge(&mut self, other: Points) {
        if self.first.is_none() {
            *self = other;
            return;
        }
        other.iter().for_each(|point| self.add(point));
    }

    /// Forgets points that have passed, where there are several: streams come and go, and every one leaves a point.
    pub(super) fn forget_passed(&mut self, streams: &Streams) {
        if self.more.is_empty() {
            return;
        }
        self.more.retain(|point| !streams.has_passed(*point));
        if self.first.is_some_and(|point| streams.has_passed(point)) {
            self.first = self.more.pop();
        }
    }

    fn iter(&self) -> impl Iterator<Item = Point> + '_ {
        self.first.iter().chain(&self.more).copied()
    }
}

/// Whether nothing may be recorded on a stream because of a capture.
fn is_captured(stream: Stream, driver: &dyn Driver) -> DriverResult<bool> {
    match driver.capture_state(stream) {
        Ok(state) => Ok(state != CaptureState::None),
        // The legacy stream's answer while a stream is captured that orders itself with it.
        Err(error) if error.kind == DriverErrorKind::CaptureUnsupported => Ok(true),
        Err(error) => Err(error),
    }
}

#[derive(Debug)]
struct StreamState {
    id: StreamId,
    handle: Stream,
    /// The number that frees get now. Everything below `recorded_below` has an event.
    number: u64,
    recorded: VecDeque<(u64, Event)>,
    /// Every point with a lower number has passed.
    passed_below: u64,
    /// Whether anything was freed under the current number.
    has_unrecorded: bool,
    /// When the handle was last seen to mean this stream, and the stream not to be captured.
    checked_in: Option<u64>,
    /// It was being captured when last asked: its points have no events until that is over.
    is_captured: bool,
}

/// The streams that a pool has seen. `passed_below ≤ front of recorded ≤ … ≤ number`.
#[derive(Debug, Default)]
pub(super) struct Streams {
    slots: Vec<StreamState>,
    /// Streams that have events, and streams that have points without one: few, however many streams there were.
    with_events: BTreeSet<StreamSlot>,
    unrecorded: BTreeSet<StreamSlot>,
    by_id: HashMap<StreamId, StreamSlot>,
    spare_events: Vec<Event>,
    /// While this stays, what was found out about streams holds.
    epoch: Option<Arc<AtomicU64>>,
    order: Order,
}

/// What may be done for a stream to come after another's points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    /// Events may be recorded and waited for.
    #[default]
    Events,
    /// Nothing: the memory belongs to a capture, whose streams must be left alone and whose work runs who knows when.
    /// It serves the stream that freed it, and no other.
    SameStream,
}

impl Streams {
    pub(super) fn new(epoch: Option<Arc<AtomicU64>>, order: Order) -> Streams {
        Streams { epoch, order, ..Streams::default() }
    }

    pub(super) fn order_by(&self) -> Order {
        self.order
    }

    /// The capture is over and its graph's work done: from now on these are streams like any others. What was freed on them
    /// since, by work of its own, is waited for like anything else.
    pub(super) fn end_capture(&mut self) {
        self.order = Order::Events;
    }

    /// The slot of a stream. The pool asks the driver for the id, since handles are recycled.
    pub(super) fn slot(&mut self, id: StreamId, handle: Stream) -> StreamSlot {
        if let Some(slot) = self.by_id.get(&id) {
            return *slot;
        }
        let slot = StreamSlot(self.slots.len() as u32);
        self.slots.push(StreamState {
            id,
            handle,
            number: 1,
            recorded: VecDeque::new(),
            passed_below: 0,
            has_unrecorded: false,
            checked_in: None,
            is_captured: false,
        });
        self.by_id.insert(id, slot);
        slot
    }

    fn state(&mut self, slot: StreamSlot) -> &mut StreamState {
        &mut self.slots[slot.0 as usize]
    }

    /// The point of a free that happens now on a stream.
    pub(super) fn point(&mut self, slot: StreamSlot) -> Point {
        let state = &mut self.slots[slot.0 as usize];
        if !state.has_unrecorded {
            state.has_unrecorded = true;
            self.unrecorded.insert(slot);
        }
        Point { stream: slot, number: state.number }
    }

    /// Whether frees need events: not while there is only one stream, which orders itself.
    pub(super) fn are_several(&self) -> bool {
        self.slots.len() > 1
    }

    /// Whether a stream can be made to wait for these points, as far as is known.
    pub(super) fn can_wait_for(&self, points: &Points) -> bool {
        let can = |point: Point| {
            let state = &self.slots[point.stream.0 as usize];
            self.has_passed(point) || !state.is_captured || point.number < state.number
        };
        self.order == Order::Events && points.iter().all(can)
    }

    fn has_passed(&self, point: Point) -> bool {
        point.number < self.slots[point.stream.0 as usize].passed_below
    }

    /// Whether work of `taker` comes after all points by itself, as far as is known.
    pub(super) fn are_ordered(&self, points: &Points, taker: StreamSlot) -> bool {
        points.iter().all(|point| point.stream == taker || self.has_passed(point))
    }

    /// Whether all points have passed, as far as is known.
    pub(super) fn have_passed(&self, points: &Points) -> bool {
        points.iter().all(|point| self.has_passed(point))
    }

    /// Records an event for everything freed on a stream so far.
    ///
    /// # Errors
    /// Also if the stream is being captured: an event would become part of the capture.
    pub(super) fn record(&mut self, slot: StreamSlot, driver: &dyn Driver) -> DriverResult<()> {
        if self.order == Order::SameStream || !self.state(slot).has_unrecorded {
            return Ok(());
        }
        let (id, handle) = (self.state(slot).id, self.state(slot).handle);
        // The per-thread stream is another one in each thread, and this may not be the thread it was named in.
        let now = self.epoch().filter(|_| handle != Stream::PER_THREAD);
        if now.is_none() || self.state(slot).checked_in != now {
            // A handle that now means another stream cannot be recorded on. The work of the old one can
            // only be waited for with everything else.
            if driver.stream_id(handle).ok() != Some(id) {
                let _relaxed = RelaxedCalls::enter(driver);
                driver.synchronize_device()?;
                self.all_passed();
                return Ok(());
            }
            self.check_capture(slot, driver)?;
        }
        if self.state(slot).recorded.len() >= MOST_RECORDED {
            let _relaxed = RelaxedCalls::enter(driver);
            self.poll_stream(slot, driver)?;
        }
        let event = match self.spare_events.pop() {
            Some(event) => event,
            None => driver.create_event(EventTiming::Disabled)?,
        };
        if let Err(error) = driver.record_event(event, handle) {
            self.spare_events.push(event);
            return Err(error);
        }
        // Whoever begins a capture does it in another thread, and perhaps at this moment.
        if (now.is_none() || self.epoch() != now)
            && let Err(error) = self.check_capture(slot, driver)
        {
            self.spare_events.push(event);
            return Err(error);
        }
        let state = self.state(slot);
        state.checked_in = now;
        state.recorded.push_back((state.number, event));
        state.number += 1;
        state.has_unrecorded = false;
        self.unrecorded.remove(&slot);
        self.with_events.insert(slot);
        Ok(())
    }

    fn epoch(&self) -> Option<u64> {
        // Relaxed: whoever uses a stream that has changed has learnt of it by other means.
        self.epoch.as_ref().map(|epoch| epoch.load(Ordering::Relaxed))
    }

    fn check_capture(&mut self, slot: StreamSlot, driver: &dyn Driver) -> DriverResult<()> {
        let is_captured = is_captured(self.state(slot).handle, driver)?;
        self.state(slot).is_captured = is_captured;
        if !is_captured {
            return Ok(());
        }
        Err(DriverError::with_detail(
            Call::RecordEvent,
            DriverErrorKind::CaptureUnsupported,
            "the stream is being captured",
        ))
    }

    /// Whether the stream is being captured or not is known now.
    pub(super) fn set_captured(&mut self, slot: StreamSlot, is_captured: bool) {
        self.state(slot).is_captured = is_captured;
    }

    /// Everything freed so far has passed: the host has waited for the device.
    pub(super) fn all_passed(&mut self) {
        self.with_events.clear();
        self.unrecorded.clear();
        for state in &mut self.slots {
            self.spare_events.extend(state.recorded.drain(..).map(|(_, event)| event));
            state.number += 1;
            state.passed_below = state.number;
            state.has_unrecorded = false;
        }
    }

    /// The event that stands for a point that has not passed.
    fn event_of(&mut self, point: Point, driver: &dyn Driver) -> DriverResult<Option<Event>> {
        if self.state(point.stream).number == point.number {
            self.record(point.stream, driver)?;
        }
        let recorded = &self.state(point.stream).recorded;
        Ok(recorded.iter().find(|(number, _)| *number >= point.number).map(|(_, event)| *event))
    }

    /// Makes a stream wait for all points that it is not ordered after; says for how many. For nobody's stream the host
    /// waits.
    pub(super) fn order(
        &mut self,
        points: &Points,
        taker: StreamSlot,
        handle: Stream,
        driver: &dyn Driver,
    ) -> DriverResult<usize> {
        if taker == StreamSlot::NOBODY {
            self.wait(points, driver)?;
            return Ok(0);
        }
        let mut waits = 0;
        for point in points.iter() {
            if point.stream != taker
                && !self.has_passed(point)
                && let Some(event) = self.event_of(point, driver)?
            {
                driver.wait_event(handle, event)?;
                waits += 1;
            }
        }
        Ok(waits)
    }

    /// Waits on the host until all points have passed.
    pub(super) fn wait(&mut self, points: &Points, driver: &dyn Driver) -> DriverResult<()> {
        if self.have_passed(points) {
            return Ok(());
        }
        let _relaxed = RelaxedCalls::enter(driver);
        for point in points.iter() {
            if !self.has_passed(point)
                && let Some(event) = self.event_of(point, driver)?
            {
                driver.synchronize_event(event)?;
                self.passed_up_to(point.stream, event);
            }
        }
        Ok(())
    }

    /// An event to wait for, if these points have not passed.
    pub(super) fn event_before(
        &mut self,
        points: &Points,
        driver: &dyn Driver,
    ) -> DriverResult<Option<Event>> {
        for point in points.iter() {
            if !self.has_passed(point)
                && let Some(event) = self.event_of(point, driver)?
            {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    fn passed_up_to(&mut self, slot: StreamSlot, event: Event) {
        let state = &mut self.slots[slot.0 as usize];
        while let Some((number, passed)) = state.recorded.pop_front() {
            state.passed_below = number + 1;
            self.spare_events.push(passed);
            if passed == event {
                break;
            }
        }
        if state.recorded.is_empty() {
            self.with_events.remove(&slot);
        }
    }

    /// Finds out which points have passed meanwhile, without waiting.
    pub(super) fn poll(&mut self, driver: &dyn Driver) -> DriverResult<()> {
        if self.with_events.is_empty() && self.spare_events.len() <= MOST_SPARE_EVENTS {
            return Ok(());
        }
        let _relaxed = RelaxedCalls::enter(driver);
        for slot in self.with_events.iter().copied().collect::<Vec<_>>() {
            self.poll_stream(slot, driver)?;
        }
        while self.spare_events.len() > MOST_SPARE_EVENTS {
            let event = self.spare_events.pop().expect("more than none");
            if let Err(error) = driver.destroy_event(event) {
                self.spare_events.push(event);
                return Err(error);
            }
        }
        Ok(())
    }

    fn poll_stream(&mut self, slot: StreamSlot, driver: &dyn Driver) -> DriverResult<()> {
        while let Some(&(_, event)) = self.state(slot).recorded.front() {
            if !driver.query_event(event)? {
                break;
            }
            self.passed_up_to(slot, event);
        }
        Ok(())
    }

    /// Records what is unrecorded on every stream, so that it can be waited for.
    ///
    /// # Errors
    /// The first. Every stream was tried: one that is captured does not keep the others.
    pub(super) fn record_all(&mut self, driver: &dyn Driver) -> DriverResult<()> {
        let mut all = Ok(());
        for slot in self.unrecorded.iter().copied().collect::<Vec<_>>() {
            all = all.and(self.record(slot, driver));
        }
        all
    }

    /// Gives all events back. Nothing may be freed or taken any more.
    pub(super) fn close(&mut self, driver: &dyn Driver) {
        let recorded = self.slots.iter_mut().flat_map(|state| state.recorded.drain(..));
        let events: Vec<Event> =
            recorded.map(|(_, event)| event).chain(self.spare_events.drain(..)).collect();
        for event in events {
            // A driver that is gone has taken its events along.
            let _ = driver.destroy_event(event);
        }
    }
}
