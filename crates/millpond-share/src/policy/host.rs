//! What of the host's memory may be promised to memory that leaves the device.
//!
//! Each principal answers for its own claims, so that one that claims without end is refused and not the next one:
//!
//! ```text
//!   need of a principal = min(all claims - usable,  its claims - its part of the device)  -  what of its memory is on the host already
//! ```
//!
//! The parts are equal, and the needs add up to no less than what cannot be on the device.

use std::collections::BTreeMap;

use super::client::Client;
use super::{ClientId, Policy, Principal};

/// What a client would have, in place of what it has.
#[derive(Clone, Copy)]
struct Claim {
    client: ClientId,
    bytes: u64,
}

/// A principal's part of the host's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostUse {
    /// What it still needs for what has to leave the device and has not yet.
    pub needs_bytes: u64,
    /// What of its memory has left the device, by its word.
    pub has_bytes: u64,
}

impl Policy {
    /// What each principal needs and has of the host's memory.
    pub fn host_use(&self) -> BTreeMap<Principal, HostUse> {
        let uses = self.principals().into_iter().map(|principal| {
            let needs_bytes = self.host_need_of(principal, None);
            (principal, HostUse { needs_bytes, has_bytes: self.on_host_of(principal) })
        });
        uses.collect()
    }

    fn on_host_of(&self, principal: Principal) -> u64 {
        let own = self.clients.values().filter(|client| client.principal == principal);
        own.map(Client::on_host).fold(0, u64::saturating_add)
    }

    fn host_need_of(&self, principal: Principal, claim: Option<Claim>) -> u64 {
        let own = || self.clients.values().filter(|client| client.principal == principal);
        let usable = own().map(|client| self.usable_for(client)).min().unwrap_or(0);
        let claimed = self.claimed_by(claim, |client| client.principal == principal);
        let beyond_its_part = claimed.saturating_sub(self.part_of(usable));
        let excess = self.excess_with(usable, claim).min(beyond_its_part);
        excess.saturating_sub(self.on_host_of(principal))
    }

    /// What some clients have claimed, if one had claimed so much.
    fn claimed_by(&self, claim: Option<Claim>, whose: impl Fn(&Client) -> bool) -> u64 {
        let claimed = |(id, client): (&ClientId, &Client)| match claim {
            Some(claim) if claim.client == *id => claim.bytes,
            _ => client.claimed,
        };
        let clients = self.clients.iter().filter(|(_, client)| whose(client));
        clients.map(claimed).fold(0_u64, u64::saturating_add)
    }

    /// What of all clients' memory cannot be on the device at a time.
    fn excess_with(&self, usable: u64, claim: Option<Claim>) -> u64 {
        self.claimed_by(claim, |_| true).saturating_sub(usable)
    }

    /// Why the host cannot keep what would have to leave the device if a client had so much, if it cannot.
    pub(super) fn host_objection(&self, id: ClientId, bytes: u64, room: u64) -> Option<String> {
        let (claim, principal) = (Claim { client: id, bytes }, self.principal_of(id));
        let need = self.host_need_of(principal, Some(claim));
        if need > room && need > self.host_need_of(principal, None) {
            return Some(format!(
                "{need} bytes of host memory would be needed for what has to leave the device, and this user's programs can have \
                 {room}: wait until one ends, or free host memory"
            ));
        }
        self.cgroup_objection(claim)
    }

    /// Each client's memory leaves to its own process's part of the host, which may be smaller than the host. A claim within its
    /// principal's part of the device is not refused because of another principal's word on that.
    fn cgroup_objection(&self, claim: Claim) -> Option<String> {
        let claimant = &self.clients[&claim.client];
        let usable = self.usable_for(claimant);
        let (before, after) =
            (self.excess_with(usable, None), self.excess_with(usable, Some(claim)));
        let claimed = self.claimed_by(Some(claim), |c| c.principal == claimant.principal);
        let is_within_its_part = claimed <= self.part_of(usable);
        self.clients.iter().find_map(|(other, client)| {
            let most = client.most_on_host?;
            if client.principal != claimant.principal && is_within_its_part {
                return None;
            }
            let claimed = if *other == claim.client { claim.bytes } else { client.claimed };
            let leaves = claimed.min(after);
            let is_worse = leaves > client.claimed.min(before);
            (leaves > most && is_worse).then(|| {
                format!(
                    "{leaves} bytes of process {} might have to leave the device and its cgroup has room for {most}: \
                     raise its memory limit, or wait until another program ends",
                    client.pid
                )
            })
        })
    }
}
