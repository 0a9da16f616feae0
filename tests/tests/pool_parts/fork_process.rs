//! Runs something in a forked child.

/// Forks, runs `child` there and returns what it returned, 0 to 255.
pub(crate) fn in_child(child: impl FnOnce() -> u8) -> i32 {
    // SAFETY: the child runs `child` and leaves with `_exit`, so that nothing of the test's is cleaned up twice; the C
    // library makes `malloc` usable after a fork.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork");
    if pid == 0 {
        let code = child();
        // SAFETY: ends the process.
        unsafe { libc::_exit(i32::from(code)) };
    }
    let mut status = 0;
    // SAFETY: waits for the child just made; `status` lives here.
    let waited = unsafe { libc::waitpid(pid, &mut status, 0) };
    assert_eq!(waited, pid);
    assert!(libc::WIFEXITED(status), "the child died: {status}");
    libc::WEXITSTATUS(status)
}
