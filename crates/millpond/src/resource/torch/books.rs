//! All blocks, and which of them are free.

use std::collections::{BTreeMap, BTreeSet};

use super::TorchConfig;
use super::block::{Block, BlockState};
use super::sizes::PoolKind;
use crate::driver::{DevicePtr, StreamId};
use crate::resource::FreeError;

/// Blocks of one pool that nobody has, each by the stream it belongs to. A stream whose blocks are all held has an empty set, or none;
/// one without blocks has none.
#[derive(Debug, Default)]
pub(super) struct FreeBlocks {
    /// By size, then address: the order in which the best fit is found.
    pub(super) mapped: BTreeMap<StreamId, BTreeSet<(usize, DevicePtr)>>,
    /// By address: the order in which expandable segments grow.
    pub(super) unmapped: BTreeMap<StreamId, BTreeSet<DevicePtr>>,
    /// Searches so far, by which the age of free blocks is told.
    pub(super) searches: u64,
}

/// Every address of every segment is in exactly one block; neighbours that could merge have; `mapped` and `unmapped` list the
/// blocks of those states, except for the one that an allocation has in its hands.
#[derive(Debug, Default)]
pub(super) struct Books {
    pub(super) blocks: BTreeMap<DevicePtr, Block>,
    small: FreeBlocks,
    large: FreeBlocks,
}

impl Books {
    pub(super) fn pool(&self, kind: PoolKind) -> &FreeBlocks {
        match kind {
            PoolKind::Small => &self.small,
            PoolKind::Large => &self.large,
        }
    }

    pub(super) fn pool_mut(&mut self, kind: PoolKind) -> &mut FreeBlocks {
        match kind {
            PoolKind::Small => &mut self.small,
            PoolKind::Large => &mut self.large,
        }
    }

    pub(super) fn block(&self, ptr: DevicePtr) -> &Block {
        &self.blocks[&ptr]
    }

    pub(super) fn block_mut(&mut self, ptr: DevicePtr) -> &mut Block {
        self.blocks.get_mut(&ptr).expect("a block begins there")
    }

    /// Takes the smallest free block that serves the request, lowest address first, out of the free ones.
    pub(super) fn take_best_fit(
        &mut self,
        kind: PoolKind,
        stream: StreamId,
        bytes: usize,
        config: &TorchConfig,
    ) -> Option<DevicePtr> {
        self.pool_mut(kind).searches += 1;
        let free = self.pool(kind).mapped.get(&stream)?;
        let mut fitting = free.range((bytes, DevicePtr::NULL)..);
        let mut best = *fitting.next()?;
        if config.expandable_segments {
            // A block that can grow counts as large as it can become, so that others are used up first.
            let room = |&(bytes, ptr): &(usize, DevicePtr)| bytes + self.growth(ptr, bytes);
            for next in fitting {
                if room(next) >= room(&best) {
                    break;
                }
                best = *next;
            }
        }
        let (block_bytes, ptr) = best;
        if !config.may_serve(block_bytes, bytes) {
            return None;
        }
        self.unlist(ptr);
        Some(ptr)
    }

    /// Addresses without memory right behind a block.
    fn growth(&self, ptr: DevicePtr, bytes: usize) -> usize {
        let segment = self.block(ptr).segment;
        self.next(ptr, bytes)
            .filter(|(_, next)| next.state == BlockState::Unmapped && next.segment == segment)
            .map_or(0, |(_, next)| next.bytes)
    }

    /// Gives the first `bytes` of a free block, which is not listed, to a user. What is left is free if the rules split it off.
    pub(super) fn hand_out(
        &mut self,
        ptr: DevicePtr,
        bytes: usize,
        requested_bytes: usize,
        config: &TorchConfig,
    ) {
        let block = self.block_mut(ptr);
        let (whole, kind) = (block.bytes, block.pool);
        block.state = BlockState::Live;
        block.requested_bytes = requested_bytes;
        if config.splits(kind, whole, bytes) {
            self.cut(ptr, bytes, BlockState::Free { since: 0 });
            self.list(ptr.offset(bytes));
        }
    }

    /// Makes what is behind the first `bytes` of a block a block of its own, not listed.
    pub(super) fn cut(&mut self, ptr: DevicePtr, bytes: usize, state: BlockState) {
        let block = self.block_mut(ptr);
        let rest = Block {
            bytes: block.bytes - bytes,
            requested_bytes: 0,
            segment: block.segment,
            stream: block.stream,
            pool: block.pool,
            state,
            uses: Vec::new(),
        };
        block.bytes = bytes;
        self.blocks.insert(ptr.offset(bytes), rest);
    }

    /// A block that nobody has any more becomes free.
    pub(super) fn free(&mut self, ptr: DevicePtr) {
        let block = self.block_mut(ptr);
        block.state = BlockState::Free { since: 0 };
        block.requested_bytes = 0;
        let whole = self.merge(ptr);
        self.list(whole);
    }

    /// Merges a block that is not listed with its neighbours, and says where it begins now.
    pub(super) fn merge(&mut self, ptr: DevicePtr) -> DevicePtr {
        let mut begin = ptr;
        let block = self.block(ptr);
        if let Some((next, _)) =
            self.next(ptr, block.bytes).filter(|(_, next)| block.merges_with(next))
        {
            self.absorb(ptr, next);
        }
        let block = self.block(ptr);
        if let Some((before, _)) = self.before(ptr).filter(|(_, before)| before.merges_with(block))
        {
            self.unlist(before);
            let bytes = self.blocks.remove(&ptr).expect("the block").bytes;
            self.block_mut(before).bytes += bytes;
            begin = before;
        }
        begin
    }

    fn absorb(&mut self, ptr: DevicePtr, next: DevicePtr) {
        self.unlist(next);
        let bytes = self.blocks.remove(&next).expect("the neighbour").bytes;
        self.block_mut(ptr).bytes += bytes;
    }

    /// The neighbours, whichever segment they are of: whoever merges compares.
    fn next(&self, ptr: DevicePtr, bytes: usize) -> Option<(DevicePtr, &Block)> {
        let next = ptr.offset(bytes);
        self.blocks.get(&next).map(|block| (next, block))
    }

    pub(super) fn before(&self, ptr: DevicePtr) -> Option<(DevicePtr, &Block)> {
        let (&before, block) = self.blocks.range(..ptr).next_back()?;
        (before.offset(block.bytes) == ptr).then_some((before, block))
    }

    /// Puts a block among those of its state that can be found.
    pub(super) fn list(&mut self, ptr: DevicePtr) {
        let Block { bytes, stream, pool, state, .. } = *self.block(ptr);
        let free = self.pool_mut(pool);
        let is_new = match state {
            BlockState::Free { .. } => free.mapped.entry(stream).or_default().insert((bytes, ptr)),
            BlockState::Unmapped => free.unmapped.entry(stream).or_default().insert(ptr),
            state => unreachable!("{state:?} blocks cannot be found"),
        };
        debug_assert!(is_new);
        let since = free.searches;
        if state != BlockState::Unmapped {
            self.block_mut(ptr).state = BlockState::Free { since };
        }
    }

    /// Takes a block out of those that can be found.
    pub(super) fn unlist(&mut self, ptr: DevicePtr) {
        let Block { bytes, stream, pool, state, .. } = *self.block(ptr);
        let free = self.pool_mut(pool);
        let was_there = if state == BlockState::Unmapped {
            remove(&mut free.unmapped, stream, &ptr)
        } else {
            remove(&mut free.mapped, stream, &(bytes, ptr))
        };
        debug_assert!(was_there);
    }

    /// Forgets a listed block, whose segment is gone.
    pub(super) fn forget(&mut self, ptr: DevicePtr) {
        self.unlist(ptr);
        let Block { stream, pool, .. } = self.blocks.remove(&ptr).expect("a block begins there");
        let free = self.pool_mut(pool);
        // Streams come and go: what is empty may never be filled again.
        if free.mapped.get(&stream).is_some_and(BTreeSet::is_empty) {
            free.mapped.remove(&stream);
        }
        if free.unmapped.get(&stream).is_some_and(BTreeSet::is_empty) {
            free.unmapped.remove(&stream);
        }
    }

    /// Hands a block out again that has just come back and is not listed, as a search for it would.
    pub(super) fn hand_out_again(&mut self, ptr: DevicePtr, requested_bytes: usize) {
        let block = self.block_mut(ptr);
        block.state = BlockState::Live;
        block.requested_bytes = requested_bytes;
        let pool = block.pool;
        self.pool_mut(pool).searches += 1;
    }

    /// The largest request that some stream is served without the driver.
    pub(super) fn largest_request(&self, config: &TorchConfig) -> usize {
        let of_pool = |kind| {
            let largest = self.pool(kind).mapped.values().filter_map(|free| free.last());
            largest.filter_map(move |(bytes, _)| config.largest_request(kind, *bytes)).max()
        };
        of_pool(PoolKind::Large).max(of_pool(PoolKind::Small)).unwrap_or(0)
    }

    /// The user's block at an address.
    pub(super) fn live(&self, ptr: DevicePtr) -> Result<&Block, FreeError> {
        let around = self.blocks.range(..=ptr).next_back();
        match around.filter(|(block, found)| ptr.0 - block.0 < found.bytes as u64) {
            Some((&start, block)) => match block.state {
                BlockState::Live if start == ptr => Ok(block),
                BlockState::Live => Err(FreeError::Interior { ptr, block: start }),
                BlockState::Pending { .. } if start == ptr => Err(FreeError::AlreadyFree { ptr }),
                BlockState::Free { .. } => Err(FreeError::AlreadyFree { ptr }),
                BlockState::Pending { .. } | BlockState::Unmapped => {
                    Err(FreeError::Foreign { ptr })
                }
            },
            None => Err(FreeError::Foreign { ptr }),
        }
    }
}

/// A set that becomes empty stays: most are filled again at once.
fn remove<T: Ord>(
    sets: &mut BTreeMap<StreamId, BTreeSet<T>>,
    stream: StreamId,
    element: &T,
) -> bool {
    sets.get_mut(&stream).is_some_and(|set| set.remove(element))
}
