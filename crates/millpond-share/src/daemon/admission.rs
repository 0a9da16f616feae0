//! Who is let in, and how many.

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use super::connection::Connection;
use super::peer::Peer;
use super::process_identity::since_boot;
use super::session::{Entrance, Role, Session, SessionId};
use super::{Audience, Daemon};
use crate::framing::MOST_BYTES;
use crate::policy::Principal;
use crate::protocol::ToClient;

/// The most connections that are accepted of one listener before others are served.
const MOST_AT_ONCE: usize = 256;
/// The most that ask or set, and the most that read the metrics: places that clients cannot take.
pub(super) const MOST_CONTROLS: usize = 32;
pub(super) const MOST_SCRAPES: usize = 16;
/// The most connections of one process: more than it can have devices, and far fewer than there is room for.
const MOST_OF_A_PROCESS: usize = 128;
/// No connection is accepted for so long after the system has refused to give one.
pub(super) const BREATH: Duration = Duration::from_millis(100);

/// Sockets that are listened on.
#[derive(Debug)]
pub(super) struct Listeners {
    pub(super) clients: UnixListener,
    pub(super) control: UnixListener,
    pub(super) metrics: Option<MetricsListener>,
}

/// Where the metrics are.
#[derive(Debug)]
pub(super) enum MetricsListener {
    Socket(UnixListener),
    Tcp(TcpListener),
}

impl Listeners {
    pub(super) fn descriptors(&self) -> impl Iterator<Item = (Entrance, BorrowedFd<'_>)> {
        let metrics = self.metrics.as_ref().map(|metrics| match metrics {
            MetricsListener::Socket(socket) => socket.as_fd(),
            MetricsListener::Tcp(listener) => listener.as_fd(),
        });
        [(Entrance::Clients, self.clients.as_fd()), (Entrance::Control, self.control.as_fd())]
            .into_iter()
            .chain(metrics.map(|metrics| (Entrance::Metrics, metrics)))
    }

    /// The next connection, which does not wait; `None` if there is none.
    fn accept(&self, entrance: Entrance) -> io::Result<Option<OwnedFd>> {
        let accepted = match (entrance, &self.metrics) {
            (Entrance::Clients, _) => self.clients.accept().map(|(socket, _)| socket.into()),
            (Entrance::Control, _) => self.control.accept().map(|(socket, _)| socket.into()),
            (Entrance::Metrics, Some(MetricsListener::Socket(socket))) => {
                socket.accept().map(|(socket, _)| socket.into())
            }
            (Entrance::Metrics, Some(MetricsListener::Tcp(listener))) => {
                listener.accept().map(|(socket, _)| socket.into())
            }
            (Entrance::Metrics, None) => return Ok(None),
        };
        match accepted {
            Ok(socket) => Ok(Some(socket)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Daemon {
    /// Lets in those that have come, some of each listener.
    pub(super) fn accept(&mut self, entrances: &[Entrance]) {
        for &entrance in entrances {
            for _ in 0..MOST_AT_ONCE {
                match self.listeners.accept(entrance) {
                    Ok(Some(socket)) => self.let_in(socket, entrance),
                    Ok(None) => break,
                    // The peer went away while it waited.
                    Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                    // It would fail again at once, as when there are no descriptors left.
                    Err(error) => {
                        self.log.say(format!("no connection is accepted for a moment: {error}"));
                        return self.pause_accepting();
                    }
                }
            }
        }
    }

    fn pause_accepting(&mut self) {
        self.deaf_until = Some(Instant::now() + BREATH);
        self.attend_listeners(false);
    }

    /// Accepts again after a pause, when it is over.
    pub(super) fn resume_accepting(&mut self) {
        if self.deaf_until.is_some_and(|until| Instant::now() >= until) {
            self.deaf_until = None;
            self.attend_listeners(true);
        }
    }

    fn attend_listeners(&self, attend: bool) {
        for (entrance, listener) in self.listeners.descriptors() {
            let attended = self.readiness.attend_listener(listener, entrance, attend);
            debug_assert!(attended.is_ok(), "{attended:?}");
        }
    }

    /// Notes until when it is known that no connection was waiting: a process that began before did not get its number from one that
    /// connected after.
    pub(super) fn note_empty_queue(&mut self, waited_from: Duration, entrances: &[Entrance]) {
        if !entrances.contains(&Entrance::Clients) {
            self.queue_was_empty = waited_from;
        }
    }

    fn let_in(&mut self, socket: OwnedFd, entrance: Entrance) {
        let is_local = rustix::net::sockopt::socket_domain(&socket)
            .is_ok_and(|domain| domain == rustix::net::AddressFamily::UNIX);
        let peer = if is_local {
            match Peer::of(socket.as_fd(), self.queue_was_empty) {
                Ok(peer) => Some(peer),
                // A process that is not known cannot be served: it may be dead already.
                Err(_) => return,
            }
        } else {
            None
        };
        self.let_in_peer(socket, entrance, peer);
    }

    /// Lets in a peer whose process is known, or that comes by the network.
    pub(super) fn let_in_peer(&mut self, socket: OwnedFd, entrance: Entrance, peer: Option<Peer>) {
        let connection = match Connection::new(socket, MOST_BYTES, entrance == Entrance::Clients) {
            Ok(connection) => connection,
            Err(error) => return self.log.say(format!("a connection failed: {error}")),
        };
        let role = Role::at(entrance);
        let session = Session {
            connection,
            role,
            peer,
            since: Instant::now(),
            is_queued: false,
            is_watched_for_room: false,
        };
        if let Some(reason) = self.objection_to(&session) {
            return self.refuse(session, reason);
        }
        if let Some(pid) = session.pid() {
            self.make_place_for_one_more_of(pid);
        }
        let id = self.sessions.insert(session);
        let Some(session) = self.sessions.get(id) else { return };
        if let Err(error) = self.readiness.watch_session(id, session) {
            return self.remove(id, Some(format!("cannot be watched: {error}")));
        }
        // What it wants is usually there already.
        match entrance {
            Entrance::Metrics => self.attend(id),
            Entrance::Clients | Entrance::Control => self.sessions.note_ready(id),
        }
    }

    /// Why there is no place for a peer. Makes one where that is fair.
    fn objection_to(&mut self, session: &Session) -> Option<String> {
        let entrance = session.entrance();
        if let Some(peer) = &session.peer
            && !admits(self.audience, peer.uid, entrance)
        {
            return Some(format!("user {} may not connect", peer.uid));
        }
        let most = match entrance {
            Entrance::Clients => {
                let Some(principal) = session.principal() else {
                    return Some("a client is a process of this machine".to_owned());
                };
                return self.objection_to_client_of(principal);
            }
            Entrance::Control => MOST_CONTROLS,
            Entrance::Metrics => MOST_SCRAPES,
        };
        // The newest comes in: it can be no worse than one that has been sitting there.
        if self.sessions.count_at(entrance) >= most
            && let Some(oldest) = self.sessions.oldest_at(entrance)
        {
            self.remove(oldest, None);
        }
        None
    }

    fn objection_to_client_of(&mut self, principal: Principal) -> Option<String> {
        let own = self.sessions.clients_of(principal);
        // One principal of several leaves places to the others.
        if self.audience == Audience::Everyone && own >= self.most_clients.div_ceil(2) {
            return Some(format!("{principal} has too many connections already"));
        }
        if self.sessions.count_at(Entrance::Clients) < self.most_clients {
            return None;
        }
        match self.sessions.heaviest_principal() {
            // Both would have as many at least.
            Some((most, least_used)) if most > own + 1 => {
                self.remove(least_used, Some("makes place for another principal's".to_owned()));
                None
            }
            _ => Some(format!("there are {} clients already", self.most_clients)),
        }
    }

    fn refuse(&self, mut session: Session, reason: String) {
        self.log.say(session.line(&format!("is refused: {reason}")));
        if session.entrance() == Entrance::Clients {
            // As far as it takes it now.
            let _ = session.connection.say(&ToClient::Unfit { reason });
        }
    }

    /// A process that fills the daemon does so at its own cost: the first of its connections goes for the next.
    fn make_place_for_one_more_of(&mut self, pid: u32) {
        if self.sessions.of_process(pid).count() < MOST_OF_A_PROCESS {
            return;
        }
        let first: Option<SessionId> = self.sessions.of_process(pid).next().map(|(id, _)| id);
        if let Some(first) = first {
            self.remove(first, Some("has too many connections".to_owned()));
        }
    }

    /// Sends away those whose time is over. Looks at all sessions.
    pub(super) fn dismiss_the_overdue(&mut self) {
        let overdue = self.sessions.iter().filter_map(|(id, s)| Some((id, s.overdue()?)));
        let overdue: Vec<(SessionId, &str)> = overdue.collect();
        overdue.into_iter().for_each(|(id, why)| self.remove(id, Some(why.to_owned())));
    }

    /// The time before which connections that are accepted later were not made.
    pub(super) fn waits_from() -> Duration {
        since_boot()
    }
}

/// Who may come in: the daemon's own user and the system's, and as clients perhaps every user.
fn admits(audience: Audience, uid: u32, entrance: Entrance) -> bool {
    let own = rustix::process::geteuid().as_raw();
    let everyone = audience == Audience::Everyone && entrance == Entrance::Clients;
    everyone || uid == own || uid == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_metrics_are_the_owners_and_the_systems_whoever_may_share() {
        let own = rustix::process::geteuid().as_raw();
        let other = own.wrapping_add(4711).max(1);
        for audience in [Audience::Owner, Audience::Everyone] {
            for entrance in [Entrance::Control, Entrance::Metrics] {
                assert!(admits(audience, own, entrance) && admits(audience, 0, entrance));
                assert!(!admits(audience, other, entrance));
            }
            assert!(admits(audience, own, Entrance::Clients));
        }
        assert!(!admits(Audience::Owner, other, Entrance::Clients));
        assert!(admits(Audience::Everyone, other, Entrance::Clients));
    }
}
