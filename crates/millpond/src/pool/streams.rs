//! Stream order: which memory a stream may use, and for what it must wait first.
//!
//! A free is a *point* of its stream: the memory may be used again after everything that the stream was given before. Points are numbered,
//! and nothing is recorded for them at first. An event is recorded when another stream is to use the memory, so that one event stands for
//! all points up to it. A stream comes after a point in one of three ways: the point is its own, the point has passed, or the stream was
//! made to wait for an event behind the point. If a stream cannot be waited for with an event, because it is captured or gone, its points
//! pass when the capture has ended or the host has waited for the whole device.
//!
//! The files in the order in which a request goes: this one has what is known of streams, and answers from it; `streams/points` are the
//! points of a range of memory; `streams/order` records events, makes streams wait, and asks the driver what has passed.
//!
//! ```text
//!   of one stream      passed_below ≤ numbers of its events, rising < number, which the next free gets
//!   point passed       ⇔ point.number < passed_below of its stream, or the stream is forgotten
//!   ordered(s, points) ⇔ ∀ point: it is of s ∨ it has passed ∨ waited[s][point.stream] ≥ point.number
//!   unrecorded         = streams whose current number a free has used;   with_events = streams that have events
//! ```

mod order;
mod points;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

pub(super) use self::order::{Settle, is_unwaitable_stream};
pub(super) use self::points::{Point, Points, StreamSlot};
use super::blocks::Numbers;
use crate::driver::{Driver, DriverErrorKind, DriverResult, Event, Stream, StreamEpoch, StreamId};

/// Spare events that are kept, at most; and after memory was given back.
const MOST_SPARE_EVENTS: usize = 256;
const FEW_SPARE_EVENTS: usize = 32;
/// Events of a stream after which every other one is given back.
const MOST_RECORDED: usize = 32;
/// Streams whose events are asked about in one call, besides those that the caller names.
const MOST_POLLED: usize = 64;
/// Points that are compared in pairs, at most.
const MOST_IN_PAIRS: usize = 16;
/// Waits that a stream remembers. Beyond them it forgets those for points that have passed.
const MOST_WAITED: usize = 256;
/// With no more streams than this, the pool does not look for streams that are gone.
const FEW_STREAMS: usize = 16;

/// The streams that a pool has seen.
#[derive(Debug, Default)]
pub(super) struct Streams {
    /// A stream that is not here is gone, and all its points have passed. A map, because streams come and go and the first may stay.
    slots: HashMap<StreamSlot, Box<StreamState>, Numbers>,
    /// Streams that were ever seen.
    seen: u32,
    /// With more streams than this, the pool looks which are gone.
    look_for_gone_above: usize,
    gone: BTreeSet<StreamSlot>,
    /// The epoch in which the pool last looked which streams are gone.
    looked_in_epoch: Option<u64>,
    /// More than any point of a stream that was forgotten.
    first_number: u64,
    /// Streams that have events, and streams that have points without one: few, however many streams there were.
    with_events: SlotSet,
    unrecorded: SlotSet,
    /// The next stream whose events are asked about.
    polled_next: StreamSlot,
    by_id: HashMap<StreamId, StreamSlot>,
    spare_events: Vec<Event>,
    /// The waits of the current call. Kept so that its memory is used again.
    new_waits: Vec<(StreamSlot, u64)>,
    /// How often points were found to have passed.
    passes: u64,
    /// Threads that wait for an event at the moment.
    waiting: usize,
    /// While this stays the same, handles mean the same streams and no capture has begun or ended.
    epoch: Option<Arc<StreamEpoch>>,
    order: OrderBy,
}

/// How a stream can come after another's points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum OrderBy {
    /// Events may be recorded and waited for.
    #[default]
    Events,
    /// It cannot: the memory belongs to a capture, on whose streams no event may be recorded, and whose work runs whenever the graph is
    /// launched. The memory serves only the stream that freed it.
    SameStream,
}

impl Streams {
    pub(super) fn new(epoch: Option<Arc<StreamEpoch>>, order: OrderBy) -> Streams {
        Streams { epoch, order, look_for_gone_above: FEW_STREAMS, ..Streams::default() }
    }

    pub(super) fn order_by(&self) -> OrderBy {
        self.order
    }

    /// The capture is over and its graph's work done: from now on these are streams like any others, and others can wait for memory that
    /// is freed on them.
    pub(super) fn end_capture(&mut self) {
        self.order = OrderBy::Events;
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

    /// As [`point`](Self::point), and whether other streams [can be made to wait](Self::can_wait_for) for it.
    #[inline(always)]
    pub(super) fn point_and_waitable(&mut self, slot: StreamSlot) -> (Point, bool) {
        match self.known(slot) {
            Some(state) if state.has_unrecorded && self.order == OrderBy::Events => {
                let is_waitable = !state.is_captured && !state.is_gone;
                (Point { stream: slot, number: state.number }, is_waitable)
            }
            _ => {
                let point = self.point(slot);
                (point, self.can_wait_for(&Points::of(point)))
            }
        }
    }

    /// A number that changes whenever points are found to have passed.
    pub(super) fn passes(&self) -> u64 {
        self.passes
    }

    /// Whether frees need events. A single stream orders itself.
    pub(super) fn are_several(&self) -> bool {
        self.seen > 1
    }

    /// Whether a stream can be made to wait for these points, as far as is known.
    pub(super) fn can_wait_for(&self, points: &Points) -> bool {
        let can = |Point { stream, number }| {
            self.known(stream).is_none_or(|state| {
                let is_waitable = !state.is_captured && !state.is_gone;
                is_waitable || state.has_passed(number) || state.has_event_after(number)
            })
        };
        self.order == OrderBy::Events && points.iter().all(can)
    }

    /// Whether other streams [can be made to wait](Self::can_wait_for) for every one, as far as is known. Looks at all streams.
    pub(super) fn are_all_waitable(&self) -> bool {
        self.order == OrderBy::Events
            && self.slots.values().all(|state| !state.is_captured && !state.is_gone)
    }

    /// Whether a stream may use memory with these points, as far as is known: it comes after them, or can be made to. A request for no
    /// stream cannot be made to.
    pub(super) fn can_serve(&self, points: &Points, waiter: StreamSlot) -> bool {
        self.are_ordered(points, waiter) || waiter != StreamSlot::NONE && self.can_wait_for(points)
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

    fn has_waited(&self, waiter: StreamSlot, point: Point) -> bool {
        waiter != StreamSlot::NONE
            && self.known(waiter).is_some_and(|state| state.has_waited_for(point))
    }

    /// Whether work of `waiter` comes after all points by itself, as far as is known.
    #[inline]
    pub(super) fn are_ordered(&self, points: &Points, waiter: StreamSlot) -> bool {
        points.are_all_of(waiter) || self.are_ordered_with_others(points, waiter)
    }

    #[inline(never)]
    fn are_ordered_with_others(&self, points: &Points, waiter: StreamSlot) -> bool {
        let state = self.known(waiter);
        points.iter().all(|point| {
            point.stream == waiter
                || state.is_some_and(|state| state.has_waited_for(point))
                || self.has_passed(point)
        })
    }

    /// Whether all points have passed, as far as is known.
    pub(super) fn have_passed(&self, points: &Points) -> bool {
        points.iter().all(|point| self.has_passed(point))
    }

    /// Points that all frees so far come before, or are.
    pub(super) fn points_so_far(&self) -> Points {
        let mut points = Points::default();
        for stream in self.with_events.iter().chain(self.unrecorded.iter()) {
            let Some(state) = self.known(stream) else { continue };
            let last = state.recorded.back().map(|(number, _)| *number);
            let unrecorded = state.has_unrecorded.then_some(state.number);
            let number = unrecorded.or(last);
            number.into_iter().for_each(|number| points.add(Point { stream, number }));
        }
        points
    }

    /// Forgets points that have passed, or that another comes after, where there are several: every stream that used the memory leaves a
    /// point, and the next stream would wait for them all.
    #[inline]
    pub(super) fn forget_needless(&self, points: &mut Points) {
        points.forget_where(|all| {
            all.retain(|point| !self.has_passed(*point));
            if all.len() > MOST_IN_PAIRS {
                return self.forget_of_many(all);
            }
            let mut place = 0;
            while let Some(&point) = all.get(place) {
                if all.iter().any(|later| self.comes_after(*later, point)) {
                    all.remove(place);
                } else {
                    place += 1;
                }
            }
        });
    }

    /// Forgets points that another comes after, by the waits of each stream: comparing all pairs would take too long.
    fn forget_of_many(&self, all: &mut Vec<Point>) {
        let mut needless = vec![false; all.len()];
        for later in &*all {
            let Some(state) = self.known(later.stream) else { continue };
            for stream in state.waited.keys() {
                let place = all.binary_search_by_key(stream, |point| point.stream);
                if let Ok(place) = place
                    && self.comes_after(*later, all[place])
                {
                    needless[place] = true;
                }
            }
        }
        let mut needless = needless.into_iter();
        all.retain(|_| !needless.next().expect("as many"));
    }

    /// Notes whether a stream is being captured.
    pub(super) fn set_captured(&mut self, slot: StreamSlot, is_captured: bool) {
        self.state(slot).is_captured = is_captured;
    }

    /// Finds out which streams are gone, if any may be since the last time. Looks at all.
    pub(super) fn find_gone_streams(&mut self, driver: &dyn Driver) {
        let now = self.epoch();
        if now.is_some() && self.looked_in_epoch == now {
            return;
        }
        self.looked_in_epoch = now;
        for (slot, state) in &mut self.slots {
            // If the driver cannot answer now, it is asked again later.
            if !state.is_of_thread() && state.ask_whether_gone(driver) == Ok(true) {
                state.is_gone = true;
                self.gone.insert(*slot);
            }
        }
    }

    /// Forgets streams that are gone and whose points have all passed.
    pub(super) fn forget_gone(&mut self, driver: &dyn Driver) {
        self.find_gone_streams(driver);
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
        self.look_for_gone_above = FEW_STREAMS + 2 * self.slots.len();
    }

    /// Whether there are so many streams that it is worth looking which are gone.
    pub(super) fn are_many(&self) -> bool {
        self.slots.len() > self.look_for_gone_above
    }

    /// Whether a stream has been forgotten.
    pub(super) fn is_forgotten(&self, slot: StreamSlot) -> bool {
        self.known(slot).is_none()
    }

    /// Whether a stream is gone, as far as is known.
    pub(super) fn is_gone(&self, slot: StreamSlot) -> bool {
        self.known(slot).is_none_or(|state| state.is_gone)
    }

    /// Whether a stream is a thread's own.
    pub(super) fn is_of_thread(&self, slot: StreamSlot) -> bool {
        self.known(slot).is_some_and(StreamState::is_of_thread)
    }

    /// A thread ends that has used a stream: if the stream is the thread's own, no other thread can record an event on it.
    pub(super) fn thread_ends(&mut self, slot: StreamSlot, driver: &dyn Driver) {
        if !self.is_of_thread(slot) {
            return;
        }
        // Points without an event pass when the host has waited for the device.
        let _ = self.record(slot, driver);
        self.state(slot).is_gone = true;
        self.gone.insert(slot);
    }

    /// Gives all events back. The caller frees and takes nothing after this.
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

/// A stream has been made to wait for another.
#[derive(Clone, Copy, Debug)]
struct Waited {
    /// For its points up to this number.
    number: u64,
    /// Its own points from this number on come after them.
    since: u64,
}

#[derive(Debug)]
struct StreamState {
    /// None: the stream was forgotten, and then another free came on it.
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
    /// The epoch in which the handle meant this stream and the stream was not captured.
    checked_in_epoch: Option<u64>,
    /// It was captured when the driver was last asked: its points have no events until the capture ends.
    is_captured: bool,
    /// Its handle is invalid, or means another stream, or cannot be used in this thread: its points have no events until the host has
    /// waited for the whole device.
    is_gone: bool,
    /// How many threads wait for the device because of it.
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
            checked_in_epoch: None,
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
        // Memory that was freed under this number before has no event yet: its event will come after the wait.
        let since = self.number;
        let waited = self.waited.entry(stream).or_insert(Waited { number, since });
        if waited.number < number {
            *waited = Waited { number, since };
        }
    }

    fn ask_whether_gone(&self, driver: &dyn Driver) -> DriverResult<bool> {
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

/// A set that is changed with nearly every event, and usually small: a sorted list needs no memory of its own for that.
#[derive(Debug, Default)]
struct SlotSet(Vec<StreamSlot>);

impl SlotSet {
    fn insert(&mut self, slot: StreamSlot) {
        if let Err(place) = self.0.binary_search(&slot) {
            self.0.insert(place, slot);
        }
    }

    fn remove(&mut self, slot: StreamSlot) {
        if let Ok(place) = self.0.binary_search(&slot) {
            self.0.remove(place);
        }
    }

    fn contains(&self, slot: StreamSlot) -> bool {
        self.0.binary_search(&slot).is_ok()
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn iter(&self) -> impl Iterator<Item = StreamSlot> + '_ {
        self.0.iter().copied()
    }

    /// Those from a stream on, and then those before it.
    fn in_turn_from(&self, next: StreamSlot) -> impl Iterator<Item = StreamSlot> + '_ {
        let place = self.0.partition_point(|slot| *slot < next);
        self.0[place..].iter().chain(&self.0[..place]).copied()
    }
}
