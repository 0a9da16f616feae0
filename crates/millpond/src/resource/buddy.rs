//! Blocks of powers of two that split into halves and merge with their other half: the buddy system.

mod orders;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use self::orders::{Order, Orders, Region};
use super::frees::Frees;
use super::live_blocks::LiveBlocks;
use super::ordered::{Ordered, StreamSlot};
use super::recent::Recent;
use super::upstream::{Upstream, aligned};
use super::{AllocError, Direct, FreeError, MakeError, Resource, Usage};
use crate::driver::{DevicePtr, Driver, Stream};

/// How a [`Buddy`] grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuddyConfig {
    /// What it takes from upstream at a time: any size, not only powers of two. A block that needs more gets a region of its size.
    /// Default: 64 MiB.
    pub region_bytes: usize,
    /// The most it takes from upstream. Default: no limit.
    pub maximum_bytes: Option<usize>,
}

impl Default for BuddyConfig {
    fn default() -> Self {
        BuddyConfig { region_bytes: 64 << 20, maximum_bytes: None }
    }
}

/// The buddy system (Knowlton 1965, Knuth 1.2.5; Linux's page allocator): a block has 256 · 2ⁿ bytes, is a half of the block of twice
/// its size, and becomes that again when both halves are free.
///
/// A region may have any size: it begins as the largest blocks that fit side by side, and a half whose other half would lie beyond
/// its end has none. Of several free blocks of an order the lowest is taken. Where upstream refuses a region, half of it is tried, down
/// to the block. Whoever takes a block on another stream than it was freed on waits for that.
///
/// Splitting and merging cost a few steps each, and little is ever too scattered to be of use; up to half of a block is wasted.
///
/// Promises: coalesces, returns upstream, reuses across streams. Not OOM-complete: blocks are larger than asked for, and regions cannot
/// be joined.
#[derive(Debug)]
pub struct Buddy {
    upstream: Upstream,
    config: BuddyConfig,
    state: Mutex<State>,
}

/// A block, as it was taken.
#[derive(Clone, Copy, Debug)]
struct Taken {
    start: u64,
    order: Order,
    region: Region,
    slot: StreamSlot,
}

/// `Σ regions = region_bytes`, each tiled by free and live blocks.
#[derive(Debug)]
struct State {
    orders: Orders,
    live: LiveBlocks<(Order, Region)>,
    ordered: Ordered,
    regions: BTreeMap<DevicePtr, Region>,
    region_bytes: usize,
    recent: Recent<Taken>,
}

impl Buddy {
    /// Takes plain memory of `driver` as it needs it.
    ///
    /// # Errors
    /// None with these settings; they are there for others.
    pub fn new(driver: Arc<dyn Driver>) -> Result<Buddy, MakeError> {
        Buddy::with_config(Arc::new(Direct::new(driver)), BuddyConfig::default())
    }

    /// Takes its memory from `upstream`.
    ///
    /// # Errors
    /// If the settings make no sense.
    pub fn with_config(
        upstream: Arc<dyn Resource>,
        config: BuddyConfig,
    ) -> Result<Buddy, MakeError> {
        let possible = Order::LEAST_BYTES..=usize::MAX / 2;
        if !possible.contains(&config.region_bytes) {
            let remedy = "must be 256 at least, and what a device can have at the most";
            return Err(MakeError::setting("region_bytes", remedy));
        }
        let upstream = Upstream::new(upstream);
        let state = State {
            orders: Orders::default(),
            live: LiveBlocks::default(),
            ordered: Ordered::new(&upstream.driver),
            regions: BTreeMap::new(),
            region_bytes: 0,
            recent: Recent::default(),
        };
        Ok(Buddy { upstream, config, state: Mutex::new(state) })
    }

    #[cold]
    fn grow(
        &self,
        state: &mut State,
        asked_bytes: usize,
        order: Order,
        slot: StreamSlot,
        handle: Stream,
    ) -> Result<(), AllocError> {
        let left = self.config.maximum_bytes.map(|most| most.saturating_sub(state.region_bytes));
        let left = left.unwrap_or(usize::MAX) / Order::LEAST_BYTES * Order::LEAST_BYTES;
        let needed = order.bytes();
        let whole_steps = self.config.region_bytes.next_multiple_of(Order::LEAST_BYTES);
        let mut attempt = (needed <= left).then(|| whole_steps.max(needed).min(left));
        while let Some(bytes) = attempt {
            match self.upstream.take(bytes, handle) {
                Ok(ptr) => {
                    let point = state.ordered.point(slot, handle, &self.upstream.driver);
                    let region = Region { start: ptr.0, bytes: bytes as u64 };
                    state.orders.add_region(region, &Frees::from(point));
                    state.regions.insert(ptr, region);
                    state.region_bytes += bytes;
                    return Ok(());
                }
                Err(error) if !error.is_out_of_memory() => return Err(error),
                Err(_) => attempt = smaller_region(needed, bytes),
            }
        }
        let (live, largest) = (state.live.usage(), state.orders.largest_free());
        Err(self.upstream.out_of_memory(asked_bytes, live, largest, state.unused_bytes()))
    }
}

/// What is tried after a region was refused: half, and no less than the block.
fn smaller_region(needed: usize, refused: usize) -> Option<usize> {
    let half = (refused / 2).next_multiple_of(Order::LEAST_BYTES);
    (refused > needed).then(|| half.max(needed))
}

impl State {
    #[inline]
    fn end_recent(&mut self) {
        if let Some(Taken { start, order, region, slot }) = self.recent.end() {
            // The stream has freed nothing since, so its newest free is this one.
            let point = self.ordered.newest(slot);
            self.orders.free(start, order, region, Frees::from(point));
        }
    }

    fn unused_regions(&self) -> Vec<(DevicePtr, Region)> {
        let regions = self.regions.iter().map(|(ptr, region)| (*ptr, *region));
        regions.filter(|(_, region)| self.orders.is_unused(*region)).collect()
    }

    fn unused_bytes(&self) -> usize {
        self.unused_regions().iter().map(|(_, region)| region.bytes as usize).sum()
    }
}

impl Resource for Buddy {
    fn allocate(&self, bytes: usize, stream: Stream) -> Result<DevicePtr, AllocError> {
        if bytes == 0 {
            return Ok(DevicePtr::NULL);
        }
        let order = Order::of(aligned(bytes)?).ok_or(AllocError::TooLarge { bytes })?;
        let driver = &self.upstream.driver;
        let state = &mut *self.state.lock();
        let slot = state.ordered.slot(stream, driver)?;
        if let Some(taken) = state.recent.again(|taken| (taken.order, taken.slot) == (order, slot))
        {
            state.live.insert(DevicePtr(taken.start), bytes, (order, taken.region));
            return Ok(DevicePtr(taken.start));
        }
        state.end_recent();
        if state.orders.find(order).is_none() {
            self.grow(state, bytes, order, slot, stream)?;
        }
        let found = state.orders.find(order).expect("just grown");
        state.orders.frees(found).order(&mut state.ordered, slot, stream, driver)?;
        let (start, region) = state.orders.take(found, order);
        state.live.insert(DevicePtr(start), bytes, (order, region));
        state.recent = Recent::Allocated(Taken { start, order, region, slot });
        Ok(DevicePtr(start))
    }

    fn deallocate(&self, ptr: DevicePtr, bytes: usize, stream: Stream) -> Result<(), FreeError> {
        if ptr.is_null() {
            return Ok(());
        }
        let state = &mut *self.state.lock();
        let slot = state.ordered.slot(stream, &self.upstream.driver)?;
        let (order, region) = state.live.take(ptr, bytes)?;
        let is_newest = state.recent.keeps(|taken| (taken.start, taken.slot) == (ptr.0, slot));
        if !is_newest {
            state.end_recent();
        }
        let point = state.ordered.point(slot, stream, &self.upstream.driver);
        if !is_newest {
            state.orders.free(ptr.0, order, region, Frees::from(point));
        }
        Ok(())
    }

    fn usage(&self) -> Usage {
        let state = &mut *self.state.lock();
        state.end_recent();
        self.upstream.usage(state.live.usage(), state.orders.largest_free())
    }

    /// Waits for the streams that have freed something, then gives back regions in which nothing is live.
    fn trim(&self) -> usize {
        let state = &mut *self.state.lock();
        state.end_recent();
        let before = self.upstream.reserved_bytes();
        if state.ordered.wait_for_all(&self.upstream.driver).is_ok() {
            for (ptr, region) in state.unused_regions() {
                let bytes = region.bytes as usize;
                if self.upstream.give(ptr, bytes, Stream::LEGACY).is_ok() {
                    state.orders.remove_region(region);
                    state.regions.remove(&ptr);
                    state.region_bytes -= bytes;
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

impl Drop for Buddy {
    /// Everything goes back upstream: nobody can free what is still held.
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let regions = state.regions.iter().map(|(ptr, region)| (*ptr, region.bytes as usize));
        self.upstream.close(regions, state.live.usage(), &mut state.ordered);
    }
}
