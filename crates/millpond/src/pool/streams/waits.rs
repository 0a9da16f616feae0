//! Streams that wait for points of others, and what they then come after.

use super::state::Waited;
use super::{MOST_WAITED, Streams};
use crate::driver::{Driver, DriverResult, Event, Stream};
use crate::pool::points::{Point, Points, StreamSlot};

impl Streams {
    /// Makes a stream wait for all points that it is not ordered after; says for how many. What is for nobody's stream
    /// [can serve](Self::can_serve) it: there is nothing to wait for. What those points' streams have waited for it comes after, too: that
    /// is remembered, because a range has been used by many.
    pub(in crate::pool) fn order(
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
        let mut waited = std::mem::take(&mut self.new_waits);
        waited.clear();
        for point in points.iter() {
            if let Some(number) = self.wait_for(point, taker, handle, driver)? {
                waited.push((point.stream, number));
            }
        }
        let waits = waited.len();
        if waits > 0 && self.is_itself(taker, epoch, driver) {
            for wait in 0..waits {
                let (stream, number) = waited[wait];
                // More than so many are not remembered.
                let most = MOST_WAITED.saturating_sub(waited.len());
                let counts = |&(stream, number): &(StreamSlot, u64)| {
                    stream != taker && !self.has_passed(Point { stream, number })
                };
                waited.extend(self.waited_before(stream, number).filter(counts).take(most));
            }
            self.note_waits(taker, &waited);
        }
        self.new_waits = waited;
        Ok(waits)
    }

    /// Makes a stream wait for all that another has freed, if it does not come after that; says whether it has to. Of a stream that is
    /// forgotten everything has passed.
    pub(in crate::pool) fn order_after(
        &mut self,
        stream: StreamSlot,
        taker: StreamSlot,
        handle: Stream,
        driver: &dyn Driver,
    ) -> DriverResult<bool> {
        let epoch = self.epoch();
        if self.is_forgotten(stream) {
            return Ok(false);
        }
        let point = self.point(stream);
        let Some(number) = self.wait_for(point, taker, handle, driver)? else { return Ok(false) };
        if self.is_itself(taker, epoch, driver) {
            self.note_waits(taker, &[(stream, number)]);
        }
        Ok(true)
    }

    /// Makes a stream wait for a point, if it does not come after that; says for which number then.
    fn wait_for(
        &mut self,
        point: Point,
        taker: StreamSlot,
        handle: Stream,
        driver: &dyn Driver,
    ) -> DriverResult<Option<u64>> {
        if point.stream == taker || self.has_passed(point) || self.has_waited(taker, point) {
            return Ok(None);
        }
        let Some((number, event)) = self.event_of(point, driver)? else { return Ok(None) };
        driver.wait_event(handle, event)?;
        Ok(Some(number))
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

    fn note_waits(&mut self, taker: StreamSlot, waited: &[(StreamSlot, u64)]) {
        if self.state(taker).waited.len() > MOST_WAITED {
            let mut known = std::mem::take(&mut self.state(taker).waited);
            known.retain(|&stream, &mut Waited { number, .. }| {
                !self.has_passed(Point { stream, number })
            });
            if known.len() > MOST_WAITED / 2 {
                // A wait that is not known of is made once more.
                known.clear();
            }
            self.state(taker).waited = known;
        }
        let state = self.state(taker);
        waited.iter().for_each(|(stream, number)| state.note_wait(*stream, *number));
    }

    /// One point that stands for all these, which a stream has just been made to wait for: of that stream. None, if it cannot be had.
    pub(in crate::pool) fn point_after(
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

    /// It has waited.
    pub(in crate::pool) fn end_waiting(&mut self) {
        self.waiting -= 1;
    }
}
