//! Whoever is connected.

use std::time::Instant;

use super::connection::Connection;
use super::kept::Known;
use super::peer::Peer;
use super::reception::Desk;
use crate::policy::Principal;
use crate::protocol::DeviceId;

/// A guest, by a number that is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GuestNumber(pub(super) u64);

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

#[derive(Debug)]
pub(super) struct Guest {
    pub(super) connection: Connection,
    pub(super) role: Role,
    /// Its process; not known of who comes by the network.
    pub(super) peer: Option<Peer>,
    /// When it came, or last asked something.
    pub(super) since: Instant,
}

impl Guest {
    pub(super) fn pid(&self) -> Option<u32> {
        self.peer.as_ref().map(|peer| peer.pid)
    }

    /// What it has said hello for.
    pub(super) fn joined(&self) -> Option<Joined> {
        match self.role {
            Role::Client(joined) => joined,
            _ => None,
        }
    }

    /// What it is known by to a later daemon.
    pub(super) fn known(&self) -> Option<Known> {
        let (peer, joined) = (self.peer.as_ref()?, self.joined()?);
        Some(Known { instance: joined.instance, pid: peer.pid, uid: peer.uid })
    }

    pub(super) fn device(&self) -> Option<DeviceId> {
        self.joined().map(|joined| joined.device)
    }

    /// To which party it belongs; not known of a peer that comes by the network.
    pub(super) fn principal(&self) -> Option<Principal> {
        self.peer.as_ref().map(|peer| Principal::User(peer.uid))
    }

    pub(super) fn is_of_user(&self, uid: u32) -> bool {
        self.peer.as_ref().is_some_and(|peer| peer.uid == uid)
    }

    /// Where it came in.
    pub(super) fn desk(&self) -> Desk {
        match self.role {
            Role::Client(_) => Desk::Clients,
            Role::Control { .. } => Desk::Control,
            Role::Scrape { .. } => Desk::Scrapes,
        }
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
