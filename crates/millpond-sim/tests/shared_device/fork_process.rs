//! What happens in a child that was forked, and not executed anew.

use std::io::Read;
use std::os::fd::FromRawFd;

/// The number of a forked child that does nothing until it is killed, with everything open that this process has open.
pub(crate) fn a_forked_child_that_sleeps() -> i32 {
    // SAFETY: the child only sleeps.
    let child = unsafe { libc::fork() };
    if child == 0 {
        loop {
            // SAFETY: this has no preconditions.
            unsafe { libc::pause() };
        }
    }
    child
}

/// What `action` says in a forked child of this process.
pub(crate) fn in_a_forked_child(action: impl Fn() -> String) -> String {
    let mut ends = [0; 2];
    // SAFETY: the array has room for the two descriptors.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    // SAFETY: the child calls the action, writes, and ends at once without unwinding or running destructors.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let said = action();
        // SAFETY: the text is alive, and the descriptor is this process's.
        unsafe {
            libc::write(ends[1], said.as_ptr().cast(), said.len());
            libc::_exit(0);
        }
    }
    // SAFETY: this process owns both ends, and gives each up once.
    let mut reader = unsafe {
        libc::close(ends[1]);
        std::fs::File::from_raw_fd(ends[0])
    };
    let mut said = String::new();
    reader.read_to_string(&mut said).unwrap();
    // SAFETY: the child is ours, and nobody else waits for it.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    said
}
