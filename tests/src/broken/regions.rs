//! A first-fit allocator over plain driver blocks, with a point for every free.

use std::collections::BTreeMap;
use std::sync::Arc;

use millpond::driver::{
    Counted, DevicePtr, Driver, DriverResult, Event, EventTiming, Stream, StreamId,
};
use millpond::resource::{ALIGNMENT, OutOfMemory};
use millpond::{AllocError, FreeError, Resource, Usage};
use parking_lot::Mutex;

use super::block_to_free;

const CHUNK_BYTES: usize = 16 << 20;

/// What is wrong with a [`Regions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionBug {
    /// Nothing.
    None,
    /// Gives one stream's freed memory to another without ordering the two.
    ReusesWithoutOrder,
    /// Never merges free neighbours.
    ForgetsToMerge,
    /// Loses the memory it had picked when a driver call fails.
    LeaksOnFailedCall,
    /// Rounds sizes down, so that blocks overlap.
    Overlaps,
    /// Never destroys the events it creates.
    LeaksEvents,
}

/// An event that is destroyed when no range needs it any more.
struct OwnedEvent {
    driver: Counted,
    event: Event,
    leaks: bool,
}

impl Drop for OwnedEvent {
    fn drop(&mut self) {
        // A device that refuses is being failed on purpose: once more is enough.
        if !self.leaks && self.driver.destroy_event(self.event).is_err() {
            let _ = self.driver.destroy_event(self.event);
        }
    }
}

/// First fit in address order over chunks of plain memory.
pub struct Regions {
    driver: Counted,
    bug: RegionBug,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    chunks: BTreeMap<DevicePtr, usize>,
    free: BTreeMap<DevicePtr, FreeRange>,
    live: BTreeMap<DevicePtr, usize>,
    usage: Usage,
}

#[derive(Default)]
struct FreeRange {
    bytes: usize,
    points: Vec<(StreamId, Arc<OwnedEvent>)>,
}

impl Regions {
    /// With or without a bug.
    pub fn new(driver: Arc<dyn Driver>, bug: RegionBug) -> Regions {
        Regions { driver: Counted::new(driver), bug, state: Mutex::default() }
    }

    fn rounded(&self, bytes: usize) -> Option<usize> {
        match self.bug {
            RegionBug::Overlaps => Some((bytes / ALIGNMENT * ALIGNMENT).max(ALIGNMENT)),
            _ => bytes.checked_next_multiple_of(ALIGNMENT),
        }
    }

    fn grow(&self, state: &mut State, bytes: usize) -> DriverResult<()> {
        let chunk_bytes = bytes.next_multiple_of(2 << 20).max(CHUNK_BYTES);
        let chunk = self.driver.alloc(chunk_bytes)?;
        state.usage.reserved(chunk_bytes);
        state.chunks.insert(chunk, chunk_bytes);
        state.free.insert(chunk, FreeRange { bytes: chunk_bytes, points: Vec::new() });
        Ok(())
    }

    /// Makes the stream wait for every free that the range came from.
    fn order(&self, range: &FreeRange, stream: Stream) -> DriverResult<()> {
        if self.bug == RegionBug::ReusesWithoutOrder {
            return Ok(());
        }
        let id = self.driver.stream_id(stream)?;
        for (_, event) in range.points.iter().filter(|(freed_on, _)| *freed_on != id) {
            self.driver.wait_event(stream, event.event)?;
        }
        Ok(())
    }

    fn record(&self, stream: Stream) -> DriverResult<(StreamId, Arc<OwnedEvent>)> {
        let id = self.driver.stream_id(stream)?;
        let event = OwnedEvent {
            event: self.driver.create_event(EventTiming::Disabled)?,
            driver: self.driver.clone(),
            leaks: self.bug == RegionBug::LeaksEvents,
        };
        self.driver.record_event(event.event, stream)?;
        Ok((id, Arc::new(event)))
    }
}

impl State {
    fn first_fit(&self, bytes: usize) -> Option<DevicePtr> {
        self.free.iter().find(|(_, range)| range.bytes >= bytes).map(|(start, _)| *start)
    }

    fn chunk_of(&self, ptr: DevicePtr) -> DevicePtr {
        *self.chunks.range(..=ptr).next_back().expect("every range is in a chunk").0
    }

    fn give(&mut self, mut start: DevicePtr, mut range: FreeRange, merge: bool) {
        let before =
            self.free.range(..start).next_back().map(|(start, range)| (*start, range.bytes));
        if let Some((other, bytes)) = before
            && merge
            && other.offset(bytes) == start
            && self.chunk_of(other) == self.chunk_of(start)
        {
            let other_range = self.free.remove(&other).expect("just found");
            range.bytes += other_range.bytes;
            range.points.extend(other_range.points);
            start = other;
        }
        let end = start.offset(range.bytes);
        if merge && self.free.contains_key(&end) && self.chunk_of(end) == self.chunk_of(start) {
            let other_range = self.free.remove(&end).expect("just found");
            range.bytes += other_range.bytes;
            range.points.extend(other_range.points);
        }
        self.free.insert(start, range);
    }
}

impl Resource for Regions {
    fn allocate(&self, bytes: usize, stream: Stream) -> Result<DevicePtr, AllocError> {
        if bytes == 0 {
            return Ok(DevicePtr::NULL);
        }
        let rounded = self.rounded(bytes).filter(|rounded| *rounded < isize::MAX as usize);
        let rounded = rounded.ok_or(AllocError::TooLarge { bytes })?;
        let state = &mut *self.state.lock();
        if state.first_fit(rounded).is_none()
            && let Err(error) = self.grow(state, rounded)
        {
            return Err(if error.is_out_of_memory() {
                AllocError::OutOfMemory(Box::new(OutOfMemory {
                    requested_bytes: bytes,
                    live_bytes: state.usage.live_bytes,
                    reserved_bytes: state.usage.reserved_bytes,
                    ..OutOfMemory::default()
                }))
            } else {
                error.into()
            });
        }
        let start = state.first_fit(rounded).expect("just grown");
        let range = state.free.remove(&start).expect("just found");
        if let Err(error) = self.order(&range, stream) {
            if self.bug != RegionBug::LeaksOnFailedCall {
                state.free.insert(start, range);
            }
            return Err(error.into());
        }
        if range.bytes > rounded {
            let rest = FreeRange { bytes: range.bytes - rounded, points: range.points };
            state.free.insert(start.offset(rounded), rest);
        }
        state.live.insert(start, bytes);
        state.usage.block_allocated(bytes);
        Ok(start)
    }

    fn deallocate(&self, ptr: DevicePtr, bytes: usize, stream: Stream) -> Result<(), FreeError> {
        if ptr.is_null() {
            return Ok(());
        }
        let state = &mut *self.state.lock();
        block_to_free(&state.live, (ptr, bytes), |bytes| *bytes)?;
        let point = self.record(stream)?;
        state.live.remove(&ptr);
        state.usage.block_freed(bytes);
        let bytes = self.rounded(bytes).expect("was rounded when allocated");
        let merge = self.bug != RegionBug::ForgetsToMerge;
        state.give(ptr, FreeRange { bytes, points: vec![point] }, merge);
        Ok(())
    }

    fn usage(&self) -> Usage {
        let state = self.state.lock();
        let largest = state.free.values().map(|range| range.bytes).max().unwrap_or(0);
        Usage { largest_free_bytes: largest, driver_calls: self.driver.calls(), ..state.usage }
    }

    fn trim(&self) -> usize {
        let state = &mut *self.state.lock();
        let chunks: Vec<_> = state.chunks.iter().map(|(start, bytes)| (*start, *bytes)).collect();
        let mut given_back = 0;
        for (start, bytes) in chunks {
            let unused = state.free.get(&start).is_some_and(|range| range.bytes == bytes);
            // The driver's free waits for all work, so no point needs to be waited for.
            if unused && self.driver.free(start).is_ok() {
                state.chunks.remove(&start);
                state.free.remove(&start);
                state.usage.returned(bytes);
                given_back += bytes;
            }
        }
        given_back
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.driver.driver()
    }
}

impl Drop for Regions {
    fn drop(&mut self) {
        for &chunk in self.state.get_mut().chunks.keys() {
            let _ = self.driver.free(chunk);
        }
    }
}
