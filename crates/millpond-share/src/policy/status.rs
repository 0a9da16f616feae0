//! How things are, for people.

use super::client::Client;
use super::{Moment, Policy};
use crate::control::{ClientStatus, DeviceStatus, Mode};

fn milliseconds(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Policy {
    /// How things are. Whoever asks knows the device's name and puts it in.
    pub fn status(&self, now: Moment) -> DeviceStatus {
        let mut up_to_now = self.clone();
        up_to_now.account(now);
        up_to_now.status_of_the_moment()
    }

    fn status_of_the_moment(&self) -> DeviceStatus {
        DeviceStatus {
            device: String::new(),
            capacity_bytes: self.capacity_bytes,
            usable_bytes: self.usable(),
            foreign_bytes: self.foreign_bytes,
            mode: self.mode(),
            quantum_ms: milliseconds(self.settings.quantum),
            effective_quantum_ms: milliseconds(self.effective_quantum()),
            thrashing: self.pace.stretch() > 1,
            holder: self.only_occupant(),
            switches: self.switches,
            useful_share: match self.busy {
                busy if busy.is_zero() => 1.0,
                busy => self.useful.as_secs_f64() / busy.as_secs_f64(),
            },
            clients: self.clients.values().map(status_of).collect(),
        }
    }

    fn mode(&self) -> Mode {
        let claimed =
            self.clients.values().fold(0_u64, |sum, client| sum.saturating_add(client.claimed));
        match () {
            () if !self.settings.turns => Mode::Off,
            () if claimed > self.usable() => Mode::Turns,
            () => Mode::Together,
        }
    }

    fn only_occupant(&self) -> Option<u32> {
        let mut occupants = self.clients.values().filter(|client| client.is_occupying());
        let first = occupants.next()?;
        occupants.next().is_none().then_some(first.pid)
    }
}

fn status_of(client: &Client) -> ClientStatus {
    ClientStatus {
        pid: client.pid,
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
