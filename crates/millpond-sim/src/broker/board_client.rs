//! The board of a shared device, as a process that has joined it sees it.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recv, recvmsg, send,
};

use super::message::{Answer, Hello, Request};
use super::wire::{Inbox, MOST_ANSWER_BYTES, MOST_EXTENTS, append};
use crate::exports::ExportToken;
use crate::frames::Extent;
use crate::link::{Direction, Interval};
use crate::own_board::ManagedTraffic;
use crate::residency::{BlockAdvice, PageRange};

/// A broker that has not answered for so long never will.
const ANSWER_TIME: Duration = Duration::from_secs(60);
/// Read at a time, to a stack that may be small.
const READ_BYTES: usize = 4 << 10;

/// One connection to the broker. Once that is lost, nothing can be had any more, and nothing takes time.
#[derive(Debug)]
pub(crate) struct BoardClient {
    socket: UnixStream,
    inbox: Inbox,
    message: Vec<u8>,
    total_bytes: u64,
    lost: Option<String>,
}

/// What a broker said to a hello.
#[derive(Debug)]
pub(crate) struct Welcome {
    pub(crate) clock_start_ns: u64,
    pub(crate) broker_pid: u32,
    pub(crate) memory: OwnedFd,
}

/// Why a hello led to nothing.
#[derive(Debug)]
pub(crate) enum NotWelcome {
    /// The connection ended: perhaps the broker was about to leave.
    Gone(io::Error),
    /// The device is not what was asked for.
    Unfit { field: String, yours: String, ours: String },
}

impl From<io::Error> for NotWelcome {
    fn from(error: io::Error) -> NotWelcome {
        NotWelcome::Gone(error)
    }
}

impl BoardClient {
    /// Says hello.
    pub(crate) fn join(
        socket: UnixStream,
        hello: &Hello,
    ) -> Result<(BoardClient, Welcome), NotWelcome> {
        socket.set_read_timeout(Some(ANSWER_TIME))?;
        socket.set_write_timeout(Some(ANSWER_TIME))?;
        let mut client = BoardClient {
            socket,
            inbox: Inbox::new(MOST_ANSWER_BYTES),
            message: Vec::new(),
            total_bytes: hello.figures.capacity_bytes as u64,
            lost: None,
        };
        append(hello, &mut client.message);
        client.send()?;
        let mut memory = None;
        let answer = loop {
            if let Some(answer) = client.inbox.take().map_err(io::Error::other)? {
                break answer;
            }
            client.receive_with_descriptor(&mut memory)?;
        };
        match (answer, memory) {
            (Answer::Welcome { clock_start_ns, broker_pid }, Some(memory)) => {
                Ok((client, Welcome { clock_start_ns, broker_pid, memory }))
            }
            (Answer::Unfit { field, yours, ours }, _) => {
                Err(NotWelcome::Unfit { field, yours, ours })
            }
            _ => Err(NotWelcome::Gone(io::Error::other("the broker answered something else"))),
        }
    }

    pub(crate) fn lost(&self) -> Option<&str> {
        self.lost.as_deref()
    }

    pub(crate) fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    fn send(&mut self) -> io::Result<()> {
        let mut rest = &self.message[..];
        while !rest.is_empty() {
            // A program's SIGPIPE is not ours to raise.
            match send(&self.socket, rest, SendFlags::NOSIGNAL) {
                Ok(count) => rest = &rest[count..],
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.message.clear();
        Ok(())
    }

    fn receive(&mut self) -> io::Result<()> {
        let mut bytes = [0; READ_BYTES];
        match recv(&self.socket, &mut bytes[..], RecvFlags::empty()) {
            Ok((0, _)) => Err(closed()),
            Ok((count, _)) => {
                self.inbox.add(&bytes[..count]);
                Ok(())
            }
            Err(Errno::INTR) => Ok(()),
            Err(Errno::AGAIN) => Err(silent()),
            Err(error) => Err(error.into()),
        }
    }

    fn receive_with_descriptor(&mut self, descriptor: &mut Option<OwnedFd>) -> io::Result<()> {
        let mut bytes = [0; 4096];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let got = recvmsg(&self.socket, &mut [IoSliceMut::new(&mut bytes)], &mut beside, flags);
        let count = match got {
            Ok(got) if got.bytes == 0 => return Err(closed()),
            Ok(got) => got.bytes,
            Err(Errno::INTR) => return Ok(()),
            Err(Errno::AGAIN) => return Err(silent()),
            Err(error) => return Err(error.into()),
        };
        for message in beside.drain() {
            if let RecvAncillaryMessage::ScmRights(mut descriptors) = message {
                *descriptor = descriptors.next();
            }
        }
        self.inbox.add(&bytes[..count]);
        Ok(())
    }

    fn exchange(&mut self, request: &Request) -> io::Result<Answer> {
        append(request, &mut self.message);
        self.send()?;
        loop {
            if let Some(answer) = self.inbox.take().map_err(io::Error::other)? {
                return Ok(answer);
            }
            self.receive()?;
        }
    }

    /// The broker's answer, made into what was asked for. `None` if the broker is lost.
    fn ask<T>(&mut self, request: &Request, read: impl Fn(Answer) -> Option<T>) -> Option<T> {
        if self.lost.is_some() {
            return None;
        }
        let reason = match self.exchange(request) {
            Ok(answer) => match read(answer) {
                Some(answer) => return Some(answer),
                None => "it answered something else".to_owned(),
            },
            Err(error) => error.to_string(),
        };
        // What comes after a failed exchange could be the answer to it: the connection is of no more use.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
        self.lost = Some(format!("the broker of this shared device is gone: {reason}"));
        None
    }

    fn number(&mut self, request: &Request) -> Option<u64> {
        self.ask(request, |answer| match answer {
            Answer::Number(number) => Some(number),
            _ => None,
        })
    }

    fn done(&mut self, request: &Request) {
        self.ask(request, |answer| (answer == Answer::Done).then_some(()));
    }

    pub(crate) fn free_bytes(&mut self) -> u64 {
        self.number(&Request::FreeBytes).unwrap_or(0)
    }

    pub(crate) fn traffic(&mut self) -> ManagedTraffic {
        let traffic = self.ask(&Request::Traffic, |answer| match answer {
            Answer::Traffic(traffic) => Some(traffic),
            _ => None,
        });
        traffic.unwrap_or_default()
    }

    pub(crate) fn resident_bytes(&mut self, range: PageRange) -> u64 {
        self.number(&Request::ResidentBytes { range }).unwrap_or(0)
    }

    pub(crate) fn link_bytes(&mut self, direction: Direction) -> u64 {
        self.number(&Request::LinkBytes(direction)).unwrap_or(0)
    }

    pub(crate) fn claim(&mut self, bytes: u64, now: u64) -> Option<(Vec<Extent>, u64)> {
        self.ask(&Request::Claim { bytes, now }, |answer| match answer {
            Answer::Claimed { extents, ready } => Some(Some((extents, ready))),
            Answer::None => Some(None),
            _ => None,
        })?
    }

    pub(crate) fn give_back(&mut self, extents: &[Extent]) {
        for part in extents.chunks(MOST_EXTENTS) {
            self.done(&Request::GiveBack { extents: part.to_vec() });
        }
    }

    /// Claims, the part in exports, managed memory.
    pub(crate) fn give_everything_back(&mut self) {
        self.done(&Request::GiveEverythingBack);
    }

    pub(crate) fn export(&mut self, extents: &[Extent]) -> Option<ExportToken> {
        if extents.len() > MOST_EXTENTS {
            return None;
        }
        self.ask(&Request::Export { extents: extents.to_vec() }, |answer| match answer {
            Answer::Token(token) => Some(ExportToken(token)),
            _ => None,
        })
    }

    pub(crate) fn import(&mut self, ExportToken(token): ExportToken) -> Option<Vec<Extent>> {
        self.ask(&Request::Import { token }, |answer| match answer {
            Answer::Imported { extents } => Some(Some(extents)),
            Answer::None => Some(None),
            _ => None,
        })?
    }

    pub(crate) fn let_go(&mut self, ExportToken(token): ExportToken) -> bool {
        let held = self.ask(&Request::LetGo { token }, |answer| match answer {
            Answer::LetGo { still_held } => Some(still_held),
            _ => None,
        });
        held.unwrap_or(false)
    }

    pub(crate) fn transfer(&mut self, direction: Direction, bytes: u64, ready: u64) -> Interval {
        let interval =
            self.ask(&Request::Transfer { direction, bytes, ready }, |answer| match answer {
                Answer::Interval(interval) => Some(interval),
                _ => None,
            });
        interval.unwrap_or(Interval { start: ready, end: ready })
    }

    pub(crate) fn touch(&mut self, range: PageRange, written: bool, now: u64) -> u64 {
        self.number(&Request::Touch { range, written, now }).unwrap_or(now)
    }

    pub(crate) fn prefetch_to_device(&mut self, range: PageRange, now: u64) -> u64 {
        self.number(&Request::PrefetchToDevice { range, now }).unwrap_or(now)
    }

    pub(crate) fn prefetch_to_host(&mut self, range: PageRange, now: u64) -> u64 {
        self.number(&Request::PrefetchToHost { range, now }).unwrap_or(now)
    }

    pub(crate) fn populate(&mut self, range: PageRange, now: u64) -> u64 {
        self.number(&Request::Populate { range, now }).unwrap_or(now)
    }

    pub(crate) fn forget(&mut self, range: PageRange) {
        self.done(&Request::Forget { range });
    }

    pub(crate) fn advise(&mut self, range: PageRange, advice: BlockAdvice) {
        self.done(&Request::Advise { range, advice });
    }
}

fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection")
}

fn silent() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "it does not answer")
}
