//! A device that is shared.

use std::collections::BTreeMap;

use crate::control::DeviceStatus;
use crate::policy::{HostUse, Moment, Policy, Principal};
use crate::protocol::DeviceId;

#[derive(Debug)]
pub(super) struct Device {
    pub(super) policy: Policy,
    /// When the policy is to settle by itself, as it said when it last did.
    pub(super) due: Option<Moment>,
    /// What each principal needs and has of the host's memory, as of what was last heard of claims.
    pub(super) host_use: BTreeMap<Principal, HostUse>,
}

impl Device {
    pub(super) fn new(policy: Policy) -> Device {
        Device { policy, due: None, host_use: BTreeMap::new() }
    }

    pub(super) fn status(&self, id: DeviceId, now: Moment) -> DeviceStatus {
        DeviceStatus { device: id.to_string(), ..self.policy.status(now) }
    }
}
