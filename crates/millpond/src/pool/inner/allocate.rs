//! Allocating: the thread's cache, then each tier behind it, and the driver last.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Inner, Keep, WORTH_DRAINING_BYTES};
use crate::driver::{DevicePtr, Driver, DriverResult, Stream};
use crate::pool::attached;
use crate::pool::back::{Placed, Taker};
use crate::pool::bins::STEP_BYTES;
use crate::pool::headers::{BlockWord, Tag, Word};
use crate::pool::heap::{Use, in_steps};
use crate::pool::middle::Batch;
use crate::pool::page_map::STRETCH_BYTES;
use crate::pool::size_class::{Class, LARGEST_BYTES};
use crate::pool::thread_cache::{Counters, Entry, LARGEST_CACHED_BYTES, ThreadCache, with_last};
use crate::resource::{AllocError, OutOfMemory, Recoverable};

impl Inner {
    #[inline]
    pub(in crate::pool) fn allocate(
        self: &Arc<Inner>,
        bytes: usize,
        stream: Stream,
    ) -> Result<DevicePtr, AllocError> {
        // Nothing, too, is not less than one byte.
        if bytes.wrapping_sub(1) < LARGEST_BYTES
            && let Some(ptr) = self.allocate_small_cached(bytes, stream)
        {
            return Ok(ptr);
        }
        self.allocate_slow(bytes, stream)
    }

    /// The fast path: the cache that this thread used last has such a block.
    #[inline]
    fn allocate_small_cached(&self, bytes: usize, stream: Stream) -> Option<DevicePtr> {
        with_last(self, stream, self.epoch()?, |cache, counters| {
            let offset = cache.take_small(Class::of(bytes), bytes)?;
            counters.allocated(bytes);
            Some(self.back.address_of(offset))
        })
    }

    /// A block of its own, or one of a slab that the cache does not have.
    #[inline(never)]
    pub(super) fn allocate_slow(
        self: &Arc<Inner>,
        bytes: usize,
        stream: Stream,
    ) -> Result<DevicePtr, AllocError> {
        if bytes == 0 {
            return Ok(DevicePtr::NULL);
        }
        let answer = self.epoch().and_then(|epoch| {
            with_last(&**self, stream, epoch, |cache, counters| {
                if let Some(offset) = Self::take_large(cache, bytes) {
                    counters.allocated(bytes);
                    return Some(Ok(self.back.address_of(offset)));
                }
                let taker = Taker { slot: cache.stream, handle: stream };
                Some(self.allocate_missed(bytes, taker, Some((cache, counters))))
            })
        });
        answer.unwrap_or_else(|| self.allocate_attaching(bytes, stream))
    }

    pub(super) fn take_cached(cache: &ThreadCache, bytes: usize) -> Option<u64> {
        if bytes <= LARGEST_BYTES {
            return cache.take_small(Class::of(bytes), bytes);
        }
        Self::take_large(cache, bytes)
    }

    /// A block of its own from a cache, if the request is for one and there is one.
    #[inline]
    fn take_large(cache: &ThreadCache, bytes: usize) -> Option<u64> {
        const LARGE: std::ops::RangeInclusive<usize> =
            LARGEST_BYTES + 1..=LARGEST_CACHED_BYTES as usize;
        LARGE.contains(&bytes).then(|| cache.take_large(in_steps(bytes)?, bytes))?
    }

    /// The first call of a thread on a stream, or after another stream.
    #[cold]
    pub(super) fn allocate_attaching(
        self: &Arc<Inner>,
        bytes: usize,
        stream: Stream,
    ) -> Result<DevicePtr, AllocError> {
        let taker = self.taker(stream)?;
        let attached = attached::attach(self, stream, taker.slot, self.epoch().unwrap_or(0));
        let cache = attached.as_ref().map(|(cache, counters)| (&**cache, &**counters));
        if let Some((cache, counters)) = cache
            && let Some(offset) = Self::take_cached(cache, bytes)
        {
            counters.allocated(bytes);
            return Ok(self.back.address_of(offset));
        }
        self.allocate_missed(bytes, taker, cache)
    }

    pub(super) fn taker(&self, stream: Stream) -> DriverResult<Taker> {
        let id = self.back.driver().stream_id(stream)?;
        Ok(Taker { slot: self.back.state().streams.slot(id, stream), handle: stream })
    }

    /// The cache has no such block. A thread that is ending has no cache.
    pub(super) fn allocate_missed(
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
            .and_then(|cache| Self::take_cached(cache, bytes));
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

    pub(super) fn allocate_small(
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
                Ok(of_slab) => batch = of_slab,
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
        self.word(entry).set(Word::live(bytes, tag));
        let words = entries.iter().map(|entry| (entry.offset, self.word(*entry)));
        if !cache.is_some_and(|cache| cache.fill(class, words)) {
            self.give_small(entries.into_iter().map(|entry| (taker.slot, entry)), Keep::Yes);
        }
        Ok(entry.offset)
    }

    #[inline]
    pub(super) fn word(&self, entry: Entry) -> &BlockWord {
        self.page_map.header(entry.header).word(entry.index as usize)
    }

    /// A new slab, and blocks of it, or of others that have come meanwhile.
    pub(super) fn add_slab(&self, class: Class, taker: Taker) -> DriverResult<Batch> {
        let bytes = class.slab_bytes();
        let Placed { node, start, points, .. } =
            self.allocate_range(bytes, STRETCH_BYTES, Use::Slab, taker)?;
        let mut middle = self.middle.lock();
        let header =
            middle.unused_header(class).unwrap_or_else(|| self.page_map.add_header(Some(class)));
        self.page_map.header(header).place(start, bytes, node);
        middle.add_slab(header, class, taker.slot, node, start, points);
        self.page_map.set_all(start, bytes, Some(header));
        // Under the same lock: other threads of this stream may want as many blocks as a slab has.
        Ok(middle.take(class, taker.slot, self.settings.batch()))
    }

    pub(super) fn allocate_large(
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
        header.word(0).set(Word::live(Word::OWN_BLOCK, tag));
        self.page_map.set(start, Some(id));
        Ok(start)
    }

    pub(super) fn served_by(tier: &AtomicU64) {
        // Relaxed: a count orders nothing. Not on the fast path.
        tier.fetch_add(1, Ordering::Relaxed);
    }

    /// A range with memory under it. What caches keep is used before the driver is asked for more.
    pub(super) fn allocate_range(
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
            let in_place = || self.back.allocate_in_place(bytes, align, used_for, taker);
            if let Some(placed) = self.drain_until(in_place)? {
                Self::served_by(&self.served.reuse);
                return Ok(placed);
            }
        }
        Self::served_by(&self.served.device);
        match self.back.allocate_mapping(bytes, align, used_for, taker) {
            Err(error) if error.is_out_of_memory() => {
                self.drain();
                self.back.allocate_mapping(bytes, align, used_for, taker)
            }
            answer => answer,
        }
    }

    /// Whether to empty caches before the driver is asked for memory. Caches that were emptied have to fill again, so with slack
    /// to spend it is not done for every request that finds no place; without slack, memory comes first.
    pub(super) fn is_worth_draining(&self, bytes: u64) -> bool {
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
    pub(super) fn explain(&self, bytes: usize) -> AllocError {
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
}
