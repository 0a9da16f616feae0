//! One stream, as the pool knows it.

use std::collections::{HashMap, VecDeque};

use crate::driver::{Driver, DriverErrorKind, DriverResult, Event, Stream, StreamId};
use crate::pool::blocks::Numbers;
use crate::pool::points::{Point, StreamSlot};

/// A stream has been made to wait for another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waited {
    /// For its points up to this number.
    pub(super) number: u64,
    /// Its own points from this number on come after them.
    pub(super) since: u64,
}

#[derive(Debug)]
pub(super) struct StreamState {
    /// None of a stream that had been forgotten when something more of it turned up.
    pub(super) id: Option<StreamId>,
    pub(super) handle: Stream,
    /// The number that frees get now.
    pub(super) number: u64,
    pub(super) recorded: VecDeque<(u64, Event)>,
    /// Every point with a lower number has passed.
    pub(super) passed_below: u64,
    /// Whether anything was freed under the current number.
    pub(super) has_unrecorded: bool,
    /// The last wait for each stream.
    pub(super) waited: HashMap<StreamSlot, Waited, Numbers>,
    /// When the handle was last seen to mean this stream, and the stream not to be captured.
    pub(super) checked_in: Option<u64>,
    /// It was being captured when last asked: its points have no events until that is over.
    pub(super) is_captured: bool,
    /// Its handle means nothing any more, or another stream, or cannot be used in this thread: its points have no events until the
    /// host has waited for the whole device.
    pub(super) is_gone: bool,
    /// How many are waiting for the device on its account.
    pub(super) settling: u32,
}

impl StreamState {
    pub(super) fn new(id: Option<StreamId>, handle: Stream, first_number: u64) -> StreamState {
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

    pub(super) fn has_passed(&self, number: u64) -> bool {
        number < self.passed_below
    }

    /// Whether there is an event that comes after a point.
    pub(super) fn has_event_after(&self, number: u64) -> bool {
        self.recorded.back().is_some_and(|(last, _)| *last >= number)
    }

    /// Whether its work from now on comes after a point of another stream.
    pub(super) fn has_waited_for(&self, point: Point) -> bool {
        self.waited.get(&point.stream).is_some_and(|waited| waited.number >= point.number)
    }

    /// It has been made to wait for another stream's points up to a number.
    pub(super) fn note_wait(&mut self, stream: StreamSlot, number: u64) {
        // What was freed under this number before has no event yet: it will get one that comes after the wait.
        let since = self.number;
        let waited = self.waited.entry(stream).or_insert(Waited { number, since });
        if waited.number < number {
            *waited = Waited { number, since };
        }
    }

    pub(super) fn find_out_if_gone(&self, driver: &dyn Driver) -> DriverResult<bool> {
        if self.id.is_none() {
            return Ok(true);
        }
        match driver.stream_id(self.handle) {
            Err(error) if error.kind == DriverErrorKind::InvalidHandle => Ok(true),
            answer => Ok(Some(answer?) != self.id),
        }
    }

    /// Whether the per-thread stream of some thread: its handle is another stream's in every other thread.
    pub(super) fn is_of_thread(&self) -> bool {
        self.handle == Stream::PER_THREAD
    }
}
