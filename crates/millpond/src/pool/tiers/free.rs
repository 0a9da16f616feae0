//! The journey of a free, from where the fast path ends: into the owner's cache if it is this thread's, else on its way home; and down
//! from there.
//!
//! A free first finds out whether it is right: whether a block begins at the address, is live, and was asked for with as many bytes. The
//! thread that then changes the block's word from `Live` has freed it; a second one gets an error. What no cache has room for goes on to the
//! global cache, to its slab, and to the back.
//!
//! ```text
//!   of this thread's cache        Live → Cached    a plain store
//!   of another thread's cache     Live → Remote    by compare-and-swap, and then by that cache's inbox
//!   of no cache                   Live → Free      by compare-and-swap, and then down
//! ```

use std::sync::Arc;

use crate::driver::{DevicePtr, RelaxedCalls, Stream};
use crate::pool::back::NodeId;
use crate::pool::background;
use crate::pool::blocks::{Block, Entry, HeaderId};
use crate::pool::central::GlobalCache;
use crate::pool::fast_path::with_recalled;
use crate::pool::lock_free::Left;
use crate::pool::lock_free::{Kind, Tag, Word};
use crate::pool::regions::BelongsTo;
use crate::pool::shelves::{Bounds, Parcel, Pending, RemoteFree};
use crate::pool::sizes::{Class, LARGEST_CACHED_BYTES, Shelf};
use crate::pool::slabs::{EmptySlab, Slabs, are_twice_as_many};
use crate::pool::statistics::Counters;
use crate::pool::streams::{Points, StreamSlot};
use crate::pool::thread_cache::ThreadCache;
use crate::pool::tiers::Tiers;
use crate::resource::{FreeError, Resource};

/// Blocks of their own that go to the back under one lock.
const FREED_AT_ONCE: usize = 64;

/// Whether blocks may stay in the global cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::pool) enum Keep {
    Yes,
    No,
}

/// Of an inbox that has grown beyond this, whoever fills it takes some: its owner is idle.
const MOST_IN_INBOX: usize = 1024;
/// Blocks that are taken out of an inbox at a time: more would make that one call a long one.
const TAKEN_IN: usize = 128;

impl Tiers {
    #[inline]
    pub(in crate::pool) fn find(&self, ptr: DevicePtr) -> Option<Block<'_>> {
        self.block_at(self.back.distance_of(ptr))
    }

    /// The block that begins at an offset, if one does.
    #[inline]
    pub(in crate::pool) fn block_at(&self, offset: u64) -> Option<Block<'_>> {
        self.page_map.get(offset)?.block(offset)
    }

    /// The free block of a cache that begins at an offset.
    pub(super) fn entry_at(&self, offset: u64) -> Entry {
        self.block_at(offset).expect("caches keep blocks").entry()
    }

    /// Puts a block whose word is `now` into its owner's cache, if there is room.
    fn put_in_cache(&self, cache: &ThreadCache, block: Block<'_>, now: Word) -> bool {
        let bounds = self.settings.bounds();
        let is_kept = block.header.shelf() != Shelf::PENDING || self.caches.lets_pend();
        is_kept && self.is_aligned_for_cache(block) && cache.put(block, now, bounds)
    }

    /// Whether a block is aligned as blocks are now. Those of slabs always are, or are not taken.
    #[inline]
    fn is_aligned_for_cache(&self, block: Block<'_>) -> bool {
        block.header.class().is_some() || block.offset & (self.settings.alignment() as u64 - 1) == 0
    }

    /// A free that the cache used last cannot take: another stream's or thread's block, a full cache, a bad free.
    #[inline(never)]
    pub(in crate::pool) fn deallocate_slow(
        self: &Arc<Tiers>,
        ptr: DevicePtr,
        bytes: Option<usize>,
        stream: Stream,
    ) -> Result<(), FreeError> {
        if ptr.is_null() {
            return Ok(());
        }
        if self.has_forked() {
            // The memory is the parent's, and so is the block.
            return Ok(());
        }
        let Some(block) = self.find(ptr) else { return self.free_elsewhere(ptr, bytes, stream) };
        let now = block.word.now();
        if now.kind() != Kind::Live {
            return Err(FreeError::AlreadyFree { ptr });
        }
        let requested = block.requested(now);
        if let Some(given_bytes) = bytes.filter(|bytes| *bytes != requested) {
            return Err(FreeError::WrongSize { ptr, given_bytes, allocated_bytes: requested });
        }
        if let Some(threshold) = self.settings.release_threshold()
            && requested > LARGEST_CACHED_BYTES
        {
            // Before this block merges with what is free: its work may go on.
            background::release_above(self, threshold);
        }
        let known = with_recalled(self, stream, |cache, counters| {
            Some(self.free_live(block, now, cache.stream(), Some((cache, counters))))
        });
        let freed = match known {
            Some(freed) => freed,
            None => self.free_attaching(block, now, stream)?,
        };
        if freed { Ok(()) } else { Err(FreeError::AlreadyFree { ptr }) }
    }

    /// As [`free_live`](Self::free_live), for the first call of a thread on a stream, or after another stream.
    #[cold]
    fn free_attaching(
        self: &Arc<Tiers>,
        block: Block<'_>,
        now: Word,
        stream: Stream,
    ) -> Result<bool, FreeError> {
        let (requester, capture) = self.requester_of(stream)?;
        let attached = self.attach(stream, requester, capture);
        let cache = self.counting(&attached);
        Ok(self.free_live(block, now, requester.slot, cache))
    }

    /// Frees what is not among the blocks of these tiers: the driver's own, a region's, or nobody's.
    #[cold]
    fn free_elsewhere(
        self: &Arc<Tiers>,
        ptr: DevicePtr,
        bytes: Option<usize>,
        stream: Stream,
    ) -> Result<(), FreeError> {
        if let Some((_, allocated_bytes)) = self.direct.block_around(ptr) {
            let _relaxed = RelaxedCalls::enter(self.back.driver());
            let given_bytes = bytes.unwrap_or(allocated_bytes);
            self.direct.deallocate(ptr, given_bytes, stream)?;
            self.notes.forget_direct(ptr, allocated_bytes);
            let known = self.requester_of(stream).ok();
            let attached =
                known.and_then(|(requester, capture)| self.attach(stream, requester, capture));
            let attached = self.counting(&attached);
            self.count(attached, |counters| counters.freed(allocated_bytes));
            return Ok(());
        }
        match self.region_around(ptr) {
            Some(region) => region.deallocate(ptr, bytes, stream),
            None => Err(self.not_a_block(ptr)),
        }
    }

    /// What a live block was asked for with.
    pub(in crate::pool) fn bytes_of(&self, ptr: DevicePtr) -> Result<usize, FreeError> {
        if let Some(block) = self.find(ptr) {
            let now = block.word.now();
            let is_live = now.kind() == Kind::Live;
            return if is_live {
                Ok(block.requested(now))
            } else {
                Err(FreeError::AlreadyFree { ptr })
            };
        }
        match self.direct.block_around(ptr) {
            Some((block, bytes)) if block == ptr => return Ok(bytes),
            Some((block, _)) => return Err(FreeError::Interior { ptr, block }),
            None => {}
        }
        match self.region_around(ptr) {
            Some(region) => region.bytes_of(ptr),
            None => Err(self.not_a_block(ptr)),
        }
    }

    /// What the block that begins at an address holds, with what was not asked for. 0 where none of these tiers or their regions does.
    pub(in crate::pool) fn held_bytes(&self, ptr: DevicePtr) -> usize {
        match (self.find(ptr), self.region_around(ptr)) {
            (Some(block), _) => block.header.block_bytes() as usize,
            (None, Some(region)) => region.held_bytes(ptr),
            (None, None) => 0,
        }
    }

    /// Frees a block that was live a moment ago. `false`: another thread was quicker.
    fn free_live(
        &self,
        block: Block<'_>,
        now: Word,
        stream: StreamSlot,
        attached: Option<(&ThreadCache, &Counters)>,
    ) -> bool {
        let requested = block.requested(now);
        let count = || self.count(attached, |counters| counters.freed(requested));
        let own = attached.map(|(cache, _)| cache).filter(|cache| cache.tag == now.owner());
        if let Some(cache) = own {
            let mut put = self.put_in_cache(cache, block, now);
            let shelf = block.header.shelf();
            if !put
                && self.may_give_older_half(shelf)
                && self.is_aligned_for_cache(block)
                && self.give_older_half(cache, shelf)
            {
                put = self.put_in_cache(cache, block, now);
            }
            if put {
                count();
                return true;
            }
        }
        // Another cache's block, or none's, or one that no cache keeps. It may be freed elsewhere at this moment.
        let has_owner = own.is_none() && !matches!(now.owner(), Tag::NONE | Tag::NOTED);
        let next = if has_owner { now.with(Kind::Remote) } else { Word::FREE };
        if !block.word.free_as_other(now, next) {
            return false;
        }
        count();
        if now.owner() == Tag::NOTED {
            self.free_noted(block, requested, stream);
            return true;
        }
        if !has_owner {
            match block.header.class() {
                Some(_) => self.give_of_slabs([(stream, block.entry())], Keep::Yes),
                None if self.caches.are_kept_by_stream(block.header.block_bytes()) => {
                    self.back.keep(self.take_off_page_map(block.offset), stream);
                }
                None => {
                    let mut pending = Pending::default();
                    own.inspect(|cache| cache.take_pending(&mut pending));
                    self.free_own_at(pending.offsets().chain([block.offset]), stream);
                }
            }
            return true;
        }
        let freed = RemoteFree { offset: block.offset, stream };
        let sent = match attached {
            Some((cache, _)) => cache.send(now.owner(), freed),
            None => Err(freed),
        };
        match sent {
            Ok(None) => {}
            Ok(Some(parcel)) => self.deliver(parcel),
            Err(freed) => self.deliver(Parcel { owner: now.owner(), blocks: vec![freed] }),
        }
        true
    }

    /// Whether what a shelf has no room for is worth half of it: blocks of their own only where the global cache keeps them.
    fn may_give_older_half(&self, shelf: Shelf) -> bool {
        let most = self.settings.global_bounds();
        shelf.class().is_some() || shelf.serves() && most.blocks > 0 && most.bytes > 0
    }

    /// A shelf is full: the older half goes on to the global cache. `false`: there is none, the cache is full of others.
    #[cold]
    fn give_older_half(&self, cache: &ThreadCache, shelf: Shelf) -> bool {
        let half = cache.take_older_half(shelf);
        let any = !half.is_empty();
        let entries = half.into_iter().map(|offset| (cache.stream(), self.entry_at(offset)));
        self.give_free(entries, Keep::Yes);
        any
    }

    #[cold]
    fn not_a_block(&self, ptr: DevicePtr) -> FreeError {
        let offset = self.back.offset_of(ptr);
        let interior = offset.and_then(|offset| {
            let header = self.page_map.last_before(offset)?;
            let index = offset.checked_sub(header.start())? / header.block_bytes().max(1);
            let start = header.start() + index * header.block_bytes();
            let index = usize::try_from(index).ok().filter(|index| *index < header.blocks())?;
            let now = header.word(index).now();
            let requested = header.requested(now) as u64;
            (now.kind() == Kind::Live && offset - start < requested).then_some(start)
        });
        match interior {
            Some(block) => FreeError::Interior { ptr, block: self.back.address_of(block) },
            // Nobody else has addresses of the pool's own span.
            None if offset.is_some() && self.back.has_pages() => FreeError::AlreadyFree { ptr },
            None => FreeError::Foreign { ptr },
        }
    }

    /// Leaves blocks for their owner to find.
    #[inline(never)]
    pub(super) fn deliver(&self, Parcel { owner, mut blocks }: Parcel) {
        let owner = self.caches.of_tag(owner);
        match owner.inbox.leave(&mut blocks, MOST_IN_INBOX) {
            Left::Found => {}
            Left::TooMany => self.drain_inbox(&owner, TAKEN_IN),
            Left::Orphaned => self.drain_cache(&owner, Keep::Yes),
        }
    }

    /// A block that came by a cache's inbox. While this runs the owner's thread does nothing else with the cache: it is the
    /// caller, or it is kept out.
    #[inline]
    pub(super) fn accept_from_inbox(
        &self,
        cache: &ThreadCache,
        freed: RemoteFree,
    ) -> Option<Block<'_>> {
        // Of a slab that is gone, there may be nothing left, or something else.
        let block = self.block_at(freed.offset);
        let arrived = block.filter(|block| block.word.arrives_at(cache.tag));
        if arrived.is_none() {
            // Its owner freed it at the same moment, and won.
            self.accounts.count_late_double_free();
        }
        arrived
    }

    /// Takes blocks that others have freed back into their owner's cache, by the owner's thread. `false`: there were none.
    pub(super) fn collect_inbox(&self, cache: &ThreadCache) -> bool {
        if !cache.inbox.may_have_something() {
            return false;
        }
        self.move_inbox_to_cache(cache);
        true
    }

    #[inline(never)]
    fn move_inbox_to_cache(&self, cache: &ThreadCache) {
        let mut rest = Vec::new();
        let arrived = cache.inbox.take(TAKEN_IN);
        for freed in &arrived {
            let Some(block) = self.accept_from_inbox(cache, *freed) else { continue };
            let put =
                freed.stream == cache.stream() && self.put_in_cache(cache, block, block.word.now());
            if !put {
                // Nobody's from now on, so that it is seen if it comes twice.
                block.word.set(Word::FREE);
                rest.push((freed.stream, block.entry()));
            }
        }
        cache.inbox.keep_memory(arrived);
        if !rest.is_empty() {
            self.give_free(rest, Keep::Yes);
        }
    }

    /// Gives a block back that was noted and is nobody's now.
    fn free_noted(&self, block: Block<'_>, requested: usize, stream: StreamSlot) {
        let streams = self.notes.forget(block, requested);
        if streams.is_empty() {
            self.give_free([(stream, block.entry())], Keep::Yes);
            return;
        }
        let streams = streams.into_iter().filter(|other| *other != stream).chain([stream]);
        let points = self.back.points(streams);
        if block.header.class().is_some() {
            self.give_to_slab(block.entry(), &points);
        } else {
            self.page_map.set(block.offset, None);
            self.back.free_after(block.header.node(), points);
            self.back.keep_unused_header(block.header.id);
        }
    }

    /// The block is used on another stream, too: after it is freed, its memory waits for that stream.
    pub(in crate::pool) fn record_stream(
        self: &Arc<Tiers>,
        ptr: DevicePtr,
        stream: Stream,
    ) -> Result<(), FreeError> {
        if ptr.is_null() || self.has_forked() {
            return Ok(());
        }
        let Some(block) = self.find(ptr) else {
            match self.direct.block_around(ptr) {
                // The driver waits for every stream when it takes the block back.
                Some((block, _)) if block == ptr => return Ok(()),
                Some((block, _)) => return Err(FreeError::Interior { ptr, block }),
                None => {}
            }
            let region = self.region_around(ptr).ok_or_else(|| self.not_a_block(ptr))?;
            return region.record_stream(ptr, stream);
        };
        let (requester, _) = self.requester_of(stream)?;
        let forget_needless = |streams: &mut Vec<_>| self.forget_needless_streams(streams);
        let noted = self.notes.add_stream(block, requester.slot, forget_needless);
        if noted { Ok(()) } else { Err(FreeError::AlreadyFree { ptr }) }
    }

    /// A block may stay while streams that use it come and go. Of those that are forgotten one will do: their work can be waited for
    /// with that of the whole device only.
    fn forget_needless_streams(&self, streams: &mut Vec<StreamSlot>) {
        if !are_twice_as_many(streams.len() - 1, streams.len()) {
            return;
        }
        let mut are_forgotten = self.back.are_forgotten(streams).into_iter();
        let mut has_forgotten = false;
        streams.retain(|_| {
            let is_forgotten = are_forgotten.next() == Some(true);
            !(is_forgotten && std::mem::replace(&mut has_forgotten, true))
        });
    }
}

/// The way down: what no cache has room for.
impl Tiers {
    /// Gives free blocks of slabs to the global cache, or what it has no room for to their slabs.
    pub(super) fn give_of_slabs(
        &self,
        entries: impl IntoIterator<Item = (StreamSlot, Entry)>,
        keep: Keep,
    ) {
        let most = match (keep, self.family.belongs_to) {
            // What another stream has freed must not get into the slabs of the one that is captured.
            (_, BelongsTo::Capture) if self.back.belongs_to_capture() => {
                Bounds { blocks: usize::MAX, bytes: u64::MAX }
            }
            (Keep::Yes, _) => self.settings.global_bounds(),
            (Keep::No, _) => Bounds { blocks: 0, bytes: 0 },
        };
        let mut entries: Vec<(StreamSlot, Class, Entry)> = entries
            .into_iter()
            .map(|(stream, entry)| {
                let header = self.page_map.header(entry.header);
                header.word(entry.index as usize).set(Word::FREE);
                (stream, header.class().expect("a block of a slab"), entry)
            })
            .collect();
        // Stable: the newest stay last, where they are taken first. Usually they are of one list anyway.
        entries.sort_by_key(|(stream, class, _)| (*stream, *class));
        let mut empty = Vec::new();
        let mut stock = self.central.lock();
        for of_list in entries.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
            let (stream, class, _) = of_list[0];
            let entries = || of_list.iter().map(|(_, _, entry)| *entry);
            let kept = stock.global.keep(Shelf::of_class(class), stream, entries(), most);
            if kept < of_list.len() {
                let points = self.back.points([stream]);
                let rest = entries().skip(kept);
                empty.extend(
                    rest.filter_map(|entry| self.put_in_slab(&mut stock.slabs, entry, &points)),
                );
            }
        }
        let unwanted = self.take_if_for_too_many_streams(&mut stock.global);
        drop(stock);
        empty.into_iter().for_each(|slab| self.free_slab(slab));
        self.give_to_slabs_and_back(unwanted);
    }

    /// What the global cache keeps, if that is for too many streams.
    fn take_if_for_too_many_streams(&self, global: &mut GlobalCache) -> Vec<(StreamSlot, Entry)> {
        // A capture's memory stays as it is until its end.
        let too_many = global.has_too_many_streams() && !self.back.belongs_to_capture();
        if too_many { global.take_all() } else { Vec::new() }
    }

    fn is_small(&self, entry: Entry) -> bool {
        self.page_map.header(entry.header).class().is_some()
    }

    /// Gives free blocks of their own to the global cache, if it is to keep them, and to the back what it has no room for.
    fn give_own(&self, mut entries: Vec<(StreamSlot, Entry)>, keep: Keep) {
        if keep == Keep::Yes && self.family.belongs_to != BelongsTo::Capture && !entries.is_empty()
        {
            let most = self.settings.global_bounds();
            let misaligned = self.settings.alignment() as u64 - 1;
            let mut stock = self.central.lock();
            entries.retain(|(stream, entry)| {
                let header = self.page_map.header(entry.header);
                if !header.shelf().serves() || entry.offset & misaligned != 0 {
                    return true;
                }
                // So that a second free of it is seen.
                header.word(0).set(Word::FREE);
                stock.global.keep(header.shelf(), *stream, std::iter::once(*entry), most) == 0
            });
            let unwanted = self.take_if_for_too_many_streams(&mut stock.global);
            drop(stock);
            self.give_to_slabs_and_back(unwanted);
        }
        // A bounded number at a time: others wait for the lock.
        for of_stream in entries.chunk_by(|a, b| a.0 == b.0).flat_map(|of| of.chunks(FREED_AT_ONCE))
        {
            self.free_own(of_stream.iter().map(|(_, entry)| *entry), of_stream[0].0);
        }
    }

    /// Gives what the global cache has kept to its slabs and the back. Most of its streams are idle: work that has passed is found out here, once for
    /// each stream, so that a stream that takes from such a slab need not wait for all of them.
    fn give_to_slabs_and_back(&self, entries: Vec<(StreamSlot, Entry)>) {
        let is_small = |(_, entry): &(StreamSlot, Entry)| self.is_small(*entry);
        let (small, large): (Vec<_>, Vec<_>) = entries.into_iter().partition(is_small);
        self.give_own(large, Keep::No);
        for of_stream in small.chunk_by(|a, b| a.0 == b.0) {
            let mut points = self.back.points([of_stream[0].0]);
            self.back.forget_needless(&mut points);
            let mut stock = self.central.lock();
            let given = of_stream.iter().map(|(_, entry)| *entry);
            let empty: Vec<EmptySlab> = given
                .filter_map(|entry| self.put_in_slab(&mut stock.slabs, entry, &points))
                .collect();
            drop(stock);
            empty.into_iter().for_each(|slab| self.free_slab(slab));
        }
    }

    /// Gives one block back to its slab.
    pub(in crate::pool) fn give_to_slab(&self, entry: Entry, points: &Points) {
        let empty = self.put_in_slab(&mut self.central.lock().slabs, entry, points);
        if let Some(slab) = empty {
            self.free_slab(slab);
        }
    }

    fn put_in_slab(&self, slabs: &mut Slabs, entry: Entry, points: &Points) -> Option<EmptySlab> {
        slabs.give_back(entry, points, |points| self.back.forget_needless(points))
    }

    fn free_slab(&self, slab: EmptySlab) {
        let EmptySlab { header, node, start, class, points } = slab;
        self.page_map.set_all(start, class.slab_bytes(), None);
        self.central.lock().slabs.keep_unused_header(class, header);
        self.back.free_after(node, points);
    }

    /// Gives free blocks of their own to the back.
    pub(super) fn free_own(&self, entries: impl IntoIterator<Item = Entry>, stream: StreamSlot) {
        self.free_own_at(entries.into_iter().map(|entry| entry.offset), stream);
    }

    /// As [`free_own`](Self::free_own), of the blocks that begin at some offsets.
    fn free_own_at(&self, offsets: impl IntoIterator<Item = u64>, stream: StreamSlot) {
        self.back.free(offsets.into_iter().map(|offset| self.take_off_page_map(offset)), stream);
    }

    /// Forgets a free block of its own, before somebody else gets its memory.
    #[inline]
    pub(super) fn take_off_page_map(&self, offset: u64) -> (NodeId, HeaderId) {
        let header = self.page_map.get(offset).expect("a block that is not given back");
        header.word(0).set(Word::FREE);
        self.page_map.set(offset, None);
        (header.node(), header.id)
    }

    /// Gives back what the owner's thread has freed and is pending.
    pub(super) fn give_back_pending(&self, cache: &ThreadCache) {
        let mut pending = Pending::default();
        cache.take_pending(&mut pending);
        if !pending.is_empty() {
            self.free_own_at(pending.offsets(), cache.stream());
        }
    }

    /// Gives back what all threads have freed and is pending.
    pub(in crate::pool) fn give_back_all_pending(&self) {
        for cache in self.caches.that_may_pend() {
            let take = || (cache.stream(), cache.reclaim_pending());
            let (stream, pending) = self.caches.reclaim(take);
            if !pending.is_empty() {
                self.free_own_at(pending.offsets(), stream);
            }
        }
    }

    pub(super) fn give_free(
        &self,
        entries: impl IntoIterator<Item = (StreamSlot, Entry)>,
        keep: Keep,
    ) {
        let is_small = |(_, entry): &(StreamSlot, Entry)| self.is_small(*entry);
        let (small, large): (Vec<_>, Vec<_>) = entries.into_iter().partition(is_small);
        self.give_own(large, keep);
        if !small.is_empty() {
            self.give_of_slabs(small, keep);
        }
    }
}
