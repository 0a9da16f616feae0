//! Which of the gate's counters a thread uses.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The thread's own number, given at its first call.
#[inline]
pub(crate) fn stripe() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static OWN: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    // A thread that is ending shares the first.
    OWN.try_with(|own| {
        if own.get() == usize::MAX {
            own.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        own.get()
    })
    .unwrap_or(0)
}
