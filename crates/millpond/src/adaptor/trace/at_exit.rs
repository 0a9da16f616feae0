//! What the C library runs when a program exits, whichever of its threads ends it.

/// Runs a function when the program exits.
pub(super) fn at_exit(function: extern "C" fn()) {
    // SAFETY: the function lives as long as the process, and may be called at any time. If there is no memory for it, it is not called.
    unsafe { libc::atexit(function) };
}
