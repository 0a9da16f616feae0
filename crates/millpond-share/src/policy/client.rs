//! A client as the policy sees it.

use std::time::Duration;

use super::{Moment, Principal};
use crate::control::State;
use crate::protocol::Traffic;

/// The most quanta that one turn can be. Whoever asks for more would keep the others out.
pub const MOST_WEIGHT: u32 = 100;

/// The furthest that a priority is from zero. Each turn makes up for one of it, so it also says after how many turns the least
/// one goes first.
pub const MOST_PRIORITY: i32 = 10;

/// Where a client is between having nothing to do and using the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Idle,
    Waiting {
        since: Moment,
        /// How many turns have begun without it.
        passed_by: u32,
    },
    Holding(Hold),
    Dropping {
        hold: Hold,
        since: Moment,
        warned: bool,
        /// It has said already that there is more to do.
        wants_again: bool,
    },
    Revoked,
}

/// A client's leave to use the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hold {
    /// The number that the client knows it by.
    pub turn: u64,
    pub since: Moment,
    /// Its memory is there and its work goes on.
    pub resumed: bool,
    /// The grant has been sent. Its room is known only when everything else is.
    pub told: bool,
}

/// Memory that a client has been asked to send out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MakingRoom {
    pub resident_at_most: u64,
    /// When it was asked, or last had done a good part of it.
    pub since: Moment,
    /// What it had on the device then.
    pub resident_then: u64,
    pub warned: bool,
}

/// What a client has been told, so that it is told again only when that changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    pub contended: bool,
    /// The turn in which it was told that. A client may forget it with the turn.
    pub contended_in_turn: u64,
    pub room: u64,
    /// What of that was its own part: the rest has been counted as others' since.
    pub part: u64,
    pub memory_bytes: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Client {
    pub principal: Principal,
    pub pid: u32,
    pub name: String,
    pub weight: u32,
    pub priority: i32,
    pub memory_limit: Option<u64>,
    /// The device's memory in its words.
    pub capacity_bytes: u64,
    pub claimed: u64,
    /// The most of its memory that its process can have on the host, if there is a limit.
    pub most_on_host: Option<u64>,
    pub wanted: u64,
    pub traffic: Traffic,
    pub phase: Phase,
    /// It was told to leave the device or to make room and did not, so that its memory counts for nothing.
    pub void: bool,
    /// Of its memory on the device, what cannot leave, as far as that is believed.
    pub pinned: u64,
    pub making_room: Option<MakingRoom>,
    /// What others than clients have of the device, by its word, and when it last said something of that.
    pub foreign: Option<(u64, Moment)>,
    /// What is on the device beside its principal's memory, as its own driver last said.
    pub around: Option<u64>,
    pub told: Told,
    /// Up to when its times are added up.
    pub is_as_of: Moment,
    pub held: Duration,
    pub moving: Duration,
    pub waited: Duration,
    /// When it last had the device.
    pub last_held: Moment,
}

impl Client {
    /// What it has on the device, as far as that is believed.
    pub(super) fn resident(&self) -> u64 {
        if self.void { self.pinned } else { self.resident_in_its_words() }
    }

    /// Nobody has more on the device than it has.
    pub(super) fn resident_in_its_words(&self) -> u64 {
        self.traffic.resident_bytes.min(self.claimed)
    }

    /// What of that cannot leave.
    pub(super) fn pinned_in_its_words(&self) -> u64 {
        self.traffic.pinned_bytes.min(self.resident_in_its_words())
    }

    /// What it has used in its last turn.
    pub(super) fn used(&self) -> u64 {
        self.traffic.used_bytes.min(self.claimed)
    }

    /// What must be on the device whenever it works, because it cannot be brought in page by page.
    pub(super) fn fixed(&self) -> u64 {
        self.traffic.fixed_bytes.min(self.claimed).max(self.pinned)
    }

    /// One that has been told to give up the device may still be bringing in what it was told there is room for.
    pub(super) fn resident_or_on_its_way(&self) -> u64 {
        match self.phase {
            Phase::Dropping { .. } if !self.void => {
                self.resident().max(self.told.room.min(self.claimed))
            }
            _ => self.resident(),
        }
    }

    /// What it was told there is room for, and may be bringing in already.
    pub(super) fn on_its_way(&self) -> u64 {
        match self.phase {
            Phase::Holding(Hold { told: true, resumed: false, .. }) => {
                self.told.part.min(self.desired())
            }
            _ => 0,
        }
    }

    /// What it would have on the device in its turn.
    pub(super) fn desired(&self) -> u64 {
        self.wanted.min(self.claimed).max(self.resident())
    }

    /// What of its memory has left the device and is on the host.
    pub(super) fn on_host(&self) -> u64 {
        let sent = self.traffic.moved_out_bytes.saturating_sub(self.traffic.moved_in_bytes);
        // Of one whose memory counts for nothing, too: the host still needs room for what the driver pushes out.
        sent.min(self.claimed.saturating_sub(self.traffic.resident_bytes))
    }

    pub(super) fn hold(&self) -> Option<&Hold> {
        match &self.phase {
            Phase::Holding(hold) | Phase::Dropping { hold, .. } => Some(hold),
            _ => None,
        }
    }

    pub(super) fn hold_mut(&mut self) -> Option<&mut Hold> {
        match &mut self.phase {
            Phase::Holding(hold) | Phase::Dropping { hold, .. } => Some(hold),
            _ => None,
        }
    }

    /// It may use the device and has not been told to stop.
    pub(super) fn is_holding(&self) -> bool {
        matches!(self.phase, Phase::Holding(_))
    }

    /// Its memory comes, or is to go.
    pub(super) fn is_moving(&self) -> bool {
        match self.phase {
            Phase::Holding(hold) => !hold.resumed,
            Phase::Dropping { .. } => true,
            _ => self.is_making_room(),
        }
    }

    /// It may use the device, and its memory is on its way.
    pub(super) fn is_arriving(&self) -> bool {
        matches!(self.phase, Phase::Holding(Hold { resumed: false, .. }))
    }

    /// It has been asked for room and has not made it.
    pub(super) fn is_making_room(&self) -> bool {
        self.making_room.is_some() && !self.void
    }

    /// It may be using the device.
    pub(super) fn is_occupying(&self) -> bool {
        self.hold().is_some()
    }

    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.phase, Phase::Waiting { .. })
    }

    /// Its priority and the turns that have gone by.
    pub(super) fn effective_priority(&self) -> i32 {
        let passed_by = match self.phase {
            Phase::Waiting { passed_by, .. } => passed_by,
            _ => 0,
        };
        self.priority.saturating_add_unsigned(passed_by)
    }

    /// Adds up its times: it has been what it is since they last were.
    pub(super) fn spend_up_to(&mut self, now: Moment) {
        let time = now.saturating_sub(self.is_as_of);
        self.is_as_of = self.is_as_of.max(now);
        match self.phase {
            Phase::Idle | Phase::Revoked => {}
            Phase::Waiting { .. } => self.waited += time,
            Phase::Holding(hold) | Phase::Dropping { hold, .. } => {
                self.held += time;
                if !hold.resumed {
                    self.moving += time;
                }
            }
        }
    }

    pub(super) fn state(&self) -> State {
        match self.phase {
            Phase::Idle => State::Idle,
            Phase::Waiting { .. } => State::Waiting,
            Phase::Holding(Hold { resumed: false, .. }) => State::Arriving,
            Phase::Holding(_) => State::Running,
            Phase::Dropping { .. } => State::Dropping,
            Phase::Revoked => State::Revoked,
        }
    }
}

/// As long as turns may be.
pub(super) fn believable_weight(weight: u32) -> u32 {
    weight.clamp(1, MOST_WEIGHT)
}

/// As much before others as anybody may be.
pub(super) fn believable_priority(priority: i32) -> i32 {
    priority.clamp(-MOST_PRIORITY, MOST_PRIORITY)
}
