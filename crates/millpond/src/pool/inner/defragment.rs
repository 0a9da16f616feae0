//! What lies about unused: merged, and given back once nobody has needed it for a while.

use std::sync::atomic::Ordering;

use super::regions::Sweep;
use super::{BelongsTo, Inner, Keep};
use crate::driver::Driver;
use crate::pool::background;
use crate::pool::points::StreamSlot;

/// How long memory is kept that nobody needs, in intervals. Learns from its mistakes: memory that had to be fetched again was
/// given back too early.
#[derive(Debug)]
pub(super) struct Adaptive {
    patience: u32,
    /// Intervals since something was given back.
    since_given_back: u32,
    pages_created: u64,
    quiet: u32,
}

const LONGEST_PATIENCE: u32 = 64;
/// Intervals without regret after which patience is halved.
const QUIET_INTERVALS: u32 = 16;
/// Pages given back in one interval at the least; beyond that a quarter of what is spare.
const PAGES_PER_INTERVAL: usize = 64;

impl Default for Adaptive {
    fn default() -> Adaptive {
        Adaptive { patience: 1, since_given_back: u32::MAX, pages_created: 0, quiet: 0 }
    }
}

impl Adaptive {
    /// An interval has passed, in which so many pages were created in all. Returns how many intervals memory must have been
    /// unused to be given back.
    fn interval(&mut self, pages_created: u64) -> u32 {
        let regretted =
            pages_created > self.pages_created && self.since_given_back <= 2 * self.patience;
        self.pages_created = pages_created;
        self.since_given_back = self.since_given_back.saturating_add(1);
        if regretted {
            self.patience = (self.patience * 2).min(LONGEST_PATIENCE);
            self.since_given_back = u32::MAX;
            self.quiet = 0;
        } else {
            self.quiet += 1;
            if self.quiet >= QUIET_INTERVALS {
                self.patience = (self.patience / 2).max(1);
                self.quiet = 0;
            }
        }
        self.patience
    }

    fn given_back(&mut self) {
        self.since_given_back = 0;
    }
}

impl Inner {
    /// The share of what is reserved that nobody holds.
    pub(in crate::pool) fn fragmentation(&self) -> f64 {
        let usage = self.own_usage();
        if usage.reserved_bytes == 0 {
            return 0.0;
        }
        1.0 - usage.live_bytes as f64 / usage.reserved_bytes as f64
    }

    /// Merges what caches keep, and gives back what nobody has needed since the background last looked. Returns how many bytes.
    pub(in crate::pool) fn defragment(&self) -> usize {
        if self.has_forked() {
            return 0;
        }
        let mut released = self.sweep_regions(Sweep::WithoutWaiting) as usize;
        for region in self.all_regions() {
            released += region.defragment();
        }
        self.drain();
        self.forget_gone_streams();
        if !self.back.has_pages() {
            return released + self.back.trim() as usize;
        }
        let since = self.back.state().pages.now().saturating_sub(1);
        let page_bytes = self.back.driver().device().granularity_bytes;
        released + self.back.expire(usize::MAX, since) * page_bytes
    }

    /// What the background does from time to time. No allocation waits for more than one step of it.
    pub(in crate::pool) fn interval_has_passed(&self) {
        if self.has_forked() {
            return;
        }
        // Relaxed: only for it to be seen once an interval, however often it is looked at.
        self.fragmentation_seen.store(false, Ordering::Relaxed);
        self.sweep_regions(Sweep::WithoutWaiting);
        self.all_regions().iter().for_each(|region| region.interval_has_passed());
        self.back.settle_gone_streams();
        // What an idle thread has freed last is nobody's, and may expire.
        self.give_back_all_pending();
        self.merge_if_fragmented();
        self.forget_gone_streams();
        let (now, spare, pages_created) = {
            let mut state = self.back.state();
            state.tick();
            (state.pages.now(), state.spare_pages(), state.counts.pages_created)
        };
        let mut adaptive = self.background.lock();
        let patience = adaptive.interval(pages_created);
        let Some(since) = now.checked_sub(1 + patience) else { return };
        if self.back.expire(PAGES_PER_INTERVAL.max(spare / 4), since) > 0 {
            adaptive.given_back();
            // What was needed once, long ago, no longer says how much may be reserved; nor does what was live when memory was
            // last asked for.
            self.back.set_live_bytes(Some(self.live_bytes()));
            self.back.state().forget_peak();
        }
    }

    /// Forgets streams that are gone: they come and go.
    pub(super) fn forget_gone_streams(&self) {
        self.back.forget_gone_streams();
        let are_forgotten = |streams: &[StreamSlot]| self.back.are_forgotten(streams);
        let unwanted = self.middle.lock().forget_idle_streams(are_forgotten);
        if !unwanted.is_empty() && !self.back.is_captures() {
            self.give_all(unwanted, Keep::No);
        }
    }

    /// Empties caches, if too much of what is reserved is nobody's, so that it merges.
    pub(in crate::pool) fn merge_if_fragmented(&self) {
        if self.fragmentation() > self.settings.get().defrag_threshold {
            self.drain();
        }
    }

    /// Wakes the background if too much of what is reserved is nobody's.
    pub(super) fn look_at_fragmentation(&self) {
        // A forked child's pool has no background.
        if self.process.is_child() {
            return;
        }
        if self.belongs_to != BelongsTo::Pool || self.fragmentation_seen.load(Ordering::Relaxed) {
            return;
        }
        let config = self.settings.get();
        if config.enable_defrag && self.fragmentation() > config.defrag_threshold {
            self.fragmentation_seen.store(true, Ordering::Relaxed);
            background::wake(self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_fetched_again_makes_patient_and_quiet_makes_bold() {
        let mut adaptive = Adaptive::default();
        assert_eq!(adaptive.interval(10), 1, "the first pages are nobody's mistake");
        adaptive.given_back();
        assert_eq!(adaptive.interval(20), 2, "given back too early");
        adaptive.given_back();
        assert_eq!(adaptive.interval(30), 4);
        for _ in 0..QUIET_INTERVALS - 1 {
            assert_eq!(adaptive.interval(30), 4);
        }
        assert_eq!(adaptive.interval(30), 2, "nothing was missed for a while");
        for round in 0..20 {
            adaptive.given_back();
            assert!(adaptive.interval(31 + round) <= LONGEST_PATIENCE);
        }
    }
}
