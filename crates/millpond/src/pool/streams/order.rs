//! How a stream comes after points of others: events that stand for points, streams that wait for them, and waits for the whole device.
//!
//! ```text
//!   an event stands for all points of its stream up to its number
//!   s waited for event (t, n), recorded after t waited for (u, m)  ⇒  s also comes after (u, m)
//!   a point that is being settled passes when the host has waited for the device, or stays unrecorded if that failed
//! ```

use std::collections::BTreeSet;

use super::{
    FEW_SPARE_EVENTS, MOST_POLLED, MOST_RECORDED, MOST_SPARE_EVENTS, MOST_WAITED, OrderBy, Point,
    Points, StreamSlot, Streams, Waited,
};
use crate::driver::{
    Call, CaptureState, Driver, DriverError, DriverErrorKind, DriverResult, Event, EventTiming,
    RelaxedCalls, Stream,
};

/// Whether an error says that a stream's points cannot be waited for with an event. The stream is marked then, and memory that it freed
/// [cannot serve](Streams::can_serve) other streams.
pub(in crate::pool) fn is_unwaitable_stream(error: &DriverError) -> bool {
    match error.kind {
        DriverErrorKind::CaptureUnsupported => true,
        DriverErrorKind::InvalidHandle => error.call == Call::RecordEvent,
        _ => false,
    }
}

/// Whether a capture forbids events on a stream.
fn is_captured(stream: Stream, driver: &dyn Driver) -> DriverResult<bool> {
    match driver.capture_state(stream) {
        Ok(state) => Ok(state != CaptureState::None),
        // The legacy stream's answer while a stream is captured that orders itself with it.
        Err(error) if error.kind == DriverErrorKind::CaptureUnsupported => Ok(true),
        Err(error) => Err(error),
    }
}

/// For which points the host waits for the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::pool) enum Settle {
    /// Those of streams that are gone: no event can be recorded for them.
    Gone,
    All,
}

/// Points that pass when the host has waited for the device: the last of each stream.
#[derive(Debug)]
#[must_use = "points that are not settled stay as if they had passed into other hands"]
pub(in crate::pool) struct Settling(Vec<Point>);

impl Settling {
    pub(in crate::pool) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Streams {
    /// Records an event for everything freed on a stream so far.
    ///
    /// # Errors Also if the stream [cannot be waited for](is_unwaitable_stream): it is captured, and an event would become part of the
    /// capture; or it is gone, and only a wait for the whole device includes its work ([`begin_settling`](Self::begin_settling)).
    pub(in crate::pool) fn record(
        &mut self,
        slot: StreamSlot,
        driver: &dyn Driver,
    ) -> DriverResult<()> {
        if self.order == OrderBy::SameStream || !self.state(slot).has_unrecorded {
            return Ok(());
        }
        let epoch = self.epoch();
        let state = self.state(slot);
        let handle = state.handle;
        // The per-thread stream is another one in each thread, and this may not be the thread it was named in.
        let now = epoch.filter(|_| !state.is_of_thread());
        if now.is_none() || state.checked_in_epoch != now || state.is_gone {
            self.check_is_there(slot, driver)?;
            self.check_capture(slot, driver)?;
        }
        if self.state(slot).recorded.len() >= MOST_RECORDED {
            self.thin_out(slot);
        }
        let event = match self.spare_events.pop() {
            Some(event) => event,
            None => driver.create_event(EventTiming::Disabled)?,
        };
        if let Err(error) = driver.record_event(event, handle) {
            self.spare_events.push(event);
            return Err(error);
        }
        // Another thread may have begun a capture meanwhile, or destroyed the stream, so that another stream got its handle.
        if now.is_none() || self.epoch() != now {
            let checked = self.check_is_there(slot, driver);
            if let Err(error) = checked.and_then(|()| self.check_capture(slot, driver)) {
                self.spare_events.push(event);
                return Err(error);
            }
        }
        let state = self.state(slot);
        state.checked_in_epoch = now;
        state.recorded.push_back((state.number, event));
        state.number += 1;
        state.has_unrecorded = false;
        self.unrecorded.remove(slot);
        self.with_events.insert(slot);
        Ok(())
    }

    /// Gives every other event of a stream back: the one after it stands for its points as well. To ask the driver which have passed takes
    /// longer than to wait for one.
    fn thin_out(&mut self, slot: StreamSlot) {
        let Some(state) = self.slots.get_mut(&slot) else { return };
        let recorded = std::mem::take(&mut state.recorded);
        // The newest is at an odd place, and stays.
        debug_assert!(recorded.len().is_multiple_of(2));
        for (place, (number, event)) in recorded.into_iter().enumerate() {
            if place % 2 == 0 {
                self.spare_events.push(event);
            } else {
                state.recorded.push_back((number, event));
            }
        }
    }

    /// Records an event on every stream that has points without one, so that they can be waited for.
    ///
    /// # Errors
    /// The first. Every stream was tried: one that is captured does not keep the others.
    pub(in crate::pool) fn record_all(&mut self, driver: &dyn Driver) -> DriverResult<()> {
        let mut all = Ok(());
        for slot in self.unrecorded.iter().collect::<Vec<_>>() {
            // The driver need not be asked again about a stream that is gone. But a thread's own stream counts as gone in other threads,
            // and may be this thread's.
            let state = self.state(slot);
            if !state.is_gone || state.is_of_thread() {
                all = all.and(self.record(slot, driver));
            }
        }
        all
    }

    pub(super) fn epoch(&self) -> Option<u64> {
        self.epoch.as_ref().map(|epoch| epoch.now())
    }

    pub(super) fn check_is_there(
        &mut self,
        slot: StreamSlot,
        driver: &dyn Driver,
    ) -> DriverResult<()> {
        let state = self.state(slot);
        state.is_gone = state.ask_whether_gone(driver)?;
        if !state.is_gone {
            self.gone.remove(&slot);
            return Ok(());
        }
        Err(self.note_gone(slot))
    }

    /// Notes that a stream is gone. Returns the error that says so.
    fn note_gone(&mut self, slot: StreamSlot) -> DriverError {
        self.state(slot).is_gone = true;
        self.gone.insert(slot);
        DriverError::with_detail(
            Call::RecordEvent,
            DriverErrorKind::InvalidHandle,
            "the stream is gone",
        )
    }

    pub(super) fn check_capture(
        &mut self,
        slot: StreamSlot,
        driver: &dyn Driver,
    ) -> DriverResult<()> {
        let is_captured = match is_captured(self.state(slot).handle, driver) {
            // Another thread has destroyed the stream since the pool looked whether it is there.
            Err(error) if error.kind == DriverErrorKind::InvalidHandle => {
                return Err(self.note_gone(slot));
            }
            answer => answer?,
        };
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

    /// The event that stands for a point that has not passed.
    pub(super) fn event_of(
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
        let first = recorded.partition_point(|(number, _)| *number < point.number);
        Ok(recorded.get(first).copied())
    }

    fn passed_up_to(&mut self, slot: StreamSlot, event: Event) {
        self.passes += 1;
        let Some(state) = self.slots.get_mut(&slot) else { return };
        while let Some((number, passed)) = state.recorded.pop_front() {
            state.passed_below = number + 1;
            self.spare_events.push(passed);
            if passed == event {
                break;
            }
        }
        if state.recorded.is_empty() {
            self.with_events.remove(slot);
        }
    }

    /// Finds out which points of all streams have passed meanwhile, without waiting.
    pub(in crate::pool) fn poll_all(&mut self, driver: &dyn Driver) -> DriverResult<()> {
        self.poll_some(usize::MAX, driver)
    }

    /// Finds out which of these points have passed meanwhile, without waiting. Also of some other streams, in turn: of all, unless they are
    /// many, because a call must not take the longer the more streams there are.
    pub(in crate::pool) fn poll_for<'p>(
        &mut self,
        points: impl IntoIterator<Item = &'p Points>,
        driver: &dyn Driver,
    ) -> DriverResult<()> {
        self.poll_some(MOST_POLLED, driver)?;
        let left = points.into_iter().flat_map(Points::iter).map(|point| point.stream);
        let left: BTreeSet<StreamSlot> =
            left.filter(|stream| self.with_events.contains(*stream)).collect();
        if left.is_empty() {
            return Ok(());
        }
        let _relaxed = RelaxedCalls::enter(driver);
        left.into_iter().try_for_each(|stream| self.poll_stream(stream, driver))
    }

    fn poll_some(&mut self, most: usize, driver: &dyn Driver) -> DriverResult<()> {
        if self.with_events.is_empty() && self.spare_events.len() <= MOST_SPARE_EVENTS {
            return Ok(());
        }
        let _relaxed = RelaxedCalls::enter(driver);
        let in_turn = self.with_events.in_turn_from(self.polled_next);
        let polled: Vec<StreamSlot> = in_turn.take(most).collect();
        for slot in &polled {
            self.poll_stream(*slot, driver)?;
        }
        if let Some(last) = polled.last() {
            self.polled_next = StreamSlot(last.0.wrapping_add(1));
        }
        self.destroy_spare_events(MOST_SPARE_EVENTS, driver)
    }

    /// Asks the driver what has passed, and gives back all spare events but a few.
    ///
    /// # Errors
    /// The driver's. Some events stay.
    pub(in crate::pool) fn give_back_events(&mut self, driver: &dyn Driver) -> DriverResult<()> {
        self.poll_all(driver)?;
        let _relaxed = RelaxedCalls::enter(driver);
        self.destroy_spare_events(FEW_SPARE_EVENTS, driver)
    }

    fn destroy_spare_events(&mut self, kept: usize, driver: &dyn Driver) -> DriverResult<()> {
        // A thread that waits for an event does so without the lock.
        while self.spare_events.len() > kept && self.waiting == 0 {
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

    /// Makes a stream wait for all points that it is not ordered after; says for how many. A request for no stream gets only memory whose
    /// points have passed, and waits for none. The stream also comes after all that those points' streams have waited for. It remembers
    /// that, because many streams may have used a range.
    pub(in crate::pool) fn order(
        &mut self,
        points: &Points,
        waiter: StreamSlot,
        handle: Stream,
        driver: &dyn Driver,
    ) -> DriverResult<usize> {
        if waiter == StreamSlot::NONE {
            debug_assert!(self.have_passed(points));
            return Ok(0);
        }
        let epoch = self.epoch();
        let mut waited = std::mem::take(&mut self.new_waits);
        waited.clear();
        for point in points.iter() {
            if let Some(number) = self.wait_for(point, waiter, handle, driver)? {
                waited.push((point.stream, number));
            }
        }
        let waits = waited.len();
        if waits > 0 && self.is_own_work(waiter, epoch, driver) {
            for wait in 0..waits {
                let (stream, number) = waited[wait];
                // No stream remembers more than this.
                let most = MOST_WAITED.saturating_sub(waited.len());
                let counts = |&(stream, number): &(StreamSlot, u64)| {
                    stream != waiter && !self.has_passed(Point { stream, number })
                };
                waited.extend(self.waited_before(stream, number).filter(counts).take(most));
            }
            self.note_waits(waiter, &waited);
        }
        self.new_waits = waited;
        Ok(waits)
    }

    /// Makes a stream wait for all points of another, if it does not come after them; says whether it did. All points of a forgotten
    /// stream have passed.
    pub(in crate::pool) fn order_after(
        &mut self,
        stream: StreamSlot,
        waiter: StreamSlot,
        handle: Stream,
        driver: &dyn Driver,
    ) -> DriverResult<bool> {
        let epoch = self.epoch();
        if self.is_forgotten(stream) {
            return Ok(false);
        }
        let point = self.point(stream);
        let Some(number) = self.wait_for(point, waiter, handle, driver)? else { return Ok(false) };
        if self.is_own_work(waiter, epoch, driver) {
            self.note_waits(waiter, &[(stream, number)]);
        }
        Ok(true)
    }

    /// Makes a stream wait for a point, if it does not come after that; says for which number then.
    fn wait_for(
        &mut self,
        point: Point,
        waiter: StreamSlot,
        handle: Stream,
        driver: &dyn Driver,
    ) -> DriverResult<Option<u64>> {
        if point.stream == waiter || self.has_passed(point) || self.has_waited(waiter, point) {
            return Ok(None);
        }
        let Some((number, event)) = self.event_of(point, driver)? else { return Ok(None) };
        driver.wait_event(handle, event)?;
        Ok(Some(number))
    }

    /// Whether work queued on a stream since `epoch` was queued on this very stream: not in a capture, and not on another stream with the
    /// same handle.
    fn is_own_work(&mut self, slot: StreamSlot, epoch: Option<u64>, driver: &dyn Driver) -> bool {
        let state = self.state(slot);
        let then = epoch.filter(|_| !state.is_of_thread());
        if then.is_some() && state.checked_in_epoch == then && self.epoch() == then {
            return true;
        }
        let checked = self.check_is_there(slot, driver);
        let is_own_work = checked.and_then(|()| self.check_capture(slot, driver)).is_ok();
        if is_own_work && self.epoch() == then {
            self.state(slot).checked_in_epoch = then;
        }
        is_own_work
    }

    /// The waits of a stream that come before its event for a point: the stream that waits for that comes after them, too.
    fn waited_before(
        &self,
        stream: StreamSlot,
        number: u64,
    ) -> impl Iterator<Item = (StreamSlot, u64)> + '_ {
        let waits = self.known(stream).into_iter().flat_map(|state| state.waited.iter());
        let before = waits.filter(move |(_, waited)| waited.since <= number);
        before.map(|(stream, waited)| (*stream, waited.number))
    }

    fn note_waits(&mut self, waiter: StreamSlot, waited: &[(StreamSlot, u64)]) {
        if self.state(waiter).waited.len() > MOST_WAITED {
            let mut known = std::mem::take(&mut self.state(waiter).waited);
            known.retain(|&stream, &mut Waited { number, .. }| {
                !self.has_passed(Point { stream, number })
            });
            if known.len() > MOST_WAITED / 2 {
                // A stream that has forgotten a wait makes it once more.
                known.clear();
            }
            self.state(waiter).waited = known;
        }
        let state = self.state(waiter);
        waited.iter().for_each(|(stream, number)| state.note_wait(*stream, *number));
    }

    /// A point of a stream that stands for all these, after the stream was made to wait for them. None, if no event can be recorded.
    pub(in crate::pool) fn point_after(
        &mut self,
        points: &Points,
        waiter: StreamSlot,
        driver: &dyn Driver,
    ) -> Option<Points> {
        // Also shows that the wait was the stream's own, and not a capture's.
        if waiter == StreamSlot::NONE || !self.are_ordered(points, waiter) {
            return None;
        }
        let point = self.point(waiter);
        self.record(waiter, driver).ok()?;
        Some(Points::of(point))
    }

    /// An event to wait for, if these points have not passed.
    pub(in crate::pool) fn event_before(
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
    pub(in crate::pool) fn begin_waiting(&mut self) {
        self.waiting += 1;
    }

    /// The thread has waited.
    pub(in crate::pool) fn end_waiting(&mut self) {
        self.waiting -= 1;
    }

    /// Takes the points so far of streams that are gone, or of all. The caller waits for the device without the lock, and then calls
    /// [`settle`](Self::settle).
    pub(in crate::pool) fn begin_settling(&mut self, which: Settle) -> Settling {
        // Also those that another thread is waiting for: the caller must not go on before they have passed.
        let is_open = |slot: &StreamSlot| {
            let state = self.known(*slot);
            state.is_some_and(|state| state.has_unrecorded || state.settling > 0)
        };
        let slots: BTreeSet<StreamSlot> = match which {
            Settle::Gone => self.gone.iter().copied().filter(is_open).collect(),
            Settle::All => {
                let being_settled = self.gone.iter().filter(|slot| is_open(slot));
                let with_points = self.unrecorded.iter().chain(self.with_events.iter());
                with_points.chain(being_settled.copied()).collect()
            }
        };
        let mut begin = |slot: StreamSlot| {
            self.unrecorded.remove(slot);
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
    pub(in crate::pool) fn settle(&mut self, Settling(points): Settling, has_waited: bool) {
        self.passes += 1;
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
                self.with_events.remove(stream);
            }
        }
    }
}
