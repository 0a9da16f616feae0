//! The way down of free blocks: out of caches into the global cache, into slabs, into the back.
//!
//! They go one by one, when a cache is full or its thread ends, and all together, when memory is needed elsewhere. Whoever empties caches holds
//! the lock of draining until everything is in the back, so that the next one finds it there.

use std::sync::Arc;

use crate::driver::DriverResult;
use crate::pool::blocks::{Entry, HeaderId};
use crate::pool::central::GlobalCache;
use crate::pool::heap::NodeId;
use crate::pool::points::{Points, StreamSlot};
use crate::pool::regions::BelongsTo;
use crate::pool::shelves::{Bounds, Pending};
use crate::pool::sizes::{Class, Shelf};
use crate::pool::slabs::{EmptySlab, Slabs};
use crate::pool::statistics::ThreadCounters;
use crate::pool::thread_cache::ThreadCache;
use crate::pool::tiers::Tiers;
use crate::pool::word::Word;

/// Blocks of their own that go to the back under one lock.
const FREED_AT_ONCE: usize = 64;

/// Whether blocks may stay in the global cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::pool) enum Keep {
    Yes,
    No,
}

impl Tiers {
    /// Gives free blocks of slabs to the global cache, or what it has no room for to their slabs.
    pub(super) fn give_of_slabs(
        &self,
        entries: impl IntoIterator<Item = (StreamSlot, Entry)>,
        keep: Keep,
    ) {
        let most = match (keep, self.family.belongs_to) {
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
        let unwanted = self.take_if_for_too_many_streams(&mut stock.global);
        drop(stock);
        empty.into_iter().for_each(|slab| self.free_slab(slab));
        self.give_to_slabs_and_back(unwanted);
    }

    /// What the global cache keeps, if that is for too many streams.
    fn take_if_for_too_many_streams(&self, global: &mut GlobalCache) -> Vec<(StreamSlot, Entry)> {
        // A capture's memory stays as it is until its end.
        let too_many = global.has_too_many_streams() && !self.back.is_captures();
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
        self.central.lock().slabs.header_is_unused(class, header);
        self.back.free_after(node, points);
    }

    /// Gives free blocks of their own to the back.
    pub(super) fn free_own(&self, entries: impl IntoIterator<Item = Entry>, stream: StreamSlot) {
        self.free_own_at(entries.into_iter().map(|entry| entry.offset), stream);
    }

    /// As [`free_own`](Self::free_own), of the blocks that begin at some offsets.
    pub(super) fn free_own_at(&self, offsets: impl IntoIterator<Item = u64>, stream: StreamSlot) {
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

    /// A thread has ended: its caches are emptied and wait for another.
    pub(in crate::pool) fn detach(
        &self,
        of_thread: impl Iterator<Item = Arc<ThreadCache>>,
        counters: Arc<ThreadCounters>,
    ) {
        if self.has_forked() {
            return;
        }
        for cache in of_thread {
            let stream = cache.stream();
            // Nobody else will ask for what is kept for the thread's own stream.
            let keep = if self.back.is_of_thread(stream) { Keep::No } else { Keep::Yes };
            self.detach_cache(cache, keep);
            self.back.thread_ends(stream);
        }
        self.caches.counters_are_unused(counters);
    }

    /// A thread needs a cache no longer: it is emptied and waits for another thread, or another stream.
    pub(in crate::pool) fn detach_cache(&self, cache: Arc<ThreadCache>, keep: Keep) {
        cache.inbox.set_orphaned(true);
        self.drain_cache(&cache, keep);
        self.caches.add_orphan(cache);
    }

    /// Empties a cache, whoever's it is.
    pub(super) fn drain_cache(&self, cache: &ThreadCache, keep: Keep) {
        let (stream, (offsets, parcel, freed)) = self
            .caches
            .reclaim(|| (cache.stream(), cache.take_all(|| self.take_arrived(cache, usize::MAX))));
        let offsets = offsets.into_iter();
        let entries = offsets.map(|offset| (stream, self.entry_at(offset))).chain(freed);
        self.give_free(entries, keep);
        if let Some(parcel) = parcel {
            self.deliver(parcel);
        }
    }

    /// Takes some of what others have freed out of a cache, whoever's it is, and leaves what the cache keeps.
    #[cold]
    pub(super) fn drain_inbox(&self, cache: &ThreadCache, most: usize) {
        let take = || cache.while_frozen(|| self.take_arrived(cache, most));
        let freed = self.caches.reclaim(take);
        self.give_free(freed, Keep::Yes);
    }

    /// Takes blocks out of the inbox of a cache whose owner is kept out.
    fn take_arrived(&self, cache: &ThreadCache, most: usize) -> Vec<(StreamSlot, Entry)> {
        let freed = cache.inbox.take(most).into_iter();
        let arrived = freed.filter_map(|freed| {
            let block = self.accept_from_inbox(cache, freed)?;
            // Before the owner comes back they are nobody's, so that a second free of one is seen.
            block.word.set(Word::FREE);
            Some((freed.stream, block.entry()))
        });
        arrived.collect()
    }

    /// Takes blocks of their own out of the global cache and then out of threads' caches, some at a time, until `enough` says so: a cache that keeps what is not needed stays
    /// quick, and so does this call. `None`: there is not enough, or with slack to spend, it would take too long.
    pub(super) fn drain_until<T>(
        &self,
        mut enough: impl FnMut() -> DriverResult<Option<T>>,
    ) -> DriverResult<Option<T>> {
        /// Blocks taken at a time.
        const SOME: usize = 64;
        /// Blocks taken by one call, where there is slack.
        const MOST: usize = 256;
        let draining = self.caches.start_draining();
        let mut left = if self.back.slack() > 0.0 { MOST } else { usize::MAX };
        loop {
            let entries = self.central.lock().global.take_largest(SOME);
            if entries.is_empty() {
                break;
            }
            left = left.saturating_sub(entries.len());
            self.give_free(entries, Keep::No);
            if let Some(answer) = enough()? {
                return Ok(Some(answer));
            }
            if left == 0 {
                return Ok(None);
            }
        }
        let all = self.caches.with_threads();
        for cache in all {
            loop {
                let take = || (cache.stream(), cache.take_largest(SOME));
                let (stream, offsets) = self.caches.reclaim(take);
                if offsets.is_empty() {
                    break;
                }
                left = left.saturating_sub(offsets.len());
                let entries = offsets.into_iter().map(|offset| (stream, self.entry_at(offset)));
                self.give_free(entries, Keep::No);
                if let Some(answer) = enough()? {
                    return Ok(Some(answer));
                }
                if left == 0 {
                    return Ok(None);
                }
            }
        }
        drop(draining);
        self.drain();
        self.caches.set_kept_after_drain(self.kept_bytes());
        enough()
    }

    /// Empties the caches of all threads. What they were allowed to keep no longer counts then.
    pub(in crate::pool) fn drain_caches(&self, keep: Keep) {
        if self.has_forked() || self.back.is_captures() {
            return;
        }
        let _draining = self.caches.start_draining();
        let all = self.caches.with_threads();
        // Twice: what was on its way from one cache to another has arrived after the first time.
        for cache in all.iter().chain(&all) {
            self.drain_cache(cache, keep);
        }
    }

    /// Empties every cache of every thread, and the global cache, into slabs and the back.
    pub(in crate::pool) fn drain(&self) {
        if self.has_forked() || self.back.is_captures() {
            return;
        }
        self.drain_caches(Keep::No);
        let _draining = self.caches.start_draining();
        self.back.give_up_kept();
        let entries = self.central.lock().global.take_all();
        self.give_free(entries, Keep::No);
    }

    /// Forgets streams that are gone: they come and go.
    pub(in crate::pool) fn forget_gone_streams(&self) {
        self.back.forget_gone_streams();
        let are_forgotten = |streams: &[StreamSlot]| self.back.are_forgotten(streams);
        let unwanted = self.central.lock().global.forget_idle_streams(are_forgotten);
        if !unwanted.is_empty() && !self.back.is_captures() {
            self.give_free(unwanted, Keep::No);
        }
    }
}
