//! The caches that a thread has in each pool it uses.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use super::counters::ThreadCounters;
use super::inner::{Inner, Keep};
use super::points::StreamSlot;
use super::remembered_pointers::{forget, remember};
use super::thread_cache::ThreadCache;
use crate::driver::Stream;
use crate::fork::LeftToParent;

/// The caches of one thread in one pool.
#[derive(Debug)]
struct OfPool {
    /// Pools are never numbered twice: what is remembered of one that is gone matches no other.
    pool: u64,
    inner: Weak<Inner>,
    counters: Arc<ThreadCounters>,
    caches: Vec<(StreamSlot, Arc<ThreadCache>)>,
}

impl OfPool {
    fn is_gone(&self) -> bool {
        self.inner.strong_count() == 0
    }

    /// Streams come and go: what was kept for those that are forgotten goes back, and their caches serve others.
    fn detach_forgotten(&mut self, inner: &Inner) {
        let streams: Vec<StreamSlot> = self.caches.iter().map(|(of, _)| *of).collect();
        let are_forgotten = inner.back.are_forgotten(&streams);
        if !are_forgotten.contains(&true) {
            return;
        }
        forget();
        let mut are_forgotten = are_forgotten.into_iter();
        let is_forgotten = |_: &mut (StreamSlot, _)| are_forgotten.next() == Some(true);
        for (_, cache) in self.caches.extract_if(.., is_forgotten) {
            // Nobody will ask for it on that stream.
            inner.detach_cache(cache, Keep::No);
        }
    }
}

/// Streams of one pool that a thread has caches for, at most.
const MOST_STREAMS: usize = 256;

/// All caches of a thread. Dropped when the thread ends: they go back to their pools.
#[derive(Debug, Default)]
struct Attached(Vec<LeftToParent<OfPool>>);

thread_local! {
    static ATTACHED: RefCell<Attached> = const { RefCell::new(Attached(Vec::new())) };
}

/// This thread's cache for a stream of a pool, made if there is none, and remembered for the fast path if told while what
/// holds. `None`: the thread is ending, or there are too many caches.
pub(super) fn attach(
    inner: &Arc<Inner>,
    stream: Stream,
    slot: StreamSlot,
    remembered_in: Option<u64>,
) -> Option<(Arc<ThreadCache>, Arc<ThreadCounters>)> {
    let find = |attached: &mut Attached| {
        if attached.0.iter().any(|of_pool| of_pool.is_gone()) {
            forget();
            attached.0.retain(|of_pool| !of_pool.is_gone());
        }
        let known = attached.0.iter().position(|of_pool| of_pool.pool == inner.id);
        let index = known.unwrap_or_else(|| {
            let counters = inner.add_counters();
            let (pool, weak) = (inner.id, Arc::downgrade(inner));
            let of_pool = OfPool { pool, inner: weak, counters, caches: Vec::new() };
            attached.0.push(LeftToParent::new(of_pool));
            attached.0.len() - 1
        });
        let of_pool = &mut attached.0[index];
        let cache = match of_pool.caches.iter().find(|(of, _)| *of == slot) {
            Some((_, cache)) => Arc::clone(cache),
            None => {
                of_pool.detach_forgotten(inner);
                if of_pool.caches.len() >= MOST_STREAMS {
                    // The one that was new longest ago has most likely gone, too.
                    forget();
                    inner.detach_cache(of_pool.caches.remove(0).1, Keep::Yes);
                }
                let cache = inner.add_cache(slot)?;
                of_pool.caches.push((slot, Arc::clone(&cache)));
                cache
            }
        };
        Some((cache, Arc::clone(&of_pool.counters)))
    };
    let found = ATTACHED.try_with(|attached| find(&mut attached.borrow_mut())).ok()?;
    let (cache, counters) = found?;
    if let Some(epoch) = remembered_in {
        let number = inner.number();
        if inner.hold(number, &cache, &counters, epoch) {
            // SAFETY: it is among what this thread has attached, and whatever takes it from there forgets what is remembered before.
            unsafe { remember(inner, number, stream, &cache) };
        }
    }
    Some((cache, counters))
}

impl Drop for Attached {
    fn drop(&mut self) {
        forget();
        for of_pool in self.0.drain(..).filter_map(LeftToParent::into_own) {
            if let Some(inner) = of_pool.inner.upgrade() {
                let caches = of_pool.caches.into_iter().map(|(_, cache)| cache);
                inner.detach(caches, of_pool.counters);
            }
        }
    }
}
