//! Freeing: into the owner's cache if it is this thread's, else on its way home.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::driver::{DevicePtr, RelaxedCalls, Stream};
use crate::pool::blocks::Entry;
use crate::pool::blocks::{Block, HeaderId};
use crate::pool::central::GlobalCache;
use crate::pool::fast_path::{with_last, with_remembered};
use crate::pool::handshake::Left;
use crate::pool::heap::NodeId;
use crate::pool::points::{Points, StreamSlot};
use crate::pool::shelves::{Bounds, Cached, Parcel, Pending, RemoteFree};
use crate::pool::sizes::{Class, Shelf};
use crate::pool::slabs::{EmptySlab, Slabs};
use crate::pool::statistics::Counters;
use crate::pool::thread_cache::ThreadCache;
use crate::pool::tiers::{BelongsTo, Keep, MOST_IN_INBOX, TAKEN_IN, Tiers};
use crate::pool::word::{Kind, Tag, Word};
use crate::resource::{FreeError, Resource};

/// Blocks of their own that go to the back under one lock.
const FREED_AT_ONCE: usize = 64;

impl Tiers {
    #[inline]
    pub(in crate::pool) fn deallocate(
        self: &Arc<Tiers>,
        ptr: DevicePtr,
        bytes: Option<usize>,
        stream: Stream,
    ) -> Result<(), FreeError> {
        if bytes.is_some_and(|bytes| self.free_cached(ptr, bytes, stream)) {
            return Ok(());
        }
        self.deallocate_missed(ptr, bytes, stream)
    }

    /// The fast path: a right free of a block that the cache this thread used last has room for, on its shelves or among those that it
    /// sends home.
    #[inline]
    fn free_cached(&self, ptr: DevicePtr, bytes: usize, stream: Stream) -> bool {
        let freed = with_remembered(self.number(), stream, |_, cache| {
            let guess = || self.guess_shelf(bytes);
            let put = cache.is_last(ptr) && cache.put_last_known(bytes)
                || cache.put_known(bytes, guess, || self.find_for_cache(ptr))
                || cache.is_known() && self.free_unguessed(cache, ptr, bytes);
            put.then(|| cache.counters(self).freed(bytes))
        });
        freed.is_some()
    }

    /// As [`free_cached`](Self::free_cached), by a thread whose cache is [known](ThreadCache::is_known). What is larger than asked for comes
    /// by here, and where one thread allocates and another frees, all frees do. Apart from the above, which then needs fewer registers.
    /// Never panics.
    #[inline(never)]
    pub(in crate::pool) fn free_unguessed(
        &self,
        cache: &ThreadCache,
        ptr: DevicePtr,
        bytes: usize,
    ) -> bool {
        let Some(block) = self.find(ptr) else { return false };
        let now = block.word.now();
        if now.owner() == cache.tag {
            return cache.put_unguessed(bytes, || self.find_for_cache(ptr));
        }
        let is_right = now.kind() == Kind::Live && block.requested(now) == bytes;
        if !is_right || [Tag::NONE, Tag::NOTED].contains(&now.owner()) {
            return false;
        }
        // On its way home, if there is room for it beside others that go there.
        let freed = RemoteFree { offset: block.offset, stream: cache.stream() };
        // Others may be freeing it at this moment.
        let free = || block.word.free_as_other(now, now.with(Kind::Remote));
        cache.send_if(now.owner(), freed, free)
    }

    /// The shelf of most blocks that are asked for with so many bytes.
    #[inline]
    pub(in crate::pool) fn guess_shelf(&self, bytes: usize) -> Shelf {
        self.settings.shelf_of(bytes).unwrap_or(Shelf::PENDING)
    }

    /// A block, as a cache keeps it; or something whose word is free.
    #[inline]
    pub(in crate::pool) fn find_for_cache(&self, ptr: DevicePtr) -> Option<Cached> {
        // What is not in the span is beyond the page map. Where no block begins, the word is not that of a live one.
        let offset = self.back.distance_of(ptr);
        let header = self.page_map.get(offset)?;
        Some(Cached::new(ptr.0, header.word_at(offset)?, header.kept()))
    }

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
    pub(in crate::pool) fn entry_at(&self, offset: u64) -> Entry {
        self.block_at(offset).expect("caches keep blocks").entry()
    }

    /// Puts a block whose word is `now` into its owner's cache, if there is room.
    fn put_cached(&self, cache: &ThreadCache, block: Block<'_>, now: Word) -> bool {
        let bounds = self.settings.bounds();
        let is_kept = block.header.shelf() != Shelf::PENDING
            // Relaxed: as where it is set.
            || self.lets_pend.load(Ordering::Relaxed);
        is_kept && self.may_cache(block) && cache.put_within(block, now, bounds)
    }

    /// Whether a block is aligned as blocks are now. Those of slabs always are, or are not taken.
    #[inline]
    fn may_cache(&self, block: Block<'_>) -> bool {
        block.header.class().is_some() || block.offset & (self.settings.alignment() as u64 - 1) == 0
    }

    /// A free that the cache used last cannot take: another stream's or thread's block, a full cache, a bad free.
    #[inline(never)]
    pub(in crate::pool) fn deallocate_missed(
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
        let known = with_last(self, stream, |cache, counters| {
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
        let (taker, capture) = self.taker(stream)?;
        let attached = self.attach(stream, taker, capture);
        let cache = self.counting(&attached);
        Ok(self.free_live(block, now, taker.slot, cache))
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
            self.forget_direct(ptr, allocated_bytes);
            let known = self.taker(stream).ok();
            let attached = known.and_then(|(taker, capture)| self.attach(stream, taker, capture));
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
    pub(in crate::pool) fn free_live(
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
            let mut put = self.put_cached(cache, block, now);
            let shelf = block.header.shelf();
            if !put
                && self.may_give_half(shelf)
                && self.may_cache(block)
                && self.give_half(cache, shelf)
            {
                put = self.put_cached(cache, block, now);
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
                Some(_) => self.give_small([(stream, block.entry())], Keep::Yes),
                None if self.is_kept_by_stream(block.header.block_bytes()) => {
                    self.back.keep(self.unlist(block.offset), stream);
                }
                None => {
                    let mut pending = Pending::default();
                    own.inspect(|cache| cache.take_pending(&mut pending));
                    self.free_at(pending.offsets().chain([block.offset]), stream);
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
    fn may_give_half(&self, shelf: Shelf) -> bool {
        let most = self.settings.global_bounds();
        shelf.class().is_some() || shelf.serves() && most.blocks > 0 && most.bytes > 0
    }

    /// A shelf is full: the older half goes on to the global cache. `false`: there is none, the cache is full of others.
    #[cold]
    fn give_half(&self, cache: &ThreadCache, shelf: Shelf) -> bool {
        let half = cache.take_half(shelf);
        let any = !half.is_empty();
        let entries = half.into_iter().map(|offset| (cache.stream(), self.entry_at(offset)));
        self.give_all(entries, Keep::Yes);
        any
    }

    #[cold]
    pub(in crate::pool) fn not_a_block(&self, ptr: DevicePtr) -> FreeError {
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
    pub(in crate::pool) fn deliver(&self, Parcel { owner, mut blocks }: Parcel) {
        let owner = Arc::clone(&self.caches.lock().by_tag[owner.place()]);
        match owner.inbox.leave(&mut blocks, MOST_IN_INBOX) {
            Left::Found => {}
            Left::TooMany => self.drain_inbox(&owner, TAKEN_IN),
            Left::Orphaned => self.drain_cache(&owner, Keep::Yes),
        }
    }

    /// A block that came by a cache's inbox. While this runs the owner's thread does nothing else with the cache: it is the
    /// caller, or it is kept out.
    #[inline]
    pub(in crate::pool) fn arrived(
        &self,
        cache: &ThreadCache,
        freed: RemoteFree,
    ) -> Option<Block<'_>> {
        // Of a slab that is gone, there may be nothing left, or something else.
        let block = self.block_at(freed.offset);
        let arrived = block.filter(|block| block.word.arrives_at(cache.tag));
        if arrived.is_none() {
            // Its owner freed it at the same moment, and won.
            self.late_double_frees.fetch_add(1, Ordering::Relaxed);
        }
        arrived
    }

    /// Takes blocks that others have freed back into their owner's cache, by the owner's thread. `false`: there were none.
    pub(in crate::pool) fn take_in(&self, cache: &ThreadCache) -> bool {
        if !cache.inbox.may_have_something() {
            return false;
        }
        self.open_inbox(cache);
        true
    }

    #[inline(never)]
    fn open_inbox(&self, cache: &ThreadCache) {
        let mut rest = Vec::new();
        let arrived = cache.inbox.take(TAKEN_IN);
        for freed in &arrived {
            let Some(block) = self.arrived(cache, *freed) else { continue };
            let put =
                freed.stream == cache.stream() && self.put_cached(cache, block, block.word.now());
            if !put {
                // Nobody's from now on, so that it is seen if it comes twice.
                block.word.set(Word::FREE);
                rest.push((freed.stream, block.entry()));
            }
        }
        cache.inbox.keep_memory(arrived);
        if !rest.is_empty() {
            self.give_all(rest, Keep::Yes);
        }
    }

    /// Gives free blocks of slabs to the global cache, or what it has no room for to their slabs.
    pub(in crate::pool) fn give_small(
        &self,
        entries: impl IntoIterator<Item = (StreamSlot, Entry)>,
        keep: Keep,
    ) {
        let most = match (keep, self.belongs_to) {
            // What another stream has freed must not get into the slabs of the one that is captured.
            (_, BelongsTo::Capture) if self.back.is_captures() => {
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
        let unwanted = self.unwanted(&mut stock.global);
        drop(stock);
        empty.into_iter().for_each(|slab| self.free_slab(slab));
        self.give_up_kept(unwanted);
    }

    /// What the global cache keeps, if that is for too many streams.
    fn unwanted(&self, global: &mut GlobalCache) -> Vec<(StreamSlot, Entry)> {
        // A capture's memory stays as it is until its end.
        let too_many = global.has_too_many_streams() && !self.back.is_captures();
        if too_many { global.take_all() } else { Vec::new() }
    }

    fn is_small(&self, entry: Entry) -> bool {
        self.page_map.header(entry.header).class().is_some()
    }

    /// Gives free blocks of their own to the global cache, if it is to keep them, and to the back what it has no room for.
    fn give_large(&self, mut entries: Vec<(StreamSlot, Entry)>, keep: Keep) {
        if keep == Keep::Yes && self.belongs_to != BelongsTo::Capture && !entries.is_empty() {
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
            let unwanted = self.unwanted(&mut stock.global);
            drop(stock);
            self.give_up_kept(unwanted);
        }
        // A bounded number at a time: others wait for the lock.
        for of_stream in entries.chunk_by(|a, b| a.0 == b.0).flat_map(|of| of.chunks(FREED_AT_ONCE))
        {
            self.free_large(of_stream.iter().map(|(_, entry)| *entry), of_stream[0].0);
        }
    }

    /// Gives what the global cache has kept to its slabs and the back. Most of its streams are idle: work that has passed is found out here, once for
    /// each stream, so that a stream that takes from such a slab need not wait for all of them.
    fn give_up_kept(&self, entries: Vec<(StreamSlot, Entry)>) {
        let is_small = |(_, entry): &(StreamSlot, Entry)| self.is_small(*entry);
        let (small, large): (Vec<_>, Vec<_>) = entries.into_iter().partition(is_small);
        self.give_large(large, Keep::No);
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

    pub(in crate::pool) fn free_slab(&self, slab: EmptySlab) {
        let EmptySlab { header, node, start, class, points } = slab;
        self.page_map.set_all(start, class.slab_bytes(), None);
        self.central.lock().slabs.header_is_unused(class, header);
        self.back.free_after(node, points);
    }

    /// Gives free blocks of their own to the back.
    pub(in crate::pool) fn free_large(
        &self,
        entries: impl IntoIterator<Item = Entry>,
        stream: StreamSlot,
    ) {
        self.free_at(entries.into_iter().map(|entry| entry.offset), stream);
    }

    /// As [`free_large`](Self::free_large), of the blocks that begin at some offsets.
    fn free_at(&self, offsets: impl IntoIterator<Item = u64>, stream: StreamSlot) {
        self.back.free(offsets.into_iter().map(|offset| self.unlist(offset)), stream);
    }

    /// Forgets a free block of its own, before somebody else gets its memory.
    #[inline]
    pub(in crate::pool) fn unlist(&self, offset: u64) -> (NodeId, HeaderId) {
        let header = self.page_map.get(offset).expect("a block that is not given back");
        header.word(0).set(Word::FREE);
        self.page_map.set(offset, None);
        (header.node(), header.id)
    }

    /// Gives back what the owner's thread has freed and is pending.
    pub(in crate::pool) fn give_back_pending(&self, cache: &ThreadCache) {
        let mut pending = Pending::default();
        cache.take_pending(&mut pending);
        if !pending.is_empty() {
            self.free_at(pending.offsets(), cache.stream());
        }
    }

    /// Gives back what all threads have freed and is pending.
    pub(in crate::pool) fn give_back_all_pending(&self) {
        let may_pend = |cache: &&Arc<ThreadCache>| cache.may_pend();
        let caches: Vec<_> = self.caches.lock().by_tag.iter().filter(may_pend).cloned().collect();
        for cache in caches {
            let reclaiming = self.caches.lock();
            let (stream, pending) = (cache.stream(), cache.reclaim_pending());
            drop(reclaiming);
            if !pending.is_empty() {
                self.free_at(pending.offsets(), stream);
            }
        }
    }

    pub(in crate::pool) fn give_all(
        &self,
        entries: impl IntoIterator<Item = (StreamSlot, Entry)>,
        keep: Keep,
    ) {
        let is_small = |(_, entry): &(StreamSlot, Entry)| self.is_small(*entry);
        let (small, large): (Vec<_>, Vec<_>) = entries.into_iter().partition(is_small);
        self.give_large(large, keep);
        if !small.is_empty() {
            self.give_small(small, keep);
        }
    }
}
