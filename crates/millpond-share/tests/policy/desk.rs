//! A policy with a clock, spoken to in short.

use std::time::Duration;

use millpond_share::control::{ClientStatus, DeviceStatus, Setting};
use millpond_share::policy::{Action, ClientId, Event, Moment, Policy, Principal, Settings};
use millpond_share::protocol::{Standing, ToClient, Traffic};

pub(crate) const GB: u64 = 1_000_000_000;
pub(crate) const CAPACITY: u64 = 16 * GB;

pub(crate) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) struct Desk {
    pub policy: Policy,
    pub now: Moment,
}

/// What a client is beside its number.
#[derive(Clone, Copy)]
pub(crate) struct Newcomer {
    pub weight: u32,
    pub priority: i32,
    pub memory_limit: Option<u64>,
    pub taken_bytes: Option<u64>,
    pub capacity_bytes: u64,
    pub standing: Standing,
    pub principal: Principal,
}

pub(crate) const PLAIN: Newcomer = Newcomer {
    weight: 1,
    priority: 0,
    memory_limit: None,
    taken_bytes: None,
    capacity_bytes: CAPACITY,
    standing: Standing {
        claimed_bytes: 0,
        holds: None,
        traffic: Traffic {
            resident_bytes: 0,
            moved_in_bytes: 0,
            moved_out_bytes: 0,
            fixed_bytes: 0,
            pinned_bytes: 0,
            used_bytes: 0,
        },
    },
    principal: Principal::User(1000),
};

/// A client of another user.
pub(crate) fn of_user(uid: u32) -> Newcomer {
    Newcomer { principal: Principal::User(uid), ..PLAIN }
}

pub(crate) fn resident(bytes: u64) -> Traffic {
    Traffic { resident_bytes: bytes, ..Traffic::default() }
}

impl Desk {
    pub(crate) fn new() -> Desk {
        Desk::with(Settings::default())
    }

    pub(crate) fn with(settings: Settings) -> Desk {
        Desk { policy: Policy::new(settings), now: Moment::ZERO }
    }

    pub(crate) fn event(&mut self, event: Event) -> Vec<Action> {
        self.policy.handle(self.now, event)
    }

    pub(crate) fn join_as(&mut self, client: u64, newcomer: Newcomer) -> Vec<Action> {
        self.event(Event::Joined {
            client: ClientId(client),
            principal: newcomer.principal,
            pid: client as u32,
            name: format!("job {client}"),
            capacity_bytes: newcomer.capacity_bytes,
            taken_bytes: newcomer.taken_bytes,
            weight: newcomer.weight,
            priority: newcomer.priority,
            memory_limit: newcomer.memory_limit,
            standing: newcomer.standing,
        })
    }

    pub(crate) fn claim(&mut self, client: u64, bytes: u64) -> Vec<Action> {
        self.claim_with(client, bytes, u64::MAX)
    }

    pub(crate) fn claim_with(&mut self, client: u64, bytes: u64, host_room: u64) -> Vec<Action> {
        let own_room = None;
        self.event(Event::Claimed {
            claim: 0,
            client: ClientId(client),
            bytes,
            host_room,
            own_room,
        })
    }

    /// A claim of one whose process can have only so much more of the host's memory.
    pub(crate) fn claim_within(&mut self, client: u64, bytes: u64, own_room: u64) -> Vec<Action> {
        let own_room = Some(own_room);
        self.event(Event::Claimed {
            claim: 0,
            client: ClientId(client),
            bytes,
            host_room: u64::MAX,
            own_room,
        })
    }

    /// A client that has claimed so much and wants all of it on the device.
    pub(crate) fn comes(&mut self, client: u64, bytes: u64) -> Vec<Action> {
        self.comes_as(client, bytes, PLAIN)
    }

    pub(crate) fn comes_as(&mut self, client: u64, bytes: u64, as_: Newcomer) -> Vec<Action> {
        self.join_as(client, as_);
        self.claim(client, bytes);
        self.wants(client, bytes)
    }

    pub(crate) fn wants(&mut self, client: u64, bytes: u64) -> Vec<Action> {
        self.event(Event::Wants { client: ClientId(client), bytes })
    }

    pub(crate) fn moved(&mut self, client: u64, resident_bytes: u64) -> Vec<Action> {
        self.event(Event::Moved(ClientId(client), resident(resident_bytes)))
    }

    /// The driver has told a client that so much is taken.
    pub(crate) fn taken(&mut self, client: u64, bytes: u64) -> Vec<Action> {
        self.event(Event::Taken(ClientId(client), bytes))
    }

    pub(crate) fn resumed(&mut self, client: u64, moving: Duration) -> Vec<Action> {
        self.event(Event::Resumed(ClientId(client), moving))
    }

    pub(crate) fn released(&mut self, client: u64, turn: u64, bytes: u64) -> Vec<Action> {
        let (client, traffic) = (ClientId(client), resident(bytes));
        self.event(Event::Released { client, turn, traffic, idle: false })
    }

    pub(crate) fn left(&mut self, client: u64) -> Vec<Action> {
        self.event(Event::Left(ClientId(client)))
    }

    pub(crate) fn set(&mut self, setting: Setting) -> Vec<Action> {
        self.event(Event::Set(setting))
    }

    /// Time goes by up to then, with the policy woken when it asks to be.
    pub(crate) fn at(&mut self, then: Moment) -> Vec<Action> {
        let mut actions = Vec::new();
        let mut wakes = 0;
        while let Some(moment) = self.policy.next_moment().filter(|&moment| moment <= then) {
            wakes += 1;
            assert!(wakes < 10_000, "it wakes for ever");
            self.now = moment.max(self.now);
            actions.extend(self.event(Event::Nothing));
        }
        self.now = then;
        actions
    }

    pub(crate) fn status(&self) -> DeviceStatus {
        self.policy.status(self.now)
    }

    pub(crate) fn client(&self, client: u64) -> ClientStatus {
        let clients = self.status().clients;
        clients.into_iter().find(|status| u64::from(status.pid) == client).expect("it is there")
    }
}

/// What was said to a client.
pub(crate) fn told(actions: &[Action], client: u64) -> Vec<&ToClient> {
    actions
        .iter()
        .filter_map(|action| match action {
            Action::Tell(id, message) if *id == ClientId(client) => Some(message),
            _ => None,
        })
        .collect()
}

/// The turn and room of a grant to a client, if it got one.
pub(crate) fn granted(actions: &[Action], client: u64) -> Option<(u64, u64)> {
    told(actions, client).into_iter().find_map(|message| match message {
        ToClient::Grant { turn, room } => Some((*turn, *room)),
        _ => None,
    })
}

/// The turn that a client has been told to give up, if it has.
pub(crate) fn dropped(actions: &[Action], client: u64) -> Option<u64> {
    told(actions, client).into_iter().find_map(|message| match message {
        ToClient::Drop { turn } => Some(*turn),
        _ => None,
    })
}

/// What a client may keep on the device, if it has been asked for room.
pub(crate) fn to_keep(actions: &[Action], client: u64) -> Option<u64> {
    told(actions, client).into_iter().rev().find_map(|message| match message {
        ToClient::MakeRoom { resident_at_most } => Some(*resident_at_most),
        _ => None,
    })
}

/// What a client may have on the device, if it has been told anew.
pub(crate) fn room(actions: &[Action], client: u64) -> Option<u64> {
    told(actions, client).into_iter().rev().find_map(|message| match message {
        ToClient::Room { room } => Some(*room),
        _ => None,
    })
}
