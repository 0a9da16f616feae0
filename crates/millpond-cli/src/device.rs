//! From the name of a device to the device.

use anyhow::{Result, bail};
use millpond::device::{DEFAULT_DEVICE, DeviceName};
use millpond_sim::Profile;

/// The variable that names the device to use when no option does.
pub(crate) const DEVICE_VARIABLE: &str = "MILLPOND_DEVICE";

/// The device that is used when none is named.
pub(crate) fn default_name() -> String {
    std::env::var(DEVICE_VARIABLE)
        .ok()
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| DEFAULT_DEVICE.to_owned())
}

/// The profile of a simulated device.
pub(crate) fn profile(name: &str) -> Result<Profile> {
    match name.parse()? {
        DeviceName::Simulated(profile) => Ok(Profile::named(&profile)?),
        DeviceName::Cuda(number) => {
            bail!(
                "cuda:{number}: this build has no real devices, use a simulated one such as {DEFAULT_DEVICE}"
            )
        }
    }
}
