//! What a client and the broker say to each other: one request, one answer.

use serde::{Deserialize, Serialize};

use crate::board_figures::BoardFigures;
use crate::frames::Extent;
use crate::link::{Direction, Interval};
use crate::own_board::ManagedTraffic;
use crate::residency::{BlockAdvice, PageRange};

/// Changes whenever a message does.
pub(crate) const PROTOCOL: u32 = 1;

/// The first message of a client. What follows the version may look different in another one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) protocol: u32,
    /// Which of the devices of this name.
    pub(crate) device: u32,
    /// Thousandths of real time that pass on the device.
    pub(crate) speed: u32,
    pub(crate) figures: BoardFigures,
}

/// What a client asks after that. Times are the device's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Request {
    FreeBytes,
    Traffic,
    LinkBytes(Direction),
    Claim {
        bytes: u64,
        now: u64,
    },
    GiveBack {
        extents: Vec<Extent>,
    },
    /// Claims, the part in exports, managed memory: as if the client had left and come again.
    GiveEverythingBack,
    Export {
        extents: Vec<Extent>,
    },
    Import {
        token: u64,
    },
    LetGo {
        token: u64,
    },
    Transfer {
        direction: Direction,
        bytes: u64,
        ready: u64,
    },
    Touch {
        range: PageRange,
        written: bool,
        now: u64,
    },
    PrefetchToDevice {
        range: PageRange,
        now: u64,
    },
    PrefetchToHost {
        range: PageRange,
        now: u64,
    },
    Populate {
        range: PageRange,
        now: u64,
    },
    Forget {
        range: PageRange,
    },
    Advise {
        range: PageRange,
        advice: BlockAdvice,
    },
    ResidentBytes {
        range: PageRange,
    },
}

/// What the broker answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// To a hello, with the device's memory file.
    Welcome {
        clock_start_ns: u64,
        broker_pid: u32,
    },
    /// To a hello that does not fit; the connection ends.
    Unfit {
        field: String,
        yours: String,
        ours: String,
    },
    /// Done; nothing to say.
    Done,
    /// Bytes, or a time.
    Number(u64),
    Traffic(ManagedTraffic),
    Claimed {
        extents: Vec<Extent>,
        ready: u64,
    },
    Interval(Interval),
    Token(u64),
    Imported {
        extents: Vec<Extent>,
    },
    /// Not enough memory, or nothing under that token.
    None,
    LetGo {
        still_held: bool,
    },
}
