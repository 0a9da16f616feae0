//! The driver's pools of stream-ordered memory.
//!
//! A block is taken and given back when the host calls, in the order of the calls; that its bytes are
//! not used by two streams at once is a matter of points. A free range remembers the points of the
//! frees that made it, and the reuse policies say which points may stand in the way of a taker.
//!
//! Free neighbours become one only if frees of one stream made them: else each stream would have to wait for the other to have its own
//! memory again, which it may use at once. Whoever finds no single range large enough gets several that lie side by side.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use millpond::driver::{DriverPool, PoolAttribute};

use crate::address_space::{AddressSpace, Region, RegionKind, whole_frames};
use crate::board::Board;
use crate::frames::{Extent, FRAME_BYTES};
use crate::order::{Clearing, StreamIndex};
use crate::schedule::Schedule;
use crate::work::Point;

/// Memory is taken from the device in pieces of at least this. Assumed; NVIDIA does not say.
const CHUNK_BYTES: u64 = 32 << 20;
const BLOCK_GRANULARITY: u64 = 512;

/// A free range, and what must have happened before its bytes may be used again.
#[derive(Debug)]
struct FreeRange {
    bytes: u64,
    frees: Vec<Arc<Point>>,
}

impl FreeRange {
    /// Keeps frees that no other comes after: whoever waits for that has waited for them.
    fn add_free(&mut self, point: Arc<Point>) {
        if !self.frees.iter().any(|other| other.comes_after(&point)) {
            self.frees.retain(|old| !point.comes_after(old));
            self.frees.push(point);
        }
    }

    /// Whether nobody has to wait for more if the two become one. What was never used joins whatever is beside it.
    fn is_like(&self, other: &FreeRange) -> bool {
        let streams = |range: &FreeRange| -> BTreeSet<StreamIndex> {
            range.frees.iter().map(|free| free.epoch.stream).collect()
        };
        self.frees.is_empty() || other.frees.is_empty() || streams(self) == streams(other)
    }
}

/// How a taker may come by a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reuse {
    /// Nothing stands in the way.
    Ready,
    /// The taker has to wait for the points.
    Wait,
    No,
}

/// One pool. `reserved_bytes = Σ chunks`, and every chunk is made of free ranges and live blocks. `by_size` has the
/// free ranges as (bytes, start).
#[derive(Debug)]
pub(crate) struct StreamPool {
    chunks: BTreeMap<u64, u64>,
    free: BTreeMap<u64, FreeRange>,
    by_size: BTreeSet<(u64, u64)>,
    max_bytes: u64,
    release_threshold: u64,
    follow_events: bool,
    opportunistic: bool,
    internal_dependencies: bool,
    reserved_bytes: u64,
    reserved_high: u64,
    used_bytes: u64,
    used_high: u64,
    destroyed: bool,
}

/// What an allocation gets: an address, and the points that its stream must wait for first.
pub(crate) struct PoolBlock {
    pub(crate) start: u64,
    pub(crate) wait_for: Vec<Arc<Point>>,
    pub(crate) ready: u64,
    /// Memory that the pool took from the device for it.
    pub(crate) grown: Vec<Extent>,
}

/// Who asks for memory: work of this stream, from now on.
pub(crate) struct Taker<'a> {
    pub(crate) stream: StreamIndex,
    pub(crate) schedule: &'a Schedule,
    pub(crate) now: u64,
}

/// All pools and the blocks allocated from them.
#[derive(Debug, Default)]
pub(crate) struct StreamPools {
    pools: HashMap<DriverPool, StreamPool>,
    live: BTreeMap<u64, (DriverPool, u64)>,
    next_handle: u64,
}

impl StreamPools {
    pub(crate) fn new(first_handle: u64) -> StreamPools {
        StreamPools { next_handle: first_handle, ..StreamPools::default() }
    }

    pub(crate) fn create(&mut self, max_bytes: u64) -> DriverPool {
        self.next_handle += 1;
        let pool = DriverPool(self.next_handle);
        self.pools.insert(
            pool,
            StreamPool {
                chunks: BTreeMap::new(),
                free: BTreeMap::new(),
                by_size: BTreeSet::new(),
                // No pool is smaller than the least that it can take from the device.
                max_bytes: match max_bytes {
                    0 => u64::MAX,
                    bytes => whole_frames(bytes).unwrap_or(u64::MAX),
                },
                release_threshold: 0,
                follow_events: true,
                opportunistic: true,
                internal_dependencies: true,
                reserved_bytes: 0,
                reserved_high: 0,
                used_bytes: 0,
                used_high: 0,
                destroyed: false,
            },
        );
        pool
    }

    pub(crate) fn get(&mut self, pool: DriverPool) -> Option<&mut StreamPool> {
        self.pools.get_mut(&pool).filter(|pool| !pool.destroyed)
    }

    /// Pools that were not destroyed.
    pub(crate) fn len(&self) -> usize {
        self.pools.values().filter(|pool| !pool.destroyed).count()
    }

    pub(crate) fn held_bytes(&self) -> u64 {
        self.pools.values().map(|pool| pool.reserved_bytes).sum()
    }

    /// The live block that an address lies in: where it begins, and its size.
    pub(crate) fn block_around(&self, address: u64) -> Option<(u64, u64)> {
        let (&start, &(_, bytes)) = self.live.range(..=address).next_back()?;
        (address - start < bytes).then_some((start, bytes))
    }

    /// How many free ranges there are.
    pub(crate) fn free_ranges(&self) -> usize {
        self.pools.values().map(|pool| pool.free.len()).sum()
    }

    /// Adds the streams of all frees that somebody may have to wait for.
    pub(crate) fn add_streams_to(&self, known: &mut HashSet<StreamIndex>) {
        known.extend(self.frees().map(|free| free.epoch.stream));
    }

    /// Clears what comes before them of streams of which nothing is known any more.
    pub(crate) fn forget_unknown(&self, clearing: &mut Clearing) {
        self.frees().for_each(|free| free.forget_unknown(clearing));
    }

    fn frees(&self) -> impl Iterator<Item = &Arc<Point>> {
        let ranges = self.pools.values().flat_map(|pool| pool.free.values());
        ranges.flat_map(|range| &range.frees)
    }

    /// The pool and size of a live block.
    pub(crate) fn block(&self, start: u64) -> Option<(DriverPool, u64)> {
        self.live.get(&start).copied()
    }

    pub(crate) fn alloc(
        &mut self,
        pool: DriverPool,
        bytes: u64,
        taker: &Taker<'_>,
        space: &mut AddressSpace,
        board: &mut Board,
    ) -> Option<PoolBlock> {
        let rounded = bytes.checked_next_multiple_of(BLOCK_GRANULARITY)?;
        let state = self.pools.get_mut(&pool)?;
        let mut ready = taker.now;
        let mut grown = Vec::new();
        let mut found = state.find(rounded, taker, Reuse::Ready);
        if found.is_none()
            && let Some((start, at, extents)) = state.grow(rounded, space, board, taker.now)
        {
            grown = extents;
            ready = at;
            found = Some(start);
        }
        let found = found.or_else(|| state.find(rounded, taker, Reuse::Wait))?;
        let wait_for = state.take(found, rounded);
        state.used_bytes += rounded;
        state.used_high = state.used_high.max(state.used_bytes);
        self.live.insert(found, (pool, bytes));
        Some(PoolBlock { start: found, wait_for, ready, grown })
    }

    /// A block goes back to its pool, usable by others after `point`.
    pub(crate) fn free(&mut self, start: u64, point: Option<Arc<Point>>) {
        let (pool, bytes) = self.live.remove(&start).expect("the caller looked it up");
        let pool = self.pools.get_mut(&pool).expect("pools outlive their blocks");
        let rounded = bytes.next_multiple_of(BLOCK_GRANULARITY);
        pool.used_bytes -= rounded;
        pool.give(start, rounded, point);
    }

    /// A pool is no longer wanted; what is in use stays until it is freed.
    pub(crate) fn destroy(&mut self, pool: DriverPool) {
        if let Some(state) = self.pools.get_mut(&pool) {
            state.destroyed = true;
            state.release_threshold = 0;
        }
    }

    /// After a synchronisation: gives back what pools hold unused beyond their thresholds.
    pub(crate) fn release_unused(&mut self, space: &mut AddressSpace, now: u64) -> Vec<Extent> {
        let mut freed = Vec::new();
        for pool in self.pools.values_mut() {
            freed.extend(pool.release_down_to(pool.release_threshold, space, now));
        }
        self.pools.retain(|_, pool| !(pool.destroyed && pool.chunks.is_empty()));
        freed
    }
}

impl StreamPool {
    fn reuse(&self, range: &FreeRange, taker: &Taker<'_>) -> Reuse {
        let in_the_way = range.frees.iter().any(|free| {
            let same_stream = free.epoch.stream == taker.stream;
            let ordered = self.follow_events && taker.schedule.comes_after(taker.stream, free);
            let passed = self.opportunistic && free.has_passed_by(taker.now);
            !(same_stream || ordered || passed)
        });
        match (in_the_way, self.internal_dependencies) {
            (false, _) => Reuse::Ready,
            (true, true) => Reuse::Wait,
            (true, false) => Reuse::No,
        }
    }

    /// The smallest free range that fits and may be had in the way allowed; if there is none, the first of several side by side.
    fn find(&self, bytes: u64, taker: &Taker<'_>, allowed: Reuse) -> Option<u64> {
        let may_be_had = |range: &FreeRange| {
            let reuse = self.reuse(range, taker);
            reuse == Reuse::Ready || reuse == allowed
        };
        let mut fitting = self.by_size.range((bytes, 0)..).map(|(_, start)| *start);
        fitting
            .find(|start| may_be_had(&self.free[start]))
            .or_else(|| self.find_side_by_side(bytes, may_be_had))
    }

    fn find_side_by_side(
        &self,
        bytes: u64,
        may_be_had: impl Fn(&FreeRange) -> bool,
    ) -> Option<u64> {
        if self.reserved_bytes - self.used_bytes < bytes {
            return None;
        }
        // Where those begin that were met last, and where they end.
        let (mut from, mut end) = (0, 0);
        for (start, range) in &self.free {
            if !may_be_had(range) {
                continue;
            }
            if *start != end || self.chunks.contains_key(start) {
                from = *start;
            }
            end = start + range.bytes;
            if end - from >= bytes {
                return Some(from);
            }
        }
        None
    }

    fn insert_free(&mut self, start: u64, range: FreeRange) {
        self.by_size.insert((range.bytes, start));
        self.free.insert(start, range);
    }

    fn remove_free(&mut self, start: u64) -> FreeRange {
        let range = self.free.remove(&start).expect("the caller found it");
        self.by_size.remove(&(range.bytes, start));
        range
    }

    /// Takes the front of a free range, or of several side by side. What stood in the way must be waited for: an order that is
    /// there already makes the wait free.
    fn take(&mut self, start: u64, bytes: u64) -> Vec<Arc<Point>> {
        let mut taken = FreeRange { bytes: 0, frees: Vec::new() };
        while taken.bytes < bytes {
            let range = self.remove_free(start + taken.bytes);
            let end = taken.bytes + range.bytes;
            if end > bytes {
                let rest = FreeRange { bytes: end - bytes, frees: range.frees.clone() };
                self.insert_free(start + bytes, rest);
            }
            taken.bytes = end;
            range.frees.into_iter().for_each(|point| taken.add_free(point));
        }
        taken.frees
    }

    fn give(&mut self, start: u64, bytes: u64, point: Option<Arc<Point>>) {
        let mut start = start;
        let mut range = FreeRange { bytes, frees: Vec::new() };
        point.into_iter().for_each(|point| range.add_free(point));
        let same_chunk = |pool: &StreamPool, a: u64, b: u64| {
            let chunk = |at: u64| pool.chunks.range(..=at).next_back().map(|(start, _)| *start);
            chunk(a) == chunk(b)
        };
        if let Some((&before, left)) = self.free.range(..start).next_back()
            && before + left.bytes == start
            && left.is_like(&range)
            && same_chunk(self, before, start)
        {
            let left = self.remove_free(before);
            range.bytes += left.bytes;
            left.frees.into_iter().for_each(|point| range.add_free(point));
            start = before;
        }
        let end = start + range.bytes;
        if self.free.get(&end).is_some_and(|right| right.is_like(&range))
            && same_chunk(self, start, end)
        {
            let right = self.remove_free(end);
            range.bytes += right.bytes;
            right.frees.into_iter().for_each(|point| range.add_free(point));
        }
        self.insert_free(start, range);
    }

    fn grow(
        &mut self,
        bytes: u64,
        space: &mut AddressSpace,
        board: &mut Board,
        now: u64,
    ) -> Option<(u64, u64, Vec<Extent>)> {
        let needed = whole_frames(bytes)?;
        let sizes = if needed < CHUNK_BYTES { vec![CHUNK_BYTES, needed] } else { vec![needed] };
        for chunk_bytes in sizes {
            if chunk_bytes > self.max_bytes.saturating_sub(self.reserved_bytes) {
                continue;
            }
            let Some((extents, ready)) = board.claim(chunk_bytes, now) else { continue };
            let Some(start) = space.take_addresses(chunk_bytes, 2 << 20) else {
                board.give_back(&extents);
                return None;
            };
            let kind = RegionKind::PoolChunk { extents: extents.clone() };
            space.insert(start, Region { bytes: chunk_bytes, kind });
            self.chunks.insert(start, chunk_bytes);
            self.insert_free(start, FreeRange { bytes: chunk_bytes, frees: Vec::new() });
            self.reserved_bytes += chunk_bytes;
            self.reserved_high = self.reserved_high.max(self.reserved_bytes);
            return Some((start, ready, extents));
        }
        None
    }

    /// Gives whole unused chunks back until no more than `keep_bytes` are held.
    pub(crate) fn release_down_to(
        &mut self,
        keep_bytes: u64,
        space: &mut AddressSpace,
        now: u64,
    ) -> Vec<Extent> {
        let mut freed = Vec::new();
        // No chunk is wholly unused while less than the smallest one is.
        if self.reserved_bytes <= keep_bytes || self.reserved_bytes - self.used_bytes < FRAME_BYTES
        {
            return freed;
        }
        let chunks: Vec<(u64, u64)> =
            self.chunks.iter().map(|(start, bytes)| (*start, *bytes)).collect();
        for (start, bytes) in chunks {
            if self.reserved_bytes <= keep_bytes {
                break;
            }
            let ranges = || self.free.range(start..start + bytes);
            let unused = ranges().map(|(_, range)| range.bytes).sum::<u64>() == bytes
                && ranges()
                    .all(|(_, range)| range.frees.iter().all(|free| free.has_passed_by(now)));
            if unused {
                let starts: Vec<u64> = ranges().map(|(start, _)| *start).collect();
                for start in starts {
                    self.remove_free(start);
                }
                self.chunks.remove(&start);
                self.reserved_bytes -= bytes;
                let region =
                    space.remove(start, "given back by its pool").expect("chunks are regions");
                space.give_addresses(start, bytes);
                if let RegionKind::PoolChunk { extents } = region.kind {
                    freed.extend(extents);
                }
            }
        }
        freed
    }

    pub(crate) fn attribute(&self, attribute: PoolAttribute) -> u64 {
        match attribute {
            PoolAttribute::ReleaseThreshold => self.release_threshold,
            PoolAttribute::ReuseFollowEventDependencies => u64::from(self.follow_events),
            PoolAttribute::ReuseAllowOpportunistic => u64::from(self.opportunistic),
            PoolAttribute::ReuseAllowInternalDependencies => u64::from(self.internal_dependencies),
            PoolAttribute::ReservedCurrent => self.reserved_bytes,
            PoolAttribute::ReservedHigh => self.reserved_high,
            PoolAttribute::UsedCurrent => self.used_bytes,
            PoolAttribute::UsedHigh => self.used_high,
        }
    }

    /// Sets an attribute; `false` if that value cannot be set.
    pub(crate) fn set_attribute(&mut self, attribute: PoolAttribute, value: u64) -> bool {
        let switch = value != 0;
        match attribute {
            PoolAttribute::ReleaseThreshold => self.release_threshold = value,
            PoolAttribute::ReuseFollowEventDependencies => self.follow_events = switch,
            PoolAttribute::ReuseAllowOpportunistic => self.opportunistic = switch,
            PoolAttribute::ReuseAllowInternalDependencies => self.internal_dependencies = switch,
            PoolAttribute::ReservedHigh if value == 0 => self.reserved_high = self.reserved_bytes,
            PoolAttribute::UsedHigh if value == 0 => self.used_high = self.used_bytes,
            _ => return false,
        }
        true
    }
}
