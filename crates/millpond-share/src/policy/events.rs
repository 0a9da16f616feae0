//! What happened, and how it changes what is known.

use std::time::Duration;

use super::client::{Client, Hold, Phase, Told, believable_priority, believable_weight};
use super::{Action, ClientId, Event, Moment, Policy};
use crate::control::{Setting, Target};
use crate::protocol::{Prefetch, ToClient, Traffic};

/// What a client says of its turn's number is followed no further, so that there are always numbers left.
const MOST_TURN_BEFORE: u64 = u64::MAX / 2;

impl Policy {
    /// Takes note of what happened. What clients say that cannot be is passed over.
    pub(super) fn note(&mut self, now: Moment, event: Event, actions: &mut Vec<Action>) {
        match event {
            Event::Joined { .. } => self.join(now, event, actions),
            Event::Left(client) => self.leave(now, client),
            Event::Claimed { client, claim, bytes, host_room, own_room } => {
                self.note_own_room(client, bytes, own_room);
                self.claim(client, claim, bytes, host_room, actions);
            }
            Event::Wants { client, bytes } => self.want(now, client, bytes),
            Event::Moved(client, traffic) => self.moved(now, client, traffic),
            Event::Taken(client, bytes) => self.hear_what_is_taken(now, client, bytes),
            Event::Resumed(client, moving) => self.resume(now, client, moving),
            Event::Released { client, turn, traffic, idle: _ } => {
                self.moved(now, client, traffic);
                self.release(now, client, turn);
            }
            Event::Set(setting) => self.set(setting, actions),
            Event::Nothing => {}
        }
    }

    fn join(&mut self, now: Moment, event: Event, actions: &mut Vec<Action>) {
        let Event::Joined {
            client: id,
            principal,
            pid,
            name,
            capacity_bytes,
            taken_bytes,
            weight,
            priority,
            memory_limit,
            standing,
        } = event
        else {
            return;
        };
        let began = *self.began.get_or_insert(now);
        if self.clients.get(id).is_some() {
            return;
        }
        if standing.claimed_bytes > 0 {
            self.is_recovering |= now < began.saturating_add(super::RECOVERY);
            self.miss_a_client_of(now, principal);
        }
        let client = Client {
            principal,
            pid,
            name,
            weight: believable_weight(weight),
            priority: believable_priority(priority),
            memory_limit,
            capacity_bytes,
            claimed: standing.claimed_bytes.min(capacity_bytes),
            most_on_host: None,
            wanted: standing.traffic.resident_bytes,
            traffic: standing.traffic,
            phase: Phase::Idle,
            void: false,
            pinned: 0,
            making_room: None,
            foreign: None,
            around: taken_bytes,
            told: Told::default(),
            is_as_of: now,
            held: Duration::ZERO,
            moving: Duration::ZERO,
            waited: Duration::ZERO,
            last_held: now,
        };
        self.clients.insert(id, client);
        self.account_of(principal);
        if let Some(bytes) = taken_bytes {
            self.hear_what_is_taken(now, id, bytes);
            self.believe_a_first_word(id);
        }
        let memory_bytes = self.memory_of(id);
        let usable = self.usable_for(&self.clients[id]);
        let account = self.account_of(principal);
        account.least_usable = account.least_usable.min(usable);
        self.clients.get_mut(id).expect("it has just come").told.memory_bytes = memory_bytes;
        actions.push(Action::Tell(
            id,
            ToClient::Welcome {
                prefetch: self.settings.prefetch,
                memory_bytes,
                idle_ms: self.settings.idle_ms(),
            },
        ));
        if let Some(turn) = standing.holds {
            self.take_at_its_word(now, id, turn, actions);
        }
    }

    /// A client that comes back says that it has the device. One that was away while the daemon was there has lost it if it does not
    /// fit beside those that have it, or if others wait: else clients that come back by turns would keep a large one out for ever.
    fn take_at_its_word(
        &mut self,
        now: Moment,
        id: ClientId,
        turn_before: u64,
        actions: &mut Vec<Action>,
    ) {
        let is_back_late = self.began.is_some_and(|began| now >= began + super::RECOVERY);
        let has_lost_it = is_back_late && (self.is_contended() || !self.fits_beside_occupants(id));
        let mut client = self.clients.get_mut(id).expect("it has just come");
        if has_lost_it {
            client.phase = Phase::Revoked;
            client.void = true;
            // By the number that it knows the turn by: it has heard of no other.
            actions.push(Action::Tell(id, ToClient::Revoked { turn: turn_before }));
            return;
        }
        client.phase = Phase::Holding(Hold {
            turn: turn_before,
            since: now,
            resumed: true,
            // It goes on and is told its room only: a grant might cross with its release and be taken for another.
            told: true,
        });
        drop(client);
        self.last_grant = self.last_grant.max(turn_before.min(MOST_TURN_BEFORE));
        if self.turn.is_none() {
            self.begin_turn(now, id);
        }
    }

    fn leave(&mut self, now: Moment, id: ClientId) {
        if let Some(gone) = self.clients.remove(id) {
            if gone.claimed > 0 {
                self.miss_a_client_of(now, gone.principal);
            }
            self.forget_turn_if_nobody_is_left();
            self.forget_settled_accounts(now);
        }
    }

    /// Who asks for more says what its process has left; who needs less says nothing of that.
    fn note_own_room(&mut self, id: ClientId, bytes: u64, own_room: Option<u64>) {
        let Some(mut client) = self.clients.get_mut(id) else { return };
        if bytes >= client.claimed {
            client.most_on_host = own_room.map(|room| room.saturating_add(client.on_host()));
        }
    }

    fn claim(
        &mut self,
        id: ClientId,
        claim: u64,
        bytes: u64,
        host_room: u64,
        actions: &mut Vec<Action>,
    ) {
        let Some(client) = self.clients.get(id) else { return };
        let grows = bytes > client.claimed;
        let needs_answer = bytes >= client.claimed;
        if grows && let Some(reason) = self.objection(id, bytes, host_room) {
            actions.push(Action::Tell(id, ToClient::Refused { claim, reason }));
            return;
        }
        let mut client = self.clients.get_mut(id).expect("it is there");
        if grows && client.is_occupying() && self.settings.prefetch != Prefetch::Off {
            // New memory is about to be used, and is not among what it wanted when it asked for the device. If the driver brings it
            // in, the client says what the driver cannot.
            client.wanted = client.wanted.saturating_add(bytes - client.claimed);
        }
        if needs_answer {
            actions.push(Action::Tell(id, ToClient::Admitted { claim }));
        }
        client.claimed = bytes;
    }

    fn want(&mut self, now: Moment, id: ClientId, bytes: u64) {
        if self.clients.get(id).is_none() {
            return;
        }
        self.begin_to_contend(now, id);
        let mut client = self.clients.get_mut(id).expect("it is there");
        client.wanted = bytes;
        match &mut client.phase {
            Phase::Idle => client.phase = Phase::Waiting { since: now, passed_by: 0 },
            Phase::Revoked => {
                client.void = false;
                client.phase = Phase::Waiting { since: now, passed_by: 0 };
            }
            Phase::Dropping { wants_again, .. } => *wants_again = true,
            Phase::Waiting { .. } | Phase::Holding(_) => {}
        }
    }

    fn moved(&mut self, now: Moment, id: ClientId, traffic: Traffic) {
        let Some(mut client) = self.clients.get_mut(id) else { return };
        client.traffic = traffic;
        drop(client);
        self.note_progress(now, id);
    }

    fn resume(&mut self, now: Moment, id: ClientId, moving: Duration) {
        let Some(mut client) = self.clients.get_mut(id) else { return };
        let Some(hold) = client.hold_mut() else { return };
        hold.resumed = true;
        let moving = moving.min(now.saturating_sub(hold.since));
        if let Some(turn) = &mut self.turn {
            turn.moving = turn.moving.max(moving);
        }
    }

    fn release(&mut self, now: Moment, id: ClientId, turn: u64) {
        let Some(client) = self.clients.get(id) else { return };
        let wants_again = match client.phase {
            Phase::Holding(hold) if hold.turn == turn => false,
            Phase::Dropping { hold, wants_again, .. } if hold.turn == turn => wants_again,
            Phase::Revoked => false,
            _ => return,
        };
        if wants_again {
            self.begin_to_contend(now, id);
        }
        let mut client = self.clients.get_mut(id).expect("it is there");
        client.void = false;
        client.last_held = now;
        client.phase =
            if wants_again { Phase::Waiting { since: now, passed_by: 0 } } else { Phase::Idle };
        drop(client);
        self.forget_turn_if_nobody_is_left();
    }

    fn set(&mut self, setting: Setting, actions: &mut Vec<Action>) {
        match setting {
            Setting::Quantum { device: _, quantum_ms } => {
                self.settings.quantum = Duration::from_millis(quantum_ms);
            }
            Setting::Weight(target, weight) => {
                self.each(target, |client| client.weight = believable_weight(weight));
            }
            Setting::Priority(target, priority) => {
                self.each(target, |client| client.priority = believable_priority(priority));
            }
            Setting::MemoryLimit(target, limit) => {
                self.each(target, |client| client.memory_limit = limit);
            }
            Setting::Prefetch(prefetch) => {
                self.settings.prefetch = prefetch;
                for (id, client) in self.clients.iter() {
                    let message = self.settings.message(client.told.memory_bytes);
                    actions.push(Action::Tell(id, message));
                }
            }
            Setting::Turns(turns) => self.settings.turns = turns,
        }
    }

    fn each(&mut self, target: Target, change: impl Fn(&mut Client)) {
        for id in self.clients.ids() {
            let mut client = self.clients.get_mut(id).expect("it is one of them");
            match target {
                Target::Process(pid) if client.pid != pid => {}
                Target::Process(_) | Target::Everyone => change(&mut client),
            }
        }
    }
}
