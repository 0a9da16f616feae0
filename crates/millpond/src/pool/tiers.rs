//! The pool itself: the tiers, and how blocks go from one to the next.

mod allocate;
mod free;
mod memory;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::Mutex;

pub(super) use self::allocate::Patience;
use super::back::{Back, BackOptions};
use super::background::Adaptive;
use super::blocks::PageMap;
use super::central::Central;
use super::config::{PoolConfig, Settings};
use super::notes::Notes;
use super::regions::Regions;
use super::statistics::{Counters, PoolStats, ThreadCounters};
use super::streams::Order;
use super::thread_cache::ThreadCache;
use super::word::Tag;
use crate::driver::{Access, Counted, Driver, DriverResult, PhysicalProperties, StreamEpoch};
use crate::fork::Process;
use crate::resource::Direct;

/// What caches must keep for it to be worth emptying them before the driver is asked for more.
pub(super) const WORTH_DRAINING_BYTES: u64 = 256 << 10;
/// Of an inbox that has grown beyond this, whoever fills it takes some: its owner is idle.
pub(super) const MOST_IN_INBOX: usize = 1024;
/// Blocks that are taken out of an inbox at a time: more would make that one call a long one.
pub(super) const TAKEN_IN: usize = 128;

/// All caches of a pool. A tag is a place in `by_tag`, plus one; a cache whose thread has gone waits in `orphans` for
/// another. Nothing is ever taken out of `by_tag` and `counters`: threads keep pointers to them.
#[derive(Debug, Default)]
pub(super) struct Caches {
    pub(super) by_tag: Vec<Arc<ThreadCache>>,
    pub(super) orphans: Vec<Arc<ThreadCache>>,
    pub(super) counters: Vec<Arc<ThreadCounters>>,
    /// Counters whose thread has gone, for another to go on with.
    pub(super) unused_counters: Vec<Arc<ThreadCounters>>,
}

impl Caches {
    /// The caches that may hold something. One whose thread has gone was emptied before it came to `orphans`.
    pub(super) fn with_threads(&self) -> Vec<Arc<ThreadCache>> {
        let orphans: HashSet<Tag> = self.orphans.iter().map(|cache| cache.tag).collect();
        self.by_tag.iter().filter(|cache| !orphans.contains(&cache.tag)).cloned().collect()
    }
}

/// Lock order: `draining`, then `regions`, then `caches`, then inboxes, then `central`, then the back's.
#[derive(Debug)]
pub(super) struct Tiers {
    /// Never given to another pool.
    pub(super) id: u64,
    /// What threads remember the pool by: another one when what they remember no longer holds.
    pub(super) number: AtomicU64,
    /// While this stays, stream handles keep their meaning. Only if the driver can tell do threads remember anything by it.
    pub(super) epoch: Arc<StreamEpoch>,
    pub(super) remembers: bool,
    pub(super) back: Back,
    pub(super) page_map: PageMap,
    pub(super) central: Central,
    pub(super) caches: Mutex<Caches>,
    /// Held while caches are emptied, so that whoever has emptied them finds everything in the back: nothing is on its way.
    pub(super) draining: Mutex<()>,
    pub(super) settings: Settings,
    /// Requests that found no place among what has memory, since caches were last emptied for one.
    pub(super) misses_since_drain: AtomicU64,
    /// What was kept all the same when they were.
    pub(super) kept_after_drain: AtomicU64,
    /// When the statistics were reset, and what was counted by then.
    pub(super) reset_at: Mutex<(Instant, PoolStats)>,
    /// Frees that turned out, later, to have been second ones.
    pub(super) late_double_frees: AtomicU64,
    /// Blocks of which more is known than their word says.
    pub(super) notes: Mutex<Notes>,
    /// Blocks that are the driver's own allocations.
    pub(super) direct: Direct,
    /// What counts for threads that have no counters of their own. One at a time.
    pub(super) for_others: Mutex<Arc<ThreadCounters>>,
    pub(super) regions: Mutex<Regions>,
    /// What regions that are gone had counted.
    pub(super) of_gone_regions: Mutex<PoolStats>,
    /// The peaks of the pool and all its regions when one of those last went: live and reserved bytes.
    pub(super) peaks_with_gone_regions: Mutex<(usize, usize)>,
    /// The pool whose region this is.
    pub(super) parent: Weak<Tiers>,
    pub(super) belongs_to: BelongsTo,
    pub(super) process: Process,
    /// Whether a block that is too large for caches may be given back later than it is freed: with slack to spend, and while there is one
    /// stream, since what one has freed decides where others' blocks are placed.
    pub(super) lets_pend: AtomicBool,
    /// Whether blocks that are too large for caches are kept by stream: once there are several.
    pub(super) keeps_large: AtomicBool,
    pub(super) background: Mutex<Adaptive>,
    /// The background has been woken and has not looked yet.
    pub(super) fragmentation_seen: AtomicBool,
}

/// What a set of tiers is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BelongsTo {
    /// Everybody.
    Pool,
    /// Whoever has dedicated a region to a purpose.
    Region,
    /// The work that is captured on one stream. No caches, so that nothing of it is handed out elsewhere.
    Capture,
}

/// How the tiers are made.
#[derive(Clone, Debug)]
pub(super) struct TiersOptions {
    pub(super) belongs_to: BelongsTo,
    pub(super) parent: Weak<Tiers>,
    pub(super) properties: PhysicalProperties,
    pub(super) access: Access,
    pub(super) config: PoolConfig,
}

impl Tiers {
    /// What threads remember the pool by.
    #[inline]
    pub(super) fn number(&self) -> u64 {
        // Acquire: whoever knows it knows the settings that came before.
        self.number.load(Ordering::Acquire)
    }

    /// Lets a thread remember a cache while it is still that epoch of streams, and which of its counters it is to use. `false`: the pool
    /// is known by another number.
    ///
    /// # Panics
    /// If they are another pool's.
    pub(super) fn hold(
        &self,
        number: u64,
        cache: &Arc<ThreadCache>,
        counters: &Arc<ThreadCounters>,
        epoch: u64,
    ) -> bool {
        let caches = self.caches.lock();
        if self.number() != number {
            return false;
        }
        let known = caches.by_tag.get(cache.tag.place());
        let holds = known.is_some_and(|known| Arc::ptr_eq(known, cache))
            && caches.counters.iter().any(|known| Arc::ptr_eq(known, counters));
        assert!(holds, "a pool's caches are its own");
        // Looked at under the lock: whoever changes it later makes the cache unknown again.
        cache.set_known(counters.when(self.settings.counts()));
        if self.epoch() != epoch {
            // Whoever changed it may have come by before the cache was known.
            cache.set_unknown();
        }
        true
    }

    /// Is known by another number from now on: what threads remember of the pool no longer holds.
    pub(super) fn set_number(&self, number: u64) {
        let caches = self.caches.lock();
        // Release: whoever knows the new number knows the new settings.
        self.number.store(number, Ordering::Release);
        caches.by_tag.iter().for_each(|cache| cache.set_unknown());
    }

    pub(super) fn new(driver: Counted, options: TiersOptions) -> DriverResult<Tiers> {
        let TiersOptions { belongs_to, parent, properties, access, config } = options;
        let back_options = BackOptions {
            slack: config.slack,
            order: match belongs_to {
                BelongsTo::Capture => Order::SameStream,
                BelongsTo::Pool | BelongsTo::Region => Order::Events,
            },
            properties,
            access,
            span_per_capacity: match belongs_to {
                BelongsTo::Pool => 8,
                BelongsTo::Region | BelongsTo::Capture => 2,
            },
        };
        let direct = Direct::new(Arc::clone(driver.driver()));
        let back = Back::new(driver, back_options)?;
        let epoch = back.driver().stream_epoch();
        let id = new_number();
        let for_others = Arc::new(ThreadCounters::default());
        Ok(Tiers {
            id,
            number: AtomicU64::new(id),
            remembers: epoch.is_some(),
            epoch: epoch.unwrap_or_default(),
            page_map: PageMap::new(back.span_bytes()),
            central: Central::new(),
            caches: Mutex::new(Caches {
                counters: vec![Arc::clone(&for_others)],
                ..Caches::default()
            }),
            draining: Mutex::default(),
            settings: Settings::new(&config),
            // The first time need not wait.
            misses_since_drain: AtomicU64::new(u64::MAX / 2),
            kept_after_drain: AtomicU64::new(0),
            reset_at: Mutex::new((Instant::now(), PoolStats::default())),
            late_double_frees: AtomicU64::new(0),
            notes: Mutex::default(),
            direct,
            for_others: Mutex::new(for_others),
            regions: Mutex::default(),
            of_gone_regions: Mutex::default(),
            peaks_with_gone_regions: Mutex::default(),
            parent,
            belongs_to,
            process: Process::this(),
            lets_pend: AtomicBool::new(config.slack > 0.0),
            keeps_large: AtomicBool::new(false),
            background: Mutex::default(),
            fragmentation_seen: AtomicBool::new(false),
            back,
        })
    }

    /// Counts something for a thread, or for one that has no counters of its own.
    pub(super) fn count(
        &self,
        attached: Option<(&ThreadCache, &Counters)>,
        what: impl FnOnce(&Counters),
    ) {
        match attached {
            Some((_, counters)) => what(counters),
            None => what(self.for_others.lock().when(self.settings.counts())),
        }
    }

    /// A thread's cache, and where the thread counts now.
    pub(super) fn counting<'a>(
        &self,
        attached: &'a Option<(Arc<ThreadCache>, Arc<ThreadCounters>)>,
    ) -> Option<(&'a ThreadCache, &'a Counters)> {
        let counts = self.settings.counts();
        attached.as_ref().map(|(cache, counters)| (&**cache, counters.when(counts)))
    }

    /// Whether this process may use the pool no longer: it is a forked child of the one that made it.
    pub(super) fn has_forked(&self) -> bool {
        self.process.has_forked()
    }

    pub(super) fn set_config(&self, config: &PoolConfig) {
        let switches_statistics = config.enable_stats != self.settings.counts();
        if switches_statistics {
            // What is live changes from here on without the counters that have the peak.
            self.remember_peaks();
        }
        self.settings.set(config);
        if switches_statistics {
            let caches = self.caches.lock();
            // Threads remember where they count. They know the pool by the same number as before: it may be a handle's.
            caches.by_tag.iter().for_each(|cache| cache.set_unknown());
            caches.counters.iter().for_each(|counters| counters.in_statistics.reset_peak());
        }
        self.back.set_slack(config.slack);
        // Relaxed: caches are emptied below, and what pends by the old setting is found like anything that they keep.
        let are_several = self.back.state().streams.are_several();
        self.lets_pend.store(config.slack > 0.0 && !are_several, Ordering::Relaxed);
        // What caches were allowed to keep was granted by the settings before, and aligned by them.
        self.drain_caches(Keep::Yes);
        self.all_regions().iter().for_each(|region| region.set_config(config));
    }

    /// The epoch of streams by which threads remember their handles.
    #[inline]
    pub(super) fn epoch(&self) -> u64 {
        self.epoch.now()
    }
}

/// A number that no pool was ever known by. It is odd: [handles](super::by_handle) are even.
pub(super) fn new_number() -> u64 {
    static NUMBERS: AtomicU64 = AtomicU64::new(1);
    // Relaxed: the number only has to be different each time.
    NUMBERS.fetch_add(2, Ordering::Relaxed)
}

impl Drop for Tiers {
    fn drop(&mut self) {
        // Threads may go on remembering their caches, and have them.
        self.caches.get_mut().by_tag.iter().for_each(|cache| cache.set_unknown());
    }
}

/// Whether blocks may stay in the global cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    Yes,
    No,
}
