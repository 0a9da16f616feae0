//! Blocks of one size: RMM's fixed-size resource.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

use super::filled_lists::FilledLists;
use super::live_blocks::LiveBlocks;
use super::ordered::{Ordered, StreamSlot};
use super::upstream::Upstream;
use super::{ALIGNMENT, AllocError, Direct, FreeError, MakeError, Resource, Usage};
use crate::driver::{DevicePtr, Driver, Stream};

/// What a [`FixedSize`] hands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedSizeConfig {
    /// The size of every block; a multiple of 256. Default: 1 MiB.
    pub block_bytes: usize,
    /// How many blocks are taken from upstream at a time. Default: 128.
    pub blocks_per_chunk: usize,
}

impl Default for FixedSizeConfig {
    fn default() -> Self {
        FixedSizeConfig { block_bytes: 1 << 20, blocks_per_chunk: 128 }
    }
}

/// The policy of RMM's `fixed_size_memory_resource` (as of 2026).
///
/// Every block has the same size; a request for more is refused. Blocks are taken from upstream many at a time. Freed ones belong to the
/// stream that freed them, first in, first out; a stream that has none takes another's, and waits for its event.
///
/// Other than the original, which takes its first chunk when it is made: this one takes it with the first request, and `trim` gives
/// chunks back in which nothing is live.
///
/// Promises: returns upstream, reuses across streams. There is nothing to coalesce; not OOM-complete.
#[derive(Debug)]
pub struct FixedSize {
    upstream: Upstream,
    config: FixedSizeConfig,
    state: Mutex<State>,
}

/// `Σ chunks = (Σ free + live) · block_bytes`.
#[derive(Debug)]
struct State {
    /// By stream.
    free: Vec<VecDeque<DevicePtr>>,
    filled: FilledLists,
    live: LiveBlocks<()>,
    ordered: Ordered,
    chunks: BTreeMap<DevicePtr, usize>,
}

impl FixedSize {
    /// Takes plain memory of `driver` as it needs it.
    ///
    /// # Errors
    /// None with these settings; they are there for others.
    pub fn new(driver: Arc<dyn Driver>) -> Result<FixedSize, MakeError> {
        FixedSize::with_config(Arc::new(Direct::new(driver)), FixedSizeConfig::default())
    }

    /// Takes its memory from `upstream`.
    ///
    /// # Errors
    /// If the settings make no sense.
    pub fn with_config(
        upstream: Arc<dyn Resource>,
        config: FixedSizeConfig,
    ) -> Result<FixedSize, MakeError> {
        let FixedSizeConfig { block_bytes, blocks_per_chunk } = config;
        if block_bytes == 0 || !block_bytes.is_multiple_of(ALIGNMENT) {
            let remedy = format!("must be a multiple of {ALIGNMENT}");
            return Err(MakeError::setting("block_bytes", remedy));
        }
        if blocks_per_chunk == 0 || block_bytes.checked_mul(blocks_per_chunk).is_none() {
            let remedy = "must be at least 1, and a chunk less than memory";
            return Err(MakeError::setting("blocks_per_chunk", remedy));
        }
        let upstream = Upstream::new(upstream);
        let state = State {
            free: Vec::new(),
            filled: FilledLists::default(),
            live: LiveBlocks::default(),
            ordered: Ordered::new(&upstream.driver),
            chunks: BTreeMap::new(),
        };
        Ok(FixedSize { upstream, config, state: Mutex::new(state) })
    }

    /// The size of every block.
    pub fn block_bytes(&self) -> usize {
        self.config.block_bytes
    }

    /// Calls made to the driver here, and not upstream.
    pub(super) fn own_driver_calls(&self) -> u64 {
        self.upstream.driver.calls()
    }

    /// Makes sure that a stream has a block.
    #[cold]
    fn refill(
        &self,
        state: &mut State,
        bytes: usize,
        taker: StreamSlot,
        handle: Stream,
    ) -> Result<(), AllocError> {
        let driver = &self.upstream.driver;
        let State { free, filled, .. } = state;
        let is_empty = |slot: StreamSlot| free[slot.index()].is_empty();
        if let Some(other) = filled.first_from(StreamSlot::FIRST, is_empty) {
            let newest = state.ordered.newest(other);
            state.ordered.order(newest, taker, handle, driver)?;
            let block = state.free[other.index()].pop_front().expect("is not empty");
            state.give(taker, [block]);
            return Ok(());
        }
        let FixedSizeConfig { block_bytes, blocks_per_chunk } = self.config;
        let chunk = self.upstream.take(block_bytes * blocks_per_chunk, handle);
        let chunk = chunk.map_err(|error| match error.is_out_of_memory() {
            true => self.upstream.out_of_memory(bytes, state.live.usage(), 0, 0),
            false => error,
        })?;
        state.chunks.insert(chunk, block_bytes * blocks_per_chunk);
        let blocks = (0..blocks_per_chunk).map(|number| chunk.offset(number * block_bytes));
        state.give(taker, blocks);
        // What upstream has given belongs to this point of the stream, as far as others are concerned.
        state.ordered.point(taker, handle, driver);
        Ok(())
    }
}

impl State {
    /// The free blocks of a stream.
    fn of(&mut self, slot: StreamSlot) -> &mut VecDeque<DevicePtr> {
        if self.free.len() <= slot.index() {
            self.free.resize_with(slot.index() + 1, VecDeque::new);
        }
        &mut self.free[slot.index()]
    }

    /// Blocks become free in a stream's list.
    fn give(&mut self, slot: StreamSlot, blocks: impl IntoIterator<Item = DevicePtr>) {
        self.of(slot).extend(blocks);
        self.filled.add(slot);
    }

    /// Chunks in which nothing is live, with their sizes.
    fn unused_chunks(&self, block_bytes: usize) -> Vec<(DevicePtr, usize)> {
        let mut free_bytes: BTreeMap<DevicePtr, usize> = BTreeMap::new();
        for block in self.free.iter().flatten() {
            let (chunk, _) = self.chunks.range(..=block).next_back().expect("is in a chunk");
            *free_bytes.entry(*chunk).or_default() += block_bytes;
        }
        let chunks = self.chunks.iter().map(|(chunk, bytes)| (*chunk, *bytes));
        chunks.filter(|(chunk, bytes)| free_bytes.get(chunk) == Some(bytes)).collect()
    }
}

impl Resource for FixedSize {
    fn allocate(&self, bytes: usize, stream: Stream) -> Result<DevicePtr, AllocError> {
        if bytes == 0 {
            return Ok(DevicePtr::NULL);
        }
        let FixedSizeConfig { block_bytes, .. } = self.config;
        if bytes > block_bytes {
            return Err(AllocError::LargerThanBlocks { bytes, block_bytes });
        }
        let state = &mut *self.state.lock();
        let slot = state.ordered.slot(stream, &self.upstream.driver)?;
        if state.of(slot).is_empty() {
            self.refill(state, bytes, slot, stream)?;
        }
        let ptr = state.of(slot).pop_front().expect("just refilled");
        state.live.insert(ptr, bytes, ());
        Ok(ptr)
    }

    fn deallocate(&self, ptr: DevicePtr, bytes: usize, stream: Stream) -> Result<(), FreeError> {
        if ptr.is_null() {
            return Ok(());
        }
        let state = &mut *self.state.lock();
        let slot = state.ordered.slot(stream, &self.upstream.driver)?;
        state.live.take(ptr, bytes)?;
        state.ordered.point(slot, stream, &self.upstream.driver);
        state.give(slot, [ptr]);
        Ok(())
    }

    fn usage(&self) -> Usage {
        let state = self.state.lock();
        let has_free = state.free.iter().any(|blocks| !blocks.is_empty());
        let largest = if has_free { self.config.block_bytes } else { 0 };
        self.upstream.usage(state.live.usage(), largest)
    }

    /// Waits for the streams that have freed something, then gives back chunks in which nothing is live.
    fn trim(&self) -> usize {
        let state = &mut *self.state.lock();
        let before = self.upstream.reserved_bytes();
        if state.ordered.wait_for_all(&self.upstream.driver).is_ok() {
            let unused = state.unused_chunks(self.config.block_bytes).into_iter();
            let given = unused.filter(|(chunk, bytes)| {
                let is_given = self.upstream.give(*chunk, *bytes, Stream::LEGACY).is_ok();
                if is_given {
                    state.chunks.remove(chunk);
                }
                is_given
            });
            let given: BTreeMap<DevicePtr, usize> = given.collect();
            let is_left = |block: &DevicePtr| {
                let before = given.range(..=*block).next_back();
                before.is_none_or(|(chunk, bytes)| *block >= chunk.offset(*bytes))
            };
            state.free.iter_mut().for_each(|blocks| blocks.retain(is_left));
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

impl Drop for FixedSize {
    /// Everything goes back upstream: nobody can free what is still held.
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let chunks = state.chunks.iter().map(|(chunk, bytes)| (*chunk, *bytes));
        self.upstream.close(chunks, state.live.usage(), &mut state.ordered);
    }
}
