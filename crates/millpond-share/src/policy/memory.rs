//! Whose memory may be on the device, and what may be promised at all.

use std::collections::BTreeMap;

use super::client::{Client, MakingRoom};
use super::clients::at_most_u64;
use super::{Action, ClientId, Moment, Policy, Principal};
use crate::protocol::{Prefetch, ToClient};

/// A client that has been asked for room shows that it is at it by having done one part in so many.
const PARTS_OF_PROGRESS: u64 = 8;

impl Policy {
    /// What clients can have of a device of that size.
    pub(super) fn usable_of(&self, capacity_bytes: u64, foreign_bytes: u64) -> u64 {
        let taken = foreign_bytes.saturating_add(self.settings.reserve_bytes);
        capacity_bytes - taken.min(capacity_bytes / 2)
    }

    /// What clients can have of the device, in the words of one of them.
    pub(super) fn usable_for(&self, client: &Client) -> u64 {
        self.usable_of(client.capacity_bytes, self.foreign_for(client))
    }

    /// What one client's memory is brought to. What it was promised before external programs came it still gets, though the driver
    /// may have to push something out for it: memory that cannot fault would else never have room.
    fn space_for(&self, client: &Client) -> u64 {
        self.usable_for(client).max(client.claimed.min(client.capacity_bytes))
    }

    /// What a client's memory takes as long as it may work: all that it has. Without turns the driver moves what it can, and it is
    /// what the driver cannot.
    pub(super) fn memory_at_work(&self, client: &Client) -> u64 {
        if self.settings.turns { client.claimed } else { client.fixed() }
    }

    /// Whether a client works with nothing but memory that is on the device anyway.
    pub(super) fn takes_nothing(&self, client: &Client) -> bool {
        self.memory_at_work(client) <= client.pinned
    }

    /// What cannot leave the device, of a principal's own clients and of all others.
    fn pinned_beside(&self, principal: Principal) -> (u64, u64) {
        let own = self.clients.of(principal).pinned;
        (at_most_u64(own), at_most_u64(self.clients.everyone().pinned - own))
    }

    /// The most pinned memory of other principals that a client believes in: what its own driver says is there beside its own, and
    /// never more than half of the device.
    pub(super) fn believed_pinned_of_others(&self, client: &Client) -> u64 {
        client.around.unwrap_or(u64::MAX).min(self.usable_for(client) / 2)
    }

    /// What other principals say is pinned, and the client's own driver says is not there.
    fn unconfirmed_pinned(&self, client: &Client) -> u64 {
        let (_, others) = self.pinned_beside(client.principal);
        others.saturating_sub(self.believed_pinned_of_others(client))
    }

    /// What cannot leave the device is believed up to half of it for each principal, of its clients in the order in which they came.
    /// What that costs the others is in their own words.
    pub(super) fn believe_what_is_pinned(&mut self) {
        let mut believed: BTreeMap<Principal, u64> = BTreeMap::new();
        for id in self.clients.ids() {
            let client = &self.clients[id];
            let half = self.usable_for(client) / 2;
            let before = believed.entry(client.principal).or_default();
            let pinned = client.pinned_in_its_words().min(half.saturating_sub(*before));
            *before += pinned;
            if pinned != client.pinned {
                self.clients.get_mut(id).expect("it is one of them").pinned = pinned;
            }
        }
    }

    /// The most that a client may have.
    pub(super) fn memory_of(&self, id: ClientId) -> u64 {
        let client = &self.clients[id];
        let (own, others) = self.pinned_beside(client.principal);
        let pinned = (own - client.pinned)
            .saturating_add(others.min(self.believed_pinned_of_others(client)));
        client.memory_limit.unwrap_or(u64::MAX).min(self.usable_for(client).saturating_sub(pinned))
    }

    /// Why a client cannot have so much, if it cannot.
    pub(super) fn objection(&self, id: ClientId, bytes: u64, host_room: u64) -> Option<String> {
        let most = self.memory_of(id);
        if bytes > most {
            let whose = match self.clients[id].memory_limit {
                Some(limit) if limit == most => "its limit",
                _ if most < self.usable_for(&self.clients[id]) => {
                    "the device's memory but for what others have exported"
                }
                _ => "the device's memory",
            };
            return Some(format!("{bytes} bytes in all are more than {whose}, {most} bytes"));
        }
        self.host_objection(id, bytes, host_room)
    }

    /// Says to each holder what it may have on the device, to new ones with the grant, and to others what has to leave.
    pub(super) fn share_memory(&mut self, now: Moment, actions: &mut Vec<Action>) {
        let rooms = self.rooms();
        for (id, room) in rooms {
            let mut client = self.clients.get_mut(id).expect("it holds");
            let claimed = client.claimed;
            let told = std::mem::replace(&mut client.told.room, room);
            client.told.part = room.min(client.desired());
            let Some(hold) = client.hold_mut() else { continue };
            if !hold.told {
                hold.told = true;
                actions.push(Action::Tell(id, ToClient::Grant { turn: hold.turn, room }));
            } else if told.min(claimed) != room.min(claimed) {
                actions.push(Action::Tell(id, ToClient::Room { room }));
            } else {
                // What it has been told is as good; it is not told every byte that changes nothing for it.
                client.told.room = told;
            }
        }
        let is_lacking = self.clients.values().any(|client| self.lacking(client) > 0);
        if self.driver_moves() && !is_lacking {
            for id in self.clients.ids() {
                if self.clients[id].making_room.is_some() {
                    self.clients.get_mut(id).expect("it is one of them").making_room = None;
                }
            }
            return;
        }
        let leaving = self.leaving();
        for (id, resident_at_most) in leaving {
            self.ask_for_room(now, id, resident_at_most, actions);
        }
    }

    /// Whether memory that can fault is left to the driver.
    fn driver_moves(&self) -> bool {
        !self.settings.turns || self.settings.prefetch == Prefetch::Off
    }

    /// What a client that may work needs on the device and does not have there. What the driver moves nobody misses.
    fn lacking(&self, client: &Client) -> u64 {
        let most = if self.driver_moves() { client.fixed() } else { u64::MAX };
        let wants = client.desired() - client.resident();
        if client.is_holding() { wants.min(most) } else { 0 }
    }

    /// What each holder may have on the device: what it has, and its part of what is free. That goes first to what may be on its way
    /// already, then to what they want, then to what they have claimed, and what is left to the first.
    fn rooms(&self) -> Vec<(ClientId, u64)> {
        let holders = self.holders();
        if !self.settings.turns {
            return holders.into_iter().map(|id| (id, self.space_for(&self.clients[id]))).collect();
        }
        let mut taken = self
            .clients
            .values()
            .fold(0_u64, |sum, client| sum.saturating_add(client.resident_or_on_its_way()));
        let spaces: BTreeMap<ClientId, u64> = holders
            .iter()
            .map(|id| (*id, &self.clients[*id]))
            .map(|(id, client)| {
                (id, self.space_for(client).saturating_add(self.unconfirmed_pinned(client)))
            })
            .collect();
        let mut rooms: Vec<_> =
            holders.into_iter().map(|id| (id, self.clients[id].resident())).collect();
        let parts: [fn(&Client) -> u64; 3] =
            [Client::on_its_way, Client::desired, |client| client.claimed];
        for upto in parts {
            for (id, room) in &mut rooms {
                let free = spaces[id].saturating_sub(taken);
                let more = upto(&self.clients[*id]).saturating_sub(*room).min(free);
                *room += more;
                taken = taken.saturating_add(more);
            }
        }
        if let Some((id, room)) = rooms.first_mut() {
            *room = room.saturating_add(spaces[id].saturating_sub(taken));
        }
        rooms
    }

    /// What each client that does not use the device may keep there. Only as much leaves as is missing, and first from those
    /// whose turn is furthest away: who has nothing to do, the longest first, then the queue from its end.
    fn leaving(&self) -> Vec<(ClientId, u64)> {
        let need = self.clients.values().fold(0_u64, |sum, client| {
            sum.saturating_add(client.resident()).saturating_add(self.lacking(client))
        });
        // By the words of those that lack something: they wait for it.
        let space = |client: &Client| {
            self.space_for(client).saturating_add(self.unconfirmed_pinned(client))
        };
        let lacking = self.clients.values().filter(|client| self.lacking(client) > 0);
        let mut missing = need.saturating_sub(lacking.map(space).min().unwrap_or(u64::MAX));
        let mut idle: Vec<_> = self
            .clients
            .iter()
            .filter(|(_, client)| !client.is_occupying() && !client.is_waiting())
            .map(|(id, client)| (client.last_held, id))
            .collect();
        idle.sort_unstable();
        let waiting = self.queue();
        idle.into_iter()
            .map(|(_, id)| id)
            .chain(waiting.into_iter().rev())
            .map(|id| {
                let resident = self.clients[id].resident();
                let leaves = (resident - self.clients[id].pinned.min(resident)).min(missing);
                missing -= leaves;
                (id, resident - leaves)
            })
            .collect()
    }

    fn ask_for_room(
        &mut self,
        now: Moment,
        id: ClientId,
        resident_at_most: u64,
        actions: &mut Vec<Action>,
    ) {
        let mut client = self.clients.get_mut(id).expect("it is one of them");
        if client.void {
            return;
        }
        let resident = client.resident();
        let asked = client.making_room.map(|asked| asked.resident_at_most);
        if resident_at_most >= resident && asked.is_none_or(|asked| asked >= resident) {
            client.making_room = None;
        } else if asked != Some(resident_at_most) {
            let begun = client.making_room.map_or((now, resident, false), |asked| {
                (asked.since, asked.resident_then, asked.warned)
            });
            client.making_room = (resident_at_most < resident).then_some(MakingRoom {
                resident_at_most,
                since: begun.0,
                resident_then: begun.1,
                warned: begun.2,
            });
            actions.push(Action::Tell(id, ToClient::MakeRoom { resident_at_most }));
        }
    }

    /// A client's memory has come or gone.
    pub(super) fn note_progress(&mut self, now: Moment, id: ClientId) {
        let Some(mut client) = self.clients.get_mut(id) else { return };
        let client = &mut *client;
        let resident = client.resident_in_its_words();
        let Some(asked) = &mut client.making_room else { return };
        let whole = asked.resident_then.saturating_sub(asked.resident_at_most);
        if asked.resident_then.saturating_sub(resident) > whole / PARTS_OF_PROGRESS {
            asked.resident_then = resident;
            asked.since = now;
            asked.warned = false;
        }
        if resident <= asked.resident_at_most {
            client.making_room = None;
            client.void = false;
        }
    }
}
