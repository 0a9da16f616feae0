//! How things are, for people.

use std::collections::BTreeMap;

use super::client::Client;
use super::{Moment, Policy, Principal};
use crate::control::{ClientStatus, DeviceStatus, Mode};

fn milliseconds(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Policy {
    /// How things are. Whoever asks knows the device's name and puts it in.
    pub fn status(&self, now: Moment) -> DeviceStatus {
        let mut up_to_now = self.clone();
        up_to_now.account(now);
        up_to_now.clients.spend_up_to_now();
        up_to_now.status_of_the_moment()
    }

    fn status_of_the_moment(&self) -> DeviceStatus {
        DeviceStatus {
            device: String::new(),
            capacity_bytes: self.capacity_in_most_words(),
            usable_bytes: self.usable_in_most_words(),
            foreign_bytes: self.foreign_in_most_words(),
            mode: self.mode(),
            quantum_ms: milliseconds(self.settings.quantum),
            effective_quantum_ms: milliseconds(self.effective_quantum()),
            thrashing: self.stretch() > 1,
            holder: self.only_occupant(),
            switches: self.switches,
            useful_share: match self.busy {
                busy if busy.is_zero() => 1.0,
                busy => self.useful.as_secs_f64() / busy.as_secs_f64(),
            },
            clients: self.clients.values().map(status_of).collect(),
        }
    }

    /// The device's memory, of which clients should all say the same: what most principals say. No client is given or refused
    /// anything by it, since each is judged by its own word.
    fn capacity_in_most_words(&self) -> u64 {
        let of = |principal: Principal| {
            let own = self.clients.values().filter(move |client| client.principal == principal);
            most_frequent(own.map(|client| client.capacity_bytes))
        };
        most_frequent(self.principals().into_iter().map(of))
    }

    fn usable_in_most_words(&self) -> u64 {
        self.usable_of(self.capacity_in_most_words(), self.foreign_in_most_words())
    }

    fn mode(&self) -> Mode {
        let claimed =
            self.clients.values().fold(0_u64, |sum, client| sum.saturating_add(client.claimed));
        match () {
            () if !self.settings.turns => Mode::Off,
            () if claimed > self.usable_in_most_words() => Mode::Turns,
            () => Mode::Together,
        }
    }

    fn only_occupant(&self) -> Option<u32> {
        let mut occupants = self.clients.values().filter(|client| client.is_occupying());
        let first = occupants.next()?;
        occupants.next().is_none().then_some(first.pid)
    }
}

/// Of as frequent ones the largest.
fn most_frequent(values: impl Iterator<Item = u64>) -> u64 {
    let mut counts = BTreeMap::new();
    for value in values {
        *counts.entry(value).or_insert(0_u32) += 1;
    }
    let most = counts.into_iter().max_by_key(|&(value, count)| (count, value));
    most.map_or(0, |(value, _)| value)
}

fn status_of(client: &Client) -> ClientStatus {
    ClientStatus {
        pid: client.pid,
        principal: client.principal.to_string(),
        name: client.name.clone(),
        state: client.state(),
        weight: client.weight,
        priority: client.priority,
        memory_limit_bytes: client.memory_limit,
        allocated_bytes: client.claimed,
        resident_bytes: client.traffic.resident_bytes,
        moved_in_bytes: client.traffic.moved_in_bytes,
        moved_out_bytes: client.traffic.moved_out_bytes,
        held_ms: milliseconds(client.held),
        moving_ms: milliseconds(client.moving),
        waited_ms: milliseconds(client.waited),
    }
}
