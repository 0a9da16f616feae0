//! A peer that is connected.

use std::time::{Duration, Instant};

use super::connection::Connection;
use super::kept::Known;
use super::peer::Peer;
use crate::policy::Principal;
use crate::protocol::DeviceId;

/// A session, by a number that is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SessionId(pub(super) u64);

/// The listeners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entrance {
    Clients,
    Control,
    Metrics,
}

/// A client that has said hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Joined {
    pub(super) device: DeviceId,
    pub(super) instance: u64,
}

/// What it came for.
#[derive(Debug)]
pub(super) enum Role {
    /// To share a device, known after its hello.
    Client(Option<Joined>),
    /// To ask and to set, and whether it has.
    Control { asked: bool },
    /// To read the metrics: what has come of its request, and whether it has been answered.
    Scrape { request: Vec<u8>, answered: bool },
}

impl Role {
    pub(super) fn at(entrance: Entrance) -> Role {
        match entrance {
            Entrance::Clients => Role::Client(None),
            Entrance::Control => Role::Control { asked: false },
            Entrance::Metrics => Role::Scrape { request: Vec::new(), answered: false },
        }
    }

    /// How long it may be silent. `None`: a client that has said hello may have nothing to say.
    fn patience(&self) -> Option<Duration> {
        match self {
            Role::Client(Some(_)) => None,
            Role::Client(None) | Role::Control { asked: false } => Some(HELLO_TIME),
            Role::Control { asked: true } => Some(LINE_TIME),
            Role::Scrape { answered: false, .. } => Some(REQUEST_TIME),
            Role::Scrape { answered: true, .. } => Some(READING_TIME),
        }
    }
}

/// A peer that has not said by then what it wants is sent away; so is one that has not finished what it began to say.
const HELLO_TIME: Duration = Duration::from_secs(10);
/// A peer of the control socket that has asked something may ask again for so long.
const LINE_TIME: Duration = Duration::from_secs(600);
/// A reader of the metrics asks at once, and reads at once.
const REQUEST_TIME: Duration = Duration::from_secs(1);
const READING_TIME: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Session {
    pub(super) connection: Connection,
    pub(super) role: Role,
    /// Its process; not known of a peer that comes by the network.
    pub(super) peer: Option<Peer>,
    /// When it came, or last asked something.
    pub(super) since: Instant,
    /// It waits for its turn to be served.
    pub(super) is_queued: bool,
    /// It is watched for room to send.
    pub(super) is_watched_for_room: bool,
}

impl Session {
    pub(super) fn pid(&self) -> Option<u32> {
        self.peer.as_ref().map(|peer| peer.pid)
    }

    /// The party that it belongs to. A reader of the metrics that comes by the network belongs to none.
    pub(super) fn principal(&self) -> Option<Principal> {
        self.peer.as_ref().map(Peer::principal)
    }

    /// What it is known by to a later daemon.
    pub(super) fn known(&self) -> Option<Known> {
        let (peer, joined) = (self.peer.as_ref()?, self.joined()?);
        Some(Known { instance: joined.instance, pid: peer.pid, uid: peer.uid })
    }

    /// What it has said hello for.
    pub(super) fn joined(&self) -> Option<Joined> {
        match self.role {
            Role::Client(joined) => joined,
            _ => None,
        }
    }

    /// Where it came in.
    pub(super) fn entrance(&self) -> Entrance {
        match self.role {
            Role::Client(_) => Entrance::Clients,
            Role::Control { .. } => Entrance::Control,
            Role::Scrape { .. } => Entrance::Metrics,
        }
    }

    /// Why its time is over, if it is.
    pub(super) fn overdue(&self) -> Option<&'static str> {
        let half_said = self.connection.half_a_message_since();
        if half_said.is_some_and(|since| since.elapsed() > HELLO_TIME) {
            return Some("did not finish its message");
        }
        (self.since.elapsed() > self.role.patience()?).then_some("said nothing")
    }

    /// A line for the log.
    pub(super) fn line(&self, what: &str) -> String {
        match (&self.role, self.pid()) {
            (Role::Client(_), Some(pid)) => format!("client {pid} {what}"),
            (Role::Control { .. }, Some(pid)) => format!("control by {pid} {what}"),
            _ => format!("a reader of the metrics {what}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framing::MOST_BYTES;
    use std::os::unix::net::UnixStream;

    #[test]
    fn peers_that_say_nothing_are_waited_for_for_seconds_and_readers_of_metrics_for_less() {
        let at_most =
            |role: Role, seconds| role.patience().unwrap() <= Duration::from_secs(seconds);
        let reader = |answered| Role::Scrape { request: Vec::new(), answered };
        assert!(at_most(reader(false), 2), "it asks at once");
        assert!(at_most(reader(true), 8), "it reads at once");
        assert!(at_most(Role::Client(None), 10) && at_most(Role::Control { asked: false }, 10));
        let joined = Joined { device: DeviceId([7; 16]), instance: 1 };
        assert_eq!(Role::Client(Some(joined)).patience(), None);
    }

    #[test]
    fn a_reader_that_asks_nothing_is_overdue() {
        let (socket, _other) = UnixStream::pair().unwrap();
        let age = Duration::from_secs(3);
        let session = Session {
            connection: Connection::new(socket.into(), MOST_BYTES, false).unwrap(),
            role: Role::at(Entrance::Metrics),
            peer: None,
            since: Instant::now().checked_sub(age).expect("the machine runs for longer"),
            is_queued: false,
            is_watched_for_room: false,
        };
        assert!(session.overdue().is_some());
    }
}
