//! Who may use a device, and whose memory makes room: what has been and what happens now, to what is to be done.
//!
//! One policy is for one device. It reads no clock and writes to nobody: whoever runs it says what happened and when, does
//! what it answers, and comes again when it says.
//!
//! What happens only changes what is known. What follows from it is found anew each time, from what is known and not from what
//! was meant to happen next, so that no wake-up can be lost:
//!
//! ```text
//!   event ──► what is known ──► the stuck lose the device ──► holders that no longer fit together are dropped
//!                                 ──► the turn ends, if its time is over and somebody waits ──► whoever may is granted
//!                                 ──► room and MakeRoom ──► the rest is told what has changed for it ──► actions
//! ```
//!
//! Clients of different [principals](Principal) do not trust each other. What a client says of the device counts for that client
//! only, turns are fair between principals first, and what is scarce (see `host.rs`) each principal answers for by itself.

mod allowance;
mod client;
mod clients;
#[cfg(test)]
mod cost;
mod events;
mod foreign;
mod group;
mod host;
mod memory;
mod principal;
mod queue;
mod settings;
mod status;
mod stuck;
mod turn;
mod turns;

pub use allowance::Allowance;
pub use client::{MOST_PRIORITY, MOST_WEIGHT};
pub use host::HostUse;
pub use principal::Principal;
pub use settings::{Settings, WhenStuck};
pub use turn::MOST_STRETCH;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::control::Setting;
use crate::protocol::{Standing, ToClient, Traffic};
use client::Phase;
use clients::Clients;
use principal::Account;
use turn::Turn;

/// Time since whatever beginning.
pub type Moment = Duration;

/// A client, by a number that is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(pub u64);

/// What happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// A client has come, perhaps back.
    Joined {
        /// Whose messages will come under this number.
        client: ClientId,
        /// To which party it belongs.
        principal: Principal,
        /// Its process, for the status.
        pid: u32,
        /// What it is called.
        name: String,
        /// The device's memory.
        capacity_bytes: u64,
        /// What is taken of it, by any program, if that is known.
        taken_bytes: Option<u64>,
        /// How long its turns are, in quanta.
        weight: u32,
        /// Who has more goes first.
        priority: i32,
        /// The most it may allocate.
        memory_limit: Option<u64>,
        /// What it has already.
        standing: Standing,
    },
    /// A client is gone.
    Left(ClientId),
    /// A client wants to have so much in all.
    Claimed {
        /// Who.
        client: ClientId,
        /// The claim's number, which the answer carries.
        claim: u64,
        /// How much.
        bytes: u64,
        /// What the host has for memory of its principal's that leaves this device.
        host_room: u64,
        /// What the client's own process may still have of the host's memory, if that has a limit.
        own_room: Option<u64>,
    },
    /// A client has work for the device.
    Wants {
        /// Who.
        client: ClientId,
        /// What it would have on the device.
        bytes: u64,
    },
    /// A client's memory has come or gone.
    Moved(ClientId, Traffic),
    /// A client has heard from the driver how much of the device is taken, by any program.
    Taken(ClientId, u64),
    /// A client's work goes on, so long after its grant.
    Resumed(ClientId, Duration),
    /// A client has given up the device.
    Released {
        /// Who.
        client: ClientId,
        /// The turn that it means.
        turn: u64,
        /// Its memory.
        traffic: Traffic,
        /// Of its own accord.
        idle: bool,
    },
    /// A setting changes. The clients that it names have been found.
    Set(Setting),
    /// Nothing but time.
    Nothing,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A message.
    Tell(ClientId, ToClient),
    /// A line in the log: the client should have given up the device so long ago.
    Warn(ClientId, Duration),
    /// The client's process is to be ended.
    End(ClientId),
}

/// After a daemon's start, nobody who waits gets the device for so long if there are clients from before: the one that has it may
/// not be back yet.
pub const RECOVERY: Duration = Duration::from_secs(1);

/// Who shares one device, and how things stand between them.
#[derive(Clone, Debug)]
pub struct Policy {
    settings: Settings,
    clients: Clients,
    accounts: BTreeMap<Principal, Account>,
    /// No principal that begins to contend has spent less than this.
    floor: Duration,
    /// The least external memory that a principal believes in.
    least_foreign: u64,
    /// Until then memory of some client may be on the device though no client says so.
    missed_until: Moment,
    /// There is one as long as somebody may be using the device.
    turn: Option<Turn>,
    /// The number of the last grant.
    last_grant: u64,
    began: Option<Moment>,
    /// There are clients from before, and others may be on their way back.
    is_recovering: bool,
    switches: u64,
    /// Up to when times have been added up.
    accounted: Moment,
    /// Of that time, what has not been charged to any principal.
    uncharged: Duration,
    /// The time in which some client used the device or waited for it, and of that, in which the work of one could go on.
    busy: Duration,
    useful: Duration,
}

impl Policy {
    /// For a device that nobody uses.
    pub fn new(settings: Settings) -> Policy {
        Policy {
            settings,
            clients: Clients::default(),
            accounts: BTreeMap::new(),
            floor: Duration::ZERO,
            least_foreign: 0,
            missed_until: Moment::ZERO,
            turn: None,
            last_grant: 0,
            began: None,
            is_recovering: false,
            switches: 0,
            accounted: Moment::ZERO,
            uncharged: Duration::ZERO,
            busy: Duration::ZERO,
            useful: Duration::ZERO,
        }
    }

    /// How the device is shared.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whether there are no clients.
    pub fn is_deserted(&self) -> bool {
        self.clients.len() == 0
    }

    /// What is to be done, in that order, now that something happened. Time never goes back.
    pub fn handle(&mut self, now: Moment, event: Event) -> Vec<Action> {
        let mut actions = self.hear(now, event);
        actions.extend(self.settle(now));
        actions
    }

    /// Takes note of an event and returns the answers to it alone. Any number of events may be heard before [`settle`](Self::settle)
    /// finds out what follows from all of them: only that step looks at every client, and what most events cost does not depend on how
    /// many clients there are.
    pub fn hear(&mut self, now: Moment, event: Event) -> Vec<Action> {
        self.account(now);
        if self.may_change_who_waits(&event) {
            self.charge();
        }
        let mut actions = Vec::new();
        self.note(now, event, &mut actions);
        actions
    }

    /// What follows from all that has been heard, and from the time.
    pub fn settle(&mut self, now: Moment) -> Vec<Action> {
        self.account(now);
        self.charge();
        let mut actions = Vec::new();
        self.believe_what_is_external(now);
        self.note_what_is_usable();
        self.believe_what_is_pinned();
        self.deal_with_the_stuck(now, &mut actions);
        self.drop_who_no_longer_fits(now, &mut actions);
        self.end_turn_if_over(now, &mut actions);
        self.grant_who_may(now);
        self.share_memory(now, &mut actions);
        if self.end_of_turn().is_some_and(|end| end <= now) {
            // The turn is shorter for those that wait now. They would wait until the next event.
            self.end_turn_if_over(now, &mut actions);
        }
        self.tell_what_changed(&mut actions);
        if cfg!(debug_assertions) {
            self.clients.assert_valid();
        }
        actions
    }

    /// When to come again, with [`Event::Nothing`] if nothing else happened.
    pub fn next_moment(&self) -> Option<Moment> {
        [self.end_of_turn(), self.next_deadline(), self.end_of_recovery()]
            .into_iter()
            .flatten()
            .min()
    }

    fn account(&mut self, now: Moment) {
        let time = now.saturating_sub(self.accounted);
        if time.is_zero() {
            return;
        }
        self.accounted = self.accounted.max(now);
        self.clients.pass(now);
        if self.is_occupied() || self.is_contended() {
            self.busy += time;
        }
        if self.clients.everyone().running > 0 {
            self.useful += time;
        }
        self.uncharged += time;
    }

    /// Whether an event may begin or end that somebody waits, or that somebody keeps others waiting.
    fn may_change_who_waits(&self, event: &Event) -> bool {
        match event {
            Event::Moved(id, _) => self.clients.get(*id).is_some_and(|c| c.making_room.is_some()),
            Event::Wants { client, .. } => self
                .clients
                .get(*client)
                .is_some_and(|client| matches!(client.phase, Phase::Idle | Phase::Revoked)),
            Event::Taken(..) | Event::Claimed { .. } | Event::Nothing => false,
            _ => true,
        }
    }

    fn tell_what_changed(&mut self, actions: &mut Vec<Action>) {
        let is_contended = self.is_contended();
        for id in self.clients.ids() {
            let memory_bytes = self.memory_of(id);
            let client = &self.clients[id];
            let before = client.told;
            let mut told = before;
            if let Phase::Holding(hold) = client.phase
                && (told.contended != is_contended
                    || is_contended && told.contended_in_turn != hold.turn)
            {
                (told.contended, told.contended_in_turn) = (is_contended, hold.turn);
                actions.push(Action::Tell(id, ToClient::Contended(is_contended)));
            }
            if told.memory_bytes != memory_bytes {
                told.memory_bytes = memory_bytes;
                actions.push(Action::Tell(id, self.settings.message(memory_bytes)));
            }
            if told != before {
                self.clients.get_mut(id).expect("it is one of them").told = told;
            }
        }
    }
}
