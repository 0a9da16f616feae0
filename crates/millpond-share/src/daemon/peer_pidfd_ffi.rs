//! The descriptor of the process at the other end of a socket.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Of the process that connected, also if it is dead and its number means another by now. `None`: the kernel is older than 6.5.
pub(super) fn peer_pidfd(socket: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    let mut descriptor: libc::c_int = -1;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `descriptor` and the count to `length`; both outlive the call.
    let got = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERPIDFD,
            (&raw mut descriptor).cast(),
            &raw mut length,
        )
    };
    if got == 0 {
        // SAFETY: the call succeeded, so the descriptor is open and no other part of the process has it.
        return Ok(Some(unsafe { OwnedFd::from_raw_fd(descriptor) }));
    }
    match io::Error::last_os_error() {
        error if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(None),
        error => Err(error),
    }
}
