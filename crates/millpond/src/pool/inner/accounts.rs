//! What the pool holds and has done.

use crate::driver::Driver;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::{BelongsTo, Caches, Inner};
use crate::pool::counters::{Counters, ThreadCounters, Tier};
use crate::pool::stats::PoolStats;
use crate::resource::{Resource, Usage};

impl Inner {
    pub(super) fn live_bytes(&self) -> u64 {
        self.live().0 as u64
    }

    /// Live bytes and blocks.
    fn live(&self) -> (i64, i64) {
        let caches = self.caches.lock();
        let sum =
            |of: fn(&ThreadCounters) -> i64| caches.counters.iter().map(|c| of(c)).sum::<i64>();
        // Not below 0: a block that moves between threads meanwhile may have been seen freed and not allocated.
        (sum(ThreadCounters::live_bytes).max(0), sum(ThreadCounters::live_blocks).max(0))
    }

    pub(in crate::pool) fn stats(&self) -> PoolStats {
        if self.has_forked() {
            return PoolStats::default();
        }
        // Locked first: what is counted after a reset is never less than at it.
        let reset_at = self.reset_at.lock();
        let seconds = reset_at.0.elapsed().as_secs_f64();
        PoolStats { seconds, ..self.raw_stats().since(&reset_at.1) }
    }

    pub(in crate::pool) fn reset_stats(&self) {
        if self.has_forked() {
            return;
        }
        let mut reset_at = self.reset_at.lock();
        *reset_at = (Instant::now(), self.raw_stats());
        self.peaks_with_gone_regions.lock().0 = 0;
        self.reset_peaks();
        self.all_regions().iter().for_each(|region| region.reset_peaks());
    }

    fn reset_peaks(&self) {
        let of_thread = |counters: &Arc<ThreadCounters>| counters.in_statistics.reset_peak();
        self.caches.lock().counters.iter().for_each(of_thread);
        self.back.state().reset_peak_used();
    }

    /// What the pool and its regions have counted, those too that are gone.
    fn raw_stats(&self) -> PoolStats {
        let usage = self.usage();
        let mut stats = self.own_stats();
        let (regions, gone) = self.regions_and_gone();
        stats.add(&gone);
        let mut captured_bytes = 0;
        for region in regions {
            stats.add(&region.own_stats());
            if region.belongs_to == BelongsTo::Capture {
                captured_bytes += region.own_usage().reserved_bytes as u64;
            }
        }
        PoolStats {
            current_usage: usage.live_bytes as u64,
            peak_usage: usage.peak_live_bytes as u64,
            // The two are not of one moment.
            fragmentation_bytes: usage.reserved_bytes.saturating_sub(usage.live_bytes) as u64,
            reserved_bytes: usage.reserved_bytes as u64,
            captured_bytes,
            driver_calls: usage.driver_calls,
            fragmentation_rate: self.fragmentation(),
            ..stats
        }
    }

    /// What these tiers have counted, without regions.
    pub(super) fn own_stats(&self) -> PoolStats {
        let caches = self.caches.lock();
        let sum = |of: fn(&Counters) -> &AtomicU64| {
            let count = |c: &Arc<ThreadCounters>| of(&c.in_statistics).load(Ordering::Relaxed);
            caches.counters.iter().map(count).sum::<u64>()
        };
        let served_by = |tier| {
            let of_thread = |c: &Arc<ThreadCounters>| c.in_statistics.served_by(tier);
            caches.counters.iter().map(of_thread).sum::<u64>()
        };
        // The misses first: an allocation that is counted meanwhile is then a hit too many, not one too few.
        let [global_hits, reserve_hits, reuse_hits, device_allocations] =
            [Tier::Global, Tier::Reserve, Tier::Reuse, Tier::Device].map(served_by);
        let allocation_count = sum(|c| &c.allocations);
        let (total_allocated, total_freed) = (sum(|c| &c.allocated_bytes), sum(|c| &c.freed_bytes));
        let free_count = sum(|c| &c.frees);
        drop(caches);
        let counts = self.back.state().counts;
        let cache_misses = global_hits + reserve_hits + reuse_hits + device_allocations;
        PoolStats {
            total_allocated,
            total_freed,
            allocation_count,
            free_count,
            // A thread counts a miss first, and then the allocation.
            cache_hits: allocation_count.saturating_sub(cache_misses),
            cache_misses,
            global_hits,
            reserve_hits,
            reuse_hits,
            device_allocations,
            pages_created: counts.pages_created,
            pages_released: counts.pages_released,
            page_moves: counts.page_moves,
            cross_stream_waits: counts.cross_stream_waits,
            late_double_frees: self.late_double_frees.load(Ordering::Relaxed),
            ..PoolStats::default()
        }
    }

    /// What the pool and its regions hold together.
    pub(in crate::pool) fn usage(&self) -> Usage {
        if self.has_forked() {
            // Another thread may have held a lock when the process was forked.
            return Usage::default();
        }
        let add = |mut sum: Usage, region: Arc<Inner>| {
            let more = region.own_usage();
            sum.live_bytes += more.live_bytes;
            sum.live_blocks += more.live_blocks;
            sum.reserved_bytes += more.reserved_bytes;
            sum.peak_live_bytes += more.peak_live_bytes;
            sum.peak_reserved_bytes += more.peak_reserved_bytes;
            sum.largest_free_bytes = sum.largest_free_bytes.max(more.largest_free_bytes);
            sum
        };
        let mut usage = self.all_regions().into_iter().fold(self.own_usage(), add);
        let (live, reserved) = *self.peaks_with_gone_regions.lock();
        usage.peak_live_bytes = usage.peak_live_bytes.max(live);
        usage.peak_reserved_bytes = usage.peak_reserved_bytes.max(reserved);
        usage
    }

    /// A region is about to go, and takes its peaks along.
    pub(super) fn remember_peaks(&self) {
        let usage = self.usage();
        *self.peaks_with_gone_regions.lock() = (usage.peak_live_bytes, usage.peak_reserved_bytes);
    }

    /// As [`usage`](Self::usage), of the pool a region belongs to.
    pub(super) fn family_usage(&self) -> Usage {
        self.parent.upgrade().map_or_else(|| self.usage(), |parent| parent.usage())
    }

    /// What these tiers hold, without regions.
    pub(super) fn own_usage(&self) -> Usage {
        let (live, blocks) = self.live();
        let peaks = |caches: &Caches| -> i64 {
            caches.counters.iter().map(|counters| counters.peak_live_bytes()).sum()
        };
        let peak = peaks(&self.caches.lock()).max(live);
        let page_bytes = self.back.driver().device().granularity_bytes as u64;
        let direct = self.direct.usage();
        let state = self.back.state();
        let peak_placed_bytes = state.peak_used_bytes() as usize + direct.peak_reserved_bytes;
        let peak_reserved_bytes = state.peak_reserved_bytes() as usize + direct.peak_reserved_bytes;
        Usage {
            live_bytes: live as usize,
            live_blocks: blocks as usize,
            reserved_bytes: state.reserved_bytes() as usize + direct.reserved_bytes,
            // Peaks of threads that were not at the same time cannot be more than was ever placed.
            peak_live_bytes: (peak as usize).min(peak_placed_bytes),
            peak_reserved_bytes,
            largest_free_bytes: state.largest_free_bytes(page_bytes) as usize,
            driver_calls: self.back.driver().calls() + direct.driver_calls,
        }
    }
}
