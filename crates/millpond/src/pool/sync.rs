//! What the pool's lock-free parts are made of: here the standard library's; in `tests/tests/loom.rs`, which compiles the
//! same parts, loom's, so that every order in which threads can meet is tried.

pub(super) use std::hint::spin_loop;
use std::sync::atomic::fence;
pub(super) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

pub(super) use parking_lot::Mutex;
use parking_lot::MutexGuard;
#[cfg(target_os = "linux")]
use rustix::thread::{MembarrierCommand, membarrier};

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

/// Tells the kernel that the process will ask. With several threads that takes it some 10 ms, once for the process: so it is done when a
/// pool is made, and not by the first call that happens to need a barrier.
///
/// # Panics
/// If the kernel has no `membarrier` (Linux before 4.14): nothing else makes the cheap side of the handshake safe.
pub(super) fn register_barriers() {
    // No `OnceLock`, which a child would wait for in vain that was forked while another thread was in it. To register twice does no harm.
    static IS_REGISTERED: AtomicBool = AtomicBool::new(false);
    // Acquire and release: who sees it has been registered.
    #[cfg(target_os = "linux")]
    if !IS_REGISTERED.load(Ordering::Acquire) {
        membarrier(MembarrierCommand::RegisterPrivateExpedited).expect("Linux 4.14 or newer");
        IS_REGISTERED.store(true, Ordering::Release);
    }
    #[cfg(not(target_os = "linux"))]
    compile_error!("the pool's caches need membarrier");
}

/// A full memory barrier on every thread of the process, asked for by one: returns when every running thread has passed it.
pub(super) fn heavy_barrier() {
    fence(Ordering::SeqCst);
    register_barriers();
    #[cfg(target_os = "linux")]
    membarrier(MembarrierCommand::PrivateExpedited).expect("registered");
}
