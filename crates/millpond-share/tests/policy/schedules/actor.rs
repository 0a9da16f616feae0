//! A client in a schedule: obedient, slow, hung or lying.

use std::time::Duration;

use fastrand::Rng;
use millpond_share::policy::{ClientId, Event, Principal};
use millpond_share::protocol::{Standing, ToClient, Traffic};

use crate::desk::{CAPACITY, GB};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Obedient,
    /// Does as it is told, but so late that it is warned, and sometimes loses the device.
    Slow,
    /// Says nothing any more.
    Hung,
    /// Says anything at any time.
    Liar,
}

/// What a client does of its own accord when its time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    Begin,
    Want,
    Resume(u64),
    Finish(u64),
    Release { turn: u64, idle: bool },
    Evict(u64),
    Lie,
}

/// What follows, and how much later.
#[derive(Debug)]
pub(super) enum Then {
    Says(Event),
    Does(Duration, Doing),
}

#[derive(Clone, Debug)]
pub(super) struct Actor {
    pub id: ClientId,
    pub kind: Kind,
    pub principal: Principal,
    /// The device's memory in its words.
    pub capacity: u64,
    pub weight: u32,
    pub priority: i32,
    pub claimed: u64,
    /// What it was last let have.
    admitted: u64,
    pub holds: Option<u64>,
    pub resident: u64,
    /// Its memory cannot fault: it waits until all of it is there.
    is_fixed: bool,
    /// What it may have on the device, as it was last told.
    room: u64,
    /// How often it has found too little of that.
    stalls: u32,
    is_contended: bool,
    is_idle: bool,
    /// The next grant is asked for and has not come.
    pub wants: bool,
    /// How many bursts of work are left.
    pub bursts: u32,
    pub is_gone: bool,
}

/// Then it goes on with what it has, as memory does that can fault.
const MOST_STALLS: u32 = 20;

pub(super) fn milliseconds(rng: &mut Rng, range: std::ops::Range<u64>) -> Duration {
    Duration::from_micros(rng.u64(range.start * 1000..range.end * 1000))
}

impl Actor {
    pub(super) fn new(id: ClientId, rng: &mut Rng) -> Actor {
        let kind = match rng.u32(0..10) {
            0..=5 => Kind::Obedient,
            6..=7 => Kind::Slow,
            8 => Kind::Hung,
            _ => Kind::Liar,
        };
        Actor {
            id,
            kind,
            principal: Principal::User(rng.u32(0..3)),
            capacity: match (kind, rng.u32(0..4)) {
                (Kind::Liar, 0) => rng.u64(1..10_000),
                (Kind::Liar, 1) => u64::MAX,
                _ => CAPACITY,
            },
            weight: rng.u32(1..=3),
            priority: rng.i32(-2..=2),
            claimed: 0,
            admitted: 0,
            holds: None,
            resident: 0,
            is_fixed: rng.u32(0..3) == 0,
            room: 0,
            stalls: 0,
            is_contended: false,
            is_idle: false,
            wants: false,
            bursts: rng.u32(1..12),
            is_gone: false,
        }
    }

    fn traffic(&self) -> Traffic {
        let fixed_bytes = if self.is_fixed { self.claimed } else { 0 };
        let (resident_bytes, used_bytes) = (self.resident, self.claimed);
        Traffic { resident_bytes, fixed_bytes, used_bytes, ..Traffic::default() }
    }

    pub(super) fn standing(&self) -> Standing {
        let (claimed_bytes, holds) = (self.claimed, self.holds);
        Standing { claimed_bytes, holds, traffic: self.traffic() }
    }

    /// It is connected to a new daemon, to which it has said how it stands.
    pub(super) fn reconnected(&mut self, id: ClientId, rng: &mut Rng) -> Vec<Then> {
        self.id = id;
        self.is_contended = false;
        if std::mem::take(&mut self.wants) {
            vec![Then::Does(milliseconds(rng, 0..100), Doing::Want)]
        } else {
            Vec::new()
        }
    }

    pub(super) fn hear(&mut self, message: &ToClient, rng: &mut Rng) -> Vec<Then> {
        match (self.kind, message) {
            (Kind::Liar, ToClient::Grant { turn, .. }) => {
                self.holds = Some(*turn);
                Vec::new()
            }
            (Kind::Hung | Kind::Liar, _) => Vec::new(),
            (_, ToClient::Welcome { .. }) if self.claimed == 0 => {
                vec![Then::Does(milliseconds(rng, 0..200), Doing::Begin)]
            }
            (_, ToClient::Grant { turn, room }) => {
                self.room = *room;
                self.granted(*turn, rng)
            }
            (_, ToClient::Refused { .. }) => {
                // It makes do with what it has.
                self.claimed = self.admitted;
                Vec::new()
            }
            (_, ToClient::Admitted { .. }) => {
                self.admitted = self.claimed;
                Vec::new()
            }
            (_, ToClient::Room { room }) => {
                self.room = *room;
                Vec::new()
            }
            (_, ToClient::Drop { .. }) => match self.holds {
                Some(turn) => self.release_later(turn, false, rng),
                None => Vec::new(),
            },
            // It obeys only what is said of the turn that it has.
            (_, ToClient::Revoked { turn }) if self.holds == Some(*turn) => {
                self.revoked(*turn, rng)
            }
            (_, ToClient::Contended(is_contended)) => {
                self.is_contended = *is_contended;
                match self.holds.filter(|_| self.is_idle && self.is_contended) {
                    Some(turn) => self.release_later(turn, true, rng),
                    None => Vec::new(),
                }
            }
            (_, ToClient::MakeRoom { resident_at_most }) => {
                vec![Then::Does(milliseconds(rng, 0..100), Doing::Evict(*resident_at_most))]
            }
            _ => Vec::new(),
        }
    }

    fn revoked(&mut self, turn: u64, rng: &mut Rng) -> Vec<Then> {
        self.holds = None;
        let mut then = vec![Then::Does(milliseconds(rng, 0..300), Doing::Want)];
        if rng.bool() {
            let (client, traffic) = (self.id, self.traffic());
            let released = Event::Released { client, turn, traffic, idle: false };
            then.insert(0, Then::Says(released));
        }
        then
    }

    fn granted(&mut self, turn: u64, rng: &mut Rng) -> Vec<Then> {
        let goes_on = self.holds.replace(turn).is_some();
        self.wants = false;
        self.stalls = 0;
        if goes_on && self.is_idle {
            return vec![Then::Does(milliseconds(rng, 1..5000), Doing::Finish(turn))];
        }
        self.is_idle = false;
        let moving = milliseconds(rng, 0..100);
        vec![
            Then::Does(moving, Doing::Resume(turn)),
            Then::Does(moving + milliseconds(rng, 1..3000), Doing::Finish(turn)),
        ]
    }

    fn release_later(&self, turn: u64, idle: bool, rng: &mut Rng) -> Vec<Then> {
        let longest = if self.kind == Kind::Slow { 5000 } else { 50 };
        vec![Then::Does(milliseconds(rng, 0..longest), Doing::Release { turn, idle })]
    }

    pub(super) fn act(&mut self, doing: Doing, rng: &mut Rng) -> Vec<Then> {
        if self.is_gone || self.kind == Kind::Hung {
            return Vec::new();
        }
        let client = self.id;
        match doing {
            Doing::Begin => {
                self.claimed = rng.u64(1..=14) * GB;
                let (bytes, host_room) = (self.claimed, u64::MAX);
                let claim = Event::Claimed { claim: 0, client, bytes, host_room, own_room: None };
                vec![
                    Then::Says(claim),
                    Then::Says(Event::Moved(client, self.traffic())),
                    Then::Does(milliseconds(rng, 0..1000), Doing::Want),
                ]
            }
            Doing::Want if self.holds.is_none() && !self.wants => {
                self.wants = true;
                vec![Then::Says(Event::Wants { client, bytes: self.claimed })]
            }
            Doing::Resume(turn) if self.holds == Some(turn) => {
                // No more than there is room for: others may not have left yet.
                self.resident = self.resident.max(self.claimed.min(self.room));
                let mut then = vec![Then::Says(Event::Moved(client, self.traffic()))];
                if self.resident < self.claimed && (self.is_fixed || self.stalls < MOST_STALLS) {
                    self.stalls += 1;
                    then.push(Then::Does(milliseconds(rng, 5..100), Doing::Resume(turn)));
                    return then;
                }
                then.push(Then::Says(Event::Resumed(client, milliseconds(rng, 0..100))));
                if rng.u32(0..6) == 0 {
                    self.claimed = (self.claimed + rng.u64(0..3) * GB).min(16 * GB);
                    let bytes = self.claimed;
                    then.push(Then::Says(Event::Claimed {
                        claim: 0,
                        client,
                        bytes,
                        host_room: u64::MAX,
                        own_room: None,
                    }));
                    then.push(Then::Says(Event::Moved(client, self.traffic())));
                }
                then
            }
            Doing::Finish(turn) if self.holds == Some(turn) => self.finish(turn, rng),
            Doing::Release { turn, idle } if self.holds == Some(turn) => {
                self.holds = None;
                let traffic = self.traffic();
                let mut then = vec![Then::Says(Event::Released { client, turn, traffic, idle })];
                let until = if self.is_idle { 0..4000 } else { 0..1 };
                if self.bursts > 0 {
                    then.push(Then::Does(milliseconds(rng, until), Doing::Want));
                }
                then
            }
            Doing::Evict(resident_at_most) if self.holds.is_none() => {
                self.resident = self.resident.min(resident_at_most);
                vec![Then::Says(Event::Moved(client, self.traffic()))]
            }
            Doing::Lie => self.lie(rng),
            _ => Vec::new(),
        }
    }

    /// A burst of work is done. Another follows at once or later, or it goes.
    fn finish(&mut self, turn: u64, rng: &mut Rng) -> Vec<Then> {
        self.bursts = self.bursts.saturating_sub(1);
        if self.bursts == 0 {
            self.is_gone = true;
            return vec![Then::Says(Event::Left(self.id))];
        }
        if rng.bool() {
            return vec![Then::Does(milliseconds(rng, 1..3000), Doing::Finish(turn))];
        }
        self.is_idle = true;
        if self.is_contended {
            self.release_later(turn, true, rng)
        } else {
            vec![Then::Does(milliseconds(rng, 1..5000), Doing::Finish(turn))]
        }
    }

    fn lie(&mut self, rng: &mut Rng) -> Vec<Then> {
        let client = self.id;
        let mut number = || match rng.u32(0..4) {
            0 => u64::MAX,
            1 => 0,
            2 => self.holds.unwrap_or(3),
            _ => rng.u64(0..40 * GB),
        };
        let traffic = Traffic {
            resident_bytes: number(),
            moved_in_bytes: number(),
            moved_out_bytes: number(),
            fixed_bytes: number(),
            pinned_bytes: number(),
            used_bytes: number(),
        };
        let (bytes, turn) = (number(), number());
        let said = match rng.u32(0..7) {
            0 => Event::Claimed {
                claim: 0,
                client,
                bytes,
                host_room: rng.u64(0..20 * GB),
                own_room: None,
            },
            1 | 2 => Event::Wants { client, bytes },
            3 => Event::Moved(client, traffic),
            4 => Event::Resumed(client, Duration::from_nanos(turn)),
            5 => Event::Taken(client, bytes),
            _ => Event::Released { client, turn, traffic, idle: rng.bool() },
        };
        vec![Then::Says(said), Then::Does(milliseconds(rng, 1..400), Doing::Lie)]
    }
}
