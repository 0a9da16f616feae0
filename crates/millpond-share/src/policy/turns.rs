//! Who gets the device, and who has to give it up.

use std::collections::BTreeSet;
use std::time::Duration;

use super::client::{Hold, Phase};
use super::group::Group;
use super::turn::{FAULT_BYTES_PER_SECOND, Turn};
use super::{Action, ClientId, Moment, Policy, RECOVERY};
use crate::protocol::{Prefetch, ToClient};

/// A holder that keeps a client of higher priority waiting gets a shorter turn: one part in so many of a quantum.
const PARTS_BEFORE_HIGHER_PRIORITY: u32 = 10;

impl Policy {
    /// As long as a turn is at present.
    pub(super) fn effective_quantum(&self) -> Duration {
        self.settings.believable_quantum() * self.stretch()
    }

    /// Turns are longer than set only as far as that helps every principal that contends: what one says of its own turns does not
    /// make others wait longer.
    pub(super) fn stretch(&self) -> u32 {
        let mut concerned = self.contending();
        if concerned.is_empty() {
            concerned = self.principals();
        }
        let pace = |principal| self.accounts.get(&principal).map_or(1, |a| a.pace.stretch());
        concerned.into_iter().map(pace).min().unwrap_or(1)
    }

    fn length_of(&self, turn: &Turn) -> Duration {
        let holding = self.clients.values().filter(|client| client.is_holding());
        let waiting = self.clients.values().filter(|client| client.is_waiting());
        let highest = holding.map(|client| client.priority).max();
        // By the priority given, not by the one gained in waiting: that decides who is next and not who must go.
        if waiting.map(|client| client.priority).max() > highest {
            self.effective_quantum() / PARTS_BEFORE_HIGHER_PRIORITY
        } else {
            turn.length(self.effective_quantum(), self.owed_in(turn), self.most_made_up())
        }
    }

    /// When the turn is over, if anybody minds.
    pub(super) fn end_of_turn(&self) -> Option<Moment> {
        let turn = self.turn.filter(|turn| !turn.is_ending())?;
        self.is_contended().then(|| turn.began.saturating_add(self.length_of(&turn)))
    }

    /// Until when others may be on their way back, if somebody waits for that.
    pub(super) fn end_of_recovery(&self) -> Option<Moment> {
        let ends = self.began?.saturating_add(RECOVERY);
        (self.is_recovering && self.is_contended()).then_some(ends)
    }

    pub(super) fn begin_turn(&mut self, now: Moment, first: ClientId) {
        self.close_turn();
        let principal = self.principal_of(first);
        self.settle_delays();
        let (weight, spent) = (self.clients[first].weight, self.spent(principal));
        self.turn = Some(Turn::new((first, principal), weight, now, spent));
        self.account_of(principal).passed_over = 0;
        self.switches += 1;
    }

    pub(super) fn forget_turn_if_nobody_is_left(&mut self) {
        if !self.is_occupied() {
            self.close_turn();
        }
    }

    /// Claims grow, and clients come back from another daemon: those that no longer fit beside the others have to go.
    pub(super) fn drop_who_no_longer_fits(&mut self, now: Moment, actions: &mut Vec<Action>) {
        let was_contended = self.is_contended();
        let mut group = Group::new(self);
        let misfits: Vec<ClientId> =
            self.holders().into_iter().filter(|id| !group.add_if_it_fits(self, *id)).collect();
        for id in misfits {
            self.tell_to_drop(now, id, actions);
            // They ran together without turns, so who stays has its first one now; but nobody gains time by growing while others
            // wait.
            if let Some(turn) = self.turn.as_mut().filter(|turn| !was_contended && !turn.restarted)
            {
                (turn.began, turn.restarted) = (now, true);
            }
        }
    }

    pub(super) fn end_turn_if_over(&mut self, now: Moment, actions: &mut Vec<Action>) {
        if self.end_of_turn().is_some_and(|end| end <= now) {
            let still_moving = self.longest_arrival(now);
            let turn = self.turn.as_mut().expect("it has an end");
            turn.ended = Some(now);
            turn.moving = turn.moving.max(still_moving);
        }
        let is_contended = self.is_contended();
        let Some(turn) = self.turn.as_mut().filter(|turn| turn.is_ending()) else { return };
        if !is_contended {
            turn.ended = None;
            return;
        }
        let next: BTreeSet<ClientId> = self.next_group().into_iter().collect();
        for id in self.holders() {
            if !next.contains(&id) {
                self.tell_to_drop(now, id, actions);
            }
        }
    }

    fn longest_arrival(&self, now: Moment) -> Duration {
        let holds = self.clients.values().filter_map(|client| client.hold());
        let arriving = holds.filter(|hold| !hold.resumed);
        arriving.map(|hold| now.saturating_sub(hold.since)).max().unwrap_or_default()
    }

    /// The turn is over, and who had it has said what it used. If its time was up, it counts for how long turns are.
    fn close_turn(&mut self) {
        let Some(turn) = self.turn.take() else { return };
        if let Some(ended) = turn.ended.filter(|_| self.settings.stretches) {
            let moving = turn.moving.max(self.time_for_faults(&turn));
            let all = ended.saturating_sub(turn.began);
            self.account_of(turn.principal).pace.note(moving, all);
        }
    }

    /// Where the driver brings memory in, nobody is told how long that takes. But what was used in a turn and in those of the
    /// others since was on the device each time, so as much of it as does not fit there together came in again.
    fn time_for_faults(&self, turn: &Turn) -> Duration {
        if self.settings.prefetch != Prefetch::Off {
            return Duration::ZERO;
        }
        let used = self.clients.values().map(|client| client.used());
        let used = used.fold(0_u64, u64::saturating_add);
        let Some(own) = self.clients.get(turn.first) else { return Duration::ZERO };
        let excess = used.saturating_sub(self.usable_for(own));
        Duration::from_secs_f64(excess.min(own.used()) as f64 / FAULT_BYTES_PER_SECOND)
    }

    fn tell_to_drop(&mut self, now: Moment, id: ClientId, actions: &mut Vec<Action>) {
        let Some(mut client) = self.clients.get_mut(id) else { return };
        let Phase::Holding(hold) = client.phase else { return };
        client.phase = Phase::Dropping { hold, since: now, warned: false, wants_again: false };
        actions.push(Action::Tell(id, ToClient::Drop { turn: hold.turn }));
    }

    /// Gives the device to the first in the queue when nobody has it, and to whoever else fits beside those that do. While a turn is
    /// ending nobody comes before the first, who might be kept waiting by it.
    pub(super) fn grant_who_may(&mut self, now: Moment) {
        let end = self.began.map(|began| began.saturating_add(RECOVERY));
        self.is_recovering &= end.is_some_and(|end| now < end);
        if self.is_recovering && self.settings.turns {
            return;
        }
        let queue = self.queue();
        let mut occupants = Group::of_occupants(self);
        let mut began = None;
        let mut somebody_is_before = false;
        for id in queue {
            let is_ending = self.turn.is_some_and(|turn| turn.is_ending());
            // Who takes nothing keeps nobody waiting.
            let takes_nothing = self.takes_nothing(&self.clients[id]);
            let would_be_before = is_ending && somebody_is_before && !takes_nothing;
            if would_be_before || !occupants.has_room_for(self, id) {
                somebody_is_before = true;
                continue;
            }
            self.grant(now, id);
            occupants.add(self, id);
            if self.turn.is_none() || is_ending && !takes_nothing {
                self.begin_turn(now, id);
                began = Some(id);
            }
        }
        if let Some(first) = began {
            self.raise_who_was_passed_by(first);
        }
    }

    fn grant(&mut self, now: Moment, id: ClientId) {
        self.last_grant += 1;
        let turn = self.last_grant;
        let Some(mut client) = self.clients.get_mut(id) else { return };
        let hold = Hold { turn, since: now, resumed: false, told: false };
        client.phase = Phase::Holding(hold);
        client.void = false;
        client.making_room = None;
    }

    /// A turn raises its principal's other clients among themselves, and other principals if it is of a higher priority.
    fn raise_who_was_passed_by(&mut self, first: ClientId) {
        let (principal, priority) = (self.principal_of(first), self.clients[first].priority);
        for id in self.clients.ids() {
            let client = &self.clients[id];
            if client.principal == principal
                && client.is_waiting()
                && let Phase::Waiting { passed_by, .. } =
                    &mut self.clients.get_mut(id).expect("it is one of them").phase
            {
                *passed_by = passed_by.saturating_add(1);
            }
        }
        for other in self.waiting_principals() {
            if other != principal && self.priority_of(other) < priority {
                let account = self.account_of(other);
                account.passed_over = account.passed_over.saturating_add(1);
            }
        }
    }
}
