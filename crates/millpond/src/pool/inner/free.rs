//! Freeing: into the owner's cache if it is this thread's, else on its way home.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{BelongsTo, Found, Inner, Keep, MOST_IN_INBOX};
use crate::driver::{DevicePtr, RelaxedCalls, Stream};
use crate::pool::headers::{Kind, Tag, Word};
use crate::pool::middle::EmptySlab;
use crate::pool::points::StreamSlot;
use crate::pool::size_class::Class;
use crate::pool::thread_cache::{
    Counters, Entry, LARGEST_CACHED_BYTES, Parcel, RemoteFree, ThreadCache, with_last,
};
use crate::resource::{FreeError, Resource};

impl Inner {
    #[inline]
    pub(in crate::pool) fn deallocate(
        self: &Arc<Inner>,
        ptr: DevicePtr,
        bytes: Option<usize>,
        stream: Stream,
    ) -> Result<(), FreeError> {
        if ptr.is_null() {
            return Ok(());
        }
        if self.free_cached(ptr, bytes, stream) {
            return Ok(());
        }
        self.deallocate_missed(ptr, bytes, stream)
    }

    /// The fast path: a right free of a block that the cache this thread used last owns and has room for.
    #[inline]
    pub(super) fn free_cached(&self, ptr: DevicePtr, bytes: Option<usize>, stream: Stream) -> bool {
        let Some(epoch) = self.epoch() else { return false };
        let freed = with_last(self, stream, epoch, |cache, counters| {
            let freed = self.put_cached(cache, self.find(ptr)?, bytes)?;
            counters.freed(freed);
            Some(())
        });
        freed.is_some()
    }

    #[inline]
    pub(super) fn find(&self, ptr: DevicePtr) -> Option<Found<'_>> {
        let offset = self.back.offset_of(ptr)?;
        let header = self.page_map.get(offset)?;
        Some(Found { header, offset, index: header.index_of(offset)? })
    }

    /// Puts a block into its owner's cache, if it is live, the owner's, and of the size given. Returns its size.
    #[inline]
    pub(super) fn put_cached(
        &self,
        cache: &ThreadCache,
        found: Found<'_>,
        bytes: Option<usize>,
    ) -> Option<usize> {
        let word = found.header.word(found.index);
        let now = Word(word.load(Ordering::Relaxed));
        let requested = found.requested(now);
        if !now.is_live_of(cache.tag) || bytes.is_some_and(|bytes| bytes != requested) {
            return None;
        }
        let put = match found.header.class {
            Some(class) => cache.put_small(class, found.entry(), word, now, self.settings.bounds()),
            None => self.put_cached_large(cache, found, word, now),
        };
        put.then_some(requested)
    }

    pub(super) fn put_cached_large(
        &self,
        cache: &ThreadCache,
        found: Found<'_>,
        word: &AtomicU32,
        now: Word,
    ) -> bool {
        let block_bytes = found.header.bytes();
        let aligned = found.offset.is_multiple_of(self.settings.alignment() as u64);
        if block_bytes > LARGEST_CACHED_BYTES || !aligned {
            return false;
        }
        let (put, displaced) =
            cache.put_large(block_bytes, found.entry(), word, now, self.settings.bounds());
        if let Some(displaced) = displaced {
            self.free_large([displaced], cache.stream);
        }
        put
    }

    /// A free that the cache used last cannot take: another stream's or thread's block, a full cache, a bad free.
    #[cold]
    pub(super) fn deallocate_missed(
        self: &Arc<Inner>,
        ptr: DevicePtr,
        bytes: Option<usize>,
        stream: Stream,
    ) -> Result<(), FreeError> {
        if self.has_forked() {
            // The memory is the parent's, and so is the block.
            return Ok(());
        }
        let Some(found) = self.find(ptr) else { return self.free_elsewhere(ptr, bytes, stream) };
        let now = Word(found.header.word(found.index).load(Ordering::Acquire));
        if now.kind() != Kind::Live {
            return Err(FreeError::AlreadyFree { ptr });
        }
        let requested = found.requested(now);
        if let Some(given_bytes) = bytes.filter(|bytes| *bytes != requested) {
            return Err(FreeError::WrongSize { ptr, given_bytes, allocated_bytes: requested });
        }
        let known = self.epoch().and_then(|epoch| {
            with_last(&**self, stream, epoch, |cache, counters| {
                Some(self.free_live(found, now, cache.stream, Some((cache, counters))))
            })
        });
        let freed = match known {
            Some(freed) => freed,
            None => {
                let (taker, capture) = self.taker(stream)?;
                let attached = self.attach(stream, taker, capture);
                let cache = attached.as_ref().map(|(cache, counters)| (&**cache, &**counters));
                self.free_live(found, now, taker.slot, cache)
            }
        };
        if freed { Ok(()) } else { Err(FreeError::AlreadyFree { ptr }) }
    }

    /// Frees what is not among the blocks of these tiers: the driver's own, a region's, or nobody's.
    fn free_elsewhere(
        self: &Arc<Inner>,
        ptr: DevicePtr,
        bytes: Option<usize>,
        stream: Stream,
    ) -> Result<(), FreeError> {
        if let Some((_, allocated_bytes)) = self.direct.block_around(ptr) {
            let _relaxed = RelaxedCalls::enter(self.back.driver());
            let given_bytes = bytes.unwrap_or(allocated_bytes);
            self.direct.deallocate(ptr, given_bytes, stream)?;
            let known = self.taker(stream).ok();
            let attached = known.and_then(|(taker, capture)| self.attach(stream, taker, capture));
            let attached = attached.as_ref().map(|(cache, counters)| (&**cache, &**counters));
            self.count(attached, |counters| counters.freed(allocated_bytes));
            return Ok(());
        }
        match self.region_around(ptr) {
            Some(region) => region.deallocate(ptr, bytes, stream),
            None => Err(self.not_a_block(ptr)),
        }
    }

    /// Frees a block that was live a moment ago. `false`: another thread was quicker.
    pub(super) fn free_live(
        &self,
        found: Found<'_>,
        now: Word,
        stream: StreamSlot,
        attached: Option<(&ThreadCache, &Counters)>,
    ) -> bool {
        let requested = found.requested(now);
        let count = || self.count(attached, |counters| counters.freed(requested));
        let own = attached.map(|(cache, _)| cache).filter(|cache| cache.tag == now.owner());
        if let Some(cache) = own {
            let mut put = self.put_cached(cache, found, None).is_some();
            if let (false, Some(class)) = (put, found.header.class) {
                // Full: the older half goes on to the global cache.
                let half = cache.take_half(class);
                self.give_small(half.into_iter().map(|entry| (stream, entry)), Keep::Yes);
                put = self.put_cached(cache, found, None).is_some();
            }
            if put {
                count();
                return true;
            }
        }
        // Another cache's block, or none's, or one that no cache keeps. It may be freed elsewhere at this moment.
        let has_owner = own.is_none() && !matches!(now.owner(), Tag::NONE | Tag::NOTED);
        let next = if has_owner { now.with(Kind::Remote) } else { Word::FREE };
        let word = found.header.word(found.index);
        // AcqRel: whoever takes the block next comes after what its user did.
        if word.compare_exchange(now.0, next.0, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return false;
        }
        count();
        if now.owner() == Tag::NOTED {
            self.free_noted(found, requested, stream);
            return true;
        }
        let freed = RemoteFree { entry: found.entry(), stream };
        if !has_owner {
            self.give_all([(stream, freed.entry)], Keep::Yes);
            return true;
        }
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

    #[cold]
    pub(super) fn not_a_block(&self, ptr: DevicePtr) -> FreeError {
        let offset = self.back.offset_of(ptr);
        let interior = offset.and_then(|offset| {
            let header = self.page_map.last_before(offset)?;
            let index = offset.checked_sub(header.start())? / header.block_bytes().max(1);
            let start = header.start() + index * header.block_bytes();
            let index = usize::try_from(index).ok().filter(|index| *index < header.blocks())?;
            let now = Word(header.word(index).load(Ordering::Relaxed));
            let requested = Found { header, offset: start, index }.requested(now) as u64;
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
    pub(super) fn deliver(&self, Parcel { owner, mut blocks }: Parcel) {
        let owner = Arc::clone(&self.caches.lock().by_tag[usize::from(owner.0) - 1]);
        let mut inbox = owner.inbox.lock();
        inbox.append(&mut blocks);
        let too_many = inbox.len() > MOST_IN_INBOX;
        drop(inbox);
        // Acquire: an owner that has gone has emptied its inbox before this came, or will not.
        if too_many || owner.orphaned.load(Ordering::Acquire) {
            self.drain_cache(&owner);
        }
    }

    /// Opens a cache's inbox. While this runs the owner's thread does nothing else with the cache: it is the caller, or
    /// it is kept out.
    pub(super) fn open_inbox(&self, cache: &ThreadCache) -> Vec<RemoteFree> {
        let mut freed = std::mem::take(&mut *cache.inbox.lock());
        freed.retain(|RemoteFree { entry, .. }| {
            // Acquire: what the block's user did before the free is done.
            let remote = Word(self.word(*entry).load(Ordering::Acquire)).kind() == Kind::Remote;
            if !remote {
                // Its owner freed it at the same moment, and won.
                self.late_double_frees.fetch_add(1, Ordering::Relaxed);
            }
            remote
        });
        freed
    }

    /// Takes blocks that others have freed back into their owner's cache, by the owner's thread. `false`: there were none.
    pub(super) fn take_in(&self, cache: &ThreadCache) -> bool {
        if cache.inbox.lock().is_empty() {
            return false;
        }
        let mut rest = Vec::new();
        for RemoteFree { entry, stream } in self.open_inbox(cache) {
            let header = self.page_map.header(entry.header);
            let found = Found { header, offset: entry.offset, index: entry.index as usize };
            let word = header.word(found.index);
            let now = Word(word.load(Ordering::Relaxed));
            let put = stream == cache.stream
                && match header.class {
                    Some(class) => cache.put_small(class, entry, word, now, self.settings.bounds()),
                    None => self.put_cached_large(cache, found, word, now),
                };
            if !put {
                rest.push((stream, entry));
            }
        }
        self.give_all(rest, Keep::Yes);
        true
    }

    /// Gives free blocks of slabs to the global cache, or what it has no room for to their slabs.
    pub(super) fn give_small(
        &self,
        entries: impl IntoIterator<Item = (StreamSlot, Entry)>,
        keep: Keep,
    ) {
        let most = match (keep, self.belongs_to) {
            // What another stream has freed must not get into the slabs of the one that is captured.
            (_, BelongsTo::Capture) if self.back.is_captures() => usize::MAX,
            (Keep::Yes, _) => self.settings.global_blocks(),
            (Keep::No, _) => 0,
        };
        let mut by_list: HashMap<(StreamSlot, Class), Vec<Entry>> = HashMap::new();
        for (stream, entry) in entries {
            self.word(entry).store(Word::FREE.0, Ordering::Relaxed);
            let class = self.page_map.header(entry.header).class.expect("a block of a slab");
            by_list.entry((stream, class)).or_default().push(entry);
        }
        let mut empty = Vec::new();
        for ((stream, class), entries) in by_list {
            let mut middle = self.middle.lock();
            let rest = middle.give(class, stream, entries, most);
            if rest.is_empty() {
                continue;
            }
            let points = self.back.points([stream]);
            empty.extend(rest.into_iter().filter_map(|entry| middle.give_to_slab(entry, &points)));
        }
        empty.into_iter().for_each(|slab| self.free_slab(slab));
    }

    pub(super) fn free_slab(&self, slab: EmptySlab) {
        let EmptySlab { header, node, start, class, points } = slab;
        self.page_map.set_all(start, class.slab_bytes(), None);
        self.middle.lock().header_is_unused(class, header);
        self.back.free_after(node, points);
    }

    /// Gives free blocks of their own to the back.
    pub(super) fn free_large(&self, entries: impl IntoIterator<Item = Entry>, stream: StreamSlot) {
        let blocks = entries.into_iter().map(|entry| {
            let header = self.page_map.header(entry.header);
            header.word(0).store(Word::FREE.0, Ordering::Relaxed);
            self.page_map.set(header.start(), None);
            (header.node(), entry.header)
        });
        self.back.free(blocks, stream);
    }

    pub(super) fn give_all(
        &self,
        entries: impl IntoIterator<Item = (StreamSlot, Entry)>,
        keep: Keep,
    ) {
        let (small, large): (Vec<_>, Vec<_>) = entries
            .into_iter()
            .partition(|(_, entry)| self.page_map.header(entry.header).class.is_some());
        for (stream, entry) in large {
            self.free_large([entry], stream);
        }
        if !small.is_empty() {
            self.give_small(small, keep);
        }
    }
}
