//! One device that several clients have joined: what each holds, and what each may do.

use std::collections::HashMap;
use std::io;

use millpond_text::say;

use super::holdings::Holdings;
use super::message::{Answer, Hello, Request};
use crate::bytes::arena_bytes;
use crate::clock::{RealClock, SimClock};
use crate::exports::{ExportToken, Holder, LetGo};
use crate::frames::{Extent, FRAME_BYTES};
use crate::own_board::OwnBoard;
use crate::residency::PageRange;
use crate::shared_memory::MemoryFile;

/// Host addresses are below this. A client's managed memory is known to the board by its address above the client's
/// number times this, so that no two clients' can be the same.
const END_OF_ADDRESSES: u64 = 1 << 47;
/// The most clients of a device at a time: as many as their numbers leave room for in an address.
const MOST_CLIENTS: u64 = 1 << 14;
/// How far ahead of the device's clock a client may ask for the link, unless it was told to wait for longer. What calls
/// cost in the model may put it ahead a little; no client may book the link for later.
const MOST_AHEAD_NS: u64 = 1_000_000_000;

/// The number of a client among those of a device, its own while it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ClientNumber(u64);

impl ClientNumber {
    fn holder(self) -> Holder {
        Holder(self.0)
    }

    fn first_address(self) -> u64 {
        self.0 * END_OF_ADDRESSES
    }
}

/// A client asked for what no honest client asks for. Its connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Violation {
    #[error("it gave back or exported frames that it does not hold")]
    NotItsFrames,
    #[error("it let go of an export that it does not hold")]
    NotItsExport,
    #[error("it named managed memory that cannot be")]
    ImpossibleRange,
    #[error("it asked for a part of a frame")]
    PartOfAFrame,
}

#[derive(Debug, Default)]
struct Client {
    held: Holdings,
    /// From the lowest to the highest address of managed memory it has named.
    managed: Option<(u64, u64)>,
    /// The latest time that it was told.
    told_ns: u64,
}

#[derive(Debug)]
pub(crate) struct SharedDevice {
    hello: Hello,
    clock: RealClock,
    board: OwnBoard,
    memory: MemoryFile,
    clients: HashMap<ClientNumber, Client>,
}

impl SharedDevice {
    /// The device that a first client asks for.
    pub(crate) fn new(hello: Hello) -> io::Result<SharedDevice> {
        if let Some(name) = hello.figures.unsound() {
            return Err(io::Error::other(format!("no device has this {name}")));
        }
        if !SimClock::SPEEDS.contains(&hello.speed) {
            return Err(io::Error::other("no clock has this speed"));
        }
        Ok(SharedDevice {
            clock: RealClock::begin(hello.speed),
            board: OwnBoard::new(&hello.figures),
            memory: MemoryFile::new(hello.figures.capacity_bytes as u64)?,
            clients: HashMap::new(),
            hello,
        })
    }

    /// What of a client's wish is not as this device is, if anything.
    pub(crate) fn difference(&self, hello: &Hello) -> Option<Answer> {
        let speeds = (self.hello.speed != hello.speed).then(|| {
            let times = |speed| f64::from(speed) / 1000.0;
            (
                "clock".to_owned(),
                times(hello.speed).to_string(),
                times(self.hello.speed).to_string(),
            )
        });
        let difference = hello.figures.difference(&self.hello.figures).or(speeds);
        difference.map(|(field, yours, ours)| Answer::Unfit { field, yours, ours })
    }

    pub(crate) fn memory(&self) -> &MemoryFile {
        &self.memory
    }

    pub(crate) fn clock(&self) -> RealClock {
        self.clock
    }

    /// Another client; none if there are too many.
    pub(crate) fn join(&mut self) -> Option<ClientNumber> {
        let number = (1..=MOST_CLIENTS).map(ClientNumber);
        let number = number.into_iter().find(|number| !self.clients.contains_key(number))?;
        self.clients.insert(number, Client::default());
        Some(number)
    }

    /// Whether no client is left.
    pub(crate) fn is_deserted(&self) -> bool {
        self.clients.is_empty()
    }

    /// A client is gone, whyever: everything goes back.
    pub(crate) fn leave(&mut self, number: ClientNumber) {
        let Some(mut client) = self.clients.remove(&number) else { return };
        let held = client.held.take_all();
        self.board.give_back(&held);
        let exported = self.board.forget_holder(number.holder());
        let first = number.first_address();
        self.board.forget_addresses(first..first + END_OF_ADDRESSES);
        self.clean(&held);
        self.clean(&exported);
    }

    /// The next owner sees zeros.
    fn clean(&self, extents: &[Extent]) {
        for extent in extents {
            // A refusal leaves the old bytes in place, which freed memory may hold.
            if let Err(error) = self.memory.discard(*extent) {
                say(&format!("cannot clean {} bytes at {}: {error}", extent.bytes, extent.start));
            }
        }
    }

    /// Does what a client asks for.
    pub(crate) fn serve(
        &mut self,
        number: ClientNumber,
        request: Request,
    ) -> Result<Answer, Violation> {
        let answer = match request {
            Request::FreeBytes => Answer::Number(self.board.free_bytes()),
            Request::Traffic => Answer::Traffic(self.board.traffic()),
            Request::LinkBytes(direction) => Answer::Number(self.board.link_bytes(direction)),
            Request::Claim { bytes, now } => self.claim(number, bytes, now)?,
            Request::GiveBack { extents } => {
                self.take_from(number, &extents)?;
                self.board.give_back(&extents);
                self.clean(&extents);
                Answer::Done
            }
            Request::GiveEverythingBack => {
                self.leave(number);
                self.clients.insert(number, Client::default());
                Answer::Done
            }
            Request::Export { extents } => {
                self.take_from(number, &extents)?;
                Answer::Token(self.board.export(extents, number.holder()).0)
            }
            Request::Import { token } => {
                match self.board.import(ExportToken(token), number.holder()) {
                    Some(extents) => Answer::Imported { extents },
                    None => Answer::None,
                }
            }
            Request::LetGo { token } => self.let_go(number, token)?,
            Request::Transfer { direction, bytes, ready } => {
                let ready = self.soon(number, ready);
                let bytes = bytes.min(arena_bytes(self.board.total_bytes()));
                let interval = self.board.transfer(direction, bytes, ready);
                self.tell(number, interval.end);
                Answer::Interval(interval)
            }
            Request::Touch { range, written, now } => {
                self.timed(number, range, now, |board, range, now| {
                    board.touch(range, written, now)
                })?
            }
            Request::PrefetchToDevice { range, now } => {
                self.timed(number, range, now, OwnBoard::prefetch_to_device)?
            }
            Request::PrefetchToHost { range, now } => {
                self.timed(number, range, now, OwnBoard::prefetch_to_host)?
            }
            Request::Populate { range, now } => {
                self.timed(number, range, now, OwnBoard::populate)?
            }
            Request::Forget { range } => {
                let range = self.placed(number, range)?;
                self.board.forget(range);
                Answer::Done
            }
            Request::Advise { range, advice } => {
                let range = self.placed(number, range)?;
                self.board.advise(range, advice);
                Answer::Done
            }
            Request::ResidentBytes { range } => {
                let range = self.placed(number, range)?;
                Answer::Number(self.board.resident_bytes(range))
            }
        };
        Ok(answer)
    }

    fn client(&mut self, number: ClientNumber) -> &mut Client {
        self.clients.get_mut(&number).expect("only clients that joined are served")
    }

    fn claim(&mut self, number: ClientNumber, bytes: u64, now: u64) -> Result<Answer, Violation> {
        if bytes == 0 || !bytes.is_multiple_of(FRAME_BYTES) {
            return Err(Violation::PartOfAFrame);
        }
        let now = self.soon(number, now);
        if bytes > self.board.total_bytes() {
            return Ok(Answer::None);
        }
        let Some((extents, ready)) = self.board.claim(bytes, now) else { return Ok(Answer::None) };
        self.tell(number, ready);
        let client = self.client(number);
        extents.iter().for_each(|extent| client.held.add(*extent));
        Ok(Answer::Claimed { extents, ready })
    }

    /// Frames leave a client's hands.
    fn take_from(&mut self, number: ClientNumber, extents: &[Extent]) -> Result<(), Violation> {
        if extents.iter().any(|e| !(e.start | e.bytes).is_multiple_of(FRAME_BYTES)) {
            return Err(Violation::PartOfAFrame);
        }
        let client = self.client(number);
        for (done, extent) in extents.iter().enumerate() {
            if !client.held.remove(*extent) {
                // What it does hold goes back when its connection has ended.
                extents[..done].iter().for_each(|extent| client.held.add(*extent));
                return Err(Violation::NotItsFrames);
            }
        }
        Ok(())
    }

    fn let_go(&mut self, number: ClientNumber, token: u64) -> Result<Answer, Violation> {
        match self.board.let_go(ExportToken(token), number.holder()) {
            None => Err(Violation::NotItsExport),
            Some(LetGo::StillHeld) => Ok(Answer::LetGo { still_held: true }),
            Some(LetGo::HeldByOthers) => Ok(Answer::LetGo { still_held: false }),
            Some(LetGo::Free(extents)) => {
                self.clean(&extents);
                Ok(Answer::LetGo { still_held: false })
            }
        }
    }

    /// A request about managed memory that takes time.
    fn timed(
        &mut self,
        number: ClientNumber,
        range: PageRange,
        now: u64,
        act: impl Fn(&mut OwnBoard, PageRange, u64) -> u64,
    ) -> Result<Answer, Violation> {
        let range = self.placed(number, range)?;
        let now = self.soon(number, now);
        let end = act(&mut self.board, range, now);
        self.tell(number, end);
        Ok(Answer::Number(end))
    }

    /// A client's range, at the addresses by which the board knows it. A client has one arena of managed memory: the
    /// ranges it names must lie as near each other as in one, so that none can fill the broker's memory.
    fn placed(&mut self, number: ClientNumber, range: PageRange) -> Result<PageRange, Violation> {
        if !range.is_sound(END_OF_ADDRESSES) {
            return Err(Violation::ImpossibleRange);
        }
        let most = arena_bytes(self.board.total_bytes());
        let client = self.client(number);
        let (first, last) = range.allocation();
        let (low, high) = client.managed.unwrap_or((first, last));
        let (low, high) = (low.min(first), high.max(last));
        if high - low > most {
            return Err(Violation::ImpossibleRange);
        }
        client.managed = Some((low, high));
        Ok(range.shifted(number.first_address()))
    }

    /// The time that a client names, or the latest that it may.
    fn soon(&mut self, number: ClientNumber, time: u64) -> u64 {
        let now = self.clock.now_ns();
        time.min(self.client(number).told_ns.max(now + MOST_AHEAD_NS))
    }

    fn tell(&mut self, number: ClientNumber, time: u64) {
        let client = self.client(number);
        client.told_ns = client.told_ns.max(time);
    }
}

#[cfg(test)]
mod tests;
