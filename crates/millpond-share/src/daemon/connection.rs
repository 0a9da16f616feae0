//! One peer's socket. Nothing here waits, and nothing grows without bound.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::framing::{Garbage, Inbox, append};

const READ_BYTES: usize = 4 << 10;
/// A client that lets so much lie unread has stopped reading. All that one principal can make the daemon keep is the most connections
/// that it has, times this, a message, what is read at once, and the kernel's buffer.
const MOST_UNSENT_BYTES: usize = 32 << 10;
/// What the kernel keeps of what a client has not read; it takes twice as much for itself.
const KERNEL_BUFFER_BYTES: usize = 16 << 10;
/// Answers about all clients are long, but only owners and a few readers of the metrics get them.
const MOST_UNSENT_ANSWER_BYTES: usize = 16 << 20;

/// The other end is gone, or as good as that.
#[derive(Debug, thiserror::Error)]
pub(super) enum Ended {
    #[error("closed")]
    Closed,
    #[error("sent {0}")]
    Garbage(#[from] Garbage),
    #[error("does not read what it is told")]
    Deaf,
    #[error("failed: {0}")]
    Failed(io::Error),
}

#[derive(Debug)]
pub(super) struct Connection {
    socket: OwnedFd,
    inbox: Inbox,
    outbox: Vec<u8>,
    most_unsent_bytes: usize,
    /// Since when there has been a part of a message and no whole one.
    half_since: Option<Instant>,
}

impl Connection {
    /// Of a socket, for messages of at most so many bytes. A client's is kept small.
    pub(super) fn new(
        socket: OwnedFd,
        most_message_bytes: usize,
        is_clients: bool,
    ) -> io::Result<Connection> {
        if is_clients {
            set_socket_send_buffer_size(&socket, KERNEL_BUFFER_BYTES)?;
        }
        Ok(Connection {
            socket,
            inbox: Inbox::new(most_message_bytes),
            outbox: Vec::new(),
            most_unsent_bytes: if is_clients {
                MOST_UNSENT_BYTES
            } else {
                MOST_UNSENT_ANSWER_BYTES
            },
            half_since: None,
        })
    }

    /// Since when a message has been begun and not finished.
    pub(super) fn half_a_message_since(&self) -> Option<Instant> {
        self.half_since
    }

    pub(super) fn has_unsent(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Whether a message can be taken, or garbage be found.
    pub(super) fn has_message(&self) -> bool {
        self.inbox.is_due()
    }

    /// Takes in what has come. While a message is there nothing more is read: who sends faster than it is served fills its own
    /// socket and not our memory.
    pub(super) fn receive(&mut self) -> Result<(), Ended> {
        if self.inbox.is_due() {
            return Ok(());
        }
        let mut bytes = [0; READ_BYTES];
        if let Some(count) = self.receive_raw(&mut bytes)? {
            self.inbox.add(&bytes[..count]);
            self.note_half();
        }
        Ok(())
    }

    /// Bytes as they are; `None` if none have come.
    pub(super) fn receive_raw(&self, bytes: &mut [u8]) -> Result<Option<usize>, Ended> {
        match recv(&self.socket, bytes, RecvFlags::DONTWAIT) {
            Ok((0, _)) => Err(Ended::Closed),
            Ok((count, _)) => Ok(Some(count)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(Errno::CONNRESET) => Err(Ended::Closed),
            Err(error) => Err(Ended::Failed(error.into())),
        }
    }

    pub(super) fn take<T: DeserializeOwned>(&mut self) -> Result<Option<T>, Ended> {
        let taken = self.inbox.take()?;
        if taken.is_some() {
            self.half_since = None;
            self.note_half();
        }
        Ok(taken)
    }

    fn note_half(&mut self) {
        if self.inbox.is_due() || self.inbox.is_empty() {
            self.half_since = None;
        } else {
            self.half_since.get_or_insert_with(Instant::now);
        }
    }

    pub(super) fn peek<T: DeserializeOwned>(&self) -> Result<Option<T>, Ended> {
        Ok(self.inbox.peek()?)
    }

    /// Says something, as far as the peer takes it now.
    pub(super) fn say<T: Serialize>(&mut self, message: &T) -> Result<(), Ended> {
        append(message, &mut self.outbox);
        self.send_rest()
    }

    /// Says something that is no message of ours.
    pub(super) fn say_raw(&mut self, bytes: &[u8]) -> Result<(), Ended> {
        self.outbox.extend_from_slice(bytes);
        self.send_rest()
    }

    /// Sends what the peer has not taken yet.
    pub(super) fn send_rest(&mut self) -> Result<(), Ended> {
        let mut done = 0;
        while done < self.outbox.len() {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match send(&self.socket, &self.outbox[done..], flags) {
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(Ended::Closed),
                Err(error) => return Err(Ended::Failed(error.into())),
            }
        }
        self.outbox.drain(..done);
        if self.outbox.len() > self.most_unsent_bytes { Err(Ended::Deaf) } else { Ok(()) }
    }
}

#[cfg(test)]
impl Connection {
    /// The memory that a peer makes us keep.
    pub(super) fn kept_bytes(&self) -> usize {
        self.inbox.capacity() + self.outbox.capacity()
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framing::MOST_BYTES;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    /// Else one byte now and then would keep a message unfinished for ever.
    #[test]
    fn the_time_of_half_a_message_counts_from_its_first_byte() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut connection = Connection::new(ours.into(), MOST_BYTES, true).unwrap();
        let mut begun = None;
        for byte in [2, 0, 0, 0, 1] {
            assert_eq!(connection.half_a_message_since(), begun);
            theirs.write_all(&[byte]).unwrap();
            connection.receive().unwrap();
            begun = begun.or(connection.half_a_message_since());
            assert!(begun.is_some());
        }
        assert_eq!(connection.half_a_message_since(), begun);
        theirs.write_all(&[1]).unwrap();
        connection.receive().unwrap();
        assert_eq!(connection.half_a_message_since(), None, "it is whole");
        // What follows has a time of its own.
        theirs.write_all(&[2]).unwrap();
        assert_eq!(connection.take::<(u8, u8)>().unwrap(), Some((1, 1)));
        connection.receive().unwrap();
        assert!(connection.half_a_message_since() > begun);
    }
}
