//! A full memory barrier on every thread of the process, asked for by one.

use std::sync::OnceLock;
use std::sync::atomic::{Ordering, fence};

#[cfg(target_os = "linux")]
use rustix::thread::{MembarrierCommand, membarrier};

/// Tells the kernel that the process will ask. With several threads that takes it some 10 ms, once for the process: so it is done when a
/// pool is made, and not by the first call that happens to need a barrier.
///
/// # Panics
/// If the kernel has no `membarrier` (Linux before 4.14): nothing else makes the cheap side of the handshake safe.
pub(super) fn register() {
    static REGISTERED: OnceLock<()> = OnceLock::new();
    #[cfg(target_os = "linux")]
    REGISTERED.get_or_init(|| {
        membarrier(MembarrierCommand::RegisterPrivateExpedited).expect("Linux 4.14 or newer");
    });
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
