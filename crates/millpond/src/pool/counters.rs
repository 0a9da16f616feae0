//! What a thread has allocated and freed.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

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
