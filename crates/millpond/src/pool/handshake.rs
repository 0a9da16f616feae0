//! Something that one thread uses without a lock and without an atomic read-modify-write, while others may take it away for
//! a moment:
//!
//! ```text
//!   owner                               reclaimer (one at a time, under the pool's lock)
//!   busy = true        (plain store)    frozen = true
//!   ── light barrier ──                 heavy barrier: every thread passes a full fence
//!   frozen?  yes: busy = false, leave   wait until busy = false; it is ours
//!   use it                              use it
//!   busy = false       (release)        frozen = false        (release)
//! ```
//!
//! Either the owner's `busy` is visible to the reclaimer after the barrier, or the owner's look at `frozen` comes after
//! it and sees it.

use super::sync::{AtomicBool, Ordering, UnsafeCell, heavy_barrier, light_barrier, spin_loop};

/// A value with an owner, and others who may freeze it.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Handshake<T> {
    /// First, where its owner's code finds it with shorter instructions.
    value: UnsafeCell<T>,
    busy: AtomicBool,
    frozen: AtomicBool,
}

// SAFETY: `value` is touched only by the owner's thread while `busy` is set and `frozen` was not, or by a reclaimer
// that has set `frozen`, passed the barrier and seen `busy` clear; see the module's text.
unsafe impl<T: Send> Sync for Handshake<T> {}

impl<T> Handshake<T> {
    pub(super) fn new(value: T) -> Handshake<T> {
        Handshake {
            busy: AtomicBool::new(false),
            frozen: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// Runs something on the value, unless a reclaimer has it.
    ///
    /// # Safety
    /// One thread at a time may call this, and `run` may not call it again.
    #[inline]
    pub(super) unsafe fn as_owner<R>(&self, run: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.busy.store(true, Ordering::Relaxed);
        // The store comes first for a reclaimer's barrier to find it; see the module's text.
        light_barrier();
        // Acquire: what a reclaimer did before it let go is done.
        if self.frozen.load(Ordering::Acquire) {
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

    /// Runs something on the value while the owner is kept out.
    ///
    /// # Safety
    /// One thread at a time may call this, and it is not inside [`as_owner`](Self::as_owner).
    pub(super) unsafe fn as_reclaimer<R>(&self, run: impl FnOnce(&mut T) -> R) -> R {
        // Relaxed: the barrier orders it.
        self.frozen.store(true, Ordering::Relaxed);
        heavy_barrier();
        // Acquire: what the owner did with the value is done.
        while self.busy.load(Ordering::Acquire) {
            spin_loop();
        }
        // SAFETY: `frozen` is set, the barrier has passed and `busy` is clear: the owner stays away until `frozen` is
        // cleared, and there is no other reclaimer.
        let answer = self.value.with_mut(|value| run(unsafe { &mut *value }));
        // Release: an owner that comes back sees what `run` did.
        self.frozen.store(false, Ordering::Release);
        answer
    }
}
