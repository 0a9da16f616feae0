//! What all threads of a soak share.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use millpond::Resource;
use millpond::driver::{Driver, DriverResult, Event, EventTiming, Stream};
use millpond::pool::{Pool, Region};
use millpond_sim::SimGpu;
use parking_lot::Mutex;

use super::THREADS;
use super::audit::BACKGROUND_PATIENCE;
use super::block::Block;
use crate::conformance::Wrong;

/// What all threads of a soak share.
pub(super) struct Shared {
    pub(super) gpu: Arc<SimGpu>,
    pub(super) pool: Pool,
    pub(super) parcels: Mutex<Vec<Parcel>>,
    pub(super) regions: Mutex<Vec<Open>>,
    /// What each thread that stays holds, as it said at the quiet point.
    books: Mutex<Vec<Vec<Block>>>,
    failure: Mutex<Option<Wrong>>,
    over: AtomicBool,
    pub(super) next_word: AtomicU64,
    pub(super) actions: AtomicU64,
    pub(super) threads_started: AtomicU64,
}

/// A block between threads: usable once the event has passed.
pub(super) struct Parcel {
    pub(super) block: Block,
    pub(super) ready: Event,
}

/// A region that any thread may use or give up.
pub(super) struct Open {
    pub(super) region: Arc<Region>,
    pub(super) dedicated_bytes: usize,
}

impl Shared {
    pub(super) fn new(gpu: Arc<SimGpu>, pool: Pool) -> Shared {
        Shared {
            gpu,
            pool,
            parcels: Mutex::default(),
            regions: Mutex::default(),
            books: Mutex::new(vec![Vec::new(); THREADS]),
            failure: Mutex::default(),
            over: AtomicBool::new(false),
            next_word: AtomicU64::new(1),
            actions: AtomicU64::new(0),
            threads_started: AtomicU64::new(0),
        }
    }

    /// Does something unless something is wrong already, and remembers the first thing that is.
    pub(super) fn try_to<T>(&self, what: impl FnOnce() -> Result<T, Wrong>) -> Option<T> {
        if self.has_failed() {
            return None;
        }
        let outcome = catch_unwind(AssertUnwindSafe(what))
            .unwrap_or_else(|_| Err("a thread panicked, as was said above".into()));
        outcome.map_err(|wrong| self.failure.lock().get_or_insert(wrong).clone()).ok()
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failure.lock().is_some()
    }

    pub(super) fn outcome(&self) -> Result<(), Wrong> {
        self.failure.lock().take().map_or(Ok(()), Err)
    }

    // Relaxed below: the barriers of the quiet points order everything, and counts need no order.

    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    pub(super) fn actions(&self) -> u64 {
        self.actions.load(Ordering::Relaxed)
    }

    pub(super) fn threads_started(&self) -> u64 {
        self.threads_started.load(Ordering::Relaxed)
    }

    pub(super) fn hold(&self, thread: usize, held: Vec<Block>) {
        self.books.lock()[thread] = held;
    }

    /// Everything that any thread holds, and what is between threads.
    pub(super) fn all_held(&self) -> Vec<Block> {
        let between: Vec<Block> = self.parcels.lock().iter().map(|parcel| parcel.block).collect();
        self.books.lock().iter().flatten().copied().chain(between).collect()
    }

    /// Frees what is between threads, when all have gone, gives regions up, and trims.
    pub(super) fn close(&self) -> Result<(), Wrong> {
        self.regions.lock().clear();
        let parcels = std::mem::take(&mut *self.parcels.lock());
        for Parcel { block: Block { pattern, .. }, ready } in parcels {
            self.says(self.gpu.wait_event(Stream::LEGACY, ready))?;
            self.says(self.gpu.destroy_event(ready))?;
            let freed = self.pool.deallocate(pattern.ptr, pattern.bytes, Stream::LEGACY);
            freed.map_err(|error| format!("a right free was refused: {error}"))?;
        }
        self.says(self.gpu.synchronize_device())?;
        self.pool.trim();
        // The background may have had some pages in its hands.
        for _ in 0..BACKGROUND_PATIENCE {
            if self.pool.usage().reserved_bytes == 0 {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
            self.pool.trim();
        }
        self.pool.assert_valid();
        let usage = self.pool.usage();
        match (usage.live_bytes, usage.live_blocks, usage.reserved_bytes) {
            (0, 0, 0) => Ok(()),
            _ => Err(format!("nothing is held any more, but the pool says {usage:?}")),
        }
    }

    pub(super) fn says<T>(&self, answer: DriverResult<T>) -> Result<T, Wrong> {
        answer.map_err(|error| {
            let findings: Vec<String> =
                self.gpu.findings().iter().map(ToString::to_string).collect();
            format!("the device answers a right call with: {error}; {}", findings.join("; "))
        })
    }

    /// Makes one stream wait for what is queued on another.
    pub(super) fn order(&self, before: Stream, after: Stream) -> Result<(), Wrong> {
        let gpu = &*self.gpu;
        let ordered = gpu.create_event(EventTiming::Disabled).and_then(|event| {
            gpu.record_event(event, before)?;
            gpu.wait_event(after, event)?;
            gpu.destroy_event(event)
        });
        self.says(ordered)
    }
}
