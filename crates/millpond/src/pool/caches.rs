//! Which caches there are: those of a pool, and those that a thread has in each pool that it uses.
//!
//! A thread gets a cache for a stream with its first call there, and keeps it until it ends or the stream is gone. The cache is emptied then
//! and waits for another thread; it is never freed while the pool lives, because threads point to it.
//!
//! ```text
//!   by_tag[tag.place()].tag = tag
//!   orphans ⊆ by_tag,  unused_counters ⊆ counters
//!   a cache is in orphans  ⇒  it is empty or being emptied, no thread has it attached, and its inbox says so
//! ```

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};

use super::blocks::Numbers;
use super::config::Settings;
use super::fast_path::{Identity, forget, remember};
use super::lock_free::Tag;
use super::notes::current_scope;
use super::sizes::LARGEST_CACHED_BYTES;
use super::statistics::ThreadCounters;
use super::streams::StreamSlot;
use super::thread_cache::ThreadCache;
use super::tiers::{Keep, Tiers};
use crate::driver::{DevicePtr, Stream, StreamEpoch, StreamWatcher};
use crate::fork::LeftToParent;

/// All caches of a pool, and what its threads count.
#[derive(Debug)]
pub(super) struct Caches {
    list: Mutex<CacheList>,
    /// Held while caches are emptied, so that whoever has emptied them finds everything in the back: nothing is on its way.
    draining: Mutex<()>,
    /// Requests that found no place among what has memory, since caches were last emptied for one.
    misses_since_drain: AtomicU64,
    /// What was kept all the same when they were.
    kept_after_drain: AtomicU64,
    /// Whether a block that is too large for caches may be given back later than it is freed: with slack to spend, and while there is one
    /// stream, since what one has freed decides where others' blocks are placed.
    lets_pend: AtomicBool,
    /// Whether blocks that are too large for caches are kept by stream: once there are several.
    keeps_large_by_stream: AtomicBool,
}

/// A tag is a place in `by_tag`, plus one; a cache whose thread has gone waits in `orphans` for another. Nothing is ever taken out of
/// `by_tag` and `counters`: threads keep pointers to them.
#[derive(Debug)]
struct CacheList {
    by_tag: Vec<Arc<ThreadCache>>,
    orphans: Vec<Arc<ThreadCache>>,
    counters: Vec<Arc<ThreadCounters>>,
    /// Counters whose thread has gone, for another to go on with.
    unused_counters: Vec<Arc<ThreadCounters>>,
}

impl Caches {
    /// None so far. `for_others` counts for threads that have no counters of their own.
    pub(super) fn new(lets_pend: bool, for_others: Arc<ThreadCounters>) -> Caches {
        let list = CacheList {
            by_tag: Vec::new(),
            orphans: Vec::new(),
            counters: vec![for_others],
            unused_counters: Vec::new(),
        };
        Caches {
            list: Mutex::new(list),
            draining: Mutex::default(),
            // The first time need not wait.
            misses_since_drain: AtomicU64::new(u64::MAX / 2),
            kept_after_drain: AtomicU64::new(0),
            lets_pend: AtomicBool::new(lets_pend),
            keeps_large_by_stream: AtomicBool::new(false),
        }
    }

    /// Counters for a thread: those of one that has gone, or new ones.
    fn add_counters(&self) -> Arc<ThreadCounters> {
        let mut list = self.list.lock();
        list.unused_counters.pop().unwrap_or_else(|| {
            let counters = Arc::new(ThreadCounters::default());
            list.counters.push(Arc::clone(&counters));
            counters
        })
    }

    /// The counters of a thread that has gone.
    pub(super) fn counters_are_unused(&self, counters: Arc<ThreadCounters>) {
        self.list.lock().unused_counters.push(counters);
    }

    /// A cache for this thread: one whose thread has gone, or a new one, which watches the epoch of streams. `base` is where the pool's
    /// span begins. `None`: there are no tags left.
    fn add(
        &self,
        stream: StreamSlot,
        base: DevicePtr,
        epoch: &StreamEpoch,
    ) -> Option<Arc<ThreadCache>> {
        let mut list = self.list.lock();
        if let Some(orphan) = list.orphans.pop() {
            orphan.set_stream(stream);
            orphan.inbox.set_orphaned(false);
            return Some(orphan);
        }
        let tag = Tag::at(list.by_tag.len())?;
        let cache = Arc::new(ThreadCache::new(tag, stream, base));
        let watcher: Arc<dyn StreamWatcher> = Arc::<ThreadCache>::clone(&cache);
        epoch.watch(Arc::downgrade(&watcher));
        list.by_tag.push(Arc::clone(&cache));
        Some(cache)
    }

    /// An empty cache waits for another thread, or another stream.
    pub(super) fn add_orphan(&self, cache: Arc<ThreadCache>) {
        self.list.lock().orphans.push(cache);
    }

    /// The cache that owns blocks of a tag.
    pub(super) fn of_tag(&self, tag: Tag) -> Arc<ThreadCache> {
        Arc::clone(&self.list.lock().by_tag[tag.place()])
    }

    /// The caches that may hold something. One whose thread has gone was emptied before it came to `orphans`.
    pub(super) fn with_threads(&self) -> Vec<Arc<ThreadCache>> {
        let list = self.list.lock();
        let orphans: HashSet<Tag> = list.orphans.iter().map(|cache| cache.tag).collect();
        list.by_tag.iter().filter(|cache| !orphans.contains(&cache.tag)).cloned().collect()
    }

    /// The caches in which something may be pending.
    pub(super) fn that_may_pend(&self) -> Vec<Arc<ThreadCache>> {
        let may_pend = |cache: &&Arc<ThreadCache>| cache.may_pend();
        self.list.lock().by_tag.iter().filter(may_pend).cloned().collect()
    }

    /// Takes something out of a cache, whoever's it is: one reclaimer at a time.
    pub(super) fn reclaim<T>(&self, take: impl FnOnce() -> T) -> T {
        let _reclaiming = self.list.lock();
        take()
    }

    /// Kept out while caches are emptied, from the first one to the last.
    pub(super) fn start_draining(&self) -> MutexGuard<'_, ()> {
        self.draining.lock()
    }

    /// Counts a request that found no place. Returns how many there were before, since caches were last emptied for one.
    pub(super) fn count_request_without_place(&self) -> u64 {
        // Relaxed: roughly often enough is enough.
        self.misses_since_drain.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn forget_requests_without_place(&self) {
        self.misses_since_drain.store(0, Ordering::Relaxed);
    }

    /// The bytes that the last drain left kept: in no cache, but in slabs and by rounding.
    pub(super) fn kept_after_drain(&self) -> u64 {
        self.kept_after_drain.load(Ordering::Relaxed)
    }

    pub(super) fn set_kept_after_drain(&self, bytes: u64) {
        // Relaxed: it only says when it is worth emptying them again.
        self.kept_after_drain.store(bytes, Ordering::Relaxed);
    }

    /// Whether blocks that are too large for caches may pend.
    #[inline]
    pub(super) fn lets_pend(&self) -> bool {
        // Relaxed: what is pending for a moment longer is found by whoever needs it.
        self.lets_pend.load(Ordering::Relaxed)
    }

    pub(super) fn set_lets_pend(&self, lets_pend: bool) {
        self.lets_pend.store(lets_pend, Ordering::Relaxed);
    }

    /// Lets nothing pend any more. Says whether something may.
    pub(super) fn stop_pending(&self) -> bool {
        self.lets_pend.swap(false, Ordering::Relaxed)
    }

    /// Whether free blocks of a size are kept by the stream that freed them, and by no thread's cache.
    #[inline]
    pub(super) fn are_kept_by_stream(&self, block_bytes: u64) -> bool {
        // Relaxed: a thread that does not see it yet gives its blocks to the back.
        block_bytes > LARGEST_CACHED_BYTES as u64
            && self.keeps_large_by_stream.load(Ordering::Relaxed)
    }

    /// There are several streams.
    pub(super) fn keep_large_by_stream(&self) {
        self.keeps_large_by_stream.store(true, Ordering::Relaxed);
    }

    /// What threads remember of their caches no longer holds, from when `change` is done.
    pub(super) fn make_unknown_after(&self, change: impl FnOnce()) {
        let list = self.list.lock();
        change();
        list.by_tag.iter().for_each(|cache| cache.set_unknown());
    }

    /// As [`make_unknown_after`](Self::make_unknown_after), when the pool goes: threads may go on remembering their caches, and have them.
    pub(super) fn make_unknown_for_good(&mut self) {
        self.list.get_mut().by_tag.iter().for_each(|cache| cache.set_unknown());
    }

    /// Lets a thread remember a cache while it is still that epoch of streams, and which of its counters it is to use. `false`: the pool
    /// is known by another number.
    ///
    /// # Panics
    /// If they are another pool's.
    fn make_known(
        &self,
        cache: &Arc<ThreadCache>,
        counters: &Arc<ThreadCounters>,
        (identity, number, epoch): (&Identity, u64, u64),
        settings: &Settings,
    ) -> bool {
        let list = self.list.lock();
        if identity.number() != number {
            return false;
        }
        let known = list.by_tag.get(cache.tag.place());
        let holds = known.is_some_and(|known| Arc::ptr_eq(known, cache))
            && list.counters.iter().any(|known| Arc::ptr_eq(known, counters));
        assert!(holds, "a pool's caches are its own");
        // Looked at under the lock: whoever changes it later makes the cache unknown again.
        cache.set_known(counters.when(settings.counts()));
        if identity.epoch() != epoch {
            // Whoever changed it may have come by before the cache was known.
            cache.set_unknown();
        }
        true
    }

    /// Sums up what threads have counted.
    pub(super) fn sum_counters<T>(&self, sum: impl FnOnce(&[Arc<ThreadCounters>]) -> T) -> T {
        sum(&self.list.lock().counters)
    }
}

/// The caches of one thread in one pool.
#[derive(Debug)]
struct OfPool {
    /// Pools are never numbered twice: what is remembered of one that is gone matches no other.
    pool: u64,
    tiers: Weak<Tiers>,
    counters: Arc<ThreadCounters>,
    caches: HashMap<StreamSlot, Arc<ThreadCache>, Numbers>,
    /// Caches by the handles of their streams, as the fast path was to remember them. None that is not among `caches`.
    by_handle: HashMap<u64, OfHandle, Numbers>,
    /// How many caches there may be until it is worth looking whose streams are gone.
    look_at: usize,
}

/// The cache that a handle stood for at a time.
#[derive(Debug)]
struct OfHandle {
    cache: Arc<ThreadCache>,
    number: u64,
    epoch: u64,
}

impl OfPool {
    fn is_gone(&self) -> bool {
        self.tiers.strong_count() == 0
    }

    /// Streams come and go: what was kept for those that are forgotten goes back, and their caches serve others.
    fn detach_forgotten(&mut self, tiers: &Tiers) {
        let streams: Vec<StreamSlot> = self.caches.keys().copied().collect();
        let are_forgotten = tiers.back.are_forgotten(&streams);
        for (stream, _) in streams.into_iter().zip(are_forgotten).filter(|(_, is)| *is) {
            // No thread will ask for it on that stream.
            self.detach(stream, tiers, Keep::No);
        }
        self.look_at = (2 * self.caches.len()).clamp(FEW_STREAMS, MOST_STREAMS);
    }

    fn detach(&mut self, stream: StreamSlot, tiers: &Tiers, keep: Keep) {
        let Some(cache) = self.caches.remove(&stream) else { return };
        forget();
        self.by_handle.retain(|_, known| !Arc::ptr_eq(&known.cache, &cache));
        tiers.detach_cache(cache, keep);
    }
}

/// Streams of one pool that a thread has caches for, at most.
const MOST_STREAMS: usize = 4096;
/// Streams among which none is looked for that is gone.
const FEW_STREAMS: usize = 16;

/// All caches of a thread. Dropped when the thread ends: they go back to their pools.
#[derive(Debug, Default)]
struct Attached(Vec<LeftToParent<OfPool>>);

thread_local! {
    static ATTACHED: RefCell<Attached> = const { RefCell::new(Attached(Vec::new())) };
}

/// This thread's cache for a stream of a pool, made if there is none, and remembered for the fast path if told while what
/// holds. `None`: the thread is ending, or there are too many caches.
pub(super) fn attach(
    tiers: &Arc<Tiers>,
    stream: Stream,
    slot: StreamSlot,
    remembered_in: Option<u64>,
) -> Option<(Arc<ThreadCache>, Arc<ThreadCounters>)> {
    let find = |attached: &mut Attached| {
        if attached.0.iter().any(|of_pool| of_pool.is_gone()) {
            forget();
            attached.0.retain(|of_pool| !of_pool.is_gone());
        }
        let known = attached.0.iter().position(|of_pool| of_pool.pool == tiers.identity.id);
        let index = known.unwrap_or_else(|| {
            let counters = tiers.caches.add_counters();
            let (pool, weak) = (tiers.identity.id, Arc::downgrade(tiers));
            let of_pool = OfPool {
                pool,
                tiers: weak,
                counters,
                caches: HashMap::default(),
                by_handle: HashMap::default(),
                look_at: FEW_STREAMS,
            };
            attached.0.push(LeftToParent::new(of_pool));
            attached.0.len() - 1
        });
        let of_pool = &mut attached.0[index];
        let cache = match of_pool.caches.get(&slot) {
            Some(cache) => Arc::clone(cache),
            None => {
                if of_pool.caches.len() >= of_pool.look_at {
                    of_pool.detach_forgotten(tiers);
                }
                if of_pool.caches.len() >= MOST_STREAMS {
                    // The one that was new longest ago has most likely gone, too.
                    let oldest = of_pool.caches.keys().min().copied();
                    oldest.inspect(|oldest| of_pool.detach(*oldest, tiers, Keep::Yes));
                }
                let base = tiers.back.address_of(0);
                let cache = tiers.caches.add(slot, base, tiers.identity.epoch_of_streams())?;
                of_pool.caches.insert(slot, Arc::clone(&cache));
                cache
            }
        };
        let counters = Arc::clone(&of_pool.counters);
        if let Some(epoch) = remembered_in {
            let number = tiers.identity.number();
            let identity = (&tiers.identity, number, epoch);
            if tiers.caches.make_known(&cache, &counters, identity, &tiers.settings) {
                let of_handle = OfHandle { cache: Arc::clone(&cache), number, epoch };
                of_pool.by_handle.insert(stream.0, of_handle);
                // SAFETY: it is among what this thread has attached, and whatever takes it from there forgets what is remembered before.
                unsafe { remember(tiers, number, stream, &cache) };
            }
        }
        Some((cache, counters))
    };
    ATTACHED.try_with(|attached| find(&mut attached.borrow_mut())).ok()?
}

/// Lets the fast path remember again what it once did of a stream, as far as that still holds: for threads that use more streams than it
/// has room for. Says whether it does.
pub(super) fn recall(tiers: &Tiers, stream: Stream) -> bool {
    // The fast path refuses nothing in a forked child, and notes no scope.
    if tiers.has_forked() || current_scope().is_some() {
        return false;
    }
    let recall = |attached: &Attached| {
        let of_pool = attached.0.iter().find(|of_pool| of_pool.pool == tiers.identity.id)?;
        let OfHandle { cache, number, epoch } = of_pool.by_handle.get(&stream.0)?;
        let holds = cache.is_known()
            && *number == tiers.identity.number()
            && *epoch == tiers.identity.epoch();
        if holds {
            // SAFETY: as in `attach`.
            unsafe { remember(tiers, *number, stream, cache) };
        }
        holds.then_some(())
    };
    // Borrowed by a thread that is attaching a cache: it has no use for another meanwhile.
    let recalled = ATTACHED.try_with(|attached| recall(&*attached.try_borrow().ok()?));
    recalled.is_ok_and(|recalled| recalled.is_some())
}

impl Drop for Attached {
    fn drop(&mut self) {
        forget();
        for of_pool in self.0.drain(..).filter_map(LeftToParent::into_own) {
            if let Some(tiers) = of_pool.tiers.upgrade() {
                tiers.detach(of_pool.caches.into_values(), of_pool.counters);
            }
        }
    }
}
