//! What clients say.

use super::connection::Ended;
use super::device::Device;
use super::host_memory::{self, Budget};
use super::session::{Joined, Session, SessionId};
use super::{Daemon, MOST_DEVICES};
use crate::policy::{Allowance, Event, HostUse, MOST_PRIORITY, MOST_WEIGHT, Policy, Principal};
use crate::protocol::{DeviceId, Hello, MOST_NAME_BYTES, PROTOCOL, ToClient, ToDaemon};
use std::time::Duration;

/// The most devices that one process can bring, and one principal.
const MOST_DEVICES_OF_A_PROCESS: usize = 32;
const MOST_DEVICES_OF_A_PRINCIPAL: usize = 128;

impl Daemon {
    /// At most one message of a client.
    pub(super) fn serve_client(&mut self, id: SessionId) -> Result<(), Ended> {
        let Some(session) = self.sessions.get_mut(id) else { return Ok(()) };
        session.connection.send_rest()?;
        session.connection.receive()?;
        let Some(Joined { device, .. }) = session.joined() else { return self.greet(id) };
        let Some(message) = session.connection.take::<ToDaemon>()? else { return Ok(()) };
        let event = self.event(id, device, message);
        self.happened(device, event);
        Ok(())
    }

    /// What a client says, as something that happened.
    fn event(&mut self, id: SessionId, device: DeviceId, message: ToDaemon) -> Event {
        let client = id.as_client();
        match message {
            ToDaemon::Claim { claim, bytes, cgroup_room } => {
                let host_room = self.host_room(id, device);
                Event::Claimed { client, claim, bytes, host_room, own_room: cgroup_room }
            }
            ToDaemon::Want { bytes } => Event::Wants { client, bytes },
            ToDaemon::Moved(traffic) => Event::Moved(client, traffic),
            ToDaemon::Taken { bytes } => Event::Taken(client, bytes),
            ToDaemon::Resumed { moving_ns } => {
                Event::Resumed(client, Duration::from_nanos(moving_ns))
            }
            ToDaemon::Released { turn, traffic, idle } => {
                Event::Released { client, turn, traffic, idle }
            }
        }
    }

    /// What the host has for memory of a client's principal that leaves a device. Looks at each principal on each device, and at no
    /// client.
    fn host_room(&mut self, id: SessionId, device: DeviceId) -> u64 {
        if self.host_available.0 != self.now {
            self.host_available = (self.now, host_memory::available());
        }
        let Some(own) = self.sessions.get(id).and_then(Session::principal) else { return 0 };
        let mut budget = Budget { is_trusted: is_trusted(own), ..Budget::default() };
        for (other, shared) in &self.devices {
            for (principal, host_use) in shared.policy.host_use() {
                let HostUse { needs_bytes, has_bytes } = host_use;
                if principal != own {
                    let needs =
                        budget.others.entry((is_trusted(principal), principal)).or_default();
                    *needs = needs.saturating_add(needs_bytes);
                    continue;
                }
                budget.has = budget.has.saturating_add(has_bytes);
                if *other != device {
                    budget.needs_elsewhere = budget.needs_elsewhere.saturating_add(needs_bytes);
                }
            }
        }
        budget.room(self.host_available.1)
    }

    /// A client's first message.
    fn greet(&mut self, id: SessionId) -> Result<(), Ended> {
        let Some(session) = self.sessions.get_mut(id) else { return Ok(()) };
        let Some(protocol) = session.connection.peek::<u32>()? else { return Ok(()) };
        if protocol != PROTOCOL {
            let reason = format!(
                "this program's libmillpond_hook.so speaks version {protocol} and the daemon {PROTOCOL}: use those of one release"
            );
            return self.turn_away(id, reason);
        }
        let Some(mut hello) = session.connection.take::<Hello>()? else { return Ok(()) };
        if let Some(reason) = self.objection(id, &hello) {
            return self.turn_away(id, reason);
        }
        let joined = Joined { device: hello.device, instance: hello.instance };
        self.replace_earlier_selves(id, joined);
        self.sessions.join(id, joined);
        let Some(known) = self.sessions.get(id).and_then(Session::known) else { return Ok(()) };
        let asked = (hello.weight, hello.priority);
        let allowance = if is_trusted(known.principal()) { Allowance::ALL } else { self.allowance };
        (hello.weight, hello.priority) = allowance.cut(hello.weight, hello.priority);
        let cut = (hello.weight, hello.priority);
        self.kept.correct(&mut hello, known);
        let got_less = cut == (hello.weight, hello.priority) && cut != asked;
        let settings = self.kept.settings_of(hello.device, self.settings.clone());
        let device = self.devices.entry(hello.device);
        device.or_insert_with(|| Device::new(Policy::new(settings)));
        let event = Event::Joined {
            client: id.as_client(),
            principal: known.principal(),
            pid: known.pid,
            name: hello.name,
            capacity_bytes: hello.capacity_bytes,
            taken_bytes: hello.taken_bytes,
            weight: hello.weight,
            priority: hello.priority,
            memory_limit: hello.memory_limit,
            standing: hello.standing,
        };
        self.happened(hello.device, event);
        if got_less && let Some(session) = self.sessions.get_mut(id) {
            session.connection.say(&ToClient::Notice { line: less_than_asked(asked, cut) })?;
        }
        Ok(())
    }

    /// What is wrong with a hello.
    fn objection(&self, id: SessionId, hello: &Hello) -> Option<String> {
        let session = self.sessions.get(id)?;
        let (pid, principal) = (session.pid()?, session.principal()?);
        let is_new = !self.devices.contains_key(&hello.device);
        let of_process = || self.sessions.devices_of_process(pid);
        let of_principal = || self.sessions.devices_of(principal);
        if hello.capacity_bytes == 0 {
            Some("a device without memory cannot be shared".to_owned())
        } else if is_new && of_process() >= MOST_DEVICES_OF_A_PROCESS {
            Some(format!("a process has at most {MOST_DEVICES_OF_A_PROCESS} devices"))
        } else if is_new && of_principal() >= MOST_DEVICES_OF_A_PRINCIPAL {
            Some(format!("{principal} has at most {MOST_DEVICES_OF_A_PRINCIPAL} devices"))
        } else if is_new && self.devices.len() >= MOST_DEVICES {
            Some(format!("{MOST_DEVICES} devices are shared already"))
        } else if hello.name.len() > MOST_NAME_BYTES {
            Some(format!("a name has at most {MOST_NAME_BYTES} bytes: choose a shorter one"))
        } else if !(1..=MOST_WEIGHT).contains(&hello.weight) {
            Some(format!("a weight is from 1 to {MOST_WEIGHT}, not {}", hello.weight))
        } else if hello.priority.unsigned_abs() > MOST_PRIORITY.unsigned_abs() {
            Some(format!(
                "a priority is from -{MOST_PRIORITY} to {MOST_PRIORITY}, not {}",
                hello.priority
            ))
        } else {
            None
        }
    }

    fn turn_away(&mut self, id: SessionId, reason: String) -> Result<(), Ended> {
        if let Some(session) = self.sessions.get_mut(id) {
            session.connection.say(&ToClient::Unfit { reason: reason.clone() })?;
        }
        self.remove(id, Some(format!("is turned away: {reason}")));
        Ok(())
    }

    /// A client that comes again has lost its connection, whether we have noticed or not; and a process is one client of a device,
    /// for else it would have as many turns as it has connections.
    fn replace_earlier_selves(&mut self, id: SessionId, joined: Joined) {
        let Some(pid) = self.sessions.get(id).and_then(|session| session.pid()) else { return };
        let of_process: Vec<(SessionId, Joined)> = self
            .sessions
            .of_process(pid)
            .filter_map(|(id, session)| Some((id, session.joined()?)))
            .filter(|(_, earlier)| earlier.device == joined.device)
            .collect();
        let (same, others): (Vec<_>, Vec<_>) =
            of_process.into_iter().partition(|(_, earlier)| *earlier == joined);
        let too_many = (others.len() + 1).saturating_sub(self.clients_per_process);
        for (earlier, _) in same.into_iter().chain(others.into_iter().take(too_many)) {
            self.remove(earlier, None);
        }
    }
}

/// What a client hears that asked for more than it is allowed.
fn less_than_asked(asked: (u32, i32), allowed: (u32, i32)) -> String {
    format!(
        "weight {} and priority {} are asked for and {} and {} allowed to other users than the daemon's own: its administrator can \
         raise them with `millpond share set`, or for all with --most-weight and --most-priority of `millpond share serve`",
        asked.0, asked.1, allowed.0, allowed.1
    )
}

/// Whether a principal may ask for as much as it likes: the daemon's own user and the system's administrator, who could change the
/// settings anyway.
fn is_trusted(principal: Principal) -> bool {
    match principal {
        Principal::User(uid) => uid == 0 || uid == rustix::process::geteuid().as_raw(),
    }
}
