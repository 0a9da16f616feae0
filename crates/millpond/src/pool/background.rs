//! The thread that looks after all pools of the process from time to time, and what it does for each.
//!
//! Each interval it merges what caches keep, if too much of what is reserved is not live, and gives back pages that were not needed for a
//! while. How long that is, each pool learns from its mistakes. Between intervals a request wakes it that sees too much lie about, or that
//! has made a pool grow which is to [grow ahead](super::config::PoolConfig::grow_ahead).
//!
//! ```text
//!   1 ≤ patience ≤ 64 intervals
//!   memory was fetched again soon after some was given back  ⇒  patience doubles
//!   16 intervals without that                                ⇒  patience halves
//! ```

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::regions::{BelongsTo, Sweep};
use super::tiers::Tiers;
use crate::driver::Driver;
use crate::fork::Process;

static BACKGROUND: LazyLock<Background> = LazyLock::new(Background::default);

#[derive(Debug, Default)]
struct Background {
    pools: Mutex<Pools>,
    /// A pool is there, is due sooner, or has been looked after.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Pools {
    watched: Vec<Watched>,
    thread: Option<ThreadId>,
    /// The pool that is being looked after, without the lock.
    in_hand: Option<u64>,
}

#[derive(Debug)]
struct Watched {
    id: u64,
    tiers: Weak<Tiers>,
    due: Instant,
    /// A request has seen that too much lies about.
    is_fragmented: bool,
    /// A request has made the pool grow.
    grows: bool,
}

impl Watched {
    fn is_woken(&self) -> bool {
        self.is_fragmented || self.grows
    }
}

/// While this lives, the background looks after a pool.
#[derive(Debug)]
pub(super) struct Watch {
    id: u64,
    process: Process,
}

/// Looks after a pool from now on. `None`: a forked child starts no threads.
pub(super) fn watch(tiers: &Arc<Tiers>) -> Option<Watch> {
    let process = Process::this();
    if process.is_child() {
        return None;
    }
    let mut pools = BACKGROUND.pools.lock();
    if pools.thread.is_none() {
        let thread = std::thread::Builder::new().name("millpond".into()).spawn(run);
        // Without a thread pools work as well. They keep unused memory until the program trims them.
        pools.thread = Some(thread.ok()?.thread().id());
    }
    let due = Instant::now() + interval(tiers);
    pools.watched.push(Watched {
        id: tiers.identity.id,
        tiers: Arc::downgrade(tiers),
        due,
        is_fragmented: false,
        grows: false,
    });
    BACKGROUND.changed.notify_all();
    Some(Watch { id: tiers.identity.id, process })
}

/// Looks after a pool soon, for a reason that is noted.
fn wake(id: u64, note: impl FnOnce(&mut Watched)) {
    let mut pools = BACKGROUND.pools.lock();
    if let Some(watched) = pools.watched.iter_mut().find(|watched| watched.id == id) {
        note(watched);
        BACKGROUND.changed.notify_all();
    }
}

/// The settings of a pool have changed: its next turn may come sooner.
pub(super) fn reschedule(tiers: &Tiers) {
    let mut pools = BACKGROUND.pools.lock();
    if let Some(watched) = pools.watched.iter_mut().find(|watched| watched.id == tiers.identity.id)
    {
        watched.due = Instant::now() + interval(tiers);
        BACKGROUND.changed.notify_all();
    }
}

fn interval(tiers: &Tiers) -> Duration {
    Duration::from_millis(tiers.settings.get().defrag_interval_ms)
}

fn run() {
    let mut pools = BACKGROUND.pools.lock();
    loop {
        let now = Instant::now();
        let is_next = |watched: &&mut Watched| watched.is_woken() || watched.due <= now;
        let Some(next) = pools.watched.iter_mut().find(is_next) else {
            match pools.watched.iter().map(|watched| watched.due).min() {
                Some(due) => {
                    let left = due.saturating_duration_since(now);
                    BACKGROUND.changed.wait_for(&mut pools, left);
                }
                None => BACKGROUND.changed.wait(&mut pools),
            }
            continue;
        };
        let (id, tiers, is_due) = (next.id, next.tiers.upgrade(), next.due <= now);
        let grows = std::mem::take(&mut next.grows);
        let is_fragmented = std::mem::take(&mut next.is_fragmented);
        if let Some(tiers) = &tiers
            && is_due
        {
            next.due = now + interval(tiers);
        }
        pools.in_hand = Some(id);
        drop(pools);
        if let Some(tiers) = tiers.filter(|tiers| tiers.settings.get().enable_defrag) {
            if grows {
                grow_ahead(&tiers);
            }
            if is_due {
                interval_has_passed(&tiers);
            } else if is_fragmented {
                merge_if_fragmented(&tiers);
            }
        }
        pools = BACKGROUND.pools.lock();
        pools.in_hand = None;
        BACKGROUND.changed.notify_all();
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if self.process.has_forked() {
            return;
        }
        let mut pools = BACKGROUND.pools.lock();
        pools.watched.retain(|watched| watched.id != self.id);
        // So that the pool is really gone when its last user has dropped it.
        let is_background = pools.thread == Some(std::thread::current().id());
        while pools.in_hand == Some(self.id) && !is_background {
            BACKGROUND.changed.wait(&mut pools);
        }
    }
}

/// What the background knows of a pool.
#[derive(Debug, Default)]
pub(super) struct Upkeep {
    adaptive: Mutex<Adaptive>,
    /// Frees of blocks that are too large for caches, where unused memory goes back with them.
    large_frees: AtomicU64,
    /// The background has been woken and has not looked yet.
    fragmentation_seen: AtomicBool,
}

/// For how many intervals a pool keeps unused memory. Learns from its mistakes: memory that had to be fetched again was
/// given back too early.
#[derive(Debug)]
struct Adaptive {
    patience: u32,
    /// Intervals since something was given back.
    since_given_back: u32,
    pages_created: u64,
    quiet: u32,
}

const LONGEST_PATIENCE: u32 = 64;
/// Intervals without regret after which patience is halved.
const QUIET_INTERVALS: u32 = 16;
/// Pages given back in one interval at the least; beyond that a quarter of what is spare.
const PAGES_PER_INTERVAL: usize = 64;

impl Default for Adaptive {
    fn default() -> Adaptive {
        Adaptive { patience: 1, since_given_back: u32::MAX, pages_created: 0, quiet: 0 }
    }
}

impl Adaptive {
    /// An interval has passed, in which so many pages were created in all. Returns how many intervals memory must have been
    /// unused to be given back.
    fn interval(&mut self, pages_created: u64) -> u32 {
        let regretted =
            pages_created > self.pages_created && self.since_given_back <= 2 * self.patience;
        self.pages_created = pages_created;
        self.since_given_back = self.since_given_back.saturating_add(1);
        if regretted {
            self.patience = (self.patience * 2).min(LONGEST_PATIENCE);
            self.since_given_back = u32::MAX;
            self.quiet = 0;
        } else {
            self.quiet += 1;
            if self.quiet >= QUIET_INTERVALS {
                self.patience = (self.patience / 2).max(1);
                self.quiet = 0;
            }
        }
        self.patience
    }

    fn given_back(&mut self) {
        self.since_given_back = 0;
    }
}

/// Merges what caches keep, and gives back memory that was not used since the background last looked. Returns how many bytes.
pub(super) fn defragment(tiers: &Tiers) -> usize {
    if tiers.has_forked() {
        return 0;
    }
    let mut released = tiers.sweep_regions(Sweep::WithoutWaiting) as usize;
    for region in tiers.family.regions() {
        released += defragment(&region);
    }
    tiers.drain();
    tiers.forget_gone_streams();
    if !tiers.back.has_pages() {
        return released + tiers.back.trim() as usize;
    }
    let since = tiers.back.state().pages.now().saturating_sub(1);
    let page_bytes = tiers.back.driver().device().granularity_bytes;
    released + tiers.back.expire(usize::MAX, since) * page_bytes
}

/// What the background does from time to time. No allocation waits for more than one step of it.
pub(super) fn interval_has_passed(tiers: &Tiers) {
    if tiers.has_forked() {
        return;
    }
    // Relaxed: only for it to be seen once an interval, however often it is looked at.
    tiers.upkeep.fragmentation_seen.store(false, Ordering::Relaxed);
    tiers.sweep_regions(Sweep::WithoutWaiting);
    tiers.family.regions().iter().for_each(|region| interval_has_passed(region));
    tiers.back.settle_gone_streams();
    // The blocks that an idle thread freed last may expire, too.
    tiers.give_back_all_pending();
    merge_if_fragmented(tiers);
    tiers.forget_gone_streams();
    tiers.back.tick();
    let (now, spare, pages_created) = {
        let state = tiers.back.state();
        (state.pages.now(), state.spare_pages(), state.counts.pages_created)
    };
    let mut adaptive = tiers.upkeep.adaptive.lock();
    let patience = adaptive.interval(pages_created);
    let Some(since) = now.checked_sub(1 + patience) else { return };
    if tiers.back.expire(PAGES_PER_INTERVAL.max(spare / 4), since) > 0 {
        adaptive.given_back();
        // What was needed once, long ago, no longer says how much may be reserved; nor does what was live when memory was
        // last asked for.
        tiers.back.set_live_bytes(Some(tiers.live_bytes()));
        tiers.back.state().forget_peak();
    }
}

/// Large frees between two looks of [`release_above`].
const FREES_PER_LOOK: u64 = 64;
/// Looks after which memory that was not used goes back.
const LOOKS: u32 = 2;

/// A large block is freed: gives memory back that was not used for a while, as far as more than `threshold` bytes are reserved, and as far
/// as the work that used it is known to be done. A while is so many large frees, not a time: replays know no other clock.
pub(super) fn release_above(tiers: &Tiers, threshold: usize) {
    // Relaxed: only the number counts.
    let frees = tiers.upkeep.large_frees.fetch_add(1, Ordering::Relaxed) + 1;
    if frees.is_multiple_of(FREES_PER_LOOK) && tiers.back.has_pages() {
        release_unused_above(tiers, threshold);
    }
}

#[cold]
fn release_unused_above(tiers: &Tiers, threshold: usize) {
    tiers.back.tick();
    let now = tiers.back.state().pages.now();
    let excess = tiers.back.reserved_bytes().saturating_sub(threshold as u64);
    if let Some(since) = now.checked_sub(LOOKS)
        && excess > 0
    {
        tiers.back.merge_all_kept();
        let page_bytes = tiers.back.driver().device().granularity_bytes as u64;
        tiers.back.expire((excess / page_bytes) as usize, since);
    }
}

/// Empties caches, so that free memory merges, if too much of the pool's memory is not live.
pub(super) fn merge_if_fragmented(tiers: &Tiers) {
    if tiers.fragmentation() > tiers.settings.get().defrag_threshold {
        tiers.drain();
    }
}

/// Wakes the background if too much of the pool's memory is not live.
pub(super) fn look_at_fragmentation(tiers: &Tiers) {
    // A forked child's pool has no background.
    if tiers.identity.process().is_child() {
        return;
    }
    if tiers.family.belongs_to != BelongsTo::Pool
        || tiers.upkeep.fragmentation_seen.load(Ordering::Relaxed)
    {
        return;
    }
    let config = tiers.settings.get();
    if config.enable_defrag && tiers.fragmentation() > config.defrag_threshold {
        tiers.upkeep.fragmentation_seen.store(true, Ordering::Relaxed);
        wake(tiers.identity.id, |watched| watched.is_fragmented = true);
    }
}

/// Creates memory before it is wanted, if the pool is to. Returns how many bytes.
pub(super) fn grow_ahead(tiers: &Tiers) -> usize {
    if tiers.has_forked() || !tiers.settings.get().grow_ahead {
        return 0;
    }
    tiers.back.grow_ahead() as usize
}

/// Wakes the background if the pool has grown and is to grow ahead.
pub(super) fn look_at_growth(tiers: &Tiers) {
    if tiers.identity.process().is_child() || tiers.family.belongs_to != BelongsTo::Pool {
        return;
    }
    let config = tiers.settings.get();
    if config.enable_defrag && config.grow_ahead && tiers.back.should_grow_ahead() {
        wake(tiers.identity.id, |watched| watched.grows = true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_fetched_again_makes_patient_and_quiet_makes_bold() {
        let mut adaptive = Adaptive::default();
        assert_eq!(adaptive.interval(10), 1, "the first pages are nobody's mistake");
        adaptive.given_back();
        assert_eq!(adaptive.interval(20), 2, "given back too early");
        adaptive.given_back();
        assert_eq!(adaptive.interval(30), 4);
        for _ in 0..QUIET_INTERVALS - 1 {
            assert_eq!(adaptive.interval(30), 4);
        }
        assert_eq!(adaptive.interval(30), 2, "nothing was missed for a while");
        for round in 0..20 {
            adaptive.given_back();
            assert!(adaptive.interval(31 + round) <= LONGEST_PATIENCE);
        }
    }
}
