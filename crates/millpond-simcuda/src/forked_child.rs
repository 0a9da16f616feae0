//! What happens in the child of a process that forks.

/// Has a function called in every child that this process forks from now on. It may do nothing but store to atomics.
pub(crate) fn on_fork(in_child: extern "C" fn()) {
    // SAFETY: the handler is a function, so it lives as long as this library, which is never unloaded once it is in use.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
}
