//! How other threads reach a cache: they take it away for a moment, or they leave something in its inbox.
//!
//! A [`Handshake`] is around something that one thread uses without a lock and without an atomic read-modify-write, while others may take it
//! away:
//!
//! ```text
//!   owner                               reclaimer (one at a time, under the pool's lock)
//!   busy = true        (plain store)    gate |= FROZEN
//!   ── light barrier ──                 heavy barrier: every thread passes a full fence
//!   gate?  frozen: busy = false, leave  wait until busy = false; it is ours
//!   use it                              use it
//!   busy = false       (release)        gate &= !FROZEN       (release)
//! ```
//!
//! Either the owner's `busy` is visible to the reclaimer after the barrier, or the owner's look at the gate comes after it and sees it.
//!
//! An owner on its fastest path has one more thing to make sure of before it goes in: that what it remembers still holds. Whoever knows
//! that it does not says so at the gate, too, so that one look answers both.
//!
//! An [`Inbox`] is where a cache's owner finds its blocks that others have freed.
//!
//! ```text
//!   owner inside  ∧  reclaimer inside  =  never
//!   gate = 0     ⇔  nobody has the value frozen, and what the owner knows holds
//!   inbox filled ⇐  it has items, as seen under its lock
//! ```

use super::sync::{
    AtomicBool, AtomicU64, Mutex, Ordering, UnsafeCell, heavy_barrier, light_barrier, lock,
    spin_loop,
};

/// What the gate says: a reclaimer has it.
const FROZEN: u64 = 1;
/// And: nothing that the owner remembers holds.
const UNKNOWN: u64 = 2;

/// A value with an owner, and others who may freeze it.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Handshake<T> {
    gate: AtomicU64,
    busy: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `value` is touched only by the owner's thread while `busy` is set and the gate was not frozen, or by a reclaimer
// that has frozen it, passed the barrier and seen `busy` clear; see the module's text.
unsafe impl<T: Send> Sync for Handshake<T> {}

impl<T> Handshake<T> {
    pub(super) fn new(value: T) -> Handshake<T> {
        Handshake {
            busy: AtomicBool::new(false),
            gate: AtomicU64::new(UNKNOWN),
            value: UnsafeCell::new(value),
        }
    }

    /// Runs something on the value, unless a reclaimer has it.
    ///
    /// # Safety
    /// One thread at a time may call this or [`as_owner_if_known`](Self::as_owner_if_known), and `run` may call neither.
    #[inline]
    pub(super) unsafe fn as_owner<R>(&self, run: impl FnOnce(&mut T) -> R) -> Option<R> {
        // SAFETY: the caller's promise.
        unsafe { self.enter(|gate| gate & FROZEN == 0, run) }
    }

    /// As [`as_owner`](Self::as_owner), if what it [knew](Self::set_known) still holds, too.
    ///
    /// # Safety
    /// As [`as_owner`](Self::as_owner).
    #[inline]
    pub(super) unsafe fn as_owner_if_known<R>(&self, run: impl FnOnce(&mut T) -> R) -> Option<R> {
        // SAFETY: the caller's promise.
        unsafe { self.enter(|gate| gate == 0, run) }
    }

    /// # Safety
    /// As [`as_owner`](Self::as_owner); and `may_enter` says no of a frozen gate.
    #[inline]
    unsafe fn enter<R>(
        &self,
        may_enter: impl FnOnce(u64) -> bool,
        run: impl FnOnce(&mut T) -> R,
    ) -> Option<R> {
        self.busy.store(true, Ordering::Relaxed);
        // The store comes first for a reclaimer's barrier to find it; see the module's text.
        light_barrier();
        // Acquire: what a reclaimer did before it let go is done.
        if !may_enter(self.gate.load(Ordering::Acquire)) {
            // Release: as below, for what earlier calls did.
            self.busy.store(false, Ordering::Release);
            return None;
        }
        // SAFETY: we are the owner, `busy` is set and nobody had frozen the value, so a reclaimer that freezes it now
        // waits until `busy` is clear. `run` does not come back here.
        let answer = self.value.with_mut(|value| run(unsafe { &mut *value }));
        // Release: a reclaimer that sees this sees what `run` did.
        self.busy.store(false, Ordering::Release);
        Some(answer)
    }

    /// Whether what the owner knew holds, and nobody has the value frozen. For the owner.
    #[inline]
    pub(super) fn is_known(&self) -> bool {
        // Relaxed: whoever goes in looks again.
        self.gate.load(Ordering::Relaxed) == 0
    }

    /// From now on the owner knows all it needs to.
    pub(super) fn set_known(&self) {
        // SeqCst: whoever then looks whether that still holds, and whoever changes it and then comes by `set_unknown`: one sees the other.
        self.gate.fetch_and(!UNKNOWN, Ordering::SeqCst);
    }

    /// What the owner knew no longer holds. Anybody may call this.
    pub(super) fn set_unknown(&self) {
        self.gate.fetch_or(UNKNOWN, Ordering::SeqCst);
    }

    /// Runs something on the value while the owner is kept out.
    ///
    /// # Safety
    /// One thread at a time may call this, and it is not inside [`as_owner`](Self::as_owner).
    pub(super) unsafe fn as_reclaimer<R>(&self, run: impl FnOnce(&mut T) -> R) -> R {
        // Relaxed: the barrier orders it.
        self.gate.fetch_or(FROZEN, Ordering::Relaxed);
        heavy_barrier();
        // Acquire: what the owner did with the value is done.
        while self.busy.load(Ordering::Acquire) {
            spin_loop();
        }
        // SAFETY: the gate is frozen, the barrier has passed and `busy` is clear: the owner stays away until it is not,
        // and there is no other reclaimer.
        let answer = self.value.with_mut(|value| run(unsafe { &mut *value }));
        // Release: an owner that comes back sees what `run` did.
        self.gate.fetch_and(!FROZEN, Ordering::Release);
        answer
    }
}

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
