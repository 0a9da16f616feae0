//! A process that was forked shares its parent's device memory by accident: it may use none of it.
//!
//! The child learns of it from a handler that the C library runs after every `fork`. The handler also makes the child's
//! thread forget its caches, so that the fast paths, which do not ask, miss.

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

use super::remembered_pointers::forget;

/// How many forks lie between the first process and this one.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// The process in which something was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process(u64);

impl Process {
    /// This process. From now on forks are noticed.
    pub(super) fn this() -> Process {
        static WATCHED: Once = Once::new();
        WATCHED.call_once(|| {
            // SAFETY: the handler is a function that lives as long as the process, and does nothing but store to an
            // atomic and to plain thread-local cells, which is allowed after a fork. If there is no memory for the
            // handler, forks go unnoticed, as they would without it.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        });
        Process(GENERATION.load(Ordering::Relaxed))
    }

    /// Whether this process is a forked child of one that had pools.
    pub(super) fn is_child(self) -> bool {
        self.0 > 0
    }

    /// Whether this is a forked child of that process.
    pub(super) fn has_forked(self) -> bool {
        // Relaxed: written before the child's only thread goes on.
        GENERATION.load(Ordering::Relaxed) != self.0
    }
}

extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    forget();
}
