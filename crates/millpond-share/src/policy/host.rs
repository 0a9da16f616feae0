//! What of the host's memory may be promised to memory that leaves the device.
//!
//! Each principal answers for its own claims, so that one that claims without end is refused and not the next one:
//!
//! ```text
//!   need of a principal = min(all claims - usable,  its claims - its part of the device)  -  what of its memory is on the host already
//! ```
//!
//! The parts are equal, and the needs add up to no less than what cannot be on the device.

use super::clients::at_most_u64;
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
    pub fn host_use(&self) -> impl Iterator<Item = (Principal, HostUse)> {
        self.clients.principals().map(|(principal, _)| {
            let needs_bytes = self.host_need_of(principal, None);
            (principal, HostUse { needs_bytes, has_bytes: self.on_host_of(principal) })
        })
    }

    fn on_host_of(&self, principal: Principal) -> u64 {
        at_most_u64(self.clients.of(principal).on_host)
    }

    fn host_need_of(&self, principal: Principal, claim: Option<Claim>) -> u64 {
        let usable = self.accounts.get(&principal).map_or(0, |account| account.least_usable);
        let claimed = self.claimed_by(principal, claim);
        let beyond_its_part = claimed.saturating_sub(self.part_of(usable));
        let excess = self.excess_with(usable, claim).min(beyond_its_part);
        excess.saturating_sub(self.on_host_of(principal))
    }

    /// What a principal's clients have claimed, if one of them had claimed so much.
    fn claimed_by(&self, principal: Principal, claim: Option<Claim>) -> u64 {
        let claim = claim.filter(|claim| self.principal_of(claim.client) == principal);
        self.with_claim(self.clients.of(principal).claimed, claim)
    }

    /// What of all clients' memory cannot be on the device at a time.
    fn excess_with(&self, usable: u64, claim: Option<Claim>) -> u64 {
        self.with_claim(self.clients.everyone().claimed, claim).saturating_sub(usable)
    }

    fn with_claim(&self, claimed: u128, claim: Option<Claim>) -> u64 {
        let with = |claim: Claim| {
            claimed - u128::from(self.clients[claim.client].claimed) + u128::from(claim.bytes)
        };
        at_most_u64(claim.map_or(claimed, with))
    }

    /// Notes what is usable, for claims to come. Looks at all clients.
    pub(super) fn note_what_is_usable(&mut self) {
        let usable: Vec<(Principal, u64)> =
            self.clients.values().map(|c| (c.principal, self.usable_for(c))).collect();
        self.accounts.values_mut().for_each(|account| account.least_usable = u64::MAX);
        for (principal, usable) in usable {
            let account = self.account_of(principal);
            account.least_usable = account.least_usable.min(usable);
        }
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
        let claimant = &self.clients[claim.client];
        let usable = self.usable_for(claimant);
        let (before, after) =
            (self.excess_with(usable, None), self.excess_with(usable, Some(claim)));
        let claimed = self.claimed_by(claimant.principal, Some(claim));
        let is_within_its_part = claimed <= self.part_of(usable);
        let itself = (claim.client, claimant);
        std::iter::once(itself).chain(self.clients.short_of_room(after)).find_map(|(other, client)| {
            let most = client.most_on_host?;
            if client.principal != claimant.principal && is_within_its_part {
                return None;
            }
            let claimed = if other == claim.client { claim.bytes } else { client.claimed };
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
