//! All sessions, by number, process, principal and entrance, and which of them wait to be served.
//!
//! Nothing here looks at all of them but where it says so: what one message costs must not depend on how many peers there are.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use super::session::{Entrance, Joined, Role, Session, SessionId};
use crate::policy::Principal;
use crate::protocol::DeviceId;

/// What a principal has.
#[derive(Debug, Default)]
struct Holdings {
    clients: BTreeSet<SessionId>,
    /// How many of the clients share each device.
    devices: BTreeMap<DeviceId, usize>,
}

/// See the module. Each session is in `of_process` and `at` once, each client in `of_principal` once, and each in `ready` at most once.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    all: BTreeMap<SessionId, Session>,
    of_process: HashMap<u32, BTreeSet<SessionId>>,
    of_principal: BTreeMap<Principal, Holdings>,
    at: [BTreeSet<SessionId>; 3],
    /// By principal; readers of the metrics that come by the network have none, and share one queue.
    ready: BTreeMap<Option<Principal>, VecDeque<SessionId>>,
    last: u64,
}

impl Sessions {
    /// Takes in a session under a new number.
    pub(super) fn insert(&mut self, session: Session) -> SessionId {
        self.last += 1;
        let id = SessionId(self.last);
        if let Some(pid) = session.pid() {
            self.of_process.entry(pid).or_default().insert(id);
        }
        let entrance = session.entrance();
        self.at[entrance as usize].insert(id);
        if entrance == Entrance::Clients
            && let Some(principal) = session.principal()
        {
            self.of_principal.entry(principal).or_default().clients.insert(id);
        }
        self.all.insert(id, session);
        id
    }

    pub(super) fn remove(&mut self, id: SessionId) -> Option<Session> {
        let session = self.all.remove(&id)?;
        self.at[session.entrance() as usize].remove(&id);
        if let Some(pid) = session.pid()
            && let Some(others) = self.of_process.get_mut(&pid)
        {
            others.remove(&id);
            if others.is_empty() {
                self.of_process.remove(&pid);
            }
        }
        if let Some(principal) = session.principal()
            && let Some(holdings) = self.of_principal.get_mut(&principal)
        {
            holdings.clients.remove(&id);
            if let Some(joined) = session.joined()
                && let Some(count) = holdings.devices.get_mut(&joined.device)
            {
                *count -= 1;
                if *count == 0 {
                    holdings.devices.remove(&joined.device);
                }
            }
            if holdings.clients.is_empty() {
                self.of_principal.remove(&principal);
            }
        }
        Some(session)
    }

    pub(super) fn get(&self, id: SessionId) -> Option<&Session> {
        self.all.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        self.all.get_mut(&id)
    }

    /// A client has said hello.
    pub(super) fn join(&mut self, id: SessionId, joined: Joined) {
        let Some(session) = self.all.get_mut(&id) else { return };
        debug_assert!(matches!(session.role, Role::Client(None)), "a client joins once");
        session.role = Role::Client(Some(joined));
        let Some(principal) = session.principal() else { return };
        let holdings = self.of_principal.entry(principal).or_default();
        *holdings.devices.entry(joined.device).or_default() += 1;
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = (SessionId, &Session)> {
        self.all.iter().map(|(id, session)| (*id, session))
    }

    pub(super) fn count_at(&self, entrance: Entrance) -> usize {
        self.at[entrance as usize].len()
    }

    pub(super) fn oldest_at(&self, entrance: Entrance) -> Option<SessionId> {
        self.at[entrance as usize].first().copied()
    }

    /// Those of one process, the oldest first.
    pub(super) fn of_process(&self, pid: u32) -> impl Iterator<Item = (SessionId, &Session)> {
        let ids = self.of_process.get(&pid).into_iter().flatten();
        ids.filter_map(|id| Some((*id, self.all.get(id)?)))
    }

    pub(super) fn clients_of(&self, principal: Principal) -> usize {
        self.of_principal.get(&principal).map_or(0, |holdings| holdings.clients.len())
    }

    /// How many devices a principal's clients share.
    pub(super) fn devices_of(&self, principal: Principal) -> usize {
        self.of_principal.get(&principal).map_or(0, |holdings| holdings.devices.len())
    }

    /// How many devices a process shares.
    pub(super) fn devices_of_process(&self, pid: u32) -> usize {
        let joined = self.of_process(pid).filter_map(|(_, session)| session.joined());
        joined.map(|joined| joined.device).collect::<BTreeSet<DeviceId>>().len()
    }

    /// Of the principal with the most clients, how many it has, and the client whose end costs it least: the newest that has not said
    /// hello, or the newest. Looks at all principals, and at all clients of one.
    pub(super) fn heaviest_principal(&self) -> Option<(usize, SessionId)> {
        let heaviest = self.of_principal.values().max_by_key(|holdings| holdings.clients.len())?;
        let newest = || heaviest.clients.iter().rev();
        let has_not_joined = |id: &&SessionId| self.all[*id].joined().is_none();
        let least = newest().find(has_not_joined).or_else(|| newest().next())?;
        Some((heaviest.clients.len(), *least))
    }

    /// A session has something to be served.
    pub(super) fn note_ready(&mut self, id: SessionId) {
        let Some(session) = self.all.get_mut(&id) else { return };
        if !std::mem::replace(&mut session.is_queued, true) {
            self.ready.entry(session.principal()).or_default().push_back(id);
        }
    }

    /// Those whose sessions wait to be served.
    pub(super) fn principals_with_ready(&self) -> Vec<Option<Principal>> {
        self.ready.keys().copied().collect()
    }

    pub(super) fn any_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The principal's session whose turn it is to be served.
    pub(super) fn next_ready(&mut self, principal: Option<Principal>) -> Option<SessionId> {
        let queue = self.ready.get_mut(&principal)?;
        let next = loop {
            let Some(id) = queue.pop_front() else { break None };
            // It may have gone since it was queued.
            if let Some(session) = self.all.get_mut(&id) {
                session.is_queued = false;
                break Some(id);
            }
        };
        if queue.is_empty() {
            self.ready.remove(&principal);
        }
        next
    }
}
