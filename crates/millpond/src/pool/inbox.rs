//! Where a cache's owner finds its blocks that others have freed.

use super::sync::{AtomicBool, Mutex, Ordering, lock};

/// What others have left, and whether its owner has gone. Others write here: not into the lines that the owner uses.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Inbox<T> {
    /// Whether there may be something, so that an owner need not take the lock to see that there is nothing.
    filled: AtomicBool,
    /// Its thread has gone: nobody will look here.
    orphaned: AtomicBool,
    items: Mutex<Vec<T>>,
}

/// What whoever leaves something must do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// Nothing: the owner will find it.
    Found,
    /// Take some of it: the owner does not look.
    TooMany,
    /// Empty the inbox: its owner has gone.
    Orphaned,
}

impl<T> Inbox<T> {
    pub(super) fn new() -> Inbox<T> {
        Inbox {
            filled: AtomicBool::new(false),
            orphaned: AtomicBool::new(false),
            items: Mutex::new(Vec::new()),
        }
    }

    /// Leaves something for the owner. More than `most`, and somebody else has to take it.
    pub(super) fn leave(&self, items: &mut Vec<T>, most: usize) -> Left {
        let mut inbox = lock(&self.items);
        inbox.append(items);
        let too_many = inbox.len() > most;
        // Relaxed: an owner that misses it looks again the next time; the lock orders the rest.
        self.filled.store(true, Ordering::Relaxed);
        drop(inbox);
        // Relaxed is enough: an owner that goes says so before it empties the inbox. If it did that before we had the lock,
        // the lock has told us; if after, it found what we left.
        if self.orphaned.load(Ordering::Relaxed) {
            Left::Orphaned
        } else if too_many {
            Left::TooMany
        } else {
            Left::Found
        }
    }

    /// Whether it is worth looking. For the owner, who will ask again.
    pub(super) fn may_have_something(&self) -> bool {
        self.filled.load(Ordering::Relaxed)
    }

    /// Takes up to `most`, the newest first.
    pub(super) fn take(&self, most: usize) -> Vec<T> {
        let mut inbox = lock(&self.items);
        let rest = inbox.len().saturating_sub(most);
        self.filled.store(rest > 0, Ordering::Relaxed);
        if rest > 0 { inbox.split_off(rest) } else { std::mem::take(&mut inbox) }
    }

    /// Gives memory back that [`take`](Self::take) gave out, if nothing has come meanwhile.
    pub(super) fn keep_memory(&self, mut taken: Vec<T>) {
        taken.clear();
        let mut inbox = lock(&self.items);
        if inbox.is_empty() {
            *inbox = taken;
        }
    }

    /// The owner goes, and empties the inbox after this; or another thread becomes the owner.
    pub(super) fn set_orphaned(&self, orphaned: bool) {
        self.orphaned.store(orphaned, Ordering::Relaxed);
    }
}
