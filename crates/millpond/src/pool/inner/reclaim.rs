//! Caches come and go, and what they keep is taken back.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Inner, Keep};
use crate::pool::headers::{Tag, Word};
use crate::pool::points::StreamSlot;
use crate::pool::thread_cache::{Counters, RemoteFree, ThreadCache};

impl Inner {
    pub(in crate::pool) fn add_counters(&self) -> Arc<Counters> {
        let counters = Arc::new(Counters::default());
        self.caches.lock().counters.push(Arc::clone(&counters));
        counters
    }

    /// A cache for this thread: one whose thread has gone, or a new one. `None`: there are no tags left.
    pub(in crate::pool) fn add_cache(&self, stream: StreamSlot) -> Option<Arc<ThreadCache>> {
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
    pub(in crate::pool) fn detach(&self, of_thread: impl Iterator<Item = Arc<ThreadCache>>) {
        for cache in of_thread {
            cache.orphaned.store(true, Ordering::Release);
            self.drain_cache(&cache);
            self.caches.lock().orphans.entry(cache.stream).or_default().push(cache);
        }
    }

    /// Empties a cache, whoever's it is.
    pub(super) fn drain_cache(&self, cache: &ThreadCache) {
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
    pub(in crate::pool) fn drain(&self) {
        let all = self.caches.lock().with_threads();
        // Twice: what was on its way from one cache to another has arrived after the first time.
        for cache in all.iter().chain(&all) {
            self.drain_cache(cache);
        }
        let entries = self.middle.lock().drain_global();
        self.give_small(entries, Keep::No);
    }
}
