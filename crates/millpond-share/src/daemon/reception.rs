//! Clients: how they come in, and what they say.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use super::connection::{Connection, Ended};
use super::device::Device;
use super::guest::{Guest, GuestNumber, Joined, Role};
use super::host_memory::{self, Budget};
use super::peer::Peer;
use super::{Audience, BREATH, Daemon, MOST_AT_A_DESK, MOST_DEVICES};
use crate::framing::MOST_BYTES;
use crate::policy::{Allowance, Event, HostUse, MOST_PRIORITY, MOST_WEIGHT, Policy, Principal};
use crate::protocol::{DeviceId, Hello, MOST_NAME_BYTES, PROTOCOL, ToClient, ToDaemon};

/// Who has not said by then what it wants is sent away.
const HELLO_TIME: Duration = Duration::from_secs(10);
/// Who has asked something may ask again for so long.
const LINE_TIME: Duration = Duration::from_secs(600);
/// The most connections of one process: more than it can have devices, and far fewer than there is room for.
const MOST_OF_A_PROCESS: usize = 128;
/// The most devices that one process can bring, and one user.
const MOST_DEVICES_OF_A_PROCESS: usize = 32;
const MOST_DEVICES_OF_A_USER: usize = 128;

/// Where guests come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Desk {
    Clients,
    Control,
    Scrapes,
}

impl Daemon {
    /// Where somebody can be let in. Each has places of its own, so that whoever fills one keeps nobody from the others.
    pub(super) fn open_desks(&self) -> Vec<Desk> {
        if self.deaf_until.is_some_and(|until| Instant::now() < until) {
            return Vec::new();
        }
        let has_place = |desk: &Desk| {
            let most = if *desk == Desk::Clients { self.most_clients } else { MOST_AT_A_DESK };
            let is_there = *desk != Desk::Scrapes || self.scrapes.is_some();
            is_there && self.guests.values().filter(|guest| guest.desk() == *desk).count() < most
        };
        [Desk::Clients, Desk::Control, Desk::Scrapes].into_iter().filter(has_place).collect()
    }

    pub(super) fn listener(&self, desk: Desk) -> BorrowedFd<'_> {
        match (desk, &self.scrapes) {
            (Desk::Scrapes, Some(scrapes)) => scrapes.as_fd(),
            (Desk::Control, _) => self.control.as_fd(),
            _ => self.clients.as_fd(),
        }
    }

    /// Lets in who has come, one at each desk.
    pub(super) fn receive_guests(&mut self, desks: &[Desk]) {
        self.deaf_until = self.deaf_until.filter(|until| Instant::now() < *until);
        for desk in desks {
            let come: io::Result<(OwnedFd, Role)> = match (desk, &self.scrapes) {
                (Desk::Scrapes, Some(scrapes)) => scrapes.accept().and_then(|(socket, _)| {
                    socket.set_nonblocking(true)?;
                    Ok((socket.into(), Role::Scrape { request: Vec::new(), answered: false }))
                }),
                (Desk::Control, _) => {
                    self.control.accept().map(|(s, _)| (s.into(), Role::Control { asked: false }))
                }
                _ => self.clients.accept().map(|(s, _)| (s.into(), Role::Client(None))),
            };
            match come {
                Ok((socket, role)) => self.let_in(socket, role),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // It would fail again at once, as when there are no descriptors left.
                Err(error) => {
                    self.log.say(format!("nobody can be let in for a moment: {error}"));
                    self.deaf_until = Some(Instant::now() + BREATH);
                }
            }
        }
    }

    fn let_in(&mut self, socket: OwnedFd, role: Role) {
        let peer = match role {
            Role::Scrape { .. } => None,
            // Whose process is unknown is not served: it may be dead already.
            _ => match Peer::of(socket.as_fd()) {
                Ok(peer) if admits(self.audience, peer.uid, &role) => Some(peer),
                Ok(peer) => {
                    let (pid, uid) = (peer.pid, peer.uid);
                    return self.log.say(format!("process {pid} of user {uid} is refused"));
                }
                Err(_) => return,
            },
        };
        if let Some(peer) = &peer {
            self.make_place_for_one_more_of(peer.pid);
            let of_user = |guest: &&Guest| guest.is_of_user(peer.uid);
            // One user of several leaves places to the others.
            let most = self.most_clients.div_ceil(2);
            let is_shared = self.audience == Audience::Everyone && matches!(role, Role::Client(_));
            if is_shared && self.guests.values().filter(of_user).count() >= most {
                return self.log.say(format!("user {} has too many connections", peer.uid));
            }
        }
        let number = GuestNumber(self.next_guest);
        self.next_guest += 1;
        let connection = Connection::new(socket, MOST_BYTES);
        self.guests.insert(number, Guest { connection, role, peer, since: Instant::now() });
    }

    /// A process that fills the house does so at its own cost: the first of its connections goes for the next.
    fn make_place_for_one_more_of(&mut self, pid: u32) {
        let of_it = || self.guests.iter().filter(|(_, guest)| guest.pid() == Some(pid));
        if of_it().count() < MOST_OF_A_PROCESS {
            return;
        }
        if let Some(first) = of_it().next().map(|(number, _)| *number) {
            self.remove(first, Some("has too many connections".to_owned()));
        }
    }

    /// Sends away who has not said what it wants.
    pub(super) fn dismiss_the_silent(&mut self) {
        let silent = self.guests.iter().filter(|(_, guest)| {
            let patience = match guest.role {
                Role::Client(Some(_)) => return false,
                Role::Control { asked: true } => LINE_TIME,
                _ => HELLO_TIME,
            };
            guest.since.elapsed() > patience
        });
        let silent: Vec<GuestNumber> = silent.map(|(number, _)| *number).collect();
        silent.into_iter().for_each(|number| self.remove(number, Some("said nothing".to_owned())));
    }

    /// At most one message of a client.
    pub(super) fn serve_client(&mut self, number: GuestNumber) -> Result<(), Ended> {
        let Some(guest) = self.guests.get_mut(&number) else { return Ok(()) };
        guest.connection.send_rest()?;
        guest.connection.receive()?;
        let Role::Client(Some(Joined { device, .. })) = guest.role else {
            return self.greet(number);
        };
        let Some(message) = guest.connection.take::<ToDaemon>()? else { return Ok(()) };
        let event = self.event(number, device, message);
        self.happened(device, event);
        Ok(())
    }

    /// What a client says, as something that happened.
    fn event(&self, number: GuestNumber, device: DeviceId, message: ToDaemon) -> Event {
        let client = number.as_client();
        match message {
            ToDaemon::Claim { bytes, cgroup_room } => {
                let host_room = self.host_room(number, device);
                Event::Claimed { client, bytes, host_room, own_room: cgroup_room }
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

    /// What the host has for memory of a client's principal that leaves a device.
    fn host_room(&self, number: GuestNumber, device: DeviceId) -> u64 {
        let Some(own) = self.guests.get(&number).and_then(Guest::principal) else { return 0 };
        let mut budget = Budget { is_trusted: is_trusted(own), ..Budget::default() };
        for (id, shared) in &self.devices {
            for (principal, host_use) in shared.policy.host_use() {
                let HostUse { needs_bytes, has_bytes } = host_use;
                if principal != own {
                    let other = budget.others.entry((is_trusted(principal), principal));
                    let needs = other.or_default();
                    *needs = needs.saturating_add(needs_bytes);
                    continue;
                }
                budget.has = budget.has.saturating_add(has_bytes);
                if *id != device {
                    budget.needs_elsewhere = budget.needs_elsewhere.saturating_add(needs_bytes);
                }
            }
        }
        budget.room(host_memory::available())
    }

    /// A client's first message.
    fn greet(&mut self, number: GuestNumber) -> Result<(), Ended> {
        let Some(guest) = self.guests.get_mut(&number) else { return Ok(()) };
        let Some(protocol) = guest.connection.peek::<u32>()? else { return Ok(()) };
        if protocol != PROTOCOL {
            let reason = format!(
                "this program's libmillpond_hook.so speaks version {protocol} and the daemon {PROTOCOL}: use those of one release"
            );
            return self.turn_away(number, reason);
        }
        let Some(mut hello) = guest.connection.take::<Hello>()? else { return Ok(()) };
        if let Some(reason) = self.objection(number, &hello) {
            return self.turn_away(number, reason);
        }
        let joined = Joined { device: hello.device, instance: hello.instance };
        self.replace_earlier_selves(number, joined);
        if let Some(guest) = self.guests.get_mut(&number) {
            guest.role = Role::Client(Some(joined));
        }
        let Some(known) = self.guests.get(&number).and_then(Guest::known) else { return Ok(()) };
        let asked = (hello.weight, hello.priority);
        let allowance = if is_trusted(known.principal()) { Allowance::ALL } else { self.allowance };
        (hello.weight, hello.priority) = allowance.cut(hello.weight, hello.priority);
        let cut = (hello.weight, hello.priority);
        self.kept.correct(&mut hello, known);
        let got_less = cut == (hello.weight, hello.priority) && cut != asked;
        let settings = self.kept.settings_of(hello.device, self.settings.clone());
        let device = self.devices.entry(hello.device);
        device.or_insert_with(|| Device { policy: Policy::new(settings) });
        let Some(guest) = self.guests.get_mut(&number) else { return Ok(()) };
        let Some(principal) = guest.principal() else { return Ok(()) };
        let event = Event::Joined {
            client: number.as_client(),
            principal,
            pid: guest.pid().unwrap_or_default(),
            name: hello.name,
            capacity_bytes: hello.capacity_bytes,
            taken_bytes: hello.taken_bytes,
            weight: hello.weight,
            priority: hello.priority,
            memory_limit: hello.memory_limit,
            standing: hello.standing,
        };
        self.happened(hello.device, event);
        if got_less && let Some(guest) = self.guests.get_mut(&number) {
            guest.connection.say(&ToClient::Notice { line: less_than_asked(asked, cut) })?;
        }
        Ok(())
    }

    /// What is wrong with a hello.
    fn objection(&self, number: GuestNumber, hello: &Hello) -> Option<String> {
        let peer = self.guests.get(&number).and_then(|guest| guest.peer.as_ref());
        let (pid, uid) = peer.map(|peer| (peer.pid, peer.uid)).unzip();
        let is_new = !self.devices.contains_key(&hello.device);
        let of_process = || self.devices_of(|guest| guest.pid() == pid);
        let of_user = || self.devices_of(|guest| uid.is_some_and(|uid| guest.is_of_user(uid)));
        if hello.capacity_bytes == 0 {
            Some("a device without memory cannot be shared".to_owned())
        } else if is_new && of_process() >= MOST_DEVICES_OF_A_PROCESS {
            Some(format!("a process has at most {MOST_DEVICES_OF_A_PROCESS} devices"))
        } else if is_new && of_user() >= MOST_DEVICES_OF_A_USER {
            Some(format!("a user's processes have at most {MOST_DEVICES_OF_A_USER} devices"))
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

    fn turn_away(&mut self, number: GuestNumber, reason: String) -> Result<(), Ended> {
        if let Some(guest) = self.guests.get_mut(&number) {
            guest.connection.say(&ToClient::Unfit { reason: reason.clone() })?;
        }
        self.remove(number, Some(format!("is turned away: {reason}")));
        Ok(())
    }

    /// How many devices some guests share.
    fn devices_of(&self, whose: impl Fn(&Guest) -> bool) -> usize {
        let devices = self.guests.values().filter(|guest| whose(guest)).filter_map(Guest::device);
        devices.collect::<BTreeSet<DeviceId>>().len()
    }

    /// A client that comes again has lost its connection, whether we have noticed or not; and a process is one client of a device,
    /// for else it would have as many turns as it has connections.
    fn replace_earlier_selves(&mut self, number: GuestNumber, joined: Joined) {
        let pid = self.guests.get(&number).and_then(Guest::pid);
        let of_process: Vec<(GuestNumber, Joined)> = self
            .guests
            .iter()
            .filter(|(_, guest)| guest.pid() == pid)
            .filter_map(|(number, guest)| Some((*number, guest.joined()?)))
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

/// Who may come in: the daemon's own user and the system's, and as clients perhaps everyone.
fn admits(audience: Audience, uid: u32, role: &Role) -> bool {
    let own = rustix::process::geteuid().as_raw();
    let everyone = audience == Audience::Everyone && matches!(role, Role::Client(_));
    everyone || uid == own || uid == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_is_the_owners_and_the_systems_whoever_may_share() {
        let own = rustix::process::geteuid().as_raw();
        let stranger = own.wrapping_add(4711).max(1);
        let (client, control) = (Role::Client(None), Role::Control { asked: false });
        for audience in [Audience::Owner, Audience::Everyone] {
            for uid in [own, 0] {
                assert!(admits(audience, uid, &client) && admits(audience, uid, &control));
            }
            assert!(!admits(audience, stranger, &control));
        }
        assert!(!admits(Audience::Owner, stranger, &client));
        assert!(admits(Audience::Everyone, stranger, &client));
    }
}
