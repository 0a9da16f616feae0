//! The thread that looks after all pools of the process from time to time.

use std::sync::{Arc, LazyLock, Weak};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::inner::Inner;
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
    inner: Weak<Inner>,
    due: Instant,
    /// Somebody has seen that too much lies about.
    woken: bool,
}

/// While this lives, a pool is looked after. When it is dropped, nobody looks any more.
#[derive(Debug)]
pub(super) struct Watch {
    id: u64,
    process: Process,
}

/// Looks after a pool from now on. `None`: a forked child starts no threads.
pub(super) fn watch(inner: &Arc<Inner>) -> Option<Watch> {
    let process = Process::this();
    if process.is_child() {
        return None;
    }
    let mut pools = BACKGROUND.pools.lock();
    if pools.thread.is_none() {
        let thread = std::thread::Builder::new().name("millpond".into()).spawn(run);
        // Without a thread pools work as well; what lies about then does until somebody trims.
        pools.thread = Some(thread.ok()?.thread().id());
    }
    let due = Instant::now() + interval(inner);
    pools.watched.push(Watched { id: inner.id, inner: Arc::downgrade(inner), due, woken: false });
    BACKGROUND.changed.notify_all();
    Some(Watch { id: inner.id, process })
}

/// Looks after a pool soon: too much of what it has reserved is nobody's.
pub(super) fn wake(id: u64) {
    let mut pools = BACKGROUND.pools.lock();
    if let Some(watched) = pools.watched.iter_mut().find(|watched| watched.id == id) {
        watched.woken = true;
        BACKGROUND.changed.notify_all();
    }
}

/// The settings of a pool have changed: its next turn may come sooner.
pub(super) fn reschedule(inner: &Inner) {
    let mut pools = BACKGROUND.pools.lock();
    if let Some(watched) = pools.watched.iter_mut().find(|watched| watched.id == inner.id) {
        watched.due = Instant::now() + interval(inner);
        BACKGROUND.changed.notify_all();
    }
}

fn interval(inner: &Inner) -> Duration {
    Duration::from_millis(inner.settings.get().defrag_interval_ms)
}

fn run() {
    let mut pools = BACKGROUND.pools.lock();
    loop {
        let now = Instant::now();
        let Some(next) = pools.watched.iter_mut().find(|next| next.woken || next.due <= now) else {
            match pools.watched.iter().map(|watched| watched.due).min() {
                Some(due) => {
                    let left = due.saturating_duration_since(now);
                    BACKGROUND.changed.wait_for(&mut pools, left);
                }
                None => BACKGROUND.changed.wait(&mut pools),
            }
            continue;
        };
        let (id, inner, is_due) = (next.id, next.inner.upgrade(), next.due <= now);
        next.woken = false;
        if let Some(inner) = &inner
            && is_due
        {
            next.due = now + interval(inner);
        }
        pools.in_hand = Some(id);
        drop(pools);
        if let Some(inner) = inner.filter(|inner| inner.settings.get().enable_defrag) {
            if is_due {
                inner.interval_has_passed();
            } else {
                inner.merge_if_fragmented();
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
