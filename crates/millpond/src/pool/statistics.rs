//! What a pool has done, in numbers.
//!
//! What a thread has allocated and freed.
//!
//! What the pool holds and has done.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Instant;

use super::tiers::{BelongsTo, Caches, Tiers};
use crate::driver::Driver;
use crate::resource::{Resource, Usage};

/// A pool's statistics. A copy: it does not change while it is looked at.
///
/// Sums over threads are exact when no thread is inside a call. The peak is exact while one thread
/// allocates and frees. With several it is never too low, and too high by what they do not hold at the same time: it is the sum of their own
/// peaks, in which a block that another thread frees stays with the one that allocated it, but no more than was ever placed at a
/// time, for users and for caches.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct PoolStats {
    /// Bytes handed out, all together.
    pub total_allocated: u64,
    /// Bytes taken back, all together.
    pub total_freed: u64,
    /// Bytes that users hold.
    pub current_usage: u64,
    /// The most they held; with several threads at least that.
    pub peak_usage: u64,
    /// Bytes reserved from the driver and not held by users.
    pub fragmentation_bytes: u64,
    /// Blocks handed out.
    pub allocation_count: u64,
    /// Blocks taken back.
    pub free_count: u64,
    /// Allocations that the thread's own cache served.
    pub cache_hits: u64,
    /// Allocations that it could not.
    pub cache_misses: u64,
    /// Of those, the ones that the global cache served.
    pub global_hits: u64,
    /// Of those, the ones that preallocated blocks served.
    pub reserve_hits: u64,
    /// Of those, the ones that slabs or free ranges with memory served.
    pub reuse_hits: u64,
    /// Of those, the ones for which pages were moved or taken from the driver.
    pub device_allocations: u64,
    /// Physical bytes taken from the driver.
    pub reserved_bytes: u64,
    /// Of those, the ones that belong to captures.
    pub captured_bytes: u64,
    /// Pages taken from the driver.
    pub pages_created: u64,
    /// Pages given back to the driver.
    pub pages_released: u64,
    /// Pages of memory that nothing used, mapped once more for new blocks.
    pub page_moves: u64,
    /// How often a stream was made to wait for another.
    pub cross_stream_waits: u64,
    /// Frees that turned out, later, to have been second ones.
    pub late_double_frees: u64,
    /// Calls made to the driver.
    pub driver_calls: u64,
    /// The share of what is reserved that users do not hold: what `defrag_threshold` is compared with. Without regions and captures.
    pub fragmentation_rate: f64,
    /// For how long this has been counted.
    pub seconds: f64,
}

impl PoolStats {
    /// Allocations per second.
    pub fn allocations_per_second(&self) -> f64 {
        if self.seconds > 0.0 { self.allocation_count as f64 / self.seconds } else { 0.0 }
    }

    /// Adds what was counted elsewhere; what is held at the moment stays as it is.
    pub(super) fn add(&mut self, other: &PoolStats) {
        self.total_allocated += other.total_allocated;
        self.total_freed += other.total_freed;
        self.allocation_count += other.allocation_count;
        self.free_count += other.free_count;
        self.cache_hits += other.cache_hits;
        self.cache_misses += other.cache_misses;
        self.global_hits += other.global_hits;
        self.reserve_hits += other.reserve_hits;
        self.reuse_hits += other.reuse_hits;
        self.device_allocations += other.device_allocations;
        self.pages_created += other.pages_created;
        self.pages_released += other.pages_released;
        self.page_moves += other.page_moves;
        self.cross_stream_waits += other.cross_stream_waits;
        self.late_double_frees += other.late_double_frees;
    }

    /// What has been counted since `before`; what is held at the moment stays as it is.
    pub(super) fn since(self, before: &PoolStats) -> PoolStats {
        PoolStats {
            total_allocated: self.total_allocated - before.total_allocated,
            total_freed: self.total_freed - before.total_freed,
            allocation_count: self.allocation_count - before.allocation_count,
            free_count: self.free_count - before.free_count,
            // A difference of sums that are not made at one moment: it may be a little lower than it was.
            cache_hits: self.cache_hits.saturating_sub(before.cache_hits),
            cache_misses: self.cache_misses - before.cache_misses,
            global_hits: self.global_hits - before.global_hits,
            reserve_hits: self.reserve_hits - before.reserve_hits,
            reuse_hits: self.reuse_hits - before.reuse_hits,
            device_allocations: self.device_allocations - before.device_allocations,
            pages_created: self.pages_created - before.pages_created,
            pages_released: self.pages_released - before.pages_released,
            page_moves: self.page_moves - before.page_moves,
            cross_stream_waits: self.cross_stream_waits - before.cross_stream_waits,
            late_double_frees: self.late_double_frees - before.late_double_frees,
            driver_calls: self.driver_calls.saturating_sub(before.driver_calls),
            ..self
        }
    }
}

impl std::fmt::Display for PoolStats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let share = |part: u64, whole: u64| {
            if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
        };
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        writeln!(
            f,
            "live          {:>12.1} MiB, at most {:.1} MiB",
            mib(self.current_usage),
            mib(self.peak_usage)
        )?;
        writeln!(
            f,
            "reserved      {:>12.1} MiB, {:.1} MiB of it not live",
            mib(self.reserved_bytes),
            mib(self.fragmentation_bytes)
        )?;
        writeln!(
            f,
            "fragmentation {:>12.1} % of the pool's own memory is not live",
            100.0 * self.fragmentation_rate
        )?;
        writeln!(
            f,
            "allocations   {:>12}, {:.1} MiB in all, {:.0} per second",
            self.allocation_count,
            mib(self.total_allocated),
            self.allocations_per_second()
        )?;
        writeln!(
            f,
            "frees         {:>12}, {:.1} MiB in all",
            self.free_count,
            mib(self.total_freed)
        )?;
        let mut asked = self.allocation_count;
        for (tier, hits, rate_of) in [
            ("thread cache", self.cache_hits, "allocations"),
            ("global cache", self.global_hits, "the rest"),
            ("reserve", self.reserve_hits, "the rest"),
            ("reuse", self.reuse_hits, "the rest, from slabs and free ranges"),
        ] {
            let rate = share(hits, asked);
            writeln!(f, "{tier:13} {hits:>12} hits, {rate:.1} % of {rate_of}")?;
            asked = asked.saturating_sub(hits);
        }
        writeln!(
            f,
            "device        {:>12}, {:.1} % of allocations: {} pages taken, {} given back, {} moved",
            self.device_allocations,
            share(self.device_allocations, self.allocation_count),
            self.pages_created,
            self.pages_released,
            self.page_moves
        )?;
        writeln!(f, "waits         {:>12} of one stream for another", self.cross_stream_waits)?;
        write!(f, "driver calls  {:>12}", self.driver_calls)
    }
}

/// What served an allocation that the thread's own cache could not, in the order in which they are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tier {
    /// The global cache.
    Global,
    /// Blocks that were set aside.
    Reserve,
    /// Slabs and free ranges with memory.
    Reuse,
    /// Memory that was moved or taken from the driver.
    Device,
}

/// What one thread has allocated and freed. Written by that thread alone, read by all; in lines of its own, so that nobody
/// else's writing disturbs it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Counters {
    pub(super) allocated_bytes: AtomicU64,
    pub(super) freed_bytes: AtomicU64,
    pub(super) allocations: AtomicU64,
    pub(super) frees: AtomicU64,
    /// Allocations that the thread's cache could not serve, by the [tier](Tier) that did: `misses = Σ by_tier`.
    by_tier: [AtomicU64; 4],
    peak_live_bytes: AtomicI64,
}

/// Adds to a counter that has one writer: a load and a store, no read-modify-write.
#[inline]
fn add(counter: &AtomicU64, by: u64) -> u64 {
    let sum = counter.load(Ordering::Relaxed).wrapping_add(by);
    counter.store(sum, Ordering::Relaxed);
    sum
}

impl Counters {
    // Relaxed: counts order nothing.

    #[inline]
    pub(super) fn allocated(&self, bytes: usize) {
        add(&self.allocations, 1);
        let allocated = add(&self.allocated_bytes, bytes as u64);
        let live = allocated.wrapping_sub(self.freed_bytes.load(Ordering::Relaxed)) as i64;
        if live > self.peak_live_bytes.load(Ordering::Relaxed) {
            std::hint::cold_path();
            self.peak_live_bytes.store(live, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(super) fn freed(&self, bytes: usize) {
        add(&self.frees, 1);
        add(&self.freed_bytes, bytes as u64);
    }

    /// An allocation that the thread's cache could not serve, and a tier behind it did.
    pub(super) fn missed(&self, tier: Tier) {
        add(&self.by_tier[tier as usize], 1);
    }

    /// Allocations that a tier has served.
    pub(super) fn served_by(&self, tier: Tier) -> u64 {
        self.by_tier[tier as usize].load(Ordering::Relaxed)
    }

    /// Lets the peak begin anew. A peak that its thread reaches at this moment may stay.
    pub(super) fn reset_peak(&self) {
        self.peak_live_bytes.store(self.live_bytes(), Ordering::Relaxed);
    }

    /// Blocks allocated here less blocks freed here, wherever they were allocated.
    pub(super) fn live_blocks(&self) -> i64 {
        let frees = self.frees.load(Ordering::Relaxed);
        self.allocations.load(Ordering::Relaxed).wrapping_sub(frees) as i64
    }

    /// Bytes allocated here less bytes freed here, wherever they were allocated.
    pub(super) fn live_bytes(&self) -> i64 {
        let freed = self.freed_bytes.load(Ordering::Relaxed);
        self.allocated_bytes.load(Ordering::Relaxed).wrapping_sub(freed) as i64
    }

    pub(super) fn peak_live_bytes(&self) -> i64 {
        self.peak_live_bytes.load(Ordering::Relaxed)
    }
}

/// The counters of a thread. Counting does not cost more than asking whether to count, and what is live is always known that way; so with
/// the statistics switched off a thread counts where they do not look.
///
/// Live bytes = Σ over both.
#[derive(Debug, Default)]
pub(super) struct ThreadCounters {
    pub(super) in_statistics: Counters,
    left_out: Counters,
}

impl ThreadCounters {
    /// Where the thread counts, if statistics are kept, and if not.
    #[inline]
    pub(super) fn when(&self, keeps_statistics: bool) -> &Counters {
        if keeps_statistics { &self.in_statistics } else { &self.left_out }
    }

    pub(super) fn live_bytes(&self) -> i64 {
        self.in_statistics.live_bytes() + self.left_out.live_bytes()
    }

    pub(super) fn live_blocks(&self) -> i64 {
        self.in_statistics.live_blocks() + self.left_out.live_blocks()
    }

    /// The most that was live while statistics were kept. What was allocated and freed at other times stays the same meanwhile.
    pub(super) fn peak_live_bytes(&self) -> i64 {
        self.in_statistics.peak_live_bytes() + self.left_out.live_bytes()
    }
}

impl Tiers {
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

    pub(super) fn stats(&self) -> PoolStats {
        if self.has_forked() {
            return PoolStats::default();
        }
        // Locked first: what is counted after a reset is never less than at it.
        let reset_at = self.reset_at.lock();
        let seconds = reset_at.0.elapsed().as_secs_f64();
        PoolStats { seconds, ..self.raw_stats().since(&reset_at.1) }
    }

    pub(super) fn reset_stats(&self) {
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
    pub(super) fn usage(&self) -> Usage {
        if self.has_forked() {
            // Another thread may have held a lock when the process was forked.
            return Usage::default();
        }
        let add = |mut sum: Usage, region: Arc<Tiers>| {
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
