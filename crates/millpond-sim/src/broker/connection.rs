//! One client's socket, at the broker's end. Nothing here waits.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use rustix::net::{
    RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recv, send, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::wire::{Garbage, Inbox, MOST_REQUEST_BYTES, append};

const READ_BYTES: usize = 16 << 10;

/// The other end is gone, or as good as that.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Ended {
    #[error("closed")]
    Closed,
    #[error("sent {0}")]
    Garbage(#[from] Garbage),
    #[error("failed: {0}")]
    Failed(#[from] io::Error),
}

impl Ended {
    /// What is unusual about it: processes come and go.
    pub(crate) fn unusual(self) -> Option<String> {
        match self {
            Ended::Closed => None,
            other => Some(other.to_string()),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Connection {
    socket: UnixStream,
    inbox: Inbox,
    outbox: Vec<u8>,
}

impl Connection {
    pub(crate) fn new(socket: UnixStream) -> io::Result<Connection> {
        socket.set_nonblocking(true)?;
        Ok(Connection { socket, inbox: Inbox::new(MOST_REQUEST_BYTES), outbox: Vec::new() })
    }

    /// Whether answers wait for the client to read.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Whether a request can be taken. None is while the last answer has not been sent: a client that does not read cannot
    /// make the broker keep answers for it.
    pub(crate) fn has_request(&self) -> bool {
        !self.has_unsent() && self.inbox.is_due()
    }

    /// Takes in what has come.
    pub(crate) fn receive(&mut self) -> Result<(), Ended> {
        if self.inbox.is_due() {
            return Ok(());
        }
        let mut bytes = [0; READ_BYTES];
        match recv(&self.socket, &mut bytes[..], RecvFlags::empty()) {
            Ok((0, _)) => Err(Ended::Closed),
            Ok((count, _)) => {
                self.inbox.add(&bytes[..count]);
                Ok(())
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(error) => Err(Ended::Failed(error.into())),
        }
    }

    pub(crate) fn take_request<T: DeserializeOwned>(&mut self) -> Result<Option<T>, Ended> {
        Ok(self.inbox.take()?)
    }

    /// What the next request begins with.
    pub(crate) fn peek_request<T: DeserializeOwned>(&self) -> Result<Option<T>, Ended> {
        Ok(self.inbox.peek()?)
    }

    /// Answers, as far as the client takes it now.
    pub(crate) fn answer<T: Serialize>(&mut self, message: &T) -> Result<(), Ended> {
        append(message, &mut self.outbox);
        self.send_rest()
    }

    /// Answers with a descriptor beside the message.
    pub(crate) fn answer_with<T: Serialize>(
        &mut self,
        message: &T,
        descriptor: BorrowedFd<'_>,
    ) -> Result<(), Ended> {
        append(message, &mut self.outbox);
        let descriptors = [descriptor];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        beside.push(SendAncillaryMessage::ScmRights(&descriptors));
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let sent = sendmsg(&self.socket, &[IoSlice::new(&self.outbox)], &mut beside, flags)
            .map_err(io::Error::from)?;
        self.outbox.drain(..sent);
        self.send_rest()
    }

    /// Sends what the client has not taken yet.
    pub(crate) fn send_rest(&mut self) -> Result<(), Ended> {
        let mut done = 0;
        while done < self.outbox.len() {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match send(&self.socket, &self.outbox[done..], flags) {
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(error) => return Err(Ended::Failed(error.into())),
            }
        }
        self.outbox.drain(..done);
        Ok(())
    }

    /// A descriptor that is readable once the process at the other end is dead, and the process's number. Its children may hold
    /// the socket open longer than it lives.
    pub(crate) fn process(&self) -> (Option<i32>, Option<OwnedFd>) {
        let Ok(peer) = rustix::net::sockopt::socket_peercred(&self.socket) else {
            return (None, None);
        };
        let death = rustix::process::pidfd_open(peer.pid, rustix::process::PidfdFlags::empty());
        (Some(peer.pid.as_raw_nonzero().get()), death.ok())
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
