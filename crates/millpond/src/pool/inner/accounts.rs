//! What the pool holds and has done.

use crate::driver::Driver;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Inner;
use crate::pool::stats::PoolStats;
use crate::pool::thread_cache::Counters;
use crate::resource::Usage;

impl Inner {
    pub(super) fn live_bytes(&self) -> i64 {
        let live: i64 =
            self.caches.lock().counters.iter().map(|counters| counters.live_bytes()).sum();
        // As in `usage`.
        live.max(0)
    }

    pub(in crate::pool) fn stats(&self) -> PoolStats {
        // Locked first: what is counted after a reset is never less than at it.
        let reset_at = self.reset_at.lock();
        self.raw_stats().since(&reset_at)
    }

    pub(in crate::pool) fn reset_stats(&self) {
        let mut reset_at = self.reset_at.lock();
        *reset_at = self.raw_stats();
        self.caches.lock().counters.iter().for_each(|counters| counters.reset_peak());
    }

    pub(super) fn raw_stats(&self) -> PoolStats {
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
            // The two are not of one moment.
            fragmentation_bytes: usage.reserved_bytes.saturating_sub(usage.live_bytes) as u64,
            allocation_count,
            free_count,
            // What a thread counts between the two sums may be in the second only.
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

    pub(in crate::pool) fn usage(&self) -> Usage {
        let caches = self.caches.lock();
        // Not below 0: a block that moves between threads meanwhile may have been seen freed and not allocated.
        let sum =
            |of: fn(&Counters) -> i64| caches.counters.iter().map(|c| of(c)).sum::<i64>().max(0);
        let live = sum(Counters::live_bytes);
        let peak = sum(Counters::peak_live_bytes);
        let blocks = sum(Counters::live_blocks);
        drop(caches);
        let page_bytes = self.back.driver().device().granularity_bytes as u64;
        let state = self.back.state();
        Usage {
            live_bytes: live as usize,
            live_blocks: blocks as usize,
            reserved_bytes: state.reserved_bytes() as usize,
            peak_live_bytes: peak as usize,
            peak_reserved_bytes: state.peak_reserved_bytes() as usize,
            largest_free_bytes: state.largest_free_bytes(page_bytes) as usize,
            driver_calls: self.back.driver().calls(),
        }
    }
}
