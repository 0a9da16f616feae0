//! What belongs to one host thread, for as long as there is one.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::thread::ThreadId;

thread_local! {
    /// Goes with its thread.
    static ALIVE: Arc<()> = Arc::new(());
}

/// Something for each thread. What threads that have ended leave behind is looked for when there is twice as much as
/// the last time, so that there is never more than that.
#[derive(Debug)]
pub(crate) struct PerThread<T> {
    by_thread: HashMap<ThreadId, (T, Weak<()>)>,
    look_at: usize,
}

/// Entries that are not worth a look.
const FEW: usize = 16;

impl<T> Default for PerThread<T> {
    fn default() -> PerThread<T> {
        PerThread { by_thread: HashMap::new(), look_at: FEW }
    }
}

impl<T> PerThread<T> {
    /// What the calling thread has.
    pub(crate) fn get(&self) -> Option<&T> {
        self.by_thread.get(&std::thread::current().id()).map(|(item, _)| item)
    }

    /// The calling thread has this from now on.
    pub(crate) fn set(&mut self, item: T) {
        // A thread that is ending may have lost its sign of life already: what it does last is its last.
        let alive = ALIVE.try_with(Arc::downgrade).unwrap_or_default();
        self.by_thread.insert(std::thread::current().id(), (item, alive));
    }

    /// The calling thread has nothing any more.
    pub(crate) fn clear(&mut self) {
        self.by_thread.remove(&std::thread::current().id());
    }

    /// What threads that have ended have left, if it is worth looking.
    pub(crate) fn take_ended(&mut self) -> Vec<T> {
        if self.by_thread.len() < self.look_at {
            return Vec::new();
        }
        let ended = self.by_thread.extract_if(|_, (_, alive)| alive.strong_count() == 0);
        let ended = ended.map(|(_, (item, _))| item).collect();
        self.look_at = FEW + 2 * self.by_thread.len();
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ended_threads_had_is_found_and_what_others_have_stays() {
        let mut items = PerThread::default();
        items.set(0);
        let mut ended = Vec::new();
        for number in 1..=3 * FEW {
            std::thread::scope(|scope| {
                let given = scope.spawn(|| {
                    items.set(number);
                    assert_eq!(items.get(), Some(&number));
                });
                given.join().unwrap();
            });
            ended.extend(items.take_ended());
        }
        assert_eq!(items.get(), Some(&0));
        assert!(items.by_thread.len() <= 2 * FEW, "{} are kept", items.by_thread.len());
        assert_eq!(ended.len() + items.by_thread.len(), 3 * FEW + 1);
        items.clear();
        assert_eq!(items.get(), None);
    }
}
