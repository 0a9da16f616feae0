//! A set of tiers, and how blocks go from one to the next: a pool's, or those of a region or a capture.
//!
//! ```text
//!         allocate                                             free
//!            │ hit: fast_path                                    │ hit: fast_path
//!            ▼                                                   ▼
//!    allocate: the thread's cache again, its inbox,      free: right block, live, this size? Into its owner's cache,
//!            │ global cache, reserve, slabs                │   or on its way there
//!            ▼                                             ▼ what no cache has room for
//!    memory: free ranges, what caches keep,              drain: global cache, slabs, back; caches are emptied
//!            │ what regions lend, the driver               │
//!            ▼                                             ▼
//!            └─────────────────────── back ────────────────┘
//! ```
//!
//! `Tiers` is what belongs to one pool and nothing else: each field is a tier, or what is known about all of them, with its own methods in its
//! own file. Here is what no field can do alone. `allocate` and `free` are the two journeys, from where the fast path ends; `memory` is where
//! ranges for blocks and slabs are from; `drain` is the way down that free blocks go, one by one or all at once; `report` sums up.
//!
//! ```text
//!   pool:               parent = none
//!   region, capture:    parent = the pool, regions = ∅
//!   capture:            caches = ∅, and its part of the global cache goes nowhere else until its end
//!   drained  ⇒  blocks in thread caches = blocks in the global cache = 0      but for what threads do meanwhile
//! ```

mod allocate;
mod free;
mod memory;
mod report;

use std::collections::HashMap;
use std::sync::{Arc, Weak};

pub(super) use self::allocate::Patience;
pub(super) use self::free::Keep;
use super::back::{Back, BackOptions};
use super::background::Upkeep;
use super::blocks::PageMap;
use super::caches::Caches;
use super::central::Central;
use super::config::{PoolConfig, Settings};
use super::fast_path::Identity;
use super::notes::{Notes, TagUsage};
use super::regions::{BelongsTo, Family};
use super::statistics::{Accounts, Counters, ThreadCounters};
use super::streams::OrderBy;
use super::thread_cache::ThreadCache;
use crate::driver::{Access, Counted, Driver, DriverResult, PhysicalProperties};
use crate::resource::Direct;

/// The pool itself, or a region of it: the tiers, and what they are for.
///
/// Lock order: that of draining, then regions, then the list of caches, then inboxes, then `central`, then the back's.
#[derive(Debug)]
pub(super) struct Tiers {
    /// Which they are, as threads know them.
    pub(super) identity: Identity,
    pub(super) settings: Settings,
    /// The caches of all threads.
    pub(super) caches: Caches,
    /// From an address to what is known of the block there.
    pub(super) page_map: PageMap,
    /// What all threads share in front of the back.
    pub(super) central: Central,
    /// Addresses, the memory under them, and the order of streams.
    pub(super) back: Back,
    /// Blocks that are the driver's own allocations.
    pub(super) direct: Direct,
    /// Blocks of which more is known than their word says.
    pub(super) notes: Notes,
    /// What they are for, the pool whose region they are, and their regions.
    pub(super) family: Family,
    /// What is counted besides what threads count.
    pub(super) accounts: Accounts,
    /// What the background knows of them.
    pub(super) upkeep: Upkeep,
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
    pub(super) fn new(driver: Counted, options: TiersOptions) -> DriverResult<Tiers> {
        let TiersOptions { belongs_to, parent, properties, access, config } = options;
        let back_options = BackOptions {
            slack: config.slack,
            order: match belongs_to {
                BelongsTo::Capture => OrderBy::SameStream,
                BelongsTo::Pool | BelongsTo::Region => OrderBy::Events,
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
        let identity = Identity::new(back.driver().stream_epoch());
        let for_others = Arc::new(ThreadCounters::default());
        Ok(Tiers {
            identity,
            settings: Settings::new(&config),
            caches: Caches::new(lets_pend(&config), Arc::clone(&for_others)),
            page_map: PageMap::new(back.span_bytes()),
            central: Central::new(),
            back,
            direct,
            notes: Notes::default(),
            family: Family::new(belongs_to, parent),
            accounts: Accounts::new(for_others),
            upkeep: Upkeep::default(),
        })
    }

    /// Is known by another number from now on: what threads remember of the pool no longer holds.
    pub(super) fn set_number(&self, number: u64) {
        self.caches.make_unknown_after(|| self.identity.set_number(number));
    }

    /// Counts something for a thread, or for one that has no counters of its own.
    pub(super) fn count(
        &self,
        attached: Option<(&ThreadCache, &Counters)>,
        what: impl FnOnce(&Counters),
    ) {
        match attached {
            Some((_, counters)) => what(counters),
            None => self.accounts.count_for_others(self.settings.counts(), what),
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
        self.identity.process().has_forked()
    }

    pub(super) fn set_config(&self, config: &PoolConfig) {
        let switches_statistics = config.enable_stats != self.settings.counts();
        if switches_statistics {
            // What is live changes from here on without the counters that have the peak.
            self.remember_peaks();
        }
        self.settings.set(config);
        if switches_statistics {
            // Threads remember where they count. They know the pool by the same number as before: it may be a handle's.
            self.caches.make_unknown_after(|| {});
            self.reset_peaks_of_threads();
        }
        self.back.set_slack(config.slack);
        // Relaxed: caches are emptied below, and what pends by the old setting is found like anything that they keep.
        let are_several = self.back.state().streams.are_several();
        self.caches.set_lets_pend(lets_pend(config) && !are_several);
        // What caches were allowed to keep was granted by the settings before, and aligned by them.
        self.drain_caches(Keep::Yes);
        self.family.regions().iter().for_each(|region| region.set_config(config));
    }

    /// Checks what must hold while nobody calls. Slow.
    pub(super) fn assert_valid(&self) {
        for region in self.family.regions() {
            region.assert_valid();
        }
        self.back.assert_valid();
        self.central.lock().slabs.assert_valid();
    }

    /// What is live by the name of the scope that allocated it, the largest first.
    pub(super) fn live_by_tag(&self) -> Vec<TagUsage> {
        if self.has_forked() {
            return Vec::new();
        }
        let mut live = HashMap::new();
        self.notes.add_live_to(&mut live);
        self.family.regions().iter().for_each(|region| region.notes.add_live_to(&mut live));
        TagUsage::of_scopes(live)
    }
}

/// Whether large blocks may be given back later than they are freed: not where memory comes first.
fn lets_pend(config: &PoolConfig) -> bool {
    config.slack > 0.0 && config.release_threshold_bytes.is_none()
}

impl Drop for Tiers {
    fn drop(&mut self) {
        self.caches.make_unknown_for_good();
    }
}
