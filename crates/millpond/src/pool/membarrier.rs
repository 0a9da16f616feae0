//! A full memory barrier on every thread of the process, asked for by one.

use std::sync::OnceLock;
use std::sync::atomic::{Ordering, fence};

#[cfg(target_os = "linux")]
use rustix::thread::{MembarrierCommand, membarrier};

/// Returns when every running thread has passed a full barrier.
///
/// # Panics
/// If the kernel has no `membarrier` (Linux before 4.14): nothing else makes the cheap side of the handshake safe.
pub(super) fn all_threads() {
    static REGISTERED: OnceLock<()> = OnceLock::new();
    fence(Ordering::SeqCst);
    #[cfg(target_os = "linux")]
    {
        REGISTERED.get_or_init(|| {
            membarrier(MembarrierCommand::RegisterPrivateExpedited).expect("Linux 4.14 or newer");
        });
        membarrier(MembarrierCommand::PrivateExpedited).expect("registered");
    }
    #[cfg(not(target_os = "linux"))]
    compile_error!("the pool's caches need membarrier");
}
