//! The parts of a device that all its users share, wherever they are kept: in this process, or in a broker's that several
//! processes have joined.
//!
//! A board in this process is called directly. One behind a broker may be gone: then it is [lost](Board::lost), claims fail, and
//! everything else takes no time.

use crate::broker::BoardClient;
use crate::exports::{ExportToken, Holder, LetGo};
use crate::frames::Extent;
use crate::link::{Direction, Interval};
use crate::own_board::{ManagedTraffic, OwnBoard};
use crate::residency::{BlockAdvice, PageRange};

/// Whoever uses a board of its own.
const SELF: Holder = Holder(0);

/// There is one for each device, and a board of one's own is not to be behind a pointer.
#[expect(clippy::large_enum_variant)]
#[derive(Debug)]
pub(crate) enum Board {
    Own(OwnBoard),
    Shared(BoardClient),
}

impl Board {
    /// Why the board cannot be had any more.
    pub(crate) fn lost(&self) -> Option<&str> {
        match self {
            Board::Own(_) => None,
            Board::Shared(board) => board.lost(),
        }
    }

    /// Bytes that a claim could have now, counting resident managed memory as taken.
    pub(crate) fn free_bytes(&mut self) -> u64 {
        match self {
            Board::Own(board) => board.free_bytes(),
            Board::Shared(board) => board.free_bytes(),
        }
    }

    pub(crate) fn total_bytes(&self) -> u64 {
        match self {
            Board::Own(board) => board.total_bytes(),
            Board::Shared(board) => board.total_bytes(),
        }
    }

    pub(crate) fn traffic(&mut self) -> ManagedTraffic {
        match self {
            Board::Own(board) => board.traffic(),
            Board::Shared(board) => board.traffic(),
        }
    }

    /// Bytes of a managed range that are on the device.
    pub(crate) fn resident_bytes(&mut self, range: PageRange) -> u64 {
        match self {
            Board::Own(board) => board.resident_bytes(range),
            Board::Shared(board) => board.resident_bytes(range),
        }
    }

    /// Bytes that copies, faults and prefetches of all users have moved over the link.
    pub(crate) fn link_bytes(&mut self, direction: Direction) -> u64 {
        match self {
            Board::Own(board) => board.link_bytes(direction),
            Board::Shared(board) => board.link_bytes(direction),
        }
    }

    /// Takes frames for good, evicting managed memory for them if it must. They are ready at the
    /// returned time.
    pub(crate) fn claim(&mut self, bytes: u64, now: u64) -> Option<(Vec<Extent>, u64)> {
        match self {
            Board::Own(board) => board.claim(bytes, now),
            Board::Shared(board) => board.claim(bytes, now),
        }
    }

    pub(crate) fn give_back(&mut self, extents: &[Extent]) {
        match self {
            Board::Own(board) => board.give_back(extents),
            Board::Shared(board) => board.give_back(extents),
        }
    }

    /// Lets others hold claimed frames too. `None` if the board is lost, or they are scattered too much.
    pub(crate) fn export(&mut self, extents: &[Extent]) -> Option<ExportToken> {
        match self {
            Board::Own(board) => Some(board.export(extents.to_vec(), SELF)),
            Board::Shared(board) => board.export(extents),
        }
    }

    /// Holds exported frames once more.
    pub(crate) fn import(&mut self, token: ExportToken) -> Option<Vec<Extent>> {
        match self {
            Board::Own(board) => board.import(token, SELF),
            Board::Shared(board) => board.import(token),
        }
    }

    /// Holds exported frames once less; whether this process holds them still.
    pub(crate) fn let_go(&mut self, token: ExportToken) -> bool {
        match self {
            Board::Own(board) => board.let_go(token, SELF) == Some(LetGo::StillHeld),
            Board::Shared(board) => board.let_go(token),
        }
    }

    pub(crate) fn transfer(&mut self, direction: Direction, bytes: u64, ready: u64) -> Interval {
        match self {
            Board::Own(board) => board.transfer(direction, bytes, ready),
            Board::Shared(board) => board.transfer(direction, bytes, ready),
        }
    }

    /// The device touches managed memory from `now` on; returns when all of it has been there.
    pub(crate) fn touch(&mut self, range: PageRange, written: bool, now: u64) -> u64 {
        match self {
            Board::Own(board) => board.touch(range, written, now),
            Board::Shared(board) => board.touch(range, written, now),
        }
    }

    /// Brings a managed range to the device in bulk. Moves less if the device has no room left.
    pub(crate) fn prefetch_to_device(&mut self, range: PageRange, now: u64) -> u64 {
        match self {
            Board::Own(board) => board.prefetch_to_device(range, now),
            Board::Shared(board) => board.prefetch_to_device(range, now),
        }
    }

    /// Sends a managed range to the host in bulk.
    pub(crate) fn prefetch_to_host(&mut self, range: PageRange, now: u64) -> u64 {
        match self {
            Board::Own(board) => board.prefetch_to_host(range, now),
            Board::Shared(board) => board.prefetch_to_host(range, now),
        }
    }

    /// A managed range has been written by a copy: untouched pages are now where the copy put them.
    pub(crate) fn populate(&mut self, range: PageRange, now: u64) -> u64 {
        match self {
            Board::Own(board) => board.populate(range, now),
            Board::Shared(board) => board.populate(range, now),
        }
    }

    /// A managed range has been freed.
    pub(crate) fn forget(&mut self, range: PageRange) {
        match self {
            Board::Own(board) => board.forget(range),
            Board::Shared(board) => board.forget(range),
        }
    }

    /// Advice holds for whole blocks.
    pub(crate) fn advise(&mut self, range: PageRange, advice: BlockAdvice) {
        match self {
            Board::Own(board) => board.advise(range, advice),
            Board::Shared(board) => board.advise(range, advice),
        }
    }
}
