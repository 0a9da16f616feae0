//! Best fit with coalescing, in bins: the policy of TensorFlow's and XLA's BFC allocator.

mod chunks;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use self::chunks::{ChunkId, Chunks};
use super::frees::Frees;
use super::live_blocks::LiveBlocks;
use super::ordered::{Ordered, StreamSlot};
use super::recent::Recent;
use super::upstream::{Upstream, aligned};
use super::{ALIGNMENT, AllocError, Direct, FreeError, MakeError, Resource, Usage};
use crate::driver::{DevicePtr, Driver, Stream};

/// How a [`Bfc`] grows and splits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BfcConfig {
    /// The most it takes from upstream. Default: the device's memory.
    pub maximum_bytes: Option<usize>,
    /// Its first region; each further one is twice as large. Default: 2 MiB, TensorFlow's `allow_growth`.
    /// [`maximum_bytes`](Self::maximum_bytes) takes everything at once, which is TensorFlow without it.
    pub first_region_bytes: usize,
    /// What may at most be left unused at the end of a chunk that is less than twice as large as it need be. Default: 128 MiB.
    pub most_waste_bytes: usize,
    /// Whether regions in which nothing is live are given back when memory is out, to get a larger one. Default: yes.
    pub releases_regions: bool,
}

impl Default for BfcConfig {
    fn default() -> Self {
        BfcConfig {
            maximum_bytes: None,
            first_region_bytes: 2 << 20,
            most_waste_bytes: 128 << 20,
            releases_regions: true,
        }
    }
}

/// The policy of TensorFlow's `BFCAllocator` (as of 2026; XLA's is the same).
///
/// Memory comes in regions, each twice as large as the one before; if that is refused, a tenth less and again, down to what is
/// needed. Free chunks lie in 21 bins from 256 bytes to 256 MiB, each sorted by size and address; the first that holds a request
/// serves it. A chunk is split if it is at least twice as large as needed, or if more than 128 MiB would be wasted. A freed chunk
/// merges with its free neighbours in its region. When memory is out, regions in which nothing is live can be given back.
///
/// Other than the original, which serves one stream: a chunk remembers the frees it came from, and whoever takes it on another stream
/// waits for them. The handle of a chunk is found by its address in a hash table of live blocks, where the original keeps 8 bytes
/// for every 256 of the device. And the original tries a smaller region once in its life only.
///
/// Promises: coalesces, returns upstream, reuses across streams. Not OOM-complete: regions cannot be joined.
#[derive(Debug)]
pub struct Bfc {
    upstream: Upstream,
    config: BfcConfig,
    maximum_bytes: usize,
    state: Mutex<State>,
}

/// A block, as it was taken.
#[derive(Clone, Copy, Debug)]
struct Taken {
    chunk: ChunkId,
    ptr: DevicePtr,
    bytes: usize,
    slot: StreamSlot,
}

/// `Σ regions = Σ chunks = region_bytes ≤ maximum_bytes`.
#[derive(Debug)]
struct State {
    chunks: Chunks,
    live: LiveBlocks<ChunkId>,
    ordered: Ordered,
    /// Each with its size.
    regions: BTreeMap<DevicePtr, usize>,
    region_bytes: usize,
    /// What the next region will have.
    next_region_bytes: usize,
    recent: Recent<Taken>,
}

impl Bfc {
    /// Takes plain memory of `driver` as it needs it.
    ///
    /// # Errors
    /// None with these settings; they are there for others.
    pub fn new(driver: Arc<dyn Driver>) -> Result<Bfc, MakeError> {
        Bfc::with_config(Arc::new(Direct::new(driver)), BfcConfig::default())
    }

    /// Takes its memory from `upstream`.
    ///
    /// # Errors
    /// If the settings make no sense.
    pub fn with_config(upstream: Arc<dyn Resource>, config: BfcConfig) -> Result<Bfc, MakeError> {
        let upstream = Upstream::new(upstream);
        let maximum = config.maximum_bytes.unwrap_or(upstream.driver.device().capacity_bytes);
        let maximum_bytes = maximum / ALIGNMENT * ALIGNMENT;
        if maximum_bytes == 0 {
            return Err(MakeError::setting("maximum_bytes", "must be 256 at least"));
        }
        if config.first_region_bytes == 0 {
            return Err(MakeError::setting("first_region_bytes", "must be more than 0"));
        }
        let first = aligned(config.first_region_bytes.min(maximum_bytes))?;
        let state = State {
            chunks: Chunks::default(),
            live: LiveBlocks::default(),
            ordered: Ordered::new(&upstream.driver),
            regions: BTreeMap::new(),
            region_bytes: 0,
            next_region_bytes: first,
            recent: Recent::default(),
        };
        Ok(Bfc { upstream, config, maximum_bytes, state: Mutex::new(state) })
    }

    #[cold]
    fn find_after_growth(
        &self,
        state: &mut State,
        bytes: usize,
        slot: StreamSlot,
        handle: Stream,
    ) -> Result<ChunkId, AllocError> {
        if let Some(chunk) = self.extend(state, bytes, slot, handle)? {
            return Ok(chunk);
        }
        let unused = state.unused_bytes();
        let may_help = unused > 0 && bytes <= self.maximum_bytes - state.region_bytes + unused;
        if self.config.releases_regions && may_help {
            self.release_unused(state, slot, handle)?;
            if let Some(chunk) = self.extend(state, bytes, slot, handle)? {
                return Ok(chunk);
            }
        }
        let (live, largest) = (state.live.usage(), state.chunks.largest_free());
        Err(self.upstream.out_of_memory(bytes, live, largest, state.unused_bytes()))
    }

    /// A new region that holds `bytes`, as one free chunk. `None` if memory is out.
    fn extend(
        &self,
        state: &mut State,
        bytes: usize,
        slot: StreamSlot,
        handle: Stream,
    ) -> Result<Option<ChunkId>, AllocError> {
        let available = self.maximum_bytes - state.region_bytes;
        if bytes > available {
            return Ok(None);
        }
        let (region, next) = growth(bytes, state.next_region_bytes);
        let mut attempt = Some(region.min(available));
        while let Some(region_bytes) = attempt {
            match self.upstream.take(region_bytes, handle) {
                Ok(ptr) => {
                    let point = state.ordered.point(slot, handle, &self.upstream.driver);
                    let chunk = state.chunks.add_region(ptr.0, region_bytes, point.into());
                    state.regions.insert(ptr, region_bytes);
                    state.region_bytes += region_bytes;
                    state.next_region_bytes = next;
                    return Ok(Some(chunk));
                }
                Err(error) if !error.is_out_of_memory() => return Err(error),
                Err(_) => attempt = smaller_growth(bytes, region_bytes),
            }
        }
        Ok(None)
    }

    /// Gives back regions in which nothing is live, after the work of the streams that freed into them.
    fn release_unused(
        &self,
        state: &mut State,
        slot: StreamSlot,
        handle: Stream,
    ) -> Result<(), AllocError> {
        for (ptr, bytes, chunk) in state.unused_regions() {
            let frees = state.chunks.frees(chunk);
            frees.order(&mut state.ordered, slot, handle, &self.upstream.driver)?;
            if self.upstream.give(ptr, bytes, handle).is_ok() {
                state.forget_region(ptr, chunk);
            }
        }
        Ok(())
    }
}

/// What the next region has, and the one after it: doubled until it holds the request, or once if it does already.
fn growth(bytes: usize, next_region_bytes: usize) -> (usize, usize) {
    let mut region = next_region_bytes;
    while region < bytes {
        region = region.saturating_mul(2);
    }
    (region, if region == next_region_bytes { region.saturating_mul(2) } else { region })
}

/// What is tried after a region was refused: a tenth less.
fn smaller_growth(bytes: usize, refused: usize) -> Option<usize> {
    let smaller = (refused / 10 * 9).next_multiple_of(ALIGNMENT);
    (smaller >= bytes && smaller < refused).then_some(smaller)
}

impl State {
    #[inline]
    fn end_recent(&mut self) {
        if let Some(taken) = self.recent.end() {
            // The stream has freed nothing since, so its newest free is this one.
            let point = self.ordered.newest(taken.slot);
            self.chunks.free(taken.chunk, Frees::from(point));
        }
    }

    /// Regions in which nothing is live, with their size and only chunk.
    fn unused_regions(&self) -> Vec<(DevicePtr, usize, ChunkId)> {
        let whole = |(&ptr, &bytes): (&DevicePtr, &usize)| {
            Some((ptr, bytes, self.chunks.whole_region(ptr.0, bytes)?))
        };
        self.regions.iter().filter_map(whole).collect()
    }

    fn unused_bytes(&self) -> usize {
        self.unused_regions().iter().map(|(_, bytes, _)| bytes).sum()
    }

    fn forget_region(&mut self, ptr: DevicePtr, chunk: ChunkId) {
        self.region_bytes -= self.regions.remove(&ptr).expect("is a region");
        self.chunks.remove_region(chunk);
    }
}

impl Resource for Bfc {
    fn allocate(&self, bytes: usize, stream: Stream) -> Result<DevicePtr, AllocError> {
        if bytes == 0 {
            return Ok(DevicePtr::NULL);
        }
        let rounded = aligned(bytes)?;
        let driver = &self.upstream.driver;
        let state = &mut *self.state.lock();
        let slot = state.ordered.slot(stream, driver)?;
        if let Some(taken) =
            state.recent.again(|taken| (taken.bytes, taken.slot) == (rounded, slot))
        {
            state.live.insert(taken.ptr, bytes, taken.chunk);
            return Ok(taken.ptr);
        }
        state.end_recent();
        let chunk = match state.chunks.find(rounded) {
            Some(chunk) => chunk,
            None => self.find_after_growth(state, rounded, slot, stream)?,
        };
        state.chunks.frees(chunk).order(&mut state.ordered, slot, stream, driver)?;
        let (chunk, start) = state.chunks.take(chunk, rounded, self.config.most_waste_bytes);
        let ptr = DevicePtr(start);
        state.live.insert(ptr, bytes, chunk);
        state.recent = Recent::Allocated(Taken { chunk, ptr, bytes: rounded, slot });
        Ok(ptr)
    }

    fn deallocate(&self, ptr: DevicePtr, bytes: usize, stream: Stream) -> Result<(), FreeError> {
        if ptr.is_null() {
            return Ok(());
        }
        let state = &mut *self.state.lock();
        let slot = state.ordered.slot(stream, &self.upstream.driver)?;
        let chunk = state.live.take(ptr, bytes)?;
        let is_newest = state.recent.keeps(|taken| (taken.chunk, taken.slot) == (chunk, slot));
        if !is_newest {
            state.end_recent();
        }
        let point = state.ordered.point(slot, stream, &self.upstream.driver);
        if !is_newest {
            state.chunks.free(chunk, Frees::from(point));
        }
        Ok(())
    }

    fn usage(&self) -> Usage {
        let state = &mut *self.state.lock();
        state.end_recent();
        self.upstream.usage(state.live.usage(), state.chunks.largest_free())
    }

    /// Waits for the streams that have freed something, then gives back regions in which nothing is live.
    fn trim(&self) -> usize {
        let state = &mut *self.state.lock();
        state.end_recent();
        let before = self.upstream.reserved_bytes();
        if state.ordered.wait_for_all(&self.upstream.driver).is_ok() {
            for (ptr, bytes, chunk) in state.unused_regions() {
                if self.upstream.give(ptr, bytes, Stream::LEGACY).is_ok() {
                    state.forget_region(ptr, chunk);
                }
            }
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

impl Drop for Bfc {
    /// Everything goes back upstream: nobody can free what is still held.
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let regions = state.regions.iter().map(|(ptr, bytes)| (*ptr, *bytes));
        self.upstream.close(regions, state.live.usage(), &mut state.ordered);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn regions_double_until_they_hold_the_request() {
        assert_eq!(growth(256, 2 * MIB), (2 * MIB, 4 * MIB));
        assert_eq!(growth(2 * MIB, 2 * MIB), (2 * MIB, 4 * MIB));
        // Doubled for this request already, so not once more for the next one.
        assert_eq!(growth(9 * MIB, 2 * MIB), (16 * MIB, 16 * MIB));
    }

    #[test]
    fn a_refused_region_is_tried_a_tenth_smaller_down_to_the_request() {
        assert_eq!(smaller_growth(MIB, 10 * MIB), Some(9 * MIB));
        assert_eq!(smaller_growth(9 * MIB + 256, 10 * MIB), None);
        assert_eq!(smaller_growth(256, 256), None);
    }
}
