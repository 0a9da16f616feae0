//! A turn, and how long turns are.

use std::time::Duration;

use super::{ClientId, Moment, Principal};

/// The time in which some clients, whose memory fits together, may use the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    /// Who was first in the queue. It may have gone since.
    pub first: ClientId,
    pub principal: Principal,
    /// What its principal had spent when it began.
    pub spent_before: Duration,
    /// It began anew when those that ran together no longer fitted. It does so once: else a client that grows and shrinks would
    /// never come to its end.
    pub restarted: bool,
    /// How many quanta it lasts.
    pub weight: u32,
    pub began: Moment,
    /// The longest that any of them waited for its memory.
    pub moving: Duration,
    /// When its time was over, if the next are to come.
    pub ended: Option<Moment>,
}

impl Turn {
    pub(super) fn new(
        (first, principal): (ClientId, Principal),
        weight: u32,
        began: Moment,
        spent_before: Duration,
    ) -> Turn {
        let (moving, ended, restarted) = (Duration::ZERO, None, false);
        Turn { first, principal, spent_before, restarted, weight, began, moving, ended }
    }

    /// How long it is where one of weight 1 has a quantum: what its principal is owed beyond that makes it longer, up to a limit.
    pub(super) fn length(&self, quantum: Duration, owed: Duration, most: Duration) -> Duration {
        let makes_up = owed.saturating_sub(quantum).min(most);
        quantum.saturating_add(makes_up).saturating_mul(self.weight)
    }

    pub(super) fn is_ending(&self) -> bool {
        self.ended.is_some()
    }
}

const TURNS_REMEMBERED: usize = 4;

/// As fast as a driver brings in memory that is touched: 10 GiB in 3.82 s on a P100, as nvshare's thesis has it. Where pages come
/// one by one it takes longer than this says.
pub(super) const FAULT_BYTES_PER_SECOND: f64 = 2.8e9;

/// The most that turns are stretched.
pub const MOST_STRETCH: u32 = 16;

/// By how much turns are stretched because moving memory would take too much of them.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    stretch: u32,
    /// The last turns since the pace changed: the time for moving, and all of it.
    recent: Vec<(Duration, Duration)>,
}

impl Pace {
    pub(super) fn new() -> Pace {
        Pace { stretch: 1, recent: Vec::new() }
    }

    pub(super) fn stretch(&self) -> u32 {
        self.stretch
    }

    /// A turn went to its end.
    pub(super) fn note(&mut self, moving: Duration, all: Duration) {
        if self.recent.len() == TURNS_REMEMBERED {
            self.recent.remove(0);
        }
        self.recent.push((moving.min(all), all));
        if self.recent.len() < TURNS_REMEMBERED {
            return;
        }
        let moving: Duration = self.recent.iter().map(|turn| turn.0).sum();
        let all: Duration = self.recent.iter().map(|turn| turn.1).sum();
        let stretch = if moving > all / 4 {
            (self.stretch * 2).min(MOST_STRETCH)
        } else if moving < all / 16 {
            (self.stretch / 2).max(1)
        } else {
            self.stretch
        };
        if stretch != self.stretch {
            self.stretch = stretch;
            self.recent.clear();
        }
    }
}
