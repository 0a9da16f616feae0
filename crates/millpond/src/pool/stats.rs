//! What a pool has done, in numbers.

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
