//! What the daemon waits for. What a wait costs depends on what is ready, not on how much is watched.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

use super::session::{Entrance, Session, SessionId};

/// The most that one wait tells of; what is left over comes first in the next.
const MOST_EVENTS: usize = 4096;

const STOP: u64 = 0;
const LISTENER: u64 = 1;
const SESSION: u64 = 2;
const DEATH: u64 = 3;
const KINDS: u64 = 4;

/// See the module.
#[derive(Debug)]
pub(super) struct Readiness {
    epoll: OwnedFd,
}

/// What became ready.
#[derive(Debug, Default)]
pub(super) struct Ready {
    pub(super) stop: bool,
    pub(super) dead: Vec<SessionId>,
    pub(super) sessions: Vec<SessionId>,
    pub(super) entrances: Vec<Entrance>,
    /// There may be more that is ready.
    pub(super) is_partial: bool,
}

impl Readiness {
    pub(super) fn new() -> io::Result<Readiness> {
        Ok(Readiness { epoll: epoll::create(CreateFlags::CLOEXEC)? })
    }

    pub(super) fn watch_stop(&self, stop: impl AsFd) -> io::Result<()> {
        self.add(stop, STOP, 0)
    }

    pub(super) fn watch_listener(&self, listener: impl AsFd, entrance: Entrance) -> io::Result<()> {
        self.add(listener, LISTENER, entrance as u64)
    }

    /// Whether connections to a listener wake the daemon.
    pub(super) fn attend_listener(
        &self,
        listener: impl AsFd,
        entrance: Entrance,
        attend: bool,
    ) -> io::Result<()> {
        let interest = if attend { EventFlags::IN } else { EventFlags::empty() };
        let data = token(LISTENER, entrance as u64);
        Ok(epoll::modify(&self.epoll, listener, data, interest)?)
    }

    /// From now on it is told when the session has said something, and when its process is dead. The kernel forgets both when they
    /// are closed.
    pub(super) fn watch_session(&self, id: SessionId, session: &Session) -> io::Result<()> {
        self.add(&session.connection, SESSION, id.0)?;
        match &session.peer {
            Some(peer) => self.add(peer.death(), DEATH, id.0),
            None => Ok(()),
        }
    }

    /// Also tells when there is room to send, or no longer.
    pub(super) fn watch_for_room(&self, id: SessionId, session: &Session, watch: bool) {
        let mut interest = EventFlags::IN;
        interest.set(EventFlags::OUT, watch);
        // It is being watched, so that the kernel needs no memory for it.
        let changed =
            epoll::modify(&self.epoll, &session.connection, token(SESSION, id.0), interest);
        debug_assert!(changed.is_ok(), "{changed:?}");
    }

    fn add(&self, what: impl AsFd, kind: u64, number: u64) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, what, token(kind, number), EventFlags::IN)?)
    }

    /// Waits until something is ready, at most for so long.
    pub(super) fn wait(&self, longest: Duration) -> io::Result<Ready> {
        let timeout = Timespec {
            tv_sec: longest.as_secs() as i64,
            tv_nsec: i64::from(longest.subsec_nanos()),
        };
        let mut events: Vec<Event> = Vec::with_capacity(MOST_EVENTS);
        match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&timeout)) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => {
                return Ok(Ready { is_partial: true, ..Ready::default() });
            }
            Err(error) => return Err(error.into()),
        }
        let is_partial = events.len() == events.capacity();
        let mut ready = Ready { is_partial, ..Ready::default() };
        for event in &events {
            let data = event.data.u64();
            let number = data / KINDS;
            match data % KINDS {
                STOP => ready.stop = true,
                SESSION => ready.sessions.push(SessionId(number)),
                DEATH => ready.dead.push(SessionId(number)),
                _ => ready.entrances.push(match number {
                    0 => Entrance::Clients,
                    1 => Entrance::Control,
                    _ => Entrance::Metrics,
                }),
            }
        }
        Ok(ready)
    }
}

fn token(kind: u64, number: u64) -> EventData {
    EventData::new_u64(number * KINDS + kind)
}
