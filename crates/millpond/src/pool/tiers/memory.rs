//! Memory for blocks and slabs: free ranges first, then what caches keep, what regions lend, and the driver's last.
//!
//! Caches are emptied when memory is needed elsewhere, and when their thread ends. A thread that empties them holds the lock of draining
//! until everything is in the back, so that the next one finds it there.
//!
//! ```text
//!   kept = used bytes of the back − live bytes        in caches, set aside, left over in slabs and by rounding
//!   a request fails  ⇒  caches were emptied, the reserve was given up and regions have lent, since it came
//! ```

use std::sync::Arc;

use crate::driver::{DriverError, DriverResult};
use crate::pool::back::{Placed, SearchEffort, Wanted};
use crate::pool::background;
use crate::pool::blocks::Entry;
use crate::pool::lock_free::Word;
use crate::pool::regions::Sweep;
use crate::pool::statistics::{ThreadCounters, Tier};
use crate::pool::streams::{Settle, StreamSlot};
use crate::pool::thread_cache::ThreadCache;
use crate::pool::tiers::{Keep, Patience, Tiers};

/// What caches must keep for it to be worth emptying them before the driver is asked for more.
const WORTH_DRAINING_BYTES: u64 = 256 << 10;
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
        let effort = match patience {
            Patience::Some => SearchEffort::WaitBeyondSlack,
            Patience::None => SearchEffort::NoWait,
        };
        if let Some(placed) = self.back.allocate_in_place(wanted, effort)? {
            return Ok(Some((placed, Tier::Reuse)));
        }
        if patience == Patience::None {
            return Ok(None);
        }
        if self.is_worth_draining(wanted.bytes) {
            let in_place = || self.back.allocate_in_place(wanted, effort);
            if let Some(placed) = self.drain_until(in_place)? {
                return Ok(Some((placed, Tier::Reuse)));
            }
        }
        // As for what other streams have freed: waiting comes before growing beyond the slack. Each time the search comes by more streams
        // that turn out to be gone.
        while !self.back.may_grow_by(wanted.bytes) && self.back.settle(Settle::Gone)? {
            if let Some(placed) = self.back.allocate_in_place(wanted, effort)? {
                return Ok(Some((placed, Tier::Reuse)));
            }
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
            answer = self.allocate_giving_up_everything(wanted)?;
            // Others may have taken what was freed for this, and have it in their caches again. If nothing has changed, they have not.
            let left = self.kept_bytes() + self.back.pending().spare_bytes;
            if left < wanted.bytes || left_before.replace(left) == Some(left) {
                break;
            }
        }
        if out_of_memory(&answer) {
            self.back.release_beyond(reserved_before);
        }
        background::look_at_fragmentation(self);
        background::look_at_growth(self);
        answer.map(|placed| Some((placed, Tier::Device)))
    }

    /// Memory is out: gives up everything that is kept, and waits for whatever can be waited for.
    #[cold]
    fn allocate_giving_up_everything(&self, wanted: Wanted) -> DriverResult<DriverResult<Placed>> {
        self.drain();
        let mut answer = self.back.allocate_mapping(wanted);
        // Nobody's stream cannot be made to wait: the host must.
        let which = match wanted.requester.slot {
            StreamSlot::NONE => Settle::All,
            _ => Settle::Gone,
        };
        if out_of_memory(&answer) && self.back.settle(which)? {
            answer = self.back.allocate_mapping(wanted);
        }
        if out_of_memory(&answer) && self.release_for_request() > 0 {
            answer = self.back.allocate_mapping(wanted);
        }
        Ok(answer)
    }

    /// Whether to empty caches before the driver is asked for memory. Caches that were emptied have to fill again, so with slack
    /// to spend it is not done for every request that finds no place, unless they have come to keep more than the slack. Without slack,
    /// memory comes first: it is done whenever there is not enough.
    fn is_worth_draining(&self, bytes: u64) -> bool {
        /// Requests between two drains, for a slack of 1.
        const PATIENCE: f64 = 4096.0;
        let missed = self.caches.count_request_without_place();
        let slack = self.back.slack();
        if slack == 0.0 && !self.back.needs_new_memory(bytes) {
            return false;
        }
        let kept = self.kept_bytes();
        let has_waited = missed >= (slack * PATIENCE) as u64;
        // What the last time did not gain is no cache's: it is left over in slabs and by rounding.
        let gain = kept.saturating_sub(self.caches.kept_after_drain());
        let is_much = gain as f64 > slack * self.back.used_bytes().saturating_sub(kept) as f64;
        let worth = if has_waited {
            kept >= bytes.min(WORTH_DRAINING_BYTES)
        } else {
            is_much && gain >= WORTH_DRAINING_BYTES
        };
        if worth {
            self.caches.forget_requests_without_place();
        }
        worth
    }

    /// What is used and nobody's: kept in caches, and left over in slabs and by rounding.
    fn kept_bytes(&self) -> u64 {
        self.back.used_bytes().saturating_sub(self.live_bytes())
    }

    /// Gives back whatever the pool and its regions do not use, because one of them has nothing left. Returns how many bytes,
    /// so that nobody tries again in vain.
    pub(super) fn release_for_request(&self) -> usize {
        let parent = self.family.parent();
        let root = parent.as_deref().unwrap_or(self);
        let reserved = root.release_reserve();
        let alone = root.family.has_no_regions();
        if alone && root.back.has_pages() && self.direct_is_unused() {
            // Its own pages the pool can move: giving them back would gain nothing.
            return reserved;
        }
        reserved + root.release_unused()
    }

    fn direct_is_unused(&self) -> bool {
        self.settings.direct_above() == usize::MAX
    }

    /// Gives back everything that nobody uses, waiting for work where needed; returns how many bytes.
    pub(in crate::pool) fn release_unused(&self) -> usize {
        if self.has_forked() {
            return 0;
        }
        let mut released = self.sweep_regions(Sweep::Waiting);
        for region in self.family.regions() {
            region.drain();
            released += region.back.trim();
        }
        self.drain();
        let released = released + self.back.trim();
        self.forget_gone_streams();
        released as usize
    }

    /// Gives back everything that nobody holds, what was set aside too.
    pub(in crate::pool) fn trim(&self) -> usize {
        if self.has_forked() {
            return 0;
        }
        self.release_reserve();
        self.release_unused()
    }
}

/// Emptying caches.
impl Tiers {
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
    fn drain_until<T>(
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
        if self.has_forked() || self.back.belongs_to_capture() {
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
        if self.has_forked() || self.back.belongs_to_capture() {
            return;
        }
        self.drain_caches(Keep::No);
        let _draining = self.caches.start_draining();
        self.back.merge_all_kept();
        let entries = self.central.lock().global.take_all();
        self.give_free(entries, Keep::No);
    }

    /// Forgets streams that are gone: they come and go.
    pub(in crate::pool) fn forget_gone_streams(&self) {
        self.back.forget_gone_streams();
        let are_forgotten = |streams: &[StreamSlot]| self.back.are_forgotten(streams);
        let unwanted = self.central.lock().global.forget_idle_streams(are_forgotten);
        if !unwanted.is_empty() && !self.back.belongs_to_capture() {
            self.give_free(unwanted, Keep::No);
        }
    }
}

fn out_of_memory(answer: &DriverResult<Placed>) -> bool {
    answer.as_ref().is_err_and(DriverError::is_out_of_memory)
}
