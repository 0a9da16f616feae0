//! Whose memory may be on the device, and what may be promised at all.

use super::client::{Client, MakingRoom};
use super::{Action, ClientId, Moment, Policy};
use crate::protocol::{Prefetch, ToClient};

/// A client that has been asked for room shows that it is at it by having done one part in so many.
const PARTS_OF_PROGRESS: u64 = 8;

impl Policy {
    /// What clients can have of the device.
    pub(super) fn usable(&self) -> u64 {
        // Clients' word on what strangers have must not take the device from the others.
        let taken = self.foreign_bytes.saturating_add(self.settings.reserve_bytes);
        self.capacity_bytes - taken.min(self.capacity_bytes / 2)
    }

    /// What memory is brought to. What a client was promised before strangers came it still gets, though the driver may have to
    /// push something out for it: memory that cannot fault would else never have room.
    fn space(&self) -> u64 {
        let promised = self.clients.values().map(|client| client.claimed).max().unwrap_or(0);
        self.usable().max(promised.min(self.capacity_bytes))
    }

    /// What a client's memory takes of what can change hands, as long as it may work: all that it has. Without turns the driver
    /// moves what it can, and it is what the driver cannot.
    pub(super) fn footprint(&self, client: &Client) -> u64 {
        let has = if self.settings.turns { client.claimed } else { client.fixed() };
        has.saturating_sub(client.pinned)
    }

    /// What clients can have of the device, but for what cannot leave it.
    pub(super) fn movable(&self) -> u64 {
        // Until it is believed anew, it may be more than half of a device that has just become smaller.
        self.usable().saturating_sub(self.pinned_bytes)
    }

    /// What cannot leave the device is believed up to half of it in all, of who came first before the others: who says so of
    /// everything must not take the device from the others.
    pub(super) fn believe_what_is_pinned(&mut self) {
        let most = self.usable() / 2;
        let mut left = most;
        for client in self.clients.values_mut() {
            client.pinned = client.pinned_in_its_words().min(left);
            left -= client.pinned;
        }
        self.pinned_bytes = most - left;
    }

    /// The memory that the host has to have for what has to leave the device and has not yet.
    pub fn host_need_bytes(&self) -> u64 {
        self.host_need_with(None)
    }

    fn host_need_with(&self, claim: Option<(ClientId, u64)>) -> u64 {
        let outside =
            self.clients.values().fold(0_u64, |sum, client| sum.saturating_add(client.on_host()));
        self.excess_with(claim).saturating_sub(outside)
    }

    /// What of all clients' memory cannot be on the device at a time, if one had claimed so much.
    fn excess_with(&self, claim: Option<(ClientId, u64)>) -> u64 {
        let claimed = |(id, client): (&ClientId, &Client)| match claim {
            Some((claimant, bytes)) if claimant == *id => bytes,
            _ => client.claimed,
        };
        let all = self.clients.iter().map(claimed).fold(0_u64, u64::saturating_add);
        all.saturating_sub(self.usable())
    }

    /// The most that a client may have.
    pub(super) fn memory_of(&self, id: ClientId) -> u64 {
        self.clients[&id].memory_beside(self.movable())
    }

    /// Why a client cannot have so much, if it cannot.
    pub(super) fn objection(&self, id: ClientId, bytes: u64, host_room: u64) -> Option<String> {
        let most = self.memory_of(id);
        if bytes > most {
            let whose = match self.clients[&id].memory_limit {
                Some(limit) if limit == most => "its limit",
                _ if most < self.usable() => {
                    "the device's memory but for what others have exported"
                }
                _ => "the device's memory",
            };
            return Some(format!("{bytes} bytes in all are more than {whose}, {most} bytes"));
        }
        let need = self.host_need_with(Some((id, bytes)));
        if need > host_room && need > self.host_need_bytes() {
            return Some(format!(
                "all clients together would need {need} bytes of host memory and there are \
                 {host_room}: wait until one ends, or free host memory"
            ));
        }
        self.whose_own_room_is_too_small(id, bytes)
    }

    /// Each client's memory leaves to its own process's part of the host, which may be smaller than the host.
    fn whose_own_room_is_too_small(&self, id: ClientId, bytes: u64) -> Option<String> {
        let (before, after) = (self.excess_with(None), self.excess_with(Some((id, bytes))));
        self.clients.iter().find_map(|(other, client)| {
            let most = client.most_on_host?;
            let claimed = if *other == id { bytes } else { client.claimed };
            let leaves = claimed.min(after);
            let is_worse = leaves > client.claimed.min(before);
            (leaves > most && is_worse).then(|| {
                format!(
                    "{leaves} bytes of process {} might have to leave the device and its cgroup has room for {most}: \
                     raise its memory limit, or wait until another program ends",
                    client.pid
                )
            })
        })
    }

    /// Says to each holder what it may have on the device, to new ones with the grant, and to others what has to leave.
    pub(super) fn share_memory(&mut self, now: Moment, actions: &mut Vec<Action>) {
        let rooms = self.rooms();
        for (id, room) in rooms {
            let client = self.clients.get_mut(&id).expect("it holds");
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
            self.clients.values_mut().for_each(|client| client.making_room = None);
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
            return holders.into_iter().map(|id| (id, self.space())).collect();
        }
        let taken = self
            .clients
            .values()
            .fold(0_u64, |sum, client| sum.saturating_add(client.resident_or_on_its_way()));
        let mut free = self.space().saturating_sub(taken);
        let mut rooms: Vec<_> =
            holders.into_iter().map(|id| (id, self.clients[&id].resident())).collect();
        let parts: [fn(&Client) -> u64; 3] =
            [Client::on_its_way, Client::desired, |client| client.claimed];
        for upto in parts {
            for (id, room) in &mut rooms {
                let more = upto(&self.clients[id]).saturating_sub(*room).min(free);
                *room += more;
                free -= more;
            }
        }
        if let Some((_, room)) = rooms.first_mut() {
            *room = room.saturating_add(free);
        }
        rooms
    }

    /// What each client that does not use the device may keep there. Only as much leaves as is missing, and first from those
    /// whose turn is furthest away: who has nothing to do, the longest first, then the queue from its end.
    fn leaving(&self) -> Vec<(ClientId, u64)> {
        let need = self.clients.values().fold(0_u64, |sum, client| {
            sum.saturating_add(client.resident()).saturating_add(self.lacking(client))
        });
        let mut missing = need.saturating_sub(self.space());
        let mut idle: Vec<_> = self
            .clients
            .iter()
            .filter(|(_, client)| !client.is_occupying() && !client.is_waiting())
            .map(|(&id, client)| (client.last_held, id))
            .collect();
        idle.sort_unstable();
        let waiting = self.queue();
        idle.into_iter()
            .map(|(_, id)| id)
            .chain(waiting.into_iter().rev())
            .map(|id| {
                let resident = self.clients[&id].resident();
                let leaves = (resident - self.clients[&id].pinned.min(resident)).min(missing);
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
        let client = self.clients.get_mut(&id).expect("it is one of them");
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
        let Some(client) = self.clients.get_mut(&id) else { return };
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
