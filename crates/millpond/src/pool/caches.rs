//! The caches that a thread has in each pool it uses.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use super::blocks::Numbers;
use super::fast_path::{forget, remember};
use super::notes::current_scope;
use super::points::StreamSlot;
use super::statistics::ThreadCounters;
use super::thread_cache::ThreadCache;
use super::tiers::{Keep, Tiers};
use crate::driver::Stream;
use crate::fork::LeftToParent;

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
        let known = attached.0.iter().position(|of_pool| of_pool.pool == tiers.id);
        let index = known.unwrap_or_else(|| {
            let counters = tiers.add_counters();
            let (pool, weak) = (tiers.id, Arc::downgrade(tiers));
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
                let cache = tiers.add_cache(slot)?;
                of_pool.caches.insert(slot, Arc::clone(&cache));
                cache
            }
        };
        let counters = Arc::clone(&of_pool.counters);
        if let Some(epoch) = remembered_in {
            let number = tiers.number();
            if tiers.hold(number, &cache, &counters, epoch) {
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
        let of_pool = attached.0.iter().find(|of_pool| of_pool.pool == tiers.id)?;
        let OfHandle { cache, number, epoch } = of_pool.by_handle.get(&stream.0)?;
        let holds = cache.is_known() && *number == tiers.number() && *epoch == tiers.epoch();
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
