//! What the pool's lock-free parts are made of: here the standard library's; in `tests/tests/loom.rs`, which compiles the
//! same parts, loom's, so that every order in which threads can meet is tried.

pub(super) use std::hint::spin_loop;
pub(super) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

pub(super) use parking_lot::Mutex;
use parking_lot::MutexGuard;

pub(super) use super::membarrier::all_threads as heavy_barrier;

/// The cheap side of [`heavy_barrier`]: nothing but a word to the compiler. Of two threads of which one does `a`, this, `b`
/// and the other `c`, the heavy barrier, `d`, either `d` sees `a` or `b` sees `c`.
#[inline]
pub(super) fn light_barrier() {
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// Waits for a lock.
#[inline]
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

/// A cell whose use loom watches.
#[derive(Debug)]
pub(super) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub(super) fn new(value: T) -> UnsafeCell<T> {
        UnsafeCell(std::cell::UnsafeCell::new(value))
    }

    #[inline]
    pub(super) fn with_mut<R>(&self, run: impl FnOnce(*mut T) -> R) -> R {
        run(self.0.get())
    }
}
