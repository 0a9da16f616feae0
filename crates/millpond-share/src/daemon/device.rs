//! A device that is shared.

use crate::control::DeviceStatus;
use crate::policy::{Moment, Policy};
use crate::protocol::DeviceId;

#[derive(Debug)]
pub(super) struct Device {
    pub(super) policy: Policy,
}

impl Device {
    pub(super) fn status(&self, id: DeviceId, now: Moment) -> DeviceStatus {
        DeviceStatus { device: id.to_string(), ..self.policy.status(now) }
    }
}
