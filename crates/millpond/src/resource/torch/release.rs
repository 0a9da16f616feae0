//! What comes back: blocks whose events have passed, and memory for the driver.

use super::allocator::{Allocator, Request};
use super::block::{Block, BlockState};
use super::segment::Segment;
use super::sizes::PoolKind;
use crate::driver::{DevicePtr, Driver, DriverResult, Event, StreamId};

impl Allocator {
    /// Frees blocks that other streams have done with.
    pub(super) fn process_events(&mut self) -> DriverResult<()> {
        if self.events.is_empty() {
            return Ok(());
        }
        for stream in self.events.streams() {
            while let Some(ptr) = self.events.next_passed(stream, &self.driver)? {
                self.use_ended(ptr);
            }
        }
        Ok(())
    }

    /// Waits for other streams, and frees what they used.
    fn synchronize_events(&mut self) {
        for stream in self.events.streams() {
            // What cannot be waited for stays where it is.
            while let Ok(Some(ptr)) = self.events.next_awaited(stream, &self.driver) {
                self.use_ended(ptr);
            }
        }
    }

    fn use_ended(&mut self, ptr: DevicePtr) {
        match &mut self.books.block_mut(ptr).state {
            BlockState::Pending { events: 1 } => self.books.free(ptr),
            BlockState::Pending { events } => *events -= 1,
            state => unreachable!("a {state:?} block waits for nothing"),
        }
    }

    /// An event for each other stream that uses a block. All or none.
    pub(super) fn record_uses(&mut self, ptr: DevicePtr) -> DriverResult<Vec<(StreamId, Event)>> {
        let uses = std::mem::take(&mut self.books.block_mut(ptr).uses);
        let mut recorded = Vec::with_capacity(uses.len());
        let mut outcome = Ok(());
        for stream in &uses {
            let event = match self.stream(stream.handle) {
                Ok(now) if now.id == stream.id => {
                    self.events.record(stream.handle, &self.driver).map(Some)
                }
                // The stream is gone, or another thread's own: no event can be recorded there.
                _ => self.driver.synchronize_device().map(|()| None),
            };
            match event {
                Ok(event) => recorded.extend(event.map(|event| (stream.id, event))),
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        self.books.block_mut(ptr).uses = uses;
        if let Err(error) = outcome {
            for (_, event) in recorded {
                self.events.give_back(event, &self.driver);
            }
            return Err(error);
        }
        Ok(recorded)
    }

    /// Gives segments back that were not used for long, if more is reserved than the threshold says: those of more than average age,
    /// again and again until it is enough.
    pub(super) fn collect_garbage(&mut self) {
        let (Some(allowed), Some(threshold)) =
            (self.allowed_bytes, self.config.garbage_collection_threshold)
        else {
            return;
        };
        let limit = (threshold * allowed as f64) as usize;
        let Some(mut excess) = self.usage.reserved_bytes.checked_sub(limit).filter(|&b| b > 0)
        else {
            return;
        };
        let now = self.books.pool(PoolKind::Large).searches;
        let mut unused: Vec<(DevicePtr, usize, u64)> = self
            .unsplit(PoolKind::Large)
            .into_iter()
            .map(|(ptr, bytes)| match self.books.block(ptr).state {
                BlockState::Free { since } => (ptr, bytes, now - since),
                state => unreachable!("{state:?} among the free"),
            })
            .collect();
        while excess > 0 && !unused.is_empty() {
            let total: u64 = unused.iter().map(|(_, _, age)| age).sum();
            let average = total as f64 / unused.len() as f64;
            let before = unused.len();
            unused.retain(|&(ptr, bytes, age)| {
                let goes = age as f64 >= average && self.release_segment(ptr, bytes);
                if goes {
                    excess = excess.saturating_sub(bytes);
                }
                !goes
            });
            if unused.len() == before {
                break;
            }
        }
    }

    /// Where blocks above a size are not split, gives back as many of those as the request needs, the largest first; one that is
    /// large enough alone, if there is one.
    pub(super) fn release_available(&mut self, request: &Request) -> bool {
        let Some(max_split) = self.config.max_split_bytes else { return false };
        let needed = request.bytes.max(max_split);
        let Some(free) = self.books.pool(request.pool).mapped.get(&request.stream.id) else {
            return false;
        };
        let enough = free.range((needed, DevicePtr::NULL)..).next();
        let largest_first = free.range((max_split, DevicePtr::NULL)..).rev();
        let candidates: Vec<_> = match enough {
            Some(one) => vec![*one],
            None => largest_first.copied().collect(),
        };
        let mut released = 0;
        for (bytes, ptr) in candidates {
            if released >= needed {
                break;
            }
            if self.is_whole(ptr, bytes) && self.release_segment(ptr, bytes) {
                released += bytes;
            }
        }
        released >= needed
    }

    /// Gives everything back that nobody has: first waits for other streams' use of freed blocks.
    pub(super) fn release_cached(&mut self) {
        self.end_recent();
        self.synchronize_events();
        for pool in [PoolKind::Large, PoolKind::Small] {
            if !self.config.expandable_segments {
                for (ptr, bytes) in self.unsplit(pool) {
                    self.release_segment(ptr, bytes);
                }
                continue;
            }
            let free = self.books.pool(pool).mapped.values().flatten();
            for ptr in free.map(|(_, ptr)| *ptr).collect::<Vec<_>>() {
                self.unmap(ptr);
            }
            self.release_unmapped(pool);
        }
    }

    /// Free blocks that are all of a plain segment.
    fn unsplit(&self, pool: PoolKind) -> Vec<(DevicePtr, usize)> {
        let free = self.books.pool(pool).mapped.values().flatten();
        free.map(|&(bytes, ptr)| (ptr, bytes))
            .filter(|&(ptr, bytes)| self.is_whole(ptr, bytes))
            .collect()
    }

    fn is_whole(&self, ptr: DevicePtr, block_bytes: usize) -> bool {
        matches!(self.segments.get(&ptr), Some(&Segment::Plain { bytes }) if bytes == block_bytes)
    }

    /// Gives a segment back that is one free block. Says whether the driver took it.
    fn release_segment(&mut self, ptr: DevicePtr, bytes: usize) -> bool {
        if self.driver.free(ptr).is_err() {
            return false;
        }
        self.books.forget(ptr);
        self.segments.remove(&ptr);
        self.usage.returned(bytes);
        true
    }

    /// Gives back the whole pages inside of a free block; their addresses become an unmapped block.
    fn unmap(&mut self, ptr: DevicePtr) {
        let Block { segment, bytes, .. } = *self.books.block(ptr);
        let Some(Segment::Expandable(segment)) = self.segments.get_mut(&segment) else { return };
        let gone = segment.unmap(ptr, bytes, &self.driver, &mut self.usage);
        if gone.is_empty() {
            return;
        }
        self.books.unlist(ptr);
        let free = BlockState::Free { since: 0 };
        let end = ptr.offset(bytes);
        if gone.end < end {
            self.books.cut(ptr, (gone.end.0 - ptr.0) as usize, free);
            self.books.list(gone.end);
        }
        if gone.start > ptr {
            self.books.cut(ptr, (gone.start.0 - ptr.0) as usize, free);
            self.books.list(ptr);
        }
        self.books.block_mut(gone.start).state = BlockState::Unmapped;
        let whole = self.books.merge(gone.start);
        self.books.list(whole);
    }

    /// Gives back memory that failed calls have left under unmapped addresses, and segments that have none.
    fn release_unmapped(&mut self, pool: PoolKind) {
        let unmapped = self.books.pool(pool).unmapped.values().flatten();
        for ptr in unmapped.copied().collect::<Vec<_>>() {
            let Block { segment: begin, bytes, .. } = *self.books.block(ptr);
            let Some(Segment::Expandable(segment)) = self.segments.get_mut(&begin) else {
                unreachable!("only expandable segments have unmapped blocks")
            };
            segment.sweep(ptr..ptr.offset(bytes), &self.driver, &mut self.usage);
            let is_unused = bytes == segment.bytes && segment.memory_bytes() == 0;
            if is_unused && segment.destroy(&self.driver, &mut self.usage).is_ok() {
                self.books.forget(ptr);
                self.segments.remove(&begin);
            }
        }
    }

    /// Gives everything back, held or not: nobody can free it any more. Drivers that fail here have lost the memory; there is nobody
    /// left to tell.
    pub(super) fn abandon(&mut self) {
        self.events.destroy(&self.driver);
        if self.config.expandable_segments && !self.segments.is_empty() {
            let _ = self.driver.synchronize_device();
        }
        for (ptr, segment) in std::mem::take(&mut self.segments) {
            let _ = match segment {
                Segment::Plain { .. } => self.driver.free(ptr),
                Segment::Expandable(mut segment) => segment.destroy(&self.driver, &mut self.usage),
            };
        }
    }
}
