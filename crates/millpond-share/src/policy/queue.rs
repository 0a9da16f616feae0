//! Who waits, in order, and who comes next together.

use super::client::Phase;
use super::{ClientId, Policy};

impl Policy {
    /// Those that wait, first come first: by priority and the turns that passed them by, then by time.
    pub(super) fn queue(&self) -> Vec<ClientId> {
        let mut waiting: Vec<_> = self
            .clients
            .iter()
            .filter_map(|(&id, client)| match client.phase {
                Phase::Waiting { since, .. } => Some((-client.effective_priority(), since, id)),
                _ => None,
            })
            .collect();
        waiting.sort_unstable();
        waiting.into_iter().map(|(_, _, id)| id).collect()
    }

    /// The next to use the device together: the first in the queue, who of the queue fits beside it, and then who of those that
    /// use it now.
    pub(super) fn next_group(&self) -> Vec<ClientId> {
        let queue = self.queue();
        let mut group = Vec::new();
        let mut taken = 0_u64;
        for id in queue.into_iter().chain(self.holders()) {
            if self.fits_beside(taken, id) {
                taken = taken.saturating_add(self.footprint(&self.clients[&id]));
                group.push(id);
            }
        }
        group
    }

    /// Those that may use the device and have not been told to stop: the turn's first, then as they came.
    pub(super) fn holders(&self) -> Vec<ClientId> {
        let first = self.turn.map(|turn| turn.first);
        let mut holders: Vec<_> = self
            .clients
            .iter()
            .filter(|(_, client)| client.is_holding())
            .filter_map(|(&id, client)| Some((Some(id) != first, client.hold()?.since, id)))
            .collect();
        holders.sort_unstable();
        holders.into_iter().map(|(_, _, id)| id).collect()
    }

    pub(super) fn is_contended(&self) -> bool {
        self.clients.values().any(|client| client.is_waiting())
    }

    pub(super) fn is_occupied(&self) -> bool {
        self.clients.values().any(|client| client.is_occupying())
    }

    /// Whether a client's memory would fit beside that of everybody who may be using the device.
    pub(super) fn fits_beside_occupants(&self, id: ClientId) -> bool {
        self.fits_beside(self.taken_by_occupants(), id)
    }

    /// What the memory of all clients that may be using the device takes.
    pub(super) fn taken_by_occupants(&self) -> u64 {
        let occupants = self.clients.values().filter(|client| client.is_occupying());
        occupants.fold(0_u64, |sum, client| sum.saturating_add(self.footprint(client)))
    }

    /// Whether a client's memory fits beside that of others, which take so much. One always fits.
    pub(super) fn fits_beside(&self, taken: u64, id: ClientId) -> bool {
        let its = self.footprint(&self.clients[&id]);
        taken == 0 || its == 0 || taken.saturating_add(its) <= self.movable()
    }
}
