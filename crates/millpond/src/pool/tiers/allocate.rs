//! The journey of an allocation, from where the fast path ends: the thread's cache, each tier behind it, and the driver last.
//!
//! Blocks come in batches: the caller gets one, its cache the rest. With `Patience::None` a request takes only what can be had at once, and
//! is refused where it would have to wait for the driver or for another stream.

use std::sync::Arc;

use crate::driver::{
    CaptureState, DevicePtr, Driver, DriverErrorKind, DriverResult, RelaxedCalls, Stream,
};
use crate::pool::back::{Placed, Requester, Room, Use, Wanted};
use crate::pool::blocks::{Entry, STRETCH_BYTES};
use crate::pool::caches;
use crate::pool::fast_path::with_recalled;
use crate::pool::lock_free::{BlockWord, Tag, Word};
use crate::pool::notes::current_scope;
use crate::pool::regions::BelongsTo;
use crate::pool::shelves::Pending;
use crate::pool::sizes::{Class, LARGEST_CACHED_BYTES, Shape, Shelf};
use crate::pool::slabs::{Batch, EmptySlab};
use crate::pool::statistics::{Counters, ThreadCounters, Tier};
use crate::pool::streams::{Points, StreamSlot};
use crate::pool::thread_cache::ThreadCache;
use crate::pool::tiers::{Keep, Tiers};
use crate::resource::{ALIGNMENT, AllocError, Resource};

/// Whether a request may wait for the driver, for another stream, or for whoever maps memory at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::pool) enum Patience {
    None,
    Some,
}

impl Tiers {
    /// As [`allocate`](Self::allocate), but what cannot be had at once is refused.
    pub(in crate::pool) fn allocate_now(
        self: &Arc<Tiers>,
        bytes: usize,
        stream: Stream,
    ) -> Result<DevicePtr, AllocError> {
        if bytes == 0 {
            return Ok(DevicePtr::NULL);
        }
        self.allocate_attaching(bytes, stream, Patience::None)
    }

    /// The cache that this thread used last has no such block, or is another stream's.
    #[inline(never)]
    pub(in crate::pool) fn allocate_slow(
        self: &Arc<Tiers>,
        bytes: usize,
        stream: Stream,
    ) -> Result<DevicePtr, AllocError> {
        if bytes == 0 {
            return Ok(DevicePtr::NULL);
        }
        let answer = with_recalled(self, stream, |cache, counters| {
            let shape = match Shape::of(bytes, self.settings.alignment()) {
                Ok(shape) => shape,
                Err(error) => return Some(Err(error)),
            };
            // Whoever knows the stream by another handle has not asked this cache yet.
            if let Some(offset) = self.take_from_cache(cache, bytes, shape) {
                counters.allocated(bytes);
                return Some(Ok(self.back.address_of(offset)));
            }
            if let Some(ptr) = self.allocate_own_at_once(cache, bytes, stream) {
                return Some(Ok(ptr));
            }
            let requester = Requester { slot: cache.stream(), handle: stream };
            let attached = Some((cache, counters));
            Some(self.allocate_behind_cache(bytes, shape, requester, attached, Patience::Some))
        });
        answer.unwrap_or_else(|| self.allocate_attaching(bytes, stream, Patience::Some))
    }

    fn take_from_cache(&self, cache: &ThreadCache, bytes: usize, shape: Shape) -> Option<u64> {
        let taken = self.settings.shelf_of(bytes).and_then(|shelf| cache.take(shelf, bytes));
        taken.or_else(|| self.take_oversized(cache, bytes, shape))
    }

    /// A block of its own from a cache, if the request is for one that must be looked at: blocks are aligned to much, or it has far more
    /// bytes than were asked for.
    fn take_oversized(&self, cache: &ThreadCache, bytes: usize, shape: Shape) -> Option<u64> {
        let Shape::Own { bytes: block_bytes, align } = shape else { return None };
        if block_bytes > LARGEST_CACHED_BYTES as u64 {
            return None;
        }
        let (offset, live) = cache.take_oversized(Shelf::of_own(block_bytes), bytes)?;
        if offset & (align - 1) == 0 {
            if live.slack() == Word::MOST_SLACK {
                self.block_at(offset).expect("caches keep blocks").header.set_requested(bytes);
            }
            return Some(offset);
        }
        self.give_up_misaligned(offset, cache.stream());
        None
    }

    /// A block came into a cache while the alignment was changed.
    #[cold]
    fn give_up_misaligned(&self, offset: u64, stream: StreamSlot) {
        let entry = self.entry_at(offset);
        self.word(entry).set(Word::FREE);
        self.free_own([entry], stream);
    }

    /// The first call of a thread on a stream, or after another stream, or one of which there is more to note.
    #[cold]
    pub(in crate::pool) fn allocate_attaching(
        self: &Arc<Tiers>,
        bytes: usize,
        stream: Stream,
        patience: Patience,
    ) -> Result<DevicePtr, AllocError> {
        if self.has_forked() {
            return Err(AllocError::Forked);
        }
        let (requester, capture) = self.requester_of(stream)?;
        if capture != CaptureState::None && self.family.belongs_to != BelongsTo::Capture {
            return self.allocate_captured(bytes, stream, capture, patience);
        }
        let shape = Shape::of(bytes, self.settings.alignment())?;
        let attached = self.attach(stream, requester, capture);
        let attached = self.counting(&attached);
        let cached = attached.and_then(|(cache, counters)| {
            let offset = self.take_from_cache(cache, bytes, shape)?;
            counters.allocated(bytes);
            Some(self.back.address_of(offset))
        });
        let ptr = match cached {
            Some(ptr) => ptr,
            None => self.allocate_behind_cache(bytes, shape, requester, attached, patience)?,
        };
        if let Some(scope) = current_scope() {
            self.notes.add_scope(ptr, self.find(ptr), bytes, scope);
        }
        Ok(ptr)
    }

    /// This thread's cache for a stream. Later calls find it at once, unless they must come by here again.
    pub(super) fn attach(
        self: &Arc<Tiers>,
        stream: Stream,
        requester: Requester,
        capture: CaptureState,
    ) -> Option<(Arc<ThreadCache>, Arc<ThreadCounters>)> {
        if self.family.belongs_to == BelongsTo::Capture {
            return None;
        }
        let ordinary = capture == CaptureState::None && current_scope().is_none();
        // The legacy stream is always the same one, and never captured: it need not be asked about on any driver.
        let remembers = self.identity.remembers || stream == Stream::LEGACY;
        let epoch = (remembers && ordinary).then(|| self.identity.epoch());
        caches::attach(self, stream, requester.slot, epoch)
    }

    /// A stream, and whether it is being captured.
    pub(in crate::pool) fn requester_of(
        &self,
        stream: Stream,
    ) -> DriverResult<(Requester, CaptureState)> {
        let driver = self.back.driver();
        let id = driver.stream_id(stream)?;
        let capture = match driver.capture_state(stream) {
            // The legacy stream is never captured, but cannot be asked while others are that order themselves with it.
            Err(error) if error.kind == DriverErrorKind::CaptureUnsupported => CaptureState::None,
            answer => answer?,
        };
        let mut state = self.back.state();
        let slot = state.streams.slot(id, stream);
        state.streams.set_captured(slot, capture != CaptureState::None);
        let (are_many, are_several) = (state.streams.are_many(), state.streams.are_several());
        drop(state);
        if are_several && self.caches.stop_pending() {
            self.give_back_all_pending();
        }
        // A capture's memory is withheld until it ends.
        if are_several && self.family.belongs_to != BelongsTo::Capture {
            self.caches.keep_large_by_stream();
        }
        if are_many {
            // There may be no background.
            self.forget_gone_streams();
        }
        Ok((Requester { slot, handle: stream }, capture))
    }

    /// The cache has no such block. A thread that is ending has no cache.
    fn allocate_behind_cache(
        &self,
        bytes: usize,
        shape: Shape,
        requester: Requester,
        attached: Option<(&ThreadCache, &Counters)>,
        patience: Patience,
    ) -> Result<DevicePtr, AllocError> {
        let cache = attached.map(|(cache, _)| cache);
        if let Some(cache) = cache {
            cache.forget_last();
            self.give_back_pending(cache);
        }
        // The driver aligns no better than the default; regions and captures have memory of their own kind.
        let may_be_direct =
            self.family.belongs_to == BelongsTo::Pool && self.settings.alignment() == ALIGNMENT;
        if bytes > self.settings.direct_above() && may_be_direct {
            return self.allocate_direct(bytes, requester, attached, patience);
        }
        let came_back = cache
            .filter(|cache| self.collect_inbox(cache))
            .and_then(|cache| self.take_from_cache(cache, bytes, shape));
        if let Some(offset) = came_back {
            // What others have freed is in the thread's own cache again: a hit.
            self.count(attached, |counters| counters.allocated(bytes));
            return Ok(self.back.address_of(offset));
        }
        let served = match shape {
            Shape::OfSlab(class) => self.allocate_of_slab(bytes, class, requester, cache, patience),
            Shape::Own { .. } => self.allocate_own(bytes, shape, requester, cache, patience),
        };
        match served {
            Ok(Some((offset, tier))) => {
                self.count_miss(attached, tier, bytes);
                Ok(self.back.address_of(offset))
            }
            Ok(None) => Err(AllocError::WouldWait { bytes }),
            Err(error) if error.is_out_of_memory() => Err(self.out_of_memory(bytes)),
            Err(error) => Err(error.into()),
        }
    }

    /// A driver allocation of its own.
    fn allocate_direct(
        &self,
        bytes: usize,
        requester: Requester,
        attached: Option<(&ThreadCache, &Counters)>,
        patience: Patience,
    ) -> Result<DevicePtr, AllocError> {
        if patience == Patience::None {
            return Err(AllocError::WouldWait { bytes });
        }
        let _relaxed = RelaxedCalls::enter(self.back.driver());
        let ptr = match self.direct.allocate(bytes, requester.handle) {
            Err(AllocError::OutOfMemory(_)) if self.release_for_request() > 0 => {
                self.direct.allocate(bytes, requester.handle)
            }
            answer => answer,
        };
        let ptr =
            ptr.map_err(
                |error| if error.is_out_of_memory() { self.out_of_memory(bytes) } else { error },
            )?;
        self.count_miss(attached, Tier::Device, bytes);
        Ok(ptr)
    }

    /// A block, and the tier that it is from. `None`: not without waiting.
    fn allocate_of_slab(
        &self,
        bytes: usize,
        class: Class,
        requester: Requester,
        cache: Option<&ThreadCache>,
        patience: Patience,
    ) -> DriverResult<Option<(u64, Tier)>> {
        // A stream that turns out to be captured or gone cannot be waited for: it is known then, and other blocks are taken.
        let taken = self.back.avoiding_unwaitable_streams(|| {
            let Some((batch, tier)) = self.take_batch_of_class(class, requester, patience)? else {
                return Ok(None);
            };
            if let Err(error) = self.back.order(&batch.points, requester) {
                let entries = batch.entries.into_iter().map(|entry| (requester.slot, entry));
                self.give_of_slabs(entries, Keep::No);
                return Err(error);
            }
            Ok(Some((batch.entries, tier)))
        });
        let Some((mut entries, tier)) = taken? else { return Ok(None) };
        let entry = entries.pop().expect("a batch that is not empty");
        let tag = cache.map_or(Tag::NONE, |cache| cache.tag);
        self.make_live(entry, bytes, tag);
        self.fill(cache, Shelf::of_class(class), entries, requester.slot);
        Ok(Some((entry.offset, tier)))
    }

    /// Puts the rest of a batch into the thread's cache, and what that has no room for into the global one.
    fn fill(
        &self,
        cache: Option<&ThreadCache>,
        shelf: Shelf,
        entries: Vec<Entry>,
        stream: StreamSlot,
    ) {
        let words = entries.iter().map(|entry| (entry.offset, self.word(*entry)));
        let bounds = self.settings.bounds();
        let filled = cache.map_or(0, |cache| cache.fill(shelf, words, bounds));
        if filled < entries.len() {
            let rest = entries.into_iter().skip(filled);
            self.give_free(rest.map(|entry| (stream, entry)), Keep::Yes);
        }
    }

    /// Blocks that go to a thread cache at a time: one for the caller, the rest for the cache.
    fn batch(&self) -> usize {
        self.settings.batch().min(self.settings.bounds().blocks + 1)
    }

    /// Blocks of a class, and the tier that they are from: the global cache, the reserve, slabs, a new slab, and if all else fails
    /// what other streams have freed.
    fn take_batch_of_class(
        &self,
        class: Class,
        requester: Requester,
        patience: Patience,
    ) -> DriverResult<Option<(Batch, Tier)>> {
        let most = self.batch();
        let mut stock = self.central.lock();
        let entries = stock.global.take(Shelf::of_class(class), requester.slot, most);
        if !entries.is_empty() {
            return Ok(Some((Batch { entries, ..Batch::default() }, Tier::Global)));
        }
        let entries = stock.reserve.take_of_slabs(class, most);
        if !entries.is_empty() {
            return Ok(Some((Batch { entries, ..Batch::default() }, Tier::Reserve)));
        }
        let batch = stock.slabs.take(class, requester.slot, most);
        let usable = |points: &Points| {
            self.back.is_ordered(points, requester.slot)
                || patience == Patience::Some && self.back.can_wait_for(points)
        };
        if !batch.entries.is_empty() && usable(&batch.points) {
            return Ok(Some((batch, Tier::Reuse)));
        }
        drop(stock);
        if !batch.entries.is_empty() {
            self.give_of_slabs(
                batch.entries.into_iter().map(|entry| (requester.slot, entry)),
                Keep::No,
            );
        }
        if patience == Patience::Some && !self.back.may_grow_by(class.slab_bytes()) {
            // Beyond the slack a block that another stream has freed is better than another slab.
            let batch = self.central.lock().slabs.take_of_any_stream(class, usable);
            if let Some(batch) = batch {
                return Ok(Some((batch, Tier::Reuse)));
            }
        }
        match self.add_slab(class, requester, most, patience) {
            Ok(added) => Ok(added),
            // Memory is out, but a block that another stream has freed will do.
            Err(error) if error.is_out_of_memory() => {
                let batch = self.central.lock().slabs.take_of_any_stream(class, usable);
                batch.map(|batch| Some((batch, Tier::Reuse))).ok_or(error)
            }
            Err(error) => Err(error),
        }
    }

    /// Makes a block that nobody else knows of a user's.
    fn make_live(&self, entry: Entry, requested: usize, owner: Tag) {
        let header = self.page_map.header(entry.header);
        let slack = header.block_bytes() as usize - requested;
        if slack >= Word::MOST_SLACK {
            header.set_requested(requested);
        }
        let live = Word::live(slack.min(Word::MOST_SLACK), owner);
        header.word(entry.index as usize).set(live);
    }

    #[inline]
    pub(in crate::pool) fn word(&self, entry: Entry) -> &BlockWord {
        self.page_map.header(entry.header).word(entry.index as usize)
    }

    /// Up to `most` blocks of a new slab, and where its memory is from. `None`: not without waiting.
    pub(in crate::pool) fn add_slab(
        &self,
        class: Class,
        requester: Requester,
        most: usize,
        patience: Patience,
    ) -> DriverResult<Option<(Batch, Tier)>> {
        let bytes = class.slab_bytes();
        let wanted = Wanted { bytes, align: STRETCH_BYTES, used_for: Use::Slab, requester };
        let Some((placed, tier)) = self.allocate_range(wanted, patience)? else { return Ok(None) };
        let Placed { room: Room { node, start, .. }, points } = placed;
        let slabs = &mut self.central.lock().slabs;
        let header =
            slabs.unused_header(class).unwrap_or_else(|| self.page_map.add_header(Some(class)));
        let placed = self.page_map.header(header);
        placed.place(start, node);
        self.page_map.set_all(start, bytes, Some(placed));
        let slab = EmptySlab { header, node, start, class, points };
        Ok(Some((slabs.add(slab, requester.slot, most), tier)))
    }

    /// A block, and the tier that it is from. `None`: not without waiting.
    fn allocate_own(
        &self,
        bytes: usize,
        shape: Shape,
        requester: Requester,
        cache: Option<&ThreadCache>,
        patience: Patience,
    ) -> DriverResult<Option<(u64, Tier)>> {
        let taken = match self.take_batch_of_own(shape, requester) {
            Some(taken) => Some(taken),
            None => {
                let placed = self.place_own(shape, requester, patience)?;
                placed.map(|(entry, tier)| (vec![entry], tier))
            }
        };
        let Some((mut entries, tier)) = taken else { return Ok(None) };
        let entry = entries.pop().expect("a batch that is not empty");
        let owner = cache.filter(|_| !self.caches.are_kept_by_stream(shape.bytes_and_align().0));
        let tag = owner.map_or(Tag::NONE, |cache| cache.tag);
        self.make_live(entry, bytes, tag);
        if !entries.is_empty() {
            let shelf = Shelf::of_own(shape.bytes_and_align().0);
            self.fill(cache, shelf, entries, requester.slot);
        }
        Ok(Some((entry.offset, tier)))
    }

    /// Blocks of their own of one size that the global cache keeps for a stream, or that were set aside.
    fn take_batch_of_own(&self, shape: Shape, requester: Requester) -> Option<(Vec<Entry>, Tier)> {
        let (block_bytes, align) = shape.bytes_and_align();
        let shelf = Shelf::of_own(block_bytes);
        let most = if shelf.serves() { self.batch() } else { 1 };
        if self.central.may_have_own_in_global(shelf) {
            let entries = self.central.lock().global.take(shelf, requester.slot, most);
            let is_aligned = |entry: &Entry| entry.offset.is_multiple_of(align);
            let (aligned, others): (Vec<_>, Vec<_>) = entries.into_iter().partition(is_aligned);
            // They came while the alignment was changed.
            self.free_own(others, requester.slot);
            if !aligned.is_empty() {
                return Some((aligned, Tier::Global));
            }
        }
        let entries = self.central.take_own_set_aside(block_bytes, align, most);
        (!entries.is_empty()).then_some((entries, Tier::Reserve))
    }

    /// A block of its own from the back, by a thread whose cache is [known](ThreadCache::is_known) and has none, if there is one that needs
    /// neither waiting nor the driver, and nothing else comes first: what is nearly always so, without a second look at anything.
    #[inline(never)]
    pub(in crate::pool) fn allocate_own_at_once(
        &self,
        cache: &ThreadCache,
        bytes: usize,
        handle: Stream,
    ) -> Option<DevicePtr> {
        let Ok(Shape::Own { bytes: block_bytes, align }) =
            Shape::of(bytes, self.settings.alignment())
        else {
            return None;
        };
        let slack = block_bytes as usize - bytes;
        let others_come_first = bytes > self.settings.direct_above()
            || cache.inbox.may_have_something()
            || self.central.may_have_own_in_global(Shelf::of_own(block_bytes))
            || self.central.may_have_own_in_reserve();
        if others_come_first || slack >= Word::MOST_SLACK {
            return None;
        }
        let stream = cache.stream();
        let start = if self.caches.are_kept_by_stream(block_bytes) {
            self.give_back_pending(cache);
            let requester = Requester { slot: stream, handle };
            let entry = self.begin_own_block(
                self.back.allocate_kept(block_bytes, align, requester)?,
                block_bytes,
            );
            // No cache's, so that the stream that frees it keeps it.
            self.make_live(entry, bytes, Tag::NONE);
            entry.offset
        } else {
            // Which also forgets the block that was handed out last.
            let mut pending = Pending::default();
            cache.take_pending(&mut pending);
            let blocks = pending.offsets().map(|offset| self.take_off_page_map(offset));
            let placed = self.back.free_and_allocate(blocks, block_bytes, align, stream);
            let entry = self.begin_own_block(placed?, block_bytes);
            let header = self.page_map.header(entry.header);
            header.word(0).set(cache.live.with_slack(slack));
            entry.offset
        };
        let counters = cache.counters(self);
        counters.missed(Tier::Reuse);
        counters.allocated(bytes);
        Some(self.back.address_of(start))
    }

    /// A block of its own begins where there is room for it. It is nobody's yet.
    #[inline]
    fn begin_own_block(&self, room: Room, block_bytes: u64) -> Entry {
        let Room { node, start, header } = room;
        let id = header.unwrap_or_else(|| self.page_map.add_header(None));
        let header = self.page_map.header(id);
        header.place_own(start, block_bytes, node);
        header.word(0).set(Word::FREE);
        self.page_map.set(start, Some(header));
        Entry { offset: start, header: id, index: 0 }
    }

    /// A block of its own, that is nobody's yet, and where its memory is from. `None`: not without waiting.
    pub(in crate::pool) fn place_own(
        &self,
        shape: Shape,
        requester: Requester,
        patience: Patience,
    ) -> DriverResult<Option<(Entry, Tier)>> {
        let (block_bytes, align) = shape.bytes_and_align();
        let wanted = Wanted { bytes: block_bytes, align, used_for: Use::Block, requester };
        let Some((placed, tier)) = self.allocate_range(wanted, patience)? else { return Ok(None) };
        Ok(Some((self.begin_own_block(placed.room, block_bytes), tier)))
    }

    /// Counts an allocation that a tier behind the thread's cache has served.
    fn count_miss(&self, attached: Option<(&ThreadCache, &Counters)>, tier: Tier, bytes: usize) {
        self.count(attached, |counters| {
            counters.missed(tier);
            counters.allocated(bytes);
        });
    }
}
