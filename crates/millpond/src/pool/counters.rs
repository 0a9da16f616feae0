//! What a thread has allocated and freed.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// What one thread has allocated and freed. Written by that thread alone, read by all; in lines of its own, so that nobody
/// else's writing disturbs it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Counters {
    pub(super) allocated_bytes: AtomicU64,
    pub(super) freed_bytes: AtomicU64,
    pub(super) allocations: AtomicU64,
    pub(super) frees: AtomicU64,
    pub(super) misses: AtomicU64,
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

    /// An allocation that the thread's cache could not serve.
    pub(super) fn missed(&self) {
        add(&self.misses, 1);
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

/// The counters of a thread, or nothing where nobody counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counting<'a>(pub(super) Option<&'a Counters>);

impl Counting<'_> {
    #[inline]
    pub(super) fn allocated(self, bytes: usize) {
        if let Some(counters) = self.0 {
            counters.allocated(bytes);
        }
    }
}
