//! Who waits, in order, and who comes next together.

use super::client::Phase;
use super::group::Group;
use super::{ClientId, MOST_PRIORITY, Moment, Policy, Principal};

impl Policy {
    /// Those that wait, in order: one client of each principal, then the second of each, and so on. Of principals, by priority, and of
    /// equal ones the one that has spent least.
    pub(super) fn queue(&self) -> Vec<ClientId> {
        let mut principals: Vec<_> = self
            .waiting_principals()
            .into_iter()
            .map(|principal| {
                let clients = self.queue_of(principal);
                let since = clients.first().map(|(_, since, _)| *since);
                let priority = self.effective_priority_of(principal);
                (-priority, self.spent(principal), since, principal, clients)
            })
            .collect();
        principals.sort_unstable();
        let longest = principals.iter().map(|(.., clients)| clients.len()).max().unwrap_or(0);
        let ranks = (0..longest).flat_map(|rank| {
            principals.iter().filter_map(move |(.., clients)| Some(clients.get(rank)?.2))
        });
        ranks.collect()
    }

    /// A principal's clients that wait: by priority and the turns that passed them by, then by time.
    fn queue_of(&self, principal: Principal) -> Vec<(i32, Moment, ClientId)> {
        let own = self.clients.iter().filter(|(_, client)| client.principal == principal);
        let mut waiting: Vec<_> = own
            .filter_map(|(id, client)| match client.phase {
                Phase::Waiting { since, .. } => Some((-client.effective_priority(), since, id)),
                _ => None,
            })
            .collect();
        waiting.sort_unstable();
        waiting
    }

    /// The highest priority among a principal's clients that wait.
    pub(super) fn priority_of(&self, principal: Principal) -> i32 {
        let own = self.clients.values().filter(|client| client.principal == principal);
        let waiting = own.filter(|client| client.is_waiting());
        waiting.map(|client| client.priority).max().unwrap_or(-MOST_PRIORITY)
    }

    /// That, and one for each turn of a higher priority that has passed the principal by. It comes up to the highest, where what was
    /// spent decides, and no further.
    fn effective_priority_of(&self, principal: Principal) -> i32 {
        let waiting = self.clients.values().filter(|client| client.is_waiting());
        let highest = waiting.map(|client| client.priority).max().unwrap_or(0);
        let passed_over = self.accounts.get(&principal).map_or(0, |account| account.passed_over);
        self.priority_of(principal).saturating_add_unsigned(passed_over).min(highest)
    }

    /// The next to use the device together: the first in the queue, who of the queue fits beside it, and then who of those that
    /// use it now.
    pub(super) fn next_group(&self) -> Vec<ClientId> {
        let mut group = Group::new(self);
        for id in self.queue().into_iter().chain(self.holders()) {
            group.add_if_it_fits(self, id);
        }
        group.members()
    }

    /// Those that may use the device and have not been told to stop: the turn's first, then as they came.
    pub(super) fn holders(&self) -> Vec<ClientId> {
        let first = self.turn.map(|turn| turn.first);
        let mut holders: Vec<_> = self
            .clients
            .iter()
            .filter(|(_, client)| client.is_holding())
            .filter_map(|(id, client)| Some((Some(id) != first, client.hold()?.since, id)))
            .collect();
        holders.sort_unstable();
        holders.into_iter().map(|(_, _, id)| id).collect()
    }

    pub(super) fn is_contended(&self) -> bool {
        self.clients.everyone().waiting > 0
    }

    pub(super) fn is_occupied(&self) -> bool {
        self.clients.everyone().occupying > 0
    }

    /// Whether a client's memory would fit beside that of everybody who may be using the device.
    pub(super) fn fits_beside_occupants(&self, id: ClientId) -> bool {
        Group::of_occupants(self).has_room_for(self, id)
    }
}
