//! The daemon: one thread, which never waits for a single peer.
//!
//! Sockets, clock, processes and the host's memory are here; what to do about them is the [policy](crate::policy)'s.

mod connection;
mod control_desk;
mod descriptors;
mod device;
mod guest;
mod host_memory;
mod kept;
mod log;
mod metrics;
mod peer;
mod place;
mod reception;
mod scrape;

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::policy::{Action, Allowance, ClientId, Event, Moment, Settings};
use crate::protocol::DeviceId;
use connection::Ended;
use device::Device;
use guest::{Guest, GuestNumber, Joined, Role};
pub use kept::Given;
use kept::Kept;
use log::Log;
use place::{Openness, Place};
use reception::Desk;

/// The most clients at a time, if there are descriptors for so many.
const MOST_CLIENTS: usize = 4096;
/// The most that ask or set, and the most that read the metrics. Their places are nobody else's.
const MOST_AT_A_DESK: usize = 16;
/// The most devices at a time.
const MOST_DEVICES: usize = 1024;
/// So long nobody is let in when the system has refused to.
const BREATH: Duration = Duration::from_millis(100);
/// The longest sleep: also how late it is noticed that a peer says nothing.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// Who may share the devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Audience {
    /// The daemon's own user.
    #[default]
    Owner,
    /// Every user of the machine.
    Everyone,
}

/// What a daemon is to be like.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where its sockets are.
    pub directory: PathBuf,
    /// How devices are shared, but for what was set while the last daemon of that directory ran.
    pub settings: Settings,
    /// What of the settings counts all the same.
    pub given: Given,
    /// Who may share them.
    pub audience: Audience,
    /// What clients of other users may ask for.
    pub allowance: Allowance,
    /// Where Prometheus finds its figures; on the loopback only.
    pub metrics_port: Option<u16>,
    /// The most clients of one process on one device: [`ONE_CLIENT`], but for a process that plays several programs. A newer one
    /// takes the place of the oldest.
    pub clients_per_process: usize,
}

/// A client is one process on one device.
pub const ONE_CLIENT: usize = 1;

/// Why there can be no daemon.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DaemonError {
    /// Another one is there.
    #[error(
        "a daemon is running in {} already: stop it, or choose another directory with --dir",
        directory.display()
    )]
    Running {
        /// Its directory.
        directory: PathBuf,
    },
    /// A file cannot be had.
    #[error("{}: {reason}: choose a directory that you may write to with --dir", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The port cannot be had.
    #[error("port {port} for metrics: {reason}: choose another with --metrics")]
    Port {
        /// Which.
        port: u16,
        /// Why not.
        reason: String,
    },
    /// The system does not let us wait.
    #[error("cannot wait for clients: {0}")]
    Wait(String),
}

/// A daemon that listens.
#[derive(Debug)]
pub struct Daemon {
    _place: Place,
    directory: PathBuf,
    kept: Kept,
    clients: UnixListener,
    control: UnixListener,
    scrapes: Option<TcpListener>,
    guests: BTreeMap<GuestNumber, Guest>,
    devices: BTreeMap<DeviceId, Device>,
    settings: Settings,
    audience: Audience,
    allowance: Allowance,
    clients_per_process: usize,
    most_clients: usize,
    next_guest: u64,
    start: Instant,
    /// Until then nobody is let in: the system would not have it.
    deaf_until: Option<Instant>,
    log: Log,
}

/// What became ready.
#[derive(Debug, Default)]
struct Ready {
    stop: bool,
    dead: Vec<GuestNumber>,
    guests: Vec<GuestNumber>,
    listeners: Vec<Desk>,
}

impl Daemon {
    /// Listens in its directory. From now on clients can connect; they are served by [`run`](Daemon::run).
    pub fn bind(options: Options) -> Result<Daemon, DaemonError> {
        let openness = match options.audience {
            Audience::Owner => Openness::Owner,
            Audience::Everyone => Openness::Everyone,
        };
        let (place, clients, control) = Place::take(&options.directory, openness)?;
        let scrapes = options.metrics_port.map(scrape::listen).transpose()?;
        let (mut kept, wrong) = Kept::load(&options.directory);
        kept.forget(options.given);
        let log = Log::new();
        wrong.into_iter().for_each(|wrong| log.say(wrong));
        Ok(Daemon {
            _place: place,
            directory: options.directory,
            clients,
            control,
            scrapes,
            guests: BTreeMap::new(),
            devices: BTreeMap::new(),
            settings: kept.settings(options.settings),
            kept,
            audience: options.audience,
            allowance: options.allowance,
            clients_per_process: options.clients_per_process.max(1),
            most_clients: descriptors::peers()
                .saturating_sub(2 * MOST_AT_A_DESK)
                .clamp(1, MOST_CLIENTS),
            next_guest: 1,
            start: Instant::now(),
            deaf_until: None,
            log,
        })
    }

    /// Where the metrics are, if anywhere.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.scrapes.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// Serves until `stop` can be read from, or its other end is closed.
    pub fn run(mut self, stop: impl AsFd) -> Result<(), DaemonError> {
        loop {
            let ready =
                self.wait(stop.as_fd()).map_err(|error| DaemonError::Wait(error.to_string()))?;
            if ready.stop {
                return Ok(());
            }
            // The dead go first: what they held may be what others wait for.
            ready.dead.iter().for_each(|&guest| self.remove(guest, None));
            ready.guests.iter().for_each(|&guest| self.attend(guest));
            self.receive_guests(&ready.listeners);
            self.dismiss_the_silent();
            self.look_at_the_clock();
        }
    }

    fn now(&self) -> Moment {
        self.start.elapsed()
    }

    /// How long nothing needs to be done by itself.
    fn sleep(&self) -> Duration {
        if self.guests.values().any(|guest| guest.connection.has_message()) {
            return Duration::ZERO;
        }
        let now = self.now();
        let next = self.devices.values().filter_map(|device| device.policy.next_moment()).min();
        let longest = if self.deaf_until.is_some() { BREATH } else { LONGEST_SLEEP };
        next.map_or(longest, |next| next.saturating_sub(now).min(longest))
    }

    fn wait(&self, stop: BorrowedFd<'_>) -> io::Result<Ready> {
        let mut descriptors = vec![PollFd::from_borrowed_fd(stop, PollFlags::IN)];
        // Who would be one too many waits outside.
        let desks = self.open_desks();
        for desk in &desks {
            descriptors.push(PollFd::from_borrowed_fd(self.listener(*desk), PollFlags::IN));
        }
        let first_guest = descriptors.len();
        for guest in self.guests.values() {
            let mut interest = PollFlags::empty();
            interest.set(PollFlags::IN, !guest.connection.has_message());
            interest.set(PollFlags::OUT, guest.connection.has_unsent());
            descriptors.push(PollFd::new(&guest.connection, interest));
        }
        let first_death = descriptors.len();
        let mortal =
            || self.guests.iter().filter_map(|(n, guest)| Some((*n, guest.peer.as_ref()?)));
        for (_, peer) in mortal() {
            descriptors.push(PollFd::from_borrowed_fd(peer.death(), PollFlags::IN));
        }
        let sleep = self.sleep();
        let timeout =
            Timespec { tv_sec: sleep.as_secs() as i64, tv_nsec: i64::from(sleep.subsec_nanos()) };
        match poll(&mut descriptors, Some(&timeout)) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(Ready::default()),
            Err(error) => return Err(error.into()),
        }
        let is_ready = |at: usize| !descriptors[at].revents().is_empty();
        let guests = self.guests.iter().zip(first_guest..);
        let ready =
            guests.filter(|((_, guest), at)| is_ready(*at) || guest.connection.has_message());
        Ok(Ready {
            stop: is_ready(0),
            listeners: desks
                .into_iter()
                .zip(1..)
                .filter(|(_, at)| is_ready(*at))
                .map(|(d, _)| d)
                .collect(),
            guests: ready.map(|((number, _), _)| *number).collect(),
            dead: mortal()
                .zip(first_death..)
                .filter(|(_, at)| is_ready(*at))
                .map(|((n, _), _)| n)
                .collect(),
        })
    }

    /// One guest's turn: at most one message.
    fn attend(&mut self, number: GuestNumber) {
        let Some(guest) = self.guests.get_mut(&number) else { return };
        let served = match &guest.role {
            Role::Scrape { .. } => self.serve_scrape(number),
            Role::Control { .. } => self.serve_control(number),
            Role::Client(_) => self.serve_client(number),
        };
        match served {
            Ok(()) => {}
            Err(Ended::Closed) => self.remove(number, None),
            Err(why) => self.remove(number, Some(why.to_string())),
        }
    }

    /// A guest is gone: whatever it had is free. What is not usual is said in the log.
    fn remove(&mut self, number: GuestNumber, why: Option<String>) {
        let Some(guest) = self.guests.remove(&number) else { return };
        if let Some(why) = why {
            self.log.say(guest.line(&why));
        }
        if let Role::Client(Some(Joined { device, .. })) = guest.role {
            self.happened(device, Event::Left(number.as_client()));
            if self.devices.get(&device).is_some_and(|device| device.policy.is_deserted()) {
                self.devices.remove(&device);
            }
        }
    }

    /// Tells a device's policy what happened, and does what it wants done.
    fn happened(&mut self, device: DeviceId, event: Event) {
        let now = self.now();
        let Some(shared) = self.devices.get_mut(&device) else { return };
        let mut gone = Vec::new();
        for action in shared.policy.handle(now, event) {
            match action {
                Action::Tell(client, message) => {
                    let Some(guest) = self.guests.get_mut(&GuestNumber::of(client)) else {
                        continue;
                    };
                    if let Err(why) = guest.connection.say(&message) {
                        gone.push((client, why));
                    }
                }
                Action::Warn(client, late) => {
                    if let Some(guest) = self.guests.get(&GuestNumber::of(client)) {
                        self.log.say(
                            guest.line(&format!("has not given up the device for {late:.1?}")),
                        );
                    }
                }
                Action::End(client) => {
                    if let Some(guest) = self.guests.get(&GuestNumber::of(client)) {
                        self.log.say(guest.line("is ended: it does not give up the device"));
                        guest.peer.iter().for_each(|peer| peer.end());
                    }
                }
            }
        }
        for (client, why) in gone {
            let why = (!matches!(why, Ended::Closed)).then(|| why.to_string());
            self.remove(GuestNumber::of(client), why);
        }
    }

    fn look_at_the_clock(&mut self) {
        let now = self.now();
        let is_due = |device: &Device| device.policy.next_moment().is_some_and(|next| next <= now);
        let due = self.devices.iter().filter(|(_, device)| is_due(device));
        let due: Vec<DeviceId> = due.map(|(id, _)| *id).collect();
        due.into_iter().for_each(|device| self.happened(device, Event::Nothing));
    }
}

impl GuestNumber {
    fn as_client(self) -> ClientId {
        ClientId(self.0)
    }

    fn of(client: ClientId) -> GuestNumber {
        GuestNumber(client.0)
    }
}
