//! The pool itself: the tiers, and how blocks go from one to the next.

mod accounts;
mod allocate;
mod free;
mod reclaim;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::back::Back;
use super::config::{PoolConfig, Settings};
use super::headers::{Header, Tag, Word};
use super::middle::Middle;
use super::page_map::PageMap;
use super::points::StreamSlot;
use super::stats::PoolStats;
use super::thread_cache::{Counters, Entry, HoldsCaches, ThreadCache};
use crate::driver::{Counted, Driver, DriverResult};

/// What caches must keep for it to be worth emptying them before the driver is asked for more.
const WORTH_DRAINING_BYTES: u64 = 256 << 10;
/// An inbox that has grown beyond this is emptied by whoever fills it: its owner is idle.
const MOST_IN_INBOX: usize = 1024;
/// All caches of a pool. A tag is a place in `by_tag`, plus one; a cache whose thread has gone waits in `orphans` for
/// another. Nothing is ever taken out of `by_tag` and `counters`: threads keep pointers to them.
#[derive(Debug, Default)]
struct Caches {
    by_tag: Vec<Arc<ThreadCache>>,
    orphans: HashMap<StreamSlot, Vec<Arc<ThreadCache>>>,
    counters: Vec<Arc<Counters>>,
}

impl Caches {
    /// The caches that may hold something. One whose thread has gone was emptied before it came to `orphans`.
    fn with_threads(&self) -> Vec<Arc<ThreadCache>> {
        let orphans: HashSet<Tag> =
            self.orphans.values().flatten().map(|cache| cache.tag).collect();
        self.by_tag.iter().filter(|cache| !orphans.contains(&cache.tag)).cloned().collect()
    }
}

/// Lock order: `caches`, then inboxes, then `middle`, then the back's.
#[derive(Debug)]
pub(super) struct Inner {
    /// Never given to another pool.
    pub(super) id: u64,
    epoch: Option<Arc<AtomicU64>>,
    pub(super) back: Back,
    page_map: PageMap,
    middle: Mutex<Middle>,
    caches: Mutex<Caches>,
    pub(super) settings: Settings,
    served: Served,
    /// Requests that found no place among what has memory, since caches were last emptied for one.
    misses_since_drain: AtomicU64,
    /// What was counted when the statistics were reset.
    reset_at: Mutex<PoolStats>,
    /// Frees that turned out, later, to have been second ones.
    late_double_frees: AtomicU64,
}

/// How often each tier behind the thread caches has served an allocation.
#[derive(Debug, Default)]
struct Served {
    global: AtomicU64,
    reuse: AtomicU64,
    device: AtomicU64,
}

/// A block that is about to be freed, as far as its address says.
#[derive(Clone, Copy)]
struct Found<'a> {
    header: &'a Header,
    offset: u64,
    index: usize,
}

impl HoldsCaches for Inner {
    #[inline]
    fn number(&self) -> u64 {
        self.id
    }

    fn holds(&self, cache: &Arc<ThreadCache>, counters: &Arc<Counters>) -> bool {
        let caches = self.caches.lock();
        let index = usize::from(cache.tag.0).wrapping_sub(1);
        caches.by_tag.get(index).is_some_and(|known| Arc::ptr_eq(known, cache))
            && caches.counters.iter().any(|known| Arc::ptr_eq(known, counters))
    }
}

impl Inner {
    pub(super) fn new(driver: Arc<dyn Driver>) -> DriverResult<Inner> {
        static POOLS: AtomicU64 = AtomicU64::new(1);
        let config = PoolConfig::default();
        let back = Back::new(Counted::new(driver), config.slack)?;
        Ok(Inner {
            // Relaxed: the number only has to be different each time.
            id: POOLS.fetch_add(1, Ordering::Relaxed),
            epoch: back.driver().stream_epoch(),
            page_map: PageMap::new(back.span_bytes()),
            middle: Mutex::default(),
            caches: Mutex::default(),
            settings: Settings::new(&config),
            served: Served::default(),
            // The first time need not wait.
            misses_since_drain: AtomicU64::new(u64::MAX / 2),
            reset_at: Mutex::default(),
            late_double_frees: AtomicU64::new(0),
            back,
        })
    }

    /// While this stays, stream handles keep their meaning. `None`: the driver cannot tell.
    #[inline]
    fn epoch(&self) -> Option<u64> {
        // Relaxed: whoever uses a recycled handle has learnt of it from the thread that destroyed the old stream,
        // and has synchronised with it.
        self.epoch.as_ref().map(|epoch| epoch.load(Ordering::Relaxed))
    }
}

impl Found<'_> {
    #[inline]
    fn entry(&self) -> Entry {
        Entry { offset: self.offset, header: self.header.id, index: self.index as u32 }
    }

    /// What was asked for.
    #[inline]
    fn requested(&self, now: Word) -> usize {
        match self.header.class {
            Some(_) => now.requested(),
            None => self.header.requested(),
        }
    }
}

/// Whether blocks may stay in the global cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keep {
    Yes,
    No,
}
