//! Clients that do not do as they are told in time.

use super::client::{Client, Phase};
use super::{Action, ClientId, Moment, Policy, WhenStuck};
use crate::protocol::ToClient;

/// What a client should be doing, and since when.
struct Overdue {
    since: Moment,
    warned: bool,
}

fn overdue(client: &Client) -> Option<Overdue> {
    match (client.phase, client.making_room) {
        (Phase::Dropping { since, warned, .. }, _) => Some(Overdue { since, warned }),
        (_, Some(asked)) if !client.void => {
            Some(Overdue { since: asked.since, warned: asked.warned })
        }
        _ => None,
    }
}

fn warn(client: &mut Client) {
    match (&mut client.phase, &mut client.making_room) {
        (Phase::Dropping { warned, .. }, _) => *warned = true,
        (_, Some(asked)) => asked.warned = true,
        _ => {}
    }
}

impl Policy {
    /// When the next client is to be warned or dealt with, if it does nothing until then.
    pub(super) fn next_deadline(&self) -> Option<Moment> {
        self.clients.values().filter_map(overdue).map(|overdue| self.deadline(&overdue)).min()
    }

    fn deadline(&self, overdue: &Overdue) -> Moment {
        let times = if overdue.warned { 2 } else { 1 };
        overdue.since.saturating_add(self.settings.grace.saturating_mul(times))
    }

    /// First a warning; then its memory counts for nothing and the device is no longer its.
    pub(super) fn deal_with_the_stuck(&mut self, now: Moment, actions: &mut Vec<Action>) {
        for id in self.clients.ids() {
            while let Some(overdue) = overdue(&self.clients[id])
                && self.deadline(&overdue) <= now
            {
                if !overdue.warned {
                    warn(&mut self.clients.get_mut(id).expect("it is one of them"));
                    actions.push(Action::Warn(id, now.saturating_sub(overdue.since)));
                    continue;
                }
                self.revoke(now, id, actions);
            }
        }
    }

    fn revoke(&mut self, now: Moment, id: ClientId, actions: &mut Vec<Action>) {
        let Some(mut client) = self.clients.get_mut(id) else { return };
        client.void = true;
        // Who has left there only what cannot leave is not at fault.
        let does_what_it_can = client.pinned_in_its_words() >= client.resident_in_its_words();
        let turn = client.hold().map(|hold| hold.turn);
        if turn.is_some() {
            client.phase = Phase::Revoked;
            client.making_room = None;
            client.last_held = now;
        }
        drop(client);
        match (self.settings.when_stuck, turn) {
            (WhenStuck::End, None) if does_what_it_can => {}
            (WhenStuck::End, _) => actions.push(Action::End(id)),
            (WhenStuck::Revoke, Some(turn)) => {
                actions.push(Action::Tell(id, ToClient::Revoked { turn }));
            }
            (_, None) => {}
        }
        self.forget_turn_if_nobody_is_left();
    }
}
