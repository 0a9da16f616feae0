//! Caches come and go, and what they keep is taken back.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Inner, Keep};
use crate::driver::{DriverResult, StreamWatcher};
use crate::pool::counters::ThreadCounters;
use crate::pool::headers::{Tag, Word};
use crate::pool::points::StreamSlot;
use crate::pool::thread_cache::{Entry, ThreadCache};

impl Inner {
    pub(in crate::pool) fn add_counters(&self) -> Arc<ThreadCounters> {
        let mut caches = self.caches.lock();
        caches.unused_counters.pop().unwrap_or_else(|| {
            let counters = Arc::new(ThreadCounters::default());
            caches.counters.push(Arc::clone(&counters));
            counters
        })
    }

    /// A cache for this thread: one whose thread has gone, or a new one. `None`: there are no tags left.
    pub(in crate::pool) fn add_cache(&self, stream: StreamSlot) -> Option<Arc<ThreadCache>> {
        let mut caches = self.caches.lock();
        if let Some(orphan) = caches.orphans.pop() {
            orphan.set_stream(stream);
            orphan.inbox.set_orphaned(false);
            return Some(orphan);
        }
        let tag = Tag::at(caches.by_tag.len())?;
        let cache = Arc::new(ThreadCache::new(tag, stream, self.back.address_of(0)));
        let watcher: Arc<dyn StreamWatcher> = Arc::<ThreadCache>::clone(&cache);
        self.epoch.watch(Arc::downgrade(&watcher));
        caches.by_tag.push(Arc::clone(&cache));
        Some(cache)
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
        self.caches.lock().unused_counters.push(counters);
    }

    /// A thread needs a cache no longer: it is emptied and waits for another thread, or another stream.
    pub(in crate::pool) fn detach_cache(&self, cache: Arc<ThreadCache>, keep: Keep) {
        cache.inbox.set_orphaned(true);
        self.drain_cache(&cache, keep);
        self.caches.lock().orphans.push(cache);
    }

    /// Empties a cache, whoever's it is.
    pub(super) fn drain_cache(&self, cache: &ThreadCache, keep: Keep) {
        let reclaiming = self.caches.lock();
        let stream = cache.stream();
        let (offsets, parcel, freed) = cache.take_all(|| self.take_arrived(cache, usize::MAX));
        drop(reclaiming);
        let offsets = offsets.into_iter();
        let entries = offsets.map(|offset| (stream, self.entry_at(offset))).chain(freed);
        self.give_all(entries, keep);
        if let Some(parcel) = parcel {
            self.deliver(parcel);
        }
    }

    /// Takes some of what others have freed out of a cache, whoever's it is, and leaves what the cache keeps.
    #[cold]
    pub(super) fn drain_inbox(&self, cache: &ThreadCache, most: usize) {
        let reclaiming = self.caches.lock();
        let freed = cache.while_frozen(|| self.take_arrived(cache, most));
        drop(reclaiming);
        self.give_all(freed, Keep::Yes);
    }

    /// Takes blocks out of the inbox of a cache whose owner is kept out.
    fn take_arrived(&self, cache: &ThreadCache, most: usize) -> Vec<(StreamSlot, Entry)> {
        let freed = cache.inbox.take(most).into_iter();
        let arrived = freed.filter_map(|freed| {
            let block = self.arrived(cache, freed)?;
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
        let draining = self.draining.lock();
        let mut left = if self.back.slack() > 0.0 { MOST } else { usize::MAX };
        loop {
            let entries = self.middle.lock().take_some_large(SOME);
            if entries.is_empty() {
                break;
            }
            left = left.saturating_sub(entries.len());
            self.give_all(entries, Keep::No);
            if let Some(answer) = enough()? {
                return Ok(Some(answer));
            }
            if left == 0 {
                return Ok(None);
            }
        }
        let all = self.caches.lock().with_threads();
        for cache in all {
            loop {
                let reclaiming = self.caches.lock();
                let (stream, offsets) = (cache.stream(), cache.take_some_large(SOME));
                drop(reclaiming);
                if offsets.is_empty() {
                    break;
                }
                left = left.saturating_sub(offsets.len());
                let entries = offsets.into_iter().map(|offset| (stream, self.entry_at(offset)));
                self.give_all(entries, Keep::No);
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
        // Relaxed: it only says when it is worth emptying them again.
        self.kept_after_drain.store(self.kept_bytes(), Ordering::Relaxed);
        enough()
    }

    /// Empties the caches of all threads. What they were allowed to keep no longer counts then.
    pub(in crate::pool) fn drain_caches(&self, keep: Keep) {
        if self.has_forked() || self.back.is_captures() {
            return;
        }
        let _draining = self.draining.lock();
        let all = self.caches.lock().with_threads();
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
        let _draining = self.draining.lock();
        self.back.give_up_kept();
        let entries = self.middle.lock().drain_global();
        self.give_all(entries, Keep::No);
    }
}
