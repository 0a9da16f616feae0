//! The pool itself: the tiers, and how blocks go from one to the next.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::attached;
use super::back::{Back, Placed, Taker};
use super::bins::STEP_BYTES;
use super::config::{PoolConfig, Settings};
use super::headers::{Header, Kind, Tag, Word};
use super::heap::{Use, in_steps};
use super::middle::{Batch, EmptySlab, Middle};
use super::page_map::{PageMap, STRETCH_BYTES};
use super::points::StreamSlot;
use super::size_class::{Class, LARGEST_BYTES};
use super::stats::PoolStats;
use super::thread_cache::{
    Counters, Entry, HoldsCaches, LARGEST_CACHED_BYTES, Parcel, RemoteFree, ThreadCache, with_last,
};
use crate::driver::{Counted, DevicePtr, Driver, DriverResult, Stream};
use crate::resource::{AllocError, FreeError, OutOfMemory, Recoverable, Usage};

/// What caches must keep for it to be worth emptying them before the driver is asked for more.
const WORTH_DRAINING_BYTES: u64 = 256 << 10;
/// An inbox that has grown beyond this is emptied by whoever fills it: its owner is idle.
const MOST_IN_INBOX: usize = 1024;
/// All caches of a pool. A tag is a place in `by_tag`, plus one; a cache whose thread has gone waits in `orphans` for
/// another. Nothing is ever taken out of `by_tag` and `counters`: threads keep pointers to them.
#[derive(Debug, Default)]
struct Caches {
    by_tag: Vec<Arc<ThreadCache>>,
    orphans: HashMap<StreamSlot, Vec<Arc<ThreadCache>>>,
    counters: Vec<Arc<Counters>>,
}

/// Lock order: `caches`, then inboxes, then `middle`, then the back's.
#[derive(Debug)]
pub(super) struct Inner {
    /// Never given to another pool.
    pub(super) id: u64,
    epoch: Option<Arc<AtomicU64>>,
    pub(super) back: Back,
    page_map: PageMap,
    middle: Mutex<Middle>,
    caches: Mutex<Caches>,
    pub(super) settings: Settings,
    served: Served,
    /// Requests that found no place among what has memory, since caches were last emptied for one.
    misses_since_drain: AtomicU64,
    /// What was counted when the statistics were reset.
    reset_at: Mutex<PoolStats>,
    /// Frees that turned out, later, to have been second ones.
    late_double_frees: AtomicU64,
}

/// How often each tier behind the thread caches has served an allocation.
#[derive(Debug, Default)]
struct Served {
    global: AtomicU64,
    reuse: AtomicU64,
    device: AtomicU64,
}

/// A block that is about to be freed, as far as its address says.
#[derive(Clone, Copy)]
struct Found<'a> {
    header: &'a Header,
    offset: u64,
    index: usize,
}

impl HoldsCaches for Inner {
    #[inline]
    fn number(&self) -> u64 {
        self.id
    }

    fn holds(&self, cache: &Arc<ThreadCache>, counters: &Arc<Counters>) -> bool {
        let caches = self.caches.lock();
        let index = usize::from(cache.tag.0).wrapping_sub(1);
        caches.by_tag.get(index).is_some_and(|known| Arc::ptr_eq(known, cache))
            && caches.counters.iter().any(|known| Arc::ptr_eq(known, counters))
    }
}

impl Inner {
    pub(super) fn new(driver: Arc<dyn Driver>) -> DriverResult<Inner> {
        static POOLS: AtomicU64 = AtomicU64::new(1);
        let config = PoolConfig::default();
        let back = Back::new(Counted::new(driver), config.slack)?;
        Ok(Inner {
            // Relaxed: the number only has to be different each time.
            id: POOLS.fetch_add(1, Ordering::Relaxed),
            epoch: back.driver().stream_epoch(),
            page_map: PageMap::new(back.span_bytes()),
            middle: Mutex::default(),
            caches: Mutex::default(),
            settings: Settings::new(&config),
            served: Served::default(),
            // The first time need not wait.
            misses_since_drain: AtomicU64::new(u64::MAX / 2),
            reset_at: Mutex::default(),
            late_double_frees: AtomicU64::new(0),
            back,
        })
    }

    /// While this stays, stream handles keep their meaning. `None`: the driver cannot tell.
    #[inline]
    fn epoch(&self) -> Option<u64> {
        // Relaxed: whoever uses a recycled handle has learnt of it from the thread that destroyed the old stream,
        // and has synchronised with it.
        self.epoch.as_ref().map(|epoch| epoch.load(Ordering::Relaxed))
    }

    // Allocating.

    #[inline]
    pub(super) fn allocate(
        self: &Arc<Inner>,
        bytes: usize,
        stream: Stream,
    ) -> Result<DevicePtr, AllocError> {
        if bytes == 0 {
            return Ok(DevicePtr::NULL);
        }
        match self.allocate_cached(bytes, stream) {
            Some(ptr) => Ok(ptr),
            None => self.allocate_slow(bytes, stream),
        }
    }

    /// The fast path: the cache that this thread used last has such a block.
    #[inline]
    fn allocate_cached(&self, bytes: usize, stream: Stream) -> Option<DevicePtr> {
        with_last(self, stream, self.epoch()?, |cache, counters| {
            let offset = self.take_cached(cache, bytes)?;
            counters.allocated(bytes);
            Some(self.back.address_of(offset))
        })
    }

    #[cold]
    fn allocate_slow(
        self: &Arc<Inner>,
        bytes: usize,
        stream: Stream,
    ) -> Result<DevicePtr, AllocError> {
        let answer = self.epoch().and_then(|epoch| {
            with_last(&**self, stream, epoch, |cache, counters| {
                let taker = Taker { slot: cache.stream, handle: stream };
                Some(self.allocate_missed(bytes, taker, Some((cache, counters))))
            })
        });
        answer.unwrap_or_else(|| self.allocate_attaching(bytes, stream))
    }

    #[inline]
    fn take_cached(&self, cache: &ThreadCache, bytes: usize) -> Option<u64> {
        if bytes <= LARGEST_BYTES {
            return cache.take_small(Class::of(bytes), bytes);
        }
        let block_bytes = in_steps(bytes).filter(|size| *size <= LARGEST_CACHED_BYTES)?;
        let entry = cache.take_large(block_bytes)?;
        self.page_map.header(entry.header).set_requested(bytes);
        Some(entry.offset)
    }

    /// The first call of a thread on a stream, or after another stream.
    fn allocate_attaching(
        self: &Arc<Inner>,
        bytes: usize,
        stream: Stream,
    ) -> Result<DevicePtr, AllocError> {
        let taker = self.taker(stream)?;
        let attached = attached::attach(self, stream, taker.slot, self.epoch().unwrap_or(0));
        let cache = attached.as_ref().map(|(cache, counters)| (&**cache, &**counters));
        if let Some((cache, counters)) = cache
            && let Some(offset) = self.take_cached(cache, bytes)
        {
            counters.allocated(bytes);
            return Ok(self.back.address_of(offset));
        }
        self.allocate_missed(bytes, taker, cache)
    }

    fn taker(&self, stream: Stream) -> DriverResult<Taker> {
        let id = self.back.driver().stream_id(stream)?;
        Ok(Taker { slot: self.back.state().streams.slot(id, stream), handle: stream })
    }

    /// The cache has no such block. A thread that is ending has no cache.
    fn allocate_missed(
        &self,
        bytes: usize,
        taker: Taker,
        attached: Option<(&ThreadCache, &Counters)>,
    ) -> Result<DevicePtr, AllocError> {
        /// More than any device addresses, and little enough to be rounded and added up.
        const MOST_BYTES: u64 = 1 << 50;
        let block_bytes = in_steps(bytes).filter(|size| *size < MOST_BYTES);
        let block_bytes = block_bytes.ok_or(AllocError::TooLarge { bytes })?;
        let cache = attached.map(|(cache, _)| cache);
        if let Some((_, counters)) = attached {
            counters.missed();
        }
        let came_back = cache
            .filter(|cache| self.take_in(cache))
            .and_then(|cache| self.take_cached(cache, bytes));
        let offset = match came_back {
            Some(offset) => Ok(offset),
            None if bytes <= LARGEST_BYTES => self.allocate_small(bytes, taker, cache),
            None => self.allocate_large(bytes, block_bytes, taker, cache),
        };
        match offset {
            Ok(offset) => {
                match attached {
                    Some((_, counters)) => counters.allocated(bytes),
                    None => self.add_counters().allocated(bytes),
                }
                Ok(self.back.address_of(offset))
            }
            Err(error) if error.is_out_of_memory() => Err(self.explain(bytes)),
            Err(error) => Err(error.into()),
        }
    }

    fn allocate_small(
        &self,
        bytes: usize,
        taker: Taker,
        cache: Option<&ThreadCache>,
    ) -> DriverResult<u64> {
        let class = Class::of(bytes);
        let mut batch = self.middle.lock().take(class, taker.slot, self.settings.batch());
        if batch.entries.is_empty() && !self.back.may_grow_by(class.slab_bytes()) {
            // Beyond the slack a block that another stream has freed is better than another slab.
            batch = self.middle.lock().take_from_others(class);
        }
        if batch.entries.is_empty() {
            match self.add_slab(class, taker) {
                Ok(()) => batch = self.middle.lock().take(class, taker.slot, self.settings.batch()),
                // Memory is out, but a block that another stream has freed will do.
                Err(error) if error.is_out_of_memory() => {
                    batch = self.middle.lock().take_from_others(class);
                    if batch.entries.is_empty() {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        if batch.from_global {
            Self::served_by(&self.served.global);
        }
        let Batch { mut entries, points, .. } = batch;
        if let Err(error) = self.back.order(&points, taker) {
            self.give_small(entries.into_iter().map(|entry| (taker.slot, entry)), Keep::No);
            return Err(error);
        }
        let entry = entries.pop().expect("a batch that is not empty");
        let tag = cache.map_or(Tag::NONE, |cache| cache.tag);
        self.word(entry).store(Word::live(bytes, tag).0, Ordering::Relaxed);
        let with_words: Vec<_> = entries.iter().map(|entry| (*entry, self.word(*entry))).collect();
        if !cache.is_some_and(|cache| cache.fill(class, &with_words)) {
            self.give_small(entries.into_iter().map(|entry| (taker.slot, entry)), Keep::Yes);
        }
        Ok(entry.offset)
    }

    #[inline]
    fn word(&self, entry: Entry) -> &AtomicU32 {
        self.page_map.header(entry.header).word(entry.index as usize)
    }

    fn add_slab(&self, class: Class, taker: Taker) -> DriverResult<()> {
        let bytes = class.slab_bytes();
        let Placed { node, start, points, .. } =
            self.allocate_range(bytes, STRETCH_BYTES, Use::Slab, taker)?;
        let mut middle = self.middle.lock();
        let header =
            middle.unused_header(class).unwrap_or_else(|| self.page_map.add_header(Some(class)));
        self.page_map.header(header).place(start, bytes, node);
        middle.add_slab(header, class, taker.slot, node, start, points);
        self.page_map.set_all(start, bytes, Some(header));
        Ok(())
    }

    fn allocate_large(
        &self,
        bytes: usize,
        block_bytes: u64,
        taker: Taker,
        cache: Option<&ThreadCache>,
    ) -> DriverResult<u64> {
        let Placed { node, start, header, .. } =
            self.allocate_range(block_bytes, STEP_BYTES, Use::Block, taker)?;
        let id = header.unwrap_or_else(|| self.page_map.add_header(None));
        let tag = cache.map_or(Tag::NONE, |cache| cache.tag);
        let header = self.page_map.header(id);
        header.place(start, block_bytes, node);
        header.set_requested(bytes);
        header.word(0).store(Word::live(1, tag).0, Ordering::Relaxed);
        self.page_map.set(start, Some(id));
        Ok(start)
    }

    fn served_by(tier: &AtomicU64) {
        // Relaxed: a count orders nothing. Not on the fast path.
        tier.fetch_add(1, Ordering::Relaxed);
    }

    /// A range with memory under it. What caches keep is used before the driver is asked for more.
    fn allocate_range(
        &self,
        bytes: u64,
        align: u64,
        used_for: Use,
        taker: Taker,
    ) -> DriverResult<Placed> {
        if let Some(placed) = self.back.allocate_in_place(bytes, align, used_for, taker)? {
            Self::served_by(&self.served.reuse);
            return Ok(placed);
        }
        if self.is_worth_draining(bytes) {
            self.drain(Reserve::Keep);
            if let Some(placed) = self.back.allocate_in_place(bytes, align, used_for, taker)? {
                Self::served_by(&self.served.reuse);
                return Ok(placed);
            }
        }
        Self::served_by(&self.served.device);
        match self.back.allocate_mapping(bytes, align, used_for, taker) {
            Err(error) if error.is_out_of_memory() => {
                self.drain(Reserve::Give);
                self.back.allocate_mapping(bytes, align, used_for, taker)
            }
            answer => answer,
        }
    }

    /// Whether to empty caches before the driver is asked for memory. Caches that were emptied have to fill again, so with slack
    /// to spend it is not done for every request that finds no place; without slack, memory comes first.
    fn is_worth_draining(&self, bytes: u64) -> bool {
        /// Requests between two drains, for a slack of 1.
        const PATIENCE: f64 = 4096.0;
        // Relaxed: roughly often enough is enough.
        let missed = self.misses_since_drain.fetch_add(1, Ordering::Relaxed);
        if missed < (self.back.slack() * PATIENCE) as u64 {
            return false;
        }
        let kept = self.back.used_bytes().saturating_sub(self.live_bytes() as u64);
        let worth = kept >= bytes.min(WORTH_DRAINING_BYTES);
        if worth {
            self.misses_since_drain.store(0, Ordering::Relaxed);
        }
        worth
    }

    #[cold]
    fn explain(&self, bytes: usize) -> AllocError {
        let free = self.back.driver().memory_info().map_or(0, |info| info.free_bytes);
        let usage = self.usage();
        AllocError::OutOfMemory(Box::new(OutOfMemory {
            requested_bytes: bytes,
            live_bytes: usage.live_bytes,
            reserved_bytes: usage.reserved_bytes,
            largest_free_bytes: usage.largest_free_bytes,
            device_free_bytes: free,
            recoverable: Recoverable::default(),
        }))
    }

    // Freeing.

    #[inline]
    pub(super) fn deallocate(
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
    fn free_cached(&self, ptr: DevicePtr, bytes: Option<usize>, stream: Stream) -> bool {
        let Some(epoch) = self.epoch() else { return false };
        let freed = with_last(self, stream, epoch, |cache, counters| {
            let freed = self.put_cached(cache, self.find(ptr)?, bytes)?;
            counters.freed(freed);
            Some(())
        });
        freed.is_some()
    }

    #[inline]
    fn find(&self, ptr: DevicePtr) -> Option<Found<'_>> {
        let offset = self.back.offset_of(ptr)?;
        let header = self.page_map.get(offset)?;
        Some(Found { header, offset, index: header.index_of(offset)? })
    }

    /// Puts a block into its owner's cache, if it is live, the owner's, and of the size given. Returns its size.
    #[inline]
    fn put_cached(
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

    fn put_cached_large(
        &self,
        cache: &ThreadCache,
        found: Found<'_>,
        word: &AtomicU32,
        now: Word,
    ) -> bool {
        let block_bytes = found.header.bytes();
        if block_bytes > LARGEST_CACHED_BYTES {
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
    fn deallocate_missed(
        self: &Arc<Inner>,
        ptr: DevicePtr,
        bytes: Option<usize>,
        stream: Stream,
    ) -> Result<(), FreeError> {
        let found = self.find(ptr).ok_or_else(|| self.not_a_block(ptr))?;
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
                let taker = self.taker(stream)?;
                let attached =
                    attached::attach(self, stream, taker.slot, self.epoch().unwrap_or(0));
                let cache = attached.as_ref().map(|(cache, counters)| (&**cache, &**counters));
                self.free_live(found, now, taker.slot, cache)
            }
        };
        if freed { Ok(()) } else { Err(FreeError::AlreadyFree { ptr }) }
    }

    /// Frees a block that was live a moment ago. `false`: another thread was quicker.
    fn free_live(
        &self,
        found: Found<'_>,
        now: Word,
        stream: StreamSlot,
        attached: Option<(&ThreadCache, &Counters)>,
    ) -> bool {
        let requested = found.requested(now);
        let count = || match attached {
            Some((_, counters)) => counters.freed(requested),
            None => self.add_counters().freed(requested),
        };
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
        let has_owner = own.is_none() && now.owner() != Tag::NONE;
        let next = if has_owner { now.with(Kind::Remote) } else { Word::FREE };
        let word = found.header.word(found.index);
        // AcqRel: whoever takes the block next comes after what its user did.
        if word.compare_exchange(now.0, next.0, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return false;
        }
        count();
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
    fn not_a_block(&self, ptr: DevicePtr) -> FreeError {
        let interior = self.back.offset_of(ptr).and_then(|offset| {
            let header = self.page_map.last_before(offset)?;
            let index = offset.checked_sub(header.start())? / header.block_bytes().max(1);
            let inside = index < header.blocks() as u64;
            let live =
                || Word(header.word(index as usize).load(Ordering::Relaxed)).kind() == Kind::Live;
            (inside && live()).then(|| header.start() + index * header.block_bytes())
        });
        match interior {
            Some(block) => FreeError::Interior { ptr, block: self.back.address_of(block) },
            None => FreeError::Foreign { ptr },
        }
    }

    /// Leaves blocks for their owner to find.
    fn deliver(&self, Parcel { owner, mut blocks }: Parcel) {
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
    fn open_inbox(&self, cache: &ThreadCache) -> Vec<RemoteFree> {
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
    fn take_in(&self, cache: &ThreadCache) -> bool {
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
    fn give_small(&self, entries: impl IntoIterator<Item = (StreamSlot, Entry)>, keep: Keep) {
        let most = if keep == Keep::Yes { self.settings.global_blocks() } else { 0 };
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
            let point = self.back.point(stream);
            empty.extend(rest.into_iter().filter_map(|entry| middle.give_to_slab(entry, point)));
        }
        for EmptySlab { header, node, start, class, points } in empty {
            self.page_map.set_all(start, class.slab_bytes(), None);
            self.middle.lock().header_is_unused(class, header);
            self.back.free_after(node, points);
        }
    }

    /// Gives free blocks of their own to the back.
    fn free_large(&self, entries: impl IntoIterator<Item = Entry>, stream: StreamSlot) {
        let blocks = entries.into_iter().map(|entry| {
            let header = self.page_map.header(entry.header);
            header.word(0).store(Word::FREE.0, Ordering::Relaxed);
            self.page_map.set(header.start(), None);
            (header.node(), entry.header)
        });
        self.back.free(blocks, stream);
    }

    fn give_all(&self, entries: impl IntoIterator<Item = (StreamSlot, Entry)>, keep: Keep) {
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

    // Caches.

    pub(super) fn add_counters(&self) -> Arc<Counters> {
        let counters = Arc::new(Counters::default());
        self.caches.lock().counters.push(Arc::clone(&counters));
        counters
    }

    /// A cache for this thread: one whose thread has gone, or a new one. `None`: there are no tags left.
    pub(super) fn add_cache(&self, stream: StreamSlot) -> Option<Arc<ThreadCache>> {
        let mut caches = self.caches.lock();
        if let Some(orphan) = caches.orphans.get_mut(&stream).and_then(Vec::pop) {
            // Release: whoever sees an owner again finds the cache empty.
            orphan.orphaned.store(false, Ordering::Release);
            return Some(orphan);
        }
        let tag = u16::try_from(caches.by_tag.len() + 1).ok().filter(|tag| *tag <= Tag::MOST)?;
        let cache = Arc::new(ThreadCache::new(Tag(tag), stream));
        caches.by_tag.push(Arc::clone(&cache));
        Some(cache)
    }

    /// A thread has ended: its caches are emptied and wait for another.
    pub(super) fn detach(&self, of_thread: impl Iterator<Item = Arc<ThreadCache>>) {
        for cache in of_thread {
            cache.orphaned.store(true, Ordering::Release);
            self.drain_cache(&cache);
            self.caches.lock().orphans.entry(cache.stream).or_default().push(cache);
        }
    }

    /// Empties a cache, whoever's it is.
    fn drain_cache(&self, cache: &ThreadCache) {
        let reclaiming = self.caches.lock();
        let (entries, parcel, freed) = cache.take_all(|| {
            let freed = self.open_inbox(cache);
            // Before the owner comes back they are nobody's, so that a second free of one is seen.
            for RemoteFree { entry, .. } in &freed {
                self.word(*entry).store(Word::FREE.0, Ordering::Relaxed);
            }
            freed
        });
        drop(reclaiming);
        let freed = freed.into_iter().map(|RemoteFree { entry, stream }| (stream, entry));
        let entries = entries.into_iter().map(|entry| (cache.stream, entry)).chain(freed);
        self.give_all(entries, Keep::Yes);
        if let Some(parcel) = parcel {
            self.deliver(parcel);
        }
    }

    /// Empties every cache of every thread, and the global cache, into slabs and the back.
    pub(super) fn drain(&self, reserve: Reserve) {
        let all = self.caches.lock().by_tag.clone();
        // Twice: what was on its way from one cache to another has arrived after the first time.
        for cache in all.iter().chain(&all) {
            self.drain_cache(cache);
        }
        let mut middle = self.middle.lock();
        let mut entries = middle.drain_global();
        if reserve == Reserve::Give {
            entries.extend(middle.drain_reserve());
        }
        drop(middle);
        self.give_small(entries, Keep::No);
    }

    // Accounts.

    fn live_bytes(&self) -> i64 {
        self.caches.lock().counters.iter().map(|counters| counters.live_bytes()).sum()
    }

    pub(super) fn stats(&self) -> PoolStats {
        self.raw_stats().since(&self.reset_at.lock())
    }

    pub(super) fn reset_stats(&self) {
        let mut reset_at = self.reset_at.lock();
        *reset_at = self.raw_stats();
        self.caches.lock().counters.iter().for_each(|counters| counters.reset_peak());
    }

    fn raw_stats(&self) -> PoolStats {
        let usage = self.usage();
        let caches = self.caches.lock();
        let sum = |of: fn(&Counters) -> &AtomicU64| {
            let count = |counters: &Arc<Counters>| of(counters).load(Ordering::Relaxed);
            caches.counters.iter().map(count).sum::<u64>()
        };
        let (allocation_count, cache_misses) = (sum(|c| &c.allocations), sum(|c| &c.misses));
        let (total_allocated, total_freed) = (sum(|c| &c.allocated_bytes), sum(|c| &c.freed_bytes));
        let free_count = sum(|c| &c.frees);
        drop(caches);
        let counts = self.back.state().counts;
        let served = |tier: &AtomicU64| tier.load(Ordering::Relaxed);
        PoolStats {
            total_allocated,
            total_freed,
            current_usage: usage.live_bytes as u64,
            peak_usage: usage.peak_live_bytes as u64,
            fragmentation_bytes: (usage.reserved_bytes - usage.live_bytes) as u64,
            allocation_count,
            free_count,
            // A call that failed has missed and allocated nothing.
            cache_hits: allocation_count.saturating_sub(cache_misses),
            cache_misses,
            global_hits: served(&self.served.global),
            reuse_hits: served(&self.served.reuse),
            device_allocations: served(&self.served.device),
            reserved_bytes: usage.reserved_bytes as u64,
            pages_created: counts.pages_created,
            page_moves: counts.page_moves,
            cross_stream_waits: counts.cross_stream_waits,
            late_double_frees: self.late_double_frees.load(Ordering::Relaxed),
            driver_calls: usage.driver_calls,
        }
    }

    pub(super) fn usage(&self) -> Usage {
        let caches = self.caches.lock();
        let sum = |of: fn(&Counters) -> i64| caches.counters.iter().map(|c| of(c)).sum::<i64>();
        let live = sum(Counters::live_bytes);
        let peak = sum(Counters::peak_live_bytes);
        let blocks = sum(Counters::live_blocks);
        drop(caches);
        let state = self.back.state();
        Usage {
            live_bytes: live as usize,
            live_blocks: blocks as usize,
            reserved_bytes: state.reserved_bytes() as usize,
            peak_live_bytes: peak as usize,
            peak_reserved_bytes: state.peak_reserved_bytes() as usize,
            largest_free_bytes: 0,
            driver_calls: self.back.driver().calls(),
        }
    }
}

impl Found<'_> {
    #[inline]
    fn entry(&self) -> Entry {
        Entry { offset: self.offset, header: self.header.id, index: self.index as u32 }
    }

    /// What was asked for.
    #[inline]
    fn requested(&self, now: Word) -> usize {
        match self.header.class {
            Some(_) => now.requested(),
            None => self.header.requested(),
        }
    }
}

/// Whether blocks may stay in the global cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keep {
    Yes,
    No,
}

/// Whether the reserve is given up too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reserve {
    Keep,
    Give,
}
