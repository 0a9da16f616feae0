//! What threads and pools have done, in numbers.
//!
//! Each thread counts for itself, in a line that only it writes. Sums are made when they are asked for.
//!
//! ```text
//!   misses of a thread = Σ tiers: allocations that the tier served
//!   hits = allocations − misses
//!   live bytes of a thread = allocated − freed, with the statistics and without        negative, if it frees what others allocate
//!   statistics of a pool = Σ threads + Σ regions + regions that are gone − what was counted at the last reset
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use crate::resource::Usage;

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

    /// What threads have counted.
    pub(super) fn of_threads(threads: &[Arc<ThreadCounters>]) -> PoolStats {
        let sum = |of: fn(&Counters) -> &AtomicU64| {
            let count = |c: &Arc<ThreadCounters>| of(&c.in_statistics).load(Ordering::Relaxed);
            threads.iter().map(count).sum::<u64>()
        };
        let served_by = |tier| {
            let of_thread = |c: &Arc<ThreadCounters>| c.in_statistics.served_by(tier);
            threads.iter().map(of_thread).sum::<u64>()
        };
        // The misses first: an allocation that is counted meanwhile is then a hit too many, not one too few.
        let [global_hits, reserve_hits, reuse_hits, device_allocations] =
            [Tier::Global, Tier::Reserve, Tier::Reuse, Tier::Device].map(served_by);
        let allocation_count = sum(|c| &c.allocations);
        let cache_misses = global_hits + reserve_hits + reuse_hits + device_allocations;
        PoolStats {
            total_allocated: sum(|c| &c.allocated_bytes),
            total_freed: sum(|c| &c.freed_bytes),
            allocation_count,
            free_count: sum(|c| &c.frees),
            // A thread counts a miss first, and then the allocation.
            cache_hits: allocation_count.saturating_sub(cache_misses),
            cache_misses,
            global_hits,
            reserve_hits,
            reuse_hits,
            device_allocations,
            ..PoolStats::default()
        }
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

/// What a pool has counted besides its threads.
#[derive(Debug)]
pub(super) struct Accounts {
    /// When the statistics were reset, and what was counted by then.
    reset_at: Mutex<(Instant, PoolStats)>,
    /// Frees that turned out, later, to have been second ones.
    late_double_frees: AtomicU64,
    /// What counts for threads that have no counters of their own. One at a time.
    for_others: Mutex<Arc<ThreadCounters>>,
    /// What regions that are gone had counted.
    of_gone_regions: Mutex<PoolStats>,
    /// The peaks of the pool and all its regions when one of those last went: live and reserved bytes.
    peaks_with_gone_regions: Mutex<(usize, usize)>,
}

impl Accounts {
    pub(super) fn new(for_others: Arc<ThreadCounters>) -> Accounts {
        Accounts {
            reset_at: Mutex::new((Instant::now(), PoolStats::default())),
            late_double_frees: AtomicU64::new(0),
            for_others: Mutex::new(for_others),
            of_gone_regions: Mutex::default(),
            peaks_with_gone_regions: Mutex::default(),
        }
    }

    /// Counts something for a thread that has no counters of its own.
    pub(super) fn count_for_others(&self, keeps_statistics: bool, what: impl FnOnce(&Counters)) {
        what(self.for_others.lock().when(keeps_statistics));
    }

    /// A free has turned out to have been a second one.
    pub(super) fn count_late_double_free(&self) {
        self.late_double_frees.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn late_double_frees(&self) -> u64 {
        self.late_double_frees.load(Ordering::Relaxed)
    }

    /// What was counted since the last reset, of what was counted in all.
    pub(super) fn since_reset(&self, in_all: impl FnOnce() -> PoolStats) -> PoolStats {
        // Locked first: what is counted after a reset is never less than at it.
        let reset_at = self.reset_at.lock();
        let seconds = reset_at.0.elapsed().as_secs_f64();
        PoolStats { seconds, ..in_all().since(&reset_at.1) }
    }

    /// Counts anew from here, and then lets peaks begin anew.
    pub(super) fn reset(&self, in_all: impl FnOnce() -> PoolStats, reset_peaks: impl FnOnce()) {
        let mut reset_at = self.reset_at.lock();
        *reset_at = (Instant::now(), in_all());
        self.peaks_with_gone_regions.lock().0 = 0;
        reset_peaks();
    }

    /// A region is gone, and this is what it had counted.
    pub(super) fn add_gone_region(&self, counted: &PoolStats) {
        self.of_gone_regions.lock().add(counted);
    }

    pub(super) fn of_gone_regions(&self) -> PoolStats {
        *self.of_gone_regions.lock()
    }

    /// A region is about to go, and takes its peaks along.
    pub(super) fn remember_peaks(&self, usage: &Usage) {
        *self.peaks_with_gone_regions.lock() = (usage.peak_live_bytes, usage.peak_reserved_bytes);
    }

    /// What is held, with peaks that are no less than those remembered.
    pub(super) fn with_remembered_peaks(&self, usage: Usage) -> Usage {
        let (live, reserved) = *self.peaks_with_gone_regions.lock();
        Usage {
            peak_live_bytes: usage.peak_live_bytes.max(live),
            peak_reserved_bytes: usage.peak_reserved_bytes.max(reserved),
            ..usage
        }
    }
}
