//! Whether what is known of streams still holds, and who is to be told when it does not.

use std::fmt;
use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::fork::Process;

/// A number that changes whenever a stream handle may have got another meaning, or a stream has begun or ceased to be captured.
///
/// Whoever keeps what is known of a stream compares [`now`](Self::now) with what it was then. Whoever has no time for that
/// [watches](Self::watch).
pub struct StreamEpoch {
    number: AtomicU64,
    watchers: Mutex<Watchers>,
    process: Process,
}

/// Somebody who keeps what is known of streams.
pub trait StreamWatcher: Send + Sync {
    /// What was known of streams may no longer hold. Locks may be held, so this takes none and asks nothing of the driver.
    fn streams_have_changed(&self);
}

#[derive(Default)]
struct Watchers {
    all: Vec<Weak<dyn StreamWatcher>>,
    /// How many there may be until it is worth looking who is gone.
    look_at: usize,
}

impl Watchers {
    fn forget_gone(&mut self) {
        self.all.retain(|watcher| watcher.strong_count() > 0);
    }
}

impl Default for StreamEpoch {
    fn default() -> StreamEpoch {
        StreamEpoch {
            number: AtomicU64::new(0),
            watchers: Mutex::default(),
            process: Process::this(),
        }
    }
}

impl StreamEpoch {
    /// The number.
    #[inline]
    pub fn now(&self) -> u64 {
        // SeqCst: of who begins to watch and looks here, and who changes the number and looks for watchers, one sees the other.
        self.number.load(Ordering::SeqCst)
    }

    /// What is known of streams may no longer hold. For drivers; whoever uses a stream that has changed has learnt of it from the thread that
    /// called this.
    pub fn advance(&self) {
        self.number.fetch_add(1, Ordering::SeqCst);
        // A forked child has none of its parent's watchers, and who held the lock may not be there.
        if self.process.has_forked() {
            return;
        }
        let watchers = self.watchers.lock();
        for watcher in watchers.all.iter().filter_map(Weak::upgrade) {
            watcher.streams_have_changed();
        }
    }

    /// Tells somebody of each change from now on, as long as they are there.
    pub fn watch(&self, watcher: Weak<dyn StreamWatcher>) {
        const FEW: usize = 16;
        let mut watchers = self.watchers.lock();
        if watchers.all.len() >= watchers.look_at {
            watchers.forget_gone();
            watchers.look_at = FEW + 2 * watchers.all.len();
        }
        watchers.all.push(watcher);
    }
}

impl fmt::Debug for StreamEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StreamEpoch").field(&self.now()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicU64);

    impl StreamWatcher for Count {
        fn streams_have_changed(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn watch(epoch: &StreamEpoch) -> Arc<Count> {
        let count = Arc::new(Count::default());
        let watcher: Arc<dyn StreamWatcher> = Arc::<Count>::clone(&count);
        epoch.watch(Arc::downgrade(&watcher));
        count
    }

    #[test]
    fn each_watcher_is_told_of_each_change_while_it_is_there() {
        let epoch = StreamEpoch::default();
        let (one, other) = (watch(&epoch), watch(&epoch));
        let before = epoch.now();
        epoch.advance();
        drop(other);
        epoch.advance();
        assert_eq!((epoch.now() - before, one.0.load(Ordering::Relaxed)), (2, 2));
    }

    #[test]
    fn those_who_are_gone_are_forgotten() {
        let epoch = StreamEpoch::default();
        let stays = watch(&epoch);
        for _ in 0..1000 {
            watch(&epoch);
        }
        assert!(epoch.watchers.lock().all.len() < 32);
        epoch.advance();
        assert_eq!(stays.0.load(Ordering::Relaxed), 1);
    }
}
