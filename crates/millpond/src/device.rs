//! How devices are named.

use std::str::FromStr;

/// The device that everything uses unless told otherwise.
pub const DEFAULT_DEVICE: &str = "sim:a100-80g";

/// The name of a device: `sim:PROFILE` or `cuda:N`.
///
/// ```
/// use millpond::device::DeviceName;
///
/// assert_eq!("sim:h100-80g".parse(), Ok(DeviceName::Simulated("h100-80g".into())));
/// assert_eq!("cuda:1".parse(), Ok(DeviceName::Cuda(1)));
/// assert!("gpu0".parse::<DeviceName>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DeviceName {
    /// A simulated device, by the name of its profile or the path of a profile file.
    Simulated(String),
    /// A real device, by its number.
    Cuda(u32),
}

/// A device name that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceNameError {
    /// The part before the colon is no kind of device.
    #[error("'{0}' names no device: use sim:PROFILE (such as {DEFAULT_DEVICE}) or cuda:N")]
    UnknownKind(String),
    /// The part after `cuda:` is no number.
    #[error("'cuda:{0}' names no device: use a number, such as cuda:0")]
    NotANumber(String),
    /// There is nothing after `sim:`.
    #[error("'sim:' names no device: add a profile, such as {DEFAULT_DEVICE}")]
    NoProfile,
}

impl FromStr for DeviceName {
    type Err = DeviceNameError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name.split_once(':') {
            Some(("sim", "")) => Err(DeviceNameError::NoProfile),
            Some(("sim", profile)) => Ok(DeviceName::Simulated(profile.to_owned())),
            Some(("cuda", number)) => match number.parse() {
                Ok(number) => Ok(DeviceName::Cuda(number)),
                Err(_) => Err(DeviceNameError::NotANumber(number.to_owned())),
            },
            _ => Err(DeviceNameError::UnknownKind(name.to_owned())),
        }
    }
}

impl std::fmt::Display for DeviceName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DeviceName::Simulated(profile) => write!(f, "sim:{profile}"),
            DeviceName::Cuda(number) => write!(f, "cuda:{number}"),
        }
    }
}
