//! The daemon: one thread, which never waits for a single peer.
//!
//! Sockets, clock, processes and the host's memory are here; what to do about them is the [policy](crate::policy)'s.

mod admission;
mod client_session;
mod connection;
mod control_session;
#[cfg(test)]
mod crowd;
mod descriptors;
mod device;
mod directory;
mod host_memory;
mod kept;
mod log;
mod metrics;
mod peer;
mod peer_pidfd_ffi;
mod place;
mod process_identity;
mod readiness;
mod scrape;
mod session;
mod sessions;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::policy::{Action, Allowance, ClientId, Event, Moment, Settings};
use crate::protocol::DeviceId;
use admission::{BREATH, Listeners, MOST_CONTROLS, MOST_SCRAPES, MetricsListener};
use connection::Ended;
use device::Device;
pub use kept::Given;
use kept::Kept;
use log::Log;
use place::Place;
use readiness::{Readiness, Ready};
use scrape::Scrapes;
use session::{Role, SessionId};
use sessions::Sessions;

/// The most clients at a time, if there are descriptors for so many.
const MOST_CLIENTS: usize = 4096;
/// The most devices at a time.
const MOST_DEVICES: usize = 1024;
/// The most messages of one principal's peers in a round: so long others wait, however many connections that one has.
const MESSAGES_OF_A_PRINCIPAL: usize = 256;
/// The longest sleep: also how late it is noticed that a peer says nothing.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// Between looks at all sessions.
const HOUSEKEEPING: Duration = Duration::from_millis(250);
/// The daemon's clock goes on in steps of so much, since with each of them every client's times are added up.
const TICK: Duration = Duration::from_millis(1);
/// Drawing conclusions, which looks at all clients, takes at most one part in so many of the time.
const PARTS_FOR_SETTLING: u32 = 4;

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
    /// Where Prometheus finds its figures, if anywhere.
    pub metrics: Option<Metrics>,
    /// The most clients of one process on one device: [`ONE_CLIENT`], but for a process that plays several programs. A newer one
    /// takes the place of the oldest.
    pub clients_per_process: usize,
}

/// A client is one process on one device.
pub const ONE_CLIENT: usize = 1;

/// Figures for Prometheus.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Where.
    pub at: MetricsAt,
    /// What requests over TCP may call this host, beside the loopback's names and the address itself. Requests that name another are
    /// refused: they come from web pages.
    pub hosts: Vec<String>,
    /// Whether names of programs are among the figures over TCP, where every user of the machine can read them.
    pub names: bool,
}

/// Where the metrics are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsAt {
    /// A socket in the daemon's directory, for its owner alone. Names of programs are among the figures.
    Socket,
    /// A TCP port.
    Tcp(SocketAddr),
}

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
    /// The address cannot be had.
    #[error("{address} for metrics: {reason}: choose another with --metrics")]
    Address {
        /// Which.
        address: SocketAddr,
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
    place: Place,
    kept: Kept,
    listeners: Listeners,
    scrapes: Option<Scrapes>,
    readiness: Readiness,
    sessions: Sessions,
    devices: BTreeMap<DeviceId, Device>,
    /// The devices whose policies have heard something and drawn no conclusions yet.
    unsettled: BTreeSet<DeviceId>,
    /// Before this they are not drawn.
    settles_from: Instant,
    settings: Settings,
    audience: Audience,
    allowance: Allowance,
    clients_per_process: usize,
    most_clients: usize,
    start: Instant,
    /// The daemon's clock.
    now: Moment,
    /// What the host's memory was, and when.
    host_available: (Moment, u64),
    kept_house: Instant,
    /// Until then no connection is accepted: the system gave none.
    deaf_until: Option<Instant>,
    /// When, since boot, no connection of a client was waiting to be accepted.
    queue_was_empty: Duration,
    log: Log,
}

impl Daemon {
    /// Listens in its directory. From now on clients can connect; they are served by [`run`](Daemon::run).
    pub fn bind(options: Options) -> Result<Daemon, DaemonError> {
        let waits_from = Daemon::waits_from();
        let place = Place::take(&options.directory, options.audience)?;
        let metrics = options.metrics.map(|metrics| Scrapes::listen(&metrics, &place));
        let (metrics, scrapes) = metrics.transpose()?.unzip();
        let listeners = Listeners {
            clients: place.listen_for_clients(options.audience)?,
            control: place.listen_for_control()?,
            metrics,
        };
        let wait = |error: std::io::Error| DaemonError::Wait(error.to_string());
        let readiness = Readiness::new().map_err(wait)?;
        for (entrance, listener) in listeners.descriptors() {
            readiness.watch_listener(listener, entrance).map_err(wait)?;
        }
        let (mut kept, wrong) = Kept::load(place.directory());
        kept.forget(options.given);
        let log = Log::new();
        wrong.into_iter().for_each(|wrong| log.say(wrong));
        let start = Instant::now();
        Ok(Daemon {
            place,
            listeners,
            scrapes,
            readiness,
            sessions: Sessions::default(),
            devices: BTreeMap::new(),
            unsettled: BTreeSet::new(),
            settles_from: start,
            settings: kept.settings(options.settings),
            kept,
            audience: options.audience,
            allowance: options.allowance,
            clients_per_process: options.clients_per_process.max(1),
            most_clients: descriptors::peers()
                .saturating_sub(MOST_CONTROLS + MOST_SCRAPES)
                .clamp(1, MOST_CLIENTS),
            start,
            now: Moment::ZERO,
            host_available: (Moment::ZERO, host_memory::available()),
            kept_house: start,
            deaf_until: None,
            queue_was_empty: waits_from,
            log,
        })
    }

    /// The TCP address of the metrics, if they have one.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        match &self.listeners.metrics {
            Some(MetricsListener::Tcp(listener)) => listener.local_addr().ok(),
            _ => None,
        }
    }

    /// Serves until `stop` can be read from, or its other end is closed.
    pub fn run(mut self, stop: impl AsFd) -> Result<(), DaemonError> {
        let failed = |error: std::io::Error| DaemonError::Wait(error.to_string());
        self.readiness.watch_stop(&stop).map_err(failed)?;
        loop {
            let waits_from = Daemon::waits_from();
            let ready = self.readiness.wait(self.sleep()).map_err(failed)?;
            if ready.stop {
                return Ok(());
            }
            self.go_round(&ready);
            if !ready.is_partial {
                self.note_empty_queue(waits_from, &ready.entrances);
            }
        }
    }

    fn go_round(&mut self, ready: &Ready) {
        self.advance_clock();
        // The dead go first: what they held may be what others wait for.
        ready.dead.iter().for_each(|&id| self.remove(id, None));
        ready.sessions.iter().for_each(|&id| self.sessions.note_ready(id));
        self.serve_the_ready();
        self.resume_accepting();
        self.accept(&ready.entrances);
        if self.kept_house.elapsed() >= HOUSEKEEPING {
            self.kept_house = Instant::now();
            self.dismiss_the_overdue();
        }
        self.settle();
    }

    fn advance_clock(&mut self) {
        let now = self.start.elapsed();
        if now.saturating_sub(self.now) >= TICK {
            self.now = now;
        }
    }

    /// How long nothing needs to be done by itself.
    fn sleep(&self) -> Duration {
        if self.sessions.any_ready() {
            return Duration::ZERO;
        }
        let now = Instant::now();
        let pause = self.settles_from.saturating_duration_since(now);
        if !self.unsettled.is_empty() {
            return pause;
        }
        let longest = if self.deaf_until.is_some() { BREATH } else { LONGEST_SLEEP };
        let due = self.devices.values().filter_map(|device| device.due).min();
        due.map_or(longest, |due| {
            let left = due.saturating_sub(self.start.elapsed());
            left.max(pause).min(longest)
        })
    }

    /// Some messages of each principal's peers, one of each in turn.
    fn serve_the_ready(&mut self) {
        for principal in self.sessions.principals_with_ready() {
            for _ in 0..MESSAGES_OF_A_PRINCIPAL {
                let Some(id) = self.sessions.next_ready(principal) else { break };
                self.attend(id);
                let session = self.sessions.get(id);
                if session.is_some_and(|session| session.connection.has_message()) {
                    self.sessions.note_ready(id);
                }
            }
        }
    }

    /// At most one message of a peer.
    fn attend(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get(id) else { return };
        let served = match &session.role {
            Role::Scrape { .. } => self.serve_scrape(id),
            Role::Control { .. } => self.serve_control(id),
            Role::Client(_) => self.serve_client(id),
        };
        match served {
            Ok(()) => self.watch_for_room(id),
            Err(Ended::Closed) => self.remove(id, None),
            Err(why) => self.remove(id, Some(why.to_string())),
        }
    }

    /// What could not be sent is sent when there is room.
    fn watch_for_room(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        let watch = session.connection.has_unsent();
        if session.is_watched_for_room != watch {
            session.is_watched_for_room = watch;
            self.readiness.watch_for_room(id, session, watch);
        }
    }

    /// A peer is gone: whatever it had is free. What is not usual is said in the log.
    fn remove(&mut self, id: SessionId, why: Option<String>) {
        let Some(session) = self.sessions.remove(id) else { return };
        if let Some(why) = why {
            self.log.say(session.line(&why));
        }
        if let Some(joined) = session.joined() {
            self.happened(joined.device, Event::Left(id.as_client()));
            if self.devices.get(&joined.device).is_some_and(|device| device.policy.is_deserted()) {
                self.devices.remove(&joined.device);
                self.unsettled.remove(&joined.device);
            }
        }
    }

    /// Tells a device's policy what happened. What follows from it is found when the policy settles.
    fn happened(&mut self, device: DeviceId, event: Event) {
        let Some(shared) = self.devices.get_mut(&device) else { return };
        let actions = shared.policy.hear(self.now, event);
        self.unsettled.insert(device);
        self.carry_out(actions);
    }

    /// Draws the conclusions from what the policies have heard, and from the time.
    fn settle(&mut self) {
        let began = Instant::now();
        if began < self.settles_from {
            return;
        }
        let now = self.start.elapsed();
        let due =
            self.devices.iter().filter(|(_, device)| device.due.is_some_and(|due| due <= now));
        let due: Vec<DeviceId> = due.map(|(id, _)| *id).collect();
        self.unsettled.extend(due);
        if self.unsettled.is_empty() {
            return;
        }
        self.now = now;
        for id in std::mem::take(&mut self.unsettled) {
            let Some(device) = self.devices.get_mut(&id) else { continue };
            let actions = device.policy.settle(now);
            device.due = device.policy.next_moment();
            self.carry_out(actions);
        }
        self.settles_from = began + began.elapsed() * PARTS_FOR_SETTLING;
    }

    /// Does what a policy wants done.
    fn carry_out(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Tell(client, message) => {
                    let id = SessionId::of(client);
                    let Some(session) = self.sessions.get_mut(id) else { continue };
                    match session.connection.say(&message) {
                        Ok(()) => self.watch_for_room(id),
                        Err(Ended::Closed) => self.remove(id, None),
                        Err(why) => self.remove(id, Some(why.to_string())),
                    }
                }
                Action::Warn(client, late) => {
                    if let Some(session) = self.sessions.get(SessionId::of(client)) {
                        self.log.say(
                            session.line(&format!("has not given up the device for {late:.1?}")),
                        );
                    }
                }
                Action::End(client) => self.end(SessionId::of(client)),
            }
        }
    }

    /// Ends a client's process, or at least its session.
    fn end(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get(id) else { return };
        let ended = session.peer.as_ref().map(peer::Peer::end);
        match ended {
            Some(Ok(())) => {
                self.log.say(session.line("is ended: it does not give up the device"));
            }
            Some(Err(why)) => self.remove(
                id,
                Some(format!("does not give up the device and is cut off, not ended: {why}")),
            ),
            None => {}
        }
    }
}

impl SessionId {
    fn as_client(self) -> ClientId {
        ClientId(self.0)
    }

    fn of(client: ClientId) -> SessionId {
        SessionId(client.0)
    }
}
