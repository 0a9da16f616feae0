//! A full memory barrier on every thread of the process, asked for by one.

use std::sync::atomic::{AtomicBool, Ordering, fence};

#[cfg(target_os = "linux")]
use rustix::thread::{MembarrierCommand, membarrier};

/// Tells the kernel that the process will ask. With several threads that takes it some 10 ms, once for the process: so it is done when a
/// pool is made, and not by the first call that happens to need a barrier.
///
/// # Panics
/// If the kernel has no `membarrier` (Linux before 4.14): nothing else makes the cheap side of the handshake safe.
pub(super) fn register() {
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

/// Returns when every running thread has passed a full barrier.
pub(super) fn all_threads() {
    fence(Ordering::SeqCst);
    register();
    #[cfg(target_os = "linux")]
    membarrier(MembarrierCommand::PrivateExpedited).expect("registered");
}
