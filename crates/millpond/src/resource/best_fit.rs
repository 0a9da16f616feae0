//! Best fit with coalescing over large upstream blocks: the policy of RMM's pool.

mod free_lists;
mod size_index;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use self::free_lists::{FreeLists, RangeId};
use super::live_blocks::LiveBlocks;
use super::ordered::{Ordered, StreamSlot};
use super::recent::Recent;
use super::upstream::{Upstream, aligned};
use super::{ALIGNMENT, AllocError, Direct, FreeError, MakeError, Resource, Usage};
use crate::driver::{DevicePtr, Driver, Stream};

/// How a [`BestFit`] grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BestFitConfig {
    /// Taken from upstream when it is made; a multiple of 256. Default: 0.
    pub initial_bytes: usize,
    /// The most it takes from upstream; a multiple of 256. Default: no limit.
    pub maximum_bytes: Option<usize>,
}

/// The policy of RMM's `pool_memory_resource` and `stream_ordered_memory_resource` (as of 2026).
///
/// Freed ranges belong to the stream that freed them, one list for each. A block is the best fit of its stream's list; else of the
/// first other stream's that has one, whose event is waited for; else the other lists are merged into this one, one by one, each
/// with a wait; else upstream is asked for more: with a maximum, half of what is left up to it, otherwise as much again as there is,
/// and half of that and half again when it is refused, down to what is needed. Neighbours merge within a list and an upstream block.
///
/// Other than the original: the best fit is found in a tree and neighbours by links, where RMM walks lists, so that an allocation costs the
/// logarithm of the number of free ranges; `trim` gives whole upstream blocks back, which RMM never does; and a list that was
/// merged into another one is waited for by whoever takes from that, which RMM forgets.
///
/// Promises: coalesces, returns upstream, reuses across streams. Not OOM-complete: upstream blocks cannot be joined.
#[derive(Debug)]
pub struct BestFit {
    upstream: Upstream,
    maximum_bytes: Option<usize>,
    state: Mutex<State>,
}

/// A block of a stream's own list, or of a new upstream block.
#[derive(Clone, Copy, Debug)]
struct Own {
    range: RangeId,
    ptr: DevicePtr,
    bytes: usize,
    slot: StreamSlot,
}

/// `Σ upstream_blocks = Σ ranges in lists`; `upstream_bytes = Σ upstream_blocks`.
#[derive(Debug)]
struct State {
    lists: FreeLists,
    live: LiveBlocks<RangeId>,
    ordered: Ordered,
    /// Each with its size and first range.
    upstream_blocks: BTreeMap<DevicePtr, (usize, RangeId)>,
    upstream_bytes: usize,
    recent: Recent<Own>,
}

impl BestFit {
    /// Takes plain memory of `driver` as it needs it.
    ///
    /// # Errors
    /// None with these settings; they are there for others.
    pub fn new(driver: Arc<dyn Driver>) -> Result<BestFit, MakeError> {
        BestFit::with_config(Arc::new(Direct::new(driver)), BestFitConfig::default())
    }

    /// Takes its memory from `upstream`.
    ///
    /// # Errors
    /// If the settings contradict each other, or the initial size cannot be had.
    pub fn with_config(
        upstream: Arc<dyn Resource>,
        config: BestFitConfig,
    ) -> Result<BestFit, MakeError> {
        let BestFitConfig { initial_bytes, maximum_bytes } = config;
        let sizes =
            [("initial_bytes", initial_bytes), ("maximum_bytes", maximum_bytes.unwrap_or(0))];
        for (setting, bytes) in sizes {
            if !bytes.is_multiple_of(ALIGNMENT) {
                let remedy = format!("must be a multiple of {ALIGNMENT}");
                return Err(MakeError::setting(setting, remedy));
            }
        }
        if let Some(maximum) = maximum_bytes.filter(|maximum| initial_bytes > *maximum) {
            let remedy = format!("must be at most maximum_bytes, which is {maximum}");
            return Err(MakeError::setting("initial_bytes", remedy));
        }
        let upstream = Upstream::new(upstream);
        let mut state = State {
            lists: FreeLists::default(),
            live: LiveBlocks::default(),
            ordered: Ordered::new(&upstream.driver),
            upstream_blocks: BTreeMap::new(),
            upstream_bytes: 0,
            recent: Recent::default(),
        };
        // As in the original, what it begins with belongs to the default stream.
        if initial_bytes > 0 {
            let slot = state.ordered.slot(Stream::LEGACY, &upstream.driver)?;
            state.grow_by(initial_bytes, slot, Stream::LEGACY, &upstream)?;
        }
        Ok(BestFit { upstream, maximum_bytes, state: Mutex::new(state) })
    }

    /// A range that fits, not from the stream's own list. It is the taker's: what must be waited for is.
    #[cold]
    fn find_elsewhere(
        &self,
        state: &mut State,
        bytes: usize,
        taker: StreamSlot,
        handle: Stream,
    ) -> Result<Option<RangeId>, AllocError> {
        let driver = &self.upstream.driver;
        let mut from = StreamSlot::FIRST;
        while let Some(other) = state.lists.other_from(from, taker) {
            if let Some(range) = state.lists.best_fit(other, bytes) {
                let newest = state.ordered.newest(other);
                state.ordered.order(newest, taker, handle, driver)?;
                return Ok(Some(range));
            }
            from = other.next();
        }
        while let Some(other) = state.lists.other_from(StreamSlot::FIRST, taker) {
            let newest = state.ordered.newest(other);
            state.ordered.order(newest, taker, handle, driver)?;
            state.lists.merge(other, taker);
            // Whoever takes from this list has to come after that wait, too.
            state.ordered.point(taker, handle, driver);
            if let Some(range) = state.lists.best_fit(taker, bytes) {
                return Ok(Some(range));
            }
        }
        Ok(None)
    }

    #[cold]
    fn grow(
        &self,
        state: &mut State,
        bytes: usize,
        slot: StreamSlot,
        handle: Stream,
    ) -> Result<RangeId, AllocError> {
        let mut attempt = growth(bytes, state.upstream_bytes, self.maximum_bytes);
        while let Some(size) = attempt {
            match state.grow_by(size, slot, handle, &self.upstream) {
                Ok(range) => return Ok(range),
                Err(error) if !error.is_out_of_memory() => return Err(error),
                Err(_) => attempt = smaller_growth(bytes, size),
            }
        }
        let (live, largest) = (state.live.usage(), state.lists.largest_free());
        Err(self.upstream.out_of_memory(bytes, live, largest, state.unused_bytes()))
    }
}

/// How much RMM asks upstream for when `bytes` are needed: with a maximum, half of what is left up to it; otherwise as much again as
/// there is.
fn growth(bytes: usize, current_bytes: usize, maximum_bytes: Option<usize>) -> Option<usize> {
    match maximum_bytes {
        None => Some(bytes.max(current_bytes)),
        Some(maximum) => {
            let left = maximum - current_bytes;
            let half = (left / 2).next_multiple_of(ALIGNMENT);
            (bytes <= left).then(|| bytes.max(half))
        }
    }
}

/// How much it asks for after `refused` could not be had: half, and no less than is needed.
fn smaller_growth(bytes: usize, refused: usize) -> Option<usize> {
    (refused > bytes).then(|| (refused / 2).next_multiple_of(ALIGNMENT).max(bytes))
}

impl State {
    fn grow_by(
        &mut self,
        bytes: usize,
        slot: StreamSlot,
        handle: Stream,
        upstream: &Upstream,
    ) -> Result<RangeId, AllocError> {
        let ptr = upstream.take(bytes, handle)?;
        let range = self.lists.add(ptr.0, bytes, slot);
        self.upstream_blocks.insert(ptr, (bytes, range));
        self.upstream_bytes += bytes;
        // What upstream has given belongs to this point of the stream, as far as others are concerned.
        self.ordered.point(slot, handle, &upstream.driver);
        Ok(range)
    }

    /// Bytes of upstream blocks in which nothing is live.
    fn unused_bytes(&self) -> usize {
        let blocks = self.upstream_blocks.values();
        blocks.filter(|(_, first)| self.lists.is_unused(*first)).map(|(bytes, _)| bytes).sum()
    }

    #[inline]
    fn end_recent(&mut self) {
        if let Some(own) = self.recent.end() {
            self.lists.give(own.range, own.slot);
        }
    }

    /// Gives back upstream blocks in which nothing is live. All frees must have run.
    fn give_back(&mut self, upstream: &Upstream) {
        let blocks: Vec<_> =
            self.upstream_blocks.iter().map(|(&ptr, &block)| (ptr, block)).collect();
        for (ptr, (bytes, first)) in blocks {
            if self.lists.is_unused(first) && upstream.give(ptr, bytes, Stream::LEGACY).is_ok() {
                self.lists.remove_all(first);
                self.upstream_blocks.remove(&ptr);
                self.upstream_bytes -= bytes;
            }
        }
    }
}

impl Resource for BestFit {
    fn allocate(&self, bytes: usize, stream: Stream) -> Result<DevicePtr, AllocError> {
        if bytes == 0 {
            return Ok(DevicePtr::NULL);
        }
        let rounded = aligned(bytes)?;
        let state = &mut *self.state.lock();
        let slot = state.ordered.slot(stream, &self.upstream.driver)?;
        if let Some(own) = state.recent.again(|own| (own.bytes, own.slot) == (rounded, slot)) {
            state.live.insert(own.ptr, bytes, own.range);
            return Ok(own.ptr);
        }
        state.end_recent();
        let (range, is_own) = match state.lists.best_fit(slot, rounded) {
            Some(range) => (range, true),
            None => match self.find_elsewhere(state, rounded, slot, stream)? {
                // Freed, it would be this stream's, and so not where it was.
                Some(range) => (range, false),
                None => (self.grow(state, rounded, slot, stream)?, true),
            },
        };
        let ptr = DevicePtr(state.lists.take(range, rounded));
        state.live.insert(ptr, bytes, range);
        if is_own {
            state.recent = Recent::Allocated(Own { range, ptr, bytes: rounded, slot });
        }
        Ok(ptr)
    }

    fn deallocate(&self, ptr: DevicePtr, bytes: usize, stream: Stream) -> Result<(), FreeError> {
        if ptr.is_null() {
            return Ok(());
        }
        let state = &mut *self.state.lock();
        let slot = state.ordered.slot(stream, &self.upstream.driver)?;
        let range = state.live.take(ptr, bytes)?;
        state.ordered.point(slot, stream, &self.upstream.driver);
        if !state.recent.keeps(|own| (own.range, own.slot) == (range, slot)) {
            state.end_recent();
            state.lists.give(range, slot);
        }
        Ok(())
    }

    fn usage(&self) -> Usage {
        let state = &mut *self.state.lock();
        state.end_recent();
        self.upstream.usage(state.live.usage(), state.lists.largest_free())
    }

    /// Waits for the streams that have freed something.
    fn trim(&self) -> usize {
        let state = &mut *self.state.lock();
        state.end_recent();
        let before = self.upstream.reserved_bytes();
        if state.ordered.wait_for_all(&self.upstream.driver).is_ok() {
            state.give_back(&self.upstream);
        }
        state.ordered.poll(&self.upstream.driver);
        self.upstream.trim();
        before.saturating_sub(self.upstream.reserved_bytes())
    }

    fn reserved_bytes(&self) -> usize {
        self.upstream.reserved_bytes()
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.upstream.driver()
    }
}

impl Drop for BestFit {
    /// Everything goes back upstream: nobody can free what is still held.
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let blocks = state.upstream_blocks.iter().map(|(ptr, (bytes, _))| (*ptr, *bytes));
        self.upstream.close(blocks, state.live.usage(), &mut state.ordered);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn without_a_maximum_it_doubles_and_halves_when_refused() {
        assert_eq!(growth(512, 0, None), Some(512));
        assert_eq!(growth(512, 4 * MIB, None), Some(4 * MIB));
        assert_eq!(growth(9 * MIB, 4 * MIB, None), Some(9 * MIB));
        assert_eq!(smaller_growth(MIB, 8 * MIB), Some(4 * MIB));
        assert_eq!(smaller_growth(3 * MIB, 4 * MIB), Some(3 * MIB));
        assert_eq!(smaller_growth(3 * MIB, 3 * MIB), None);
    }

    #[test]
    fn with_a_maximum_it_goes_half_the_way_there() {
        assert_eq!(growth(512, 0, Some(16 * MIB)), Some(8 * MIB));
        assert_eq!(growth(512, 8 * MIB, Some(16 * MIB)), Some(4 * MIB));
        assert_eq!(growth(7 * MIB, 8 * MIB, Some(16 * MIB)), Some(7 * MIB));
        assert_eq!(growth(9 * MIB, 8 * MIB, Some(16 * MIB)), None);
    }
}
