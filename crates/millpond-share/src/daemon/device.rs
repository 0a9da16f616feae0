//! A device that is shared.

use crate::control::DeviceStatus;
use crate::policy::{Moment, Policy};
use crate::protocol::DeviceId;

#[derive(Debug)]
pub(super) struct Device {
    pub(super) policy: Policy,
    /// When the policy is to settle by itself, as it said when it last did.
    pub(super) due: Option<Moment>,
}

impl Device {
    pub(super) fn new(policy: Policy) -> Device {
        Device { policy, due: None }
    }

    pub(super) fn status(&self, id: DeviceId, now: Moment) -> DeviceStatus {
        DeviceStatus { device: id.to_string(), ..self.policy.status(now) }
    }
}
