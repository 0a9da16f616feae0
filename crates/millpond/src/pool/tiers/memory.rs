//! Memory for blocks and slabs: what is there, what caches keep, what regions lend, and the driver's last.
//!
//! Caches come and go, and what they keep is taken back.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::driver::{DriverError, DriverResult, StreamWatcher};
use crate::pool::back::{Placed, Reach, Wanted};
use crate::pool::blocks::Entry;
use crate::pool::points::StreamSlot;
use crate::pool::statistics::{ThreadCounters, Tier};
use crate::pool::streams::Settle;
use crate::pool::thread_cache::ThreadCache;
use crate::pool::tiers::Patience;
use crate::pool::tiers::{Keep, Tiers, WORTH_DRAINING_BYTES};
use crate::pool::word::{Tag, Word};

/// How often everything is given up for a request before it fails: other threads may be quicker to take it.
const LAST_ATTEMPTS: usize = 8;

impl Tiers {
    /// A range with memory under it, and whether that is reused or new. What caches keep is used before the driver is asked for more.
    /// `None`: not without waiting.
    pub(in crate::pool) fn allocate_range(
        &self,
        wanted: Wanted,
        patience: Patience,
    ) -> DriverResult<Option<(Placed, Tier)>> {
        let reach = match patience {
            Patience::Some => Reach::WithinSlack,
            Patience::None => Reach::Ordered,
        };
        if let Some(placed) = self.back.allocate_in_place(wanted, reach)? {
            return Ok(Some((placed, Tier::Reuse)));
        }
        if patience == Patience::None {
            return Ok(None);
        }
        if self.is_worth_draining(wanted.bytes) {
            let in_place = || self.back.allocate_in_place(wanted, reach);
            if let Some(placed) = self.drain_until(in_place)? {
                return Ok(Some((placed, Tier::Reuse)));
            }
        }
        // As for what other streams have freed: waiting comes before growing beyond the slack.
        if !self.back.may_grow_by(wanted.bytes)
            && self.back.settle(Settle::Gone)?
            && let Some(placed) = self.back.allocate_in_place(wanted, reach)?
        {
            return Ok(Some((placed, Tier::Reuse)));
        }
        self.back.set_live_bytes(Some(self.live_bytes()));
        self.borrow_pages(wanted.bytes);
        let reserved_before = self.back.reserved_bytes();
        let mut answer = self.back.allocate_mapping(wanted);
        let mut left_before = None;
        for _ in 0..LAST_ATTEMPTS {
            if !out_of_memory(&answer) {
                break;
            }
            answer = self.allocate_last(wanted)?;
            // Others may have taken what was freed for this, and have it in their caches again. If nothing has changed, they have not.
            let left = self.kept_bytes() + self.back.pending().spare_bytes;
            if left < wanted.bytes || left_before.replace(left) == Some(left) {
                break;
            }
        }
        if out_of_memory(&answer) {
            self.back.release_beyond(reserved_before);
        }
        self.look_at_fragmentation();
        answer.map(|placed| Some((placed, Tier::Device)))
    }

    /// Memory is out: gives up everything that is kept, and waits for whatever can be waited for.
    #[cold]
    fn allocate_last(&self, wanted: Wanted) -> DriverResult<DriverResult<Placed>> {
        self.drain();
        let mut answer = self.back.allocate_mapping(wanted);
        // Nobody's stream cannot be made to wait: the host must.
        let which = match wanted.taker.slot {
            StreamSlot::NOBODY => Settle::All,
            _ => Settle::Gone,
        };
        if out_of_memory(&answer) && self.back.settle(which)? {
            answer = self.back.allocate_mapping(wanted);
        }
        if out_of_memory(&answer) && self.relieve() > 0 {
            answer = self.back.allocate_mapping(wanted);
        }
        Ok(answer)
    }

    /// Whether to empty caches before the driver is asked for memory. Caches that were emptied have to fill again, so with slack
    /// to spend it is not done for every request that finds no place, unless they have come to keep more than the slack. Without slack,
    /// memory comes first: it is done whenever there is not enough.
    pub(in crate::pool) fn is_worth_draining(&self, bytes: u64) -> bool {
        /// Requests between two drains, for a slack of 1.
        const PATIENCE: f64 = 4096.0;
        // Relaxed: roughly often enough is enough.
        let missed = self.misses_since_drain.fetch_add(1, Ordering::Relaxed);
        let slack = self.back.slack();
        if slack == 0.0 && !self.back.needs_new_memory(bytes) {
            return false;
        }
        let kept = self.kept_bytes();
        let has_waited = missed >= (slack * PATIENCE) as u64;
        // What the last time did not gain is no cache's: it is left over in slabs and by rounding.
        let gain = kept.saturating_sub(self.kept_after_drain.load(Ordering::Relaxed));
        let is_much = gain as f64 > slack * self.back.used_bytes().saturating_sub(kept) as f64;
        let worth = if has_waited {
            kept >= bytes.min(WORTH_DRAINING_BYTES)
        } else {
            is_much && gain >= WORTH_DRAINING_BYTES
        };
        if worth {
            self.misses_since_drain.store(0, Ordering::Relaxed);
        }
        worth
    }

    /// What is used and nobody's: kept in caches, and left over in slabs and by rounding.
    pub(in crate::pool) fn kept_bytes(&self) -> u64 {
        self.back.used_bytes().saturating_sub(self.live_bytes())
    }
}

fn out_of_memory(answer: &DriverResult<Placed>) -> bool {
    answer.as_ref().is_err_and(DriverError::is_out_of_memory)
}

impl Tiers {
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
    pub(in crate::pool) fn drain_cache(&self, cache: &ThreadCache, keep: Keep) {
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
    pub(in crate::pool) fn drain_inbox(&self, cache: &ThreadCache, most: usize) {
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
    pub(in crate::pool) fn drain_until<T>(
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
            let entries = self.central.lock().global.take_largest(SOME);
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
        let entries = self.central.lock().global.take_all();
        self.give_all(entries, Keep::No);
    }
}
