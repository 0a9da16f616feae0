//! Threads of ours in a process of somebody else's.

use std::io;
use std::os::fd::RawFd;
use std::thread;

/// Starts a thread that gets none of the process's signals: their handlers expect a thread of the program's.
pub(crate) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    // SAFETY: the set is filled before it is read, and the thread's mask is what it was when this returns.
    unsafe {
        let mut all = std::mem::zeroed();
        let mut before = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let started = thread::Builder::new().name(name.to_owned()).spawn(work);
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        started.map(drop)
    }
}

/// Sends bytes over a socket. A peer that is gone is an error and no signal, which would end the program.
pub(crate) fn send(socket: RawFd, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: the bytes are there for as long as the call.
    let sent =
        unsafe { libc::send(socket, bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}
