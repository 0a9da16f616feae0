//! Whether clients' memory fits on the device together.
//!
//! Each principal looks at a group with its own figures for the device, so that a wrong figure costs the principal that says it:
//!
//! ```text
//!   memory of the members  +  pinned memory of the others, as far as its own driver confirms  ≤  usable, in its own words
//! ```
//!
//! One member that takes something always fits.

use std::collections::BTreeMap;

use super::client::Client;
use super::{ClientId, Policy, Principal};

/// What one principal has in a group, and what the device has in the words of its members.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// Claims are clients' words, and their sum may be more than one of them could be.
    has: u128,
    pinned: u64,
    /// How many members take something that is not pinned.
    takers: u32,
    usable: u64,
    /// The most pinned memory of other principals that it believes in.
    believes: u64,
}

const NOTHING: Part = Part { has: 0, pinned: 0, takers: 0, usable: u64::MAX, believes: 0 };

/// Clients that may use the device together.
#[derive(Debug)]
pub(super) struct Group {
    parts: BTreeMap<Principal, Part>,
    /// What every principal has pinned, in the group or not.
    pinned: BTreeMap<Principal, u128>,
    members: Vec<ClientId>,
}

impl Group {
    pub(super) fn new(policy: &Policy) -> Group {
        let principals = policy.clients.principals();
        let pinned = principals.map(|(principal, sums)| (principal, sums.pinned)).collect();
        Group { parts: BTreeMap::new(), pinned, members: Vec::new() }
    }

    /// The clients that may be using the device now.
    pub(super) fn of_occupants(policy: &Policy) -> Group {
        let mut group = Group::new(policy);
        let occupants = policy.clients.iter().filter(|(_, client)| client.is_occupying());
        occupants.for_each(|(occupant, _)| group.add(policy, occupant));
        group
    }

    pub(super) fn members(self) -> Vec<ClientId> {
        self.members
    }

    /// Takes a client in, whether it fits or not.
    pub(super) fn add(&mut self, policy: &Policy, id: ClientId) {
        let client = &policy.clients[id];
        let part = self.part_with(policy, client);
        self.parts.insert(client.principal, part);
        self.members.push(id);
    }

    /// Takes a client in if it fits beside the others.
    pub(super) fn add_if_it_fits(&mut self, policy: &Policy, id: ClientId) -> bool {
        let fits = self.has_room_for(policy, id);
        if fits {
            self.add(policy, id);
        }
        fits
    }

    pub(super) fn has_room_for(&self, policy: &Policy, id: ClientId) -> bool {
        let client = &policy.clients[id];
        if policy.memory_at_work(client) == 0 {
            return true;
        }
        let mut parts = self.parts.clone();
        parts.insert(client.principal, self.part_with(policy, client));
        let has: u128 = parts.values().map(|part| part.has).sum();
        let pinned_inside: u128 = parts.values().map(|part| u128::from(part.pinned)).sum();
        let pinned: u128 = self.pinned.values().sum();
        parts.iter().all(|(principal, view)| {
            let own_pinned = self.pinned.get(principal).copied().unwrap_or(0);
            let others_have = has - view.has;
            let others_inside = pinned_inside - u128::from(view.pinned);
            let others_outside = pinned - own_pinned - others_inside;
            let believes = u128::from(view.believes);
            let others_take = others_have > others_inside.min(believes);
            let takers = view.takers + u32::from(others_take);
            let own_outside = own_pinned - u128::from(view.pinned);
            let taken = has + own_outside + others_outside.min(believes);
            view.takers == 0 || takers < 2 || taken <= u128::from(view.usable)
        })
    }

    fn part_with(&self, policy: &Policy, client: &Client) -> Part {
        let before = self.parts.get(&client.principal).copied().unwrap_or(NOTHING);
        let has = policy.memory_at_work(client);
        let part = Part {
            has: before.has + u128::from(has),
            pinned: before.pinned.saturating_add(client.pinned.min(has)),
            ..before
        };
        if has <= client.pinned {
            // It works with what is there anyway, and has no say.
            return part;
        }
        Part {
            takers: before.takers + 1,
            usable: before.usable.min(policy.usable_for(client)),
            believes: before.believes.max(policy.believed_pinned_of_others(client)),
            ..part
        }
    }
}
