//! Moments in streams after which memory may be used again.
//!
//! A free is a point in its stream. Nothing is recorded for it at first: points are numbered, and an event is
//! recorded when a stream's points leave for others to use, so that one event stands for all that leaves at a time.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::numbers::Numbers;
use crate::driver::{
    Call, CaptureState, Driver, DriverError, DriverErrorKind, DriverResult, Event, EventTiming,
    RelaxedCalls, Stream, StreamId,
};

/// Events kept for the next time.
const MOST_SPARE_EVENTS: usize = 32;
/// Events of a stream after which it is worth asking which have passed.
const MOST_RECORDED: usize = 32;

/// Streams among which none is looked for that is gone.
const FEW_STREAMS: usize = 16;

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

    /// Forgets points that have passed, or that another comes after, where there are several: every stream that used the memory
    /// leaves a point, and whoever takes it next would wait for them all.
    pub(super) fn forget_needless(&mut self, streams: &Streams) {
        let Some(first) = self.first.filter(|_| !self.more.is_empty()) else { return };
        let mut points = std::mem::take(&mut self.more);
        points.push(first);
        let mut place = 0;
        while let Some(&point) = points.get(place) {
            let is_needless = streams.has_passed(point)
                || points.iter().any(|later| streams.comes_after(*later, point));
            if is_needless {
                points.swap_remove(place);
            } else {
                place += 1;
            }
        }
        self.first = points.pop();
        self.more = points;
    }

    pub(super) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.more.len()
    }

    fn iter(&self) -> impl Iterator<Item = Point> + '_ {
        self.first.iter().chain(&self.more).copied()
    }
}

/// Which points the device is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settle {
    /// Those that can be waited for in no other way.
    Gone,
    All,
}

/// Points that pass when the device has been waited for: the last of each stream. Nothing, if there are none.
#[derive(Debug)]
#[must_use = "points that are not settled stay as if they had passed into other hands"]
pub(super) struct Settling(Vec<Point>);

impl Settling {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Whether an error says that a stream's points cannot be waited for with an event. It is known of the stream then, and memory that
/// would have to wait for it [cannot serve](Streams::can_serve) others.
pub(super) fn is_out_of_reach(error: &DriverError) -> bool {
    match error.kind {
        DriverErrorKind::CaptureUnsupported => true,
        DriverErrorKind::InvalidHandle => error.call == Call::RecordEvent,
        _ => false,
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

/// A stream has been made to wait for another.
#[derive(Clone, Copy, Debug)]
struct Waited {
    /// For its points up to this number.
    number: u64,
    /// Its own points from this number on come after them.
    since: u64,
}

/// Waits of a stream after which it is worth asking which are for what has passed.
const MOST_WAITED: usize = 64;

#[derive(Debug)]
struct StreamState {
    /// None of a stream that had been forgotten when something more of it turned up.
    id: Option<StreamId>,
    handle: Stream,
    /// The number that frees get now.
    number: u64,
    recorded: VecDeque<(u64, Event)>,
    /// Every point with a lower number has passed.
    passed_below: u64,
    /// Whether anything was freed under the current number.
    has_unrecorded: bool,
    /// The last wait for each stream.
    waited: HashMap<StreamSlot, Waited, Numbers>,
    /// When the handle was last seen to mean this stream, and the stream not to be captured.
    checked_in: Option<u64>,
    /// It was being captured when last asked: its points have no events until that is over.
    is_captured: bool,
    /// Its handle means nothing any more, or another stream, or cannot be used in this thread: its points have no events until the
    /// host has waited for the whole device.
    is_gone: bool,
    /// How many are waiting for the device on its account.
    settling: u32,
}

impl StreamState {
    fn new(id: Option<StreamId>, handle: Stream, first_number: u64) -> StreamState {
        StreamState {
            id,
            handle,
            number: first_number,
            recorded: VecDeque::new(),
            passed_below: first_number,
            has_unrecorded: false,
            waited: HashMap::default(),
            checked_in: None,
            is_captured: false,
            is_gone: id.is_none(),
            settling: 0,
        }
    }

    fn has_passed(&self, number: u64) -> bool {
        number < self.passed_below
    }

    /// Whether there is an event that comes after a point.
    fn has_event_after(&self, number: u64) -> bool {
        self.recorded.back().is_some_and(|(last, _)| *last >= number)
    }

    /// Whether its work from now on comes after a point of another stream.
    fn has_waited_for(&self, point: Point) -> bool {
        self.waited.get(&point.stream).is_some_and(|waited| waited.number >= point.number)
    }

    /// It has been made to wait for another stream's points up to a number.
    fn note_wait(&mut self, stream: StreamSlot, number: u64) {
        // What was freed under this number before has no event yet: it will get one that comes after the wait.
        self.waited.insert(stream, Waited { number, since: self.number });
    }

    fn find_out_if_gone(&self, driver: &dyn Driver) -> DriverResult<bool> {
        if self.id.is_none() {
            return Ok(true);
        }
        match driver.stream_id(self.handle) {
            Err(error) if error.kind == DriverErrorKind::InvalidHandle => Ok(true),
            answer => Ok(Some(answer?) != self.id),
        }
    }

    /// Whether the per-thread stream of some thread: its handle is another stream's in every other thread.
    fn is_of_thread(&self) -> bool {
        self.handle == Stream::PER_THREAD
    }
}

/// The streams that a pool has seen. `passed_below ≤ front of recorded ≤ … ≤ number`.
#[derive(Debug, Default)]
pub(super) struct Streams {
    /// What is not here is gone, and all its points have passed. A map, because streams come and go and the first may stay.
    slots: HashMap<StreamSlot, Box<StreamState>, Numbers>,
    /// Streams that were ever seen.
    seen: u32,
    /// How many streams there may be until it is worth looking which are gone.
    look_at: usize,
    gone: BTreeSet<StreamSlot>,
    /// When it was last looked which streams are gone.
    looked_in: Option<u64>,
    /// More than any point of a stream that was forgotten.
    first_number: u64,
    /// Streams that have events, and streams that have points without one: few, however many streams there were.
    with_events: BTreeSet<StreamSlot>,
    unrecorded: BTreeSet<StreamSlot>,
    by_id: HashMap<StreamId, StreamSlot>,
    spare_events: Vec<Event>,
    /// Threads that wait for an event at the moment.
    waiting: usize,
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
        Streams { epoch, order, look_at: FEW_STREAMS, ..Streams::default() }
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
        if let Some(&slot) = self.by_id.get(&id) {
            if self.gone.remove(&slot) {
                self.state(slot).is_gone = false;
            }
            return slot;
        }
        let slot = StreamSlot(self.seen);
        self.seen = self.seen.checked_add(1).expect("four billion streams");
        let state = StreamState::new(Some(id), handle, self.first_number);
        self.slots.insert(slot, Box::new(state));
        self.by_id.insert(id, slot);
        slot
    }

    fn known(&self, slot: StreamSlot) -> Option<&StreamState> {
        self.slots.get(&slot).map(|state| &**state)
    }

    fn state(&mut self, slot: StreamSlot) -> &mut StreamState {
        let first_number = self.first_number;
        self.slots.entry(slot).or_insert_with(|| {
            self.gone.insert(slot);
            Box::new(StreamState::new(None, Stream::LEGACY, first_number))
        })
    }

    /// The point of a free that happens now on a stream.
    pub(super) fn point(&mut self, slot: StreamSlot) -> Point {
        let state = self.state(slot);
        let (number, is_first) = (state.number, !state.has_unrecorded);
        if is_first {
            state.has_unrecorded = true;
            self.unrecorded.insert(slot);
        }
        Point { stream: slot, number }
    }

    /// Whether frees need events: not while there is only one stream, which orders itself.
    pub(super) fn are_several(&self) -> bool {
        self.seen > 1
    }

    /// Whether a stream can be made to wait for these points, as far as is known.
    pub(super) fn can_wait_for(&self, points: &Points) -> bool {
        let can = |Point { stream, number }| {
            self.known(stream).is_none_or(|state| {
                let is_reachable = !state.is_captured && !state.is_gone;
                is_reachable || state.has_passed(number) || state.has_event_after(number)
            })
        };
        self.order == Order::Events && points.iter().all(can)
    }

    /// Whether a stream may use memory with these points, as far as is known: it comes after them, or can be made to. Nobody's
    /// stream cannot.
    pub(super) fn can_serve(&self, points: &Points, taker: StreamSlot) -> bool {
        self.are_ordered(points, taker) || taker != StreamSlot::NOBODY && self.can_wait_for(points)
    }

    fn has_passed(&self, point: Point) -> bool {
        self.known(point.stream).is_none_or(|state| state.has_passed(point.number))
    }

    /// Whether one point comes after another of another stream, because its stream was made to wait for that.
    fn comes_after(&self, later: Point, earlier: Point) -> bool {
        later.stream != earlier.stream
            && self.known(later.stream).is_some_and(|state| {
                let waited = state.waited.get(&earlier.stream);
                waited.is_some_and(|waited| {
                    waited.number >= earlier.number && waited.since <= later.number
                })
            })
    }

    fn has_waited(&self, taker: StreamSlot, point: Point) -> bool {
        taker != StreamSlot::NOBODY
            && self.known(taker).is_some_and(|state| state.has_waited_for(point))
    }

    /// Whether work of `taker` comes after all points by itself, as far as is known.
    pub(super) fn are_ordered(&self, points: &Points, taker: StreamSlot) -> bool {
        points.iter().all(|point| {
            point.stream == taker || self.has_passed(point) || self.has_waited(taker, point)
        })
    }

    /// Whether all points have passed, as far as is known.
    pub(super) fn have_passed(&self, points: &Points) -> bool {
        points.iter().all(|point| self.has_passed(point))
    }

    /// Records an event for everything freed on a stream so far.
    ///
    /// # Errors
    /// Also if the stream [is out of reach](is_out_of_reach): it is being captured, and an event would become part of the capture; or
    /// it is gone, and its work can only be waited for with everything else ([`begin_settling`](Self::begin_settling)).
    pub(super) fn record(&mut self, slot: StreamSlot, driver: &dyn Driver) -> DriverResult<()> {
        if self.order == Order::SameStream || !self.state(slot).has_unrecorded {
            return Ok(());
        }
        let epoch = self.epoch();
        let state = self.state(slot);
        let handle = state.handle;
        // The per-thread stream is another one in each thread, and this may not be the thread it was named in.
        let now = epoch.filter(|_| !state.is_of_thread());
        if now.is_none() || state.checked_in != now || state.is_gone {
            self.check_is_there(slot, driver)?;
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
        // Whoever begins a capture, or destroys the stream, so that another gets its handle, does it in another thread, and perhaps
        // at this moment.
        if now.is_none() || self.epoch() != now {
            let checked = self.check_is_there(slot, driver);
            if let Err(error) = checked.and_then(|()| self.check_capture(slot, driver)) {
                self.spare_events.push(event);
                return Err(error);
            }
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

    fn check_is_there(&mut self, slot: StreamSlot, driver: &dyn Driver) -> DriverResult<()> {
        let state = self.state(slot);
        state.is_gone = state.find_out_if_gone(driver)?;
        if !state.is_gone {
            self.gone.remove(&slot);
            return Ok(());
        }
        self.gone.insert(slot);
        Err(DriverError::with_detail(
            Call::RecordEvent,
            DriverErrorKind::InvalidHandle,
            "the stream is gone",
        ))
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

    // Settling: waiting for the whole device, where there is no event to wait for.

    /// The points so far of streams that are gone, or of all, to be passed once the device has been waited for. The caller then waits,
    /// without the lock, and says how that went.
    pub(super) fn begin_settling(&mut self, which: Settle) -> Settling {
        // Also those that another thread is waiting for: who asks must not go on before they have passed.
        let is_open = |slot: &StreamSlot| {
            let state = self.known(*slot);
            state.is_some_and(|state| state.has_unrecorded || state.settling > 0)
        };
        let slots: BTreeSet<StreamSlot> = match which {
            Settle::Gone => self.gone.iter().copied().filter(is_open).collect(),
            Settle::All => {
                let being_settled = self.gone.iter().filter(|slot| is_open(slot));
                self.unrecorded.union(&self.with_events).chain(being_settled).copied().collect()
            }
        };
        let mut begin = |slot: StreamSlot| {
            self.unrecorded.remove(&slot);
            let state = self.state(slot);
            state.has_unrecorded = false;
            state.settling += 1;
            let last = Point { stream: slot, number: state.number };
            state.number += 1;
            last
        };
        Settling(slots.into_iter().map(&mut begin).collect())
    }

    /// The host has waited for the device, or has tried to.
    pub(super) fn settle(&mut self, Settling(points): Settling, has_waited: bool) {
        for Point { stream, number } in points {
            let state = self.slots.get_mut(&stream).expect("kept while it settles");
            state.settling -= 1;
            if !has_waited {
                state.has_unrecorded = true;
                self.unrecorded.insert(stream);
                continue;
            }
            let recorded = state.recorded.partition_point(|(at, _)| *at <= number);
            self.spare_events.extend(state.recorded.drain(..recorded).map(|(_, event)| event));
            state.passed_below = state.passed_below.max(number + 1);
            if state.recorded.is_empty() {
                self.with_events.remove(&stream);
            }
        }
    }

    /// Forgets streams that are gone and whose points have all passed.
    pub(super) fn forget_gone(&mut self, driver: &dyn Driver) {
        let now = self.epoch();
        if now.is_none() || self.looked_in != now {
            self.looked_in = now;
            for (slot, state) in &mut self.slots {
                // Whatever cannot be found out now is found out later.
                if !state.is_of_thread() && state.find_out_if_gone(driver) == Ok(true) {
                    state.is_gone = true;
                    self.gone.insert(*slot);
                }
            }
        }
        for slot in self.gone.clone() {
            let Some(state) = self.slots.get(&slot) else { continue };
            if state.has_unrecorded || !state.recorded.is_empty() || state.settling > 0 {
                continue;
            }
            self.first_number = self.first_number.max(state.number + 1);
            if let Some(id) = state.id {
                self.by_id.remove(&id);
            }
            self.slots.remove(&slot);
            self.gone.remove(&slot);
        }
        self.look_at = FEW_STREAMS + 2 * self.slots.len();
    }

    /// Whether there are so many streams that it is worth looking which are gone.
    pub(super) fn are_many(&self) -> bool {
        self.slots.len() > self.look_at
    }

    /// Whether a stream has been forgotten.
    pub(super) fn is_forgotten(&self, slot: StreamSlot) -> bool {
        self.known(slot).is_none()
    }

    /// Whether a stream is a thread's own.
    pub(super) fn is_of_thread(&self, slot: StreamSlot) -> bool {
        self.known(slot).is_some_and(StreamState::is_of_thread)
    }

    /// A thread ends that has used a stream: if it is its own, nobody else can record on it.
    pub(super) fn thread_ends(&mut self, slot: StreamSlot, driver: &dyn Driver) {
        if !self.is_of_thread(slot) {
            return;
        }
        // What has no event now waits for the device.
        let _ = self.record(slot, driver);
        self.state(slot).is_gone = true;
        self.gone.insert(slot);
    }

    /// The event that stands for a point that has not passed.
    fn event_of(
        &mut self,
        point: Point,
        driver: &dyn Driver,
    ) -> DriverResult<Option<(u64, Event)>> {
        if !self.state(point.stream).has_event_after(point.number) {
            // Also if it is being settled: that may take long.
            self.point(point.stream);
            self.record(point.stream, driver)?;
        }
        let recorded = &self.state(point.stream).recorded;
        Ok(recorded.iter().find(|(number, _)| *number >= point.number).copied())
    }

    /// Makes a stream wait for all points that it is not ordered after; says for how many. What is for nobody's stream
    /// [can serve](Self::can_serve) it: there is nothing to wait for.
    pub(super) fn order(
        &mut self,
        points: &Points,
        taker: StreamSlot,
        handle: Stream,
        driver: &dyn Driver,
    ) -> DriverResult<usize> {
        if taker == StreamSlot::NOBODY {
            debug_assert!(self.have_passed(points));
            return Ok(0);
        }
        let epoch = self.epoch();
        let mut waited = Vec::new();
        for point in points.iter() {
            if point.stream != taker
                && !self.has_passed(point)
                && !self.has_waited(taker, point)
                && let Some((number, event)) = self.event_of(point, driver)?
            {
                driver.wait_event(handle, event)?;
                waited.push((point.stream, number));
            }
        }
        if !waited.is_empty() && self.is_itself(taker, epoch, driver) {
            self.note_waits(taker, &waited);
        }
        Ok(waited.len())
    }

    /// Whether what was queued on a stream since `epoch` is its own work: not a capture's, not that of another stream with its handle.
    fn is_itself(&mut self, slot: StreamSlot, epoch: Option<u64>, driver: &dyn Driver) -> bool {
        let state = self.state(slot);
        let then = epoch.filter(|_| !state.is_of_thread());
        if then.is_some() && state.checked_in == then && self.epoch() == then {
            return true;
        }
        let checked = self.check_is_there(slot, driver);
        let is_itself = checked.and_then(|()| self.check_capture(slot, driver)).is_ok();
        if is_itself && self.epoch() == then {
            self.state(slot).checked_in = then;
        }
        is_itself
    }

    fn note_waits(&mut self, taker: StreamSlot, waited: &[(StreamSlot, u64)]) {
        if self.state(taker).waited.len() > MOST_WAITED {
            let mut known = std::mem::take(&mut self.state(taker).waited);
            known.retain(|&stream, &mut Waited { number, .. }| {
                !self.has_passed(Point { stream, number })
            });
            self.state(taker).waited = known;
        }
        let state = self.state(taker);
        waited.iter().for_each(|(stream, number)| state.note_wait(*stream, *number));
    }

    /// One point that stands for all these, which a stream has just been made to wait for: of that stream. None, if it cannot be had.
    pub(super) fn point_after(
        &mut self,
        points: &Points,
        taker: StreamSlot,
        driver: &dyn Driver,
    ) -> Option<Points> {
        // Also shows that the wait was the stream's own, and not a capture's.
        if taker == StreamSlot::NOBODY || !self.are_ordered(points, taker) {
            return None;
        }
        let point = self.point(taker);
        self.record(taker, driver).ok()?;
        Some(Points { first: Some(point), more: Vec::new() })
    }

    /// An event to wait for, if these points have not passed.
    pub(super) fn event_before(
        &mut self,
        points: &Points,
        driver: &dyn Driver,
    ) -> DriverResult<Option<Event>> {
        for point in points.iter() {
            if !self.has_passed(point)
                && let Some((_, event)) = self.event_of(point, driver)?
            {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    /// A thread begins to wait for an event, without the lock: none is destroyed until it has ended.
    pub(super) fn begin_waiting(&mut self) {
        self.waiting += 1;
    }

    /// It has waited.
    pub(super) fn end_waiting(&mut self) {
        self.waiting -= 1;
    }

    fn passed_up_to(&mut self, slot: StreamSlot, event: Event) {
        let Some(state) = self.slots.get_mut(&slot) else { return };
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
        // A thread that waits for an event does so without the lock.
        while self.spare_events.len() > MOST_SPARE_EVENTS && self.waiting == 0 {
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
            // Nobody has to be asked once more about a stream that is gone, but about another thread's: it may be this one's.
            let state = self.state(slot);
            if !state.is_gone || state.is_of_thread() {
                all = all.and(self.record(slot, driver));
            }
        }
        all
    }

    /// Gives all events back. Nothing may be freed or taken any more.
    pub(super) fn close(&mut self, driver: &dyn Driver) {
        let recorded = self.slots.values_mut().flat_map(|state| state.recorded.drain(..));
        let events: Vec<Event> =
            recorded.map(|(_, event)| event).chain(self.spare_events.drain(..)).collect();
        for event in events {
            // A driver that is gone has taken its events along.
            let _ = driver.destroy_event(event);
        }
    }
}
