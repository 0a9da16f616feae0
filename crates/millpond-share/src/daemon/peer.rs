//! Which process is at the other end of a socket: the kernel's word, not its own.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::UCred;
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::peer_pidfd_ffi::peer_pidfd;
use super::process_identity::{effective_user, start_time};
use crate::policy::Principal;

/// A process, held so that its number cannot come to mean another.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) pid: u32,
    pub(super) uid: u32,
    /// Readable once the process is dead: its children may hold the socket open longer than it lives.
    death: OwnedFd,
    /// Whether it is sure that this process is the one that connected.
    is_certain: bool,
}

/// Why a process was not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Spared {
    #[error("its number may mean another process by now")]
    Uncertain,
    #[error("it runs as another user by now")]
    OtherUser,
}

impl Peer {
    /// The process that connected. `queue_was_empty` is a time since boot before which it cannot have connected.
    pub(super) fn of(socket: BorrowedFd<'_>, queue_was_empty: Duration) -> io::Result<Peer> {
        let credentials = rustix::net::sockopt::socket_peercred(socket)?;
        match peer_pidfd(socket)? {
            Some(death) => Ok(Peer::new(&credentials, death, true)),
            None => Peer::by_number(&credentials, queue_was_empty),
        }
    }

    /// On kernels that give only the number of the process. A process that has this number now, and had begun before the connection
    /// was made, is the one that made it.
    fn by_number(credentials: &UCred, queue_was_empty: Duration) -> io::Result<Peer> {
        let death = pidfd_open(credentials.pid, PidfdFlags::empty())?;
        let mut peer = Peer::new(credentials, death, false);
        let began = start_time(peer.pid);
        // The number still meant the process of the descriptor when the time was read.
        let is_alive = !peer.is_dead();
        peer.is_certain = is_alive && began.is_some_and(|began| began < queue_was_empty);
        Ok(peer)
    }

    fn new(credentials: &UCred, death: OwnedFd, is_certain: bool) -> Peer {
        let pid = credentials.pid.as_raw_nonzero().get().unsigned_abs();
        Peer { pid, uid: credentials.uid.as_raw(), death, is_certain }
    }

    /// The party that it belongs to.
    pub(super) fn principal(&self) -> Principal {
        Principal::User(self.uid)
    }

    /// Ends the process, if it is the one that connected and still that user's. It may be dead already.
    pub(super) fn end(&self) -> Result<(), Spared> {
        if !self.is_certain {
            return Err(Spared::Uncertain);
        }
        let user = effective_user(self.pid);
        if self.is_dead() {
            return Ok(());
        }
        // It lives, so the number is still its own, and what was read is about it.
        if user != Some(self.uid) {
            return Err(Spared::OtherUser);
        }
        let _ = pidfd_send_signal(&self.death, Signal::KILL);
        Ok(())
    }

    fn is_dead(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut death = [PollFd::new(&self.death, PollFlags::IN)];
        !matches!(poll(&mut death, Some(&now)), Ok(0))
    }

    pub(super) fn death(&self) -> BorrowedFd<'_> {
        self.death.as_fd()
    }
}

#[cfg(test)]
impl Peer {
    /// A process of any user, for tests: only root could be several.
    pub(super) fn made_up(pid: u32, uid: u32) -> Peer {
        let own = rustix::process::getpid();
        let death = pidfd_open(own, PidfdFlags::empty()).expect("this process lives");
        Peer { pid, uid, death, is_certain: false }
    }
}

#[cfg(test)]
mod tests {
    use super::super::process_identity::since_boot;
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Child, Command, Stdio};

    /// A child process, and its credentials as a socket of its would have them.
    fn sleeper() -> (Child, UCred) {
        let child = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap();
        let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        (child, UCred { pid, uid, gid })
    }

    #[test]
    fn a_process_that_began_before_the_connection_is_the_one_that_made_it() {
        let (mut child, credentials) = sleeper();
        // As if the connection had been made long after the process began.
        let later = since_boot() + Duration::from_secs(10);
        let peer = Peer::by_number(&credentials, later).unwrap();
        assert_eq!(peer.end(), Ok(()));
        assert_eq!(child.wait().unwrap().signal(), Some(9));
    }

    #[test]
    fn a_process_that_may_have_got_the_number_later_is_spared() {
        let before = since_boot();
        let (mut child, credentials) = sleeper();
        let peer = Peer::by_number(&credentials, before).unwrap();
        assert_eq!(peer.end(), Err(Spared::Uncertain));
        assert_eq!(child.try_wait().unwrap(), None, "it lives");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_process_of_another_user_by_now_is_spared() {
        let (mut child, credentials) = sleeper();
        let uid = rustix::process::Uid::from_raw(credentials.uid.as_raw() + 1);
        let later = since_boot() + Duration::from_secs(10);
        let peer = Peer::by_number(&UCred { uid, ..credentials }, later).unwrap();
        assert_eq!(peer.end(), Err(Spared::OtherUser));
        assert_eq!(child.try_wait().unwrap(), None, "it lives");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// The process that connects dies, and another process gets its number.
    #[test]
    fn a_process_that_got_the_number_of_a_dead_client_is_no_client() {
        const LAST_PID: &str = "/proc/sys/kernel/ns_last_pid";
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        // The first process makes the connection and leaves it to the second one, which keeps it open.
        let script = r#"
import os, socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
if os.fork() == 0:
    os.close(1)
    os.read(0, 1)
    os._exit(0)
print(flush=True)
"#;
        for _ in 0..100 {
            let mut client = Command::new("python3");
            client.args(["-c", script]).arg(&path);
            let mut client = client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let held_open = client.stdin.take();
            let number = client.id();
            client.wait().unwrap();
            let (socket, _) = listener.accept().unwrap();
            if std::fs::write(LAST_PID, (number - 1).to_string()).is_err() {
                return println!("skipped: only root chooses the numbers of processes");
            }
            let mut bystander = Command::new("cat");
            let mut bystander = bystander.stdin(Stdio::piped()).spawn().unwrap();
            let was_the_number = bystander.id() == number;
            if was_the_number && let Ok(peer) = Peer::of(socket.as_fd(), since_boot()) {
                let _ = peer.end();
            }
            // It ends by itself, unless it was killed before.
            drop(bystander.stdin.take());
            assert!(bystander.wait().unwrap().success(), "it was taken for the client");
            drop(held_open);
            if was_the_number {
                return;
            }
        }
        println!("skipped: the number was never free");
    }
}
