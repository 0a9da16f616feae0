//! Which process is at the other end of a socket: the kernel's word, not its own.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A process, held so that its number cannot come to mean another.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) pid: u32,
    pub(super) uid: u32,
    /// Readable once the process is dead: its children may hold the socket open longer than it lives.
    death: OwnedFd,
}

impl Peer {
    pub(super) fn of(socket: impl AsFd) -> rustix::io::Result<Peer> {
        let peer = rustix::net::sockopt::socket_peercred(socket)?;
        let death = pidfd_open(peer.pid, PidfdFlags::empty())?;
        Ok(Peer {
            pid: peer.pid.as_raw_nonzero().get().unsigned_abs(),
            uid: peer.uid.as_raw(),
            death,
        })
    }

    /// Ends the process. It may be dead already.
    pub(super) fn end(&self) {
        let _ = pidfd_send_signal(&self.death, Signal::KILL);
    }

    pub(super) fn death(&self) -> BorrowedFd<'_> {
        self.death.as_fd()
    }
}
