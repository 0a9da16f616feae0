//! From the name of a device and a stack to what allocates there.

use millpond::Stack;
use millpond::device::{DEFAULT_DEVICE, DeviceName};
use millpond::pool::Pool;

use crate::device_of_foreign_streams::open_device;
use crate::open::Open;
use crate::status::Failure;

/// The variable that names the device to use when the text does not.
const DEVICE: &str = "MILLPOND_DEVICE";
/// What stands on a device when the text does not say.
const DEFAULT_STACK: &str = "pool";

/// A device, and the stack that is to stand on it.
#[derive(Debug)]
pub struct Place {
    device: DeviceName,
    stack: Stack,
}

impl Place {
    /// Reads `device`, `device/stack` or `stack`; what is missing is the default, and so is everything in an empty text.
    ///
    /// # Errors
    /// A name or a setting that makes no sense.
    pub fn read(text: &str) -> Result<Place, Failure> {
        let text = text.trim();
        let default = std::env::var(DEVICE).ok().filter(|name| !name.is_empty());
        let default = default.as_deref().unwrap_or(DEFAULT_DEVICE);
        let names_device = ["sim:", "cuda:"].iter().any(|kind| text.starts_with(kind));
        let (device, stack) = match (text, names_device) {
            ("", _) => (default, DEFAULT_STACK),
            (stack, false) => (default, stack),
            (text, true) => split(text),
        };
        let device = device.parse().map_err(Failure::invalid)?;
        let stack: Stack = stack.parse().map_err(Failure::invalid)?;
        Ok(Place { device, stack: stack.with_settings_of_env()? })
    }

    /// Opens the device and builds the stack.
    ///
    /// # Errors
    /// There is no such device, or the stack cannot be built on it.
    pub fn open(&self) -> Result<Open, Failure> {
        let driver = open_device(&self.device)?;
        let built = self.stack.build(driver).map_err(Failure::invalid)?;
        Ok(Open::new(&self.stack, built))
    }

    /// Opens the device, and a pool with the settings of the environment.
    pub(crate) fn open_pool(&self) -> Result<Pool, Failure> {
        let built = self.stack.build(open_device(&self.device)?).map_err(Failure::invalid)?;
        built.handles.pool.filter(|_| self.stack.is_bare()).ok_or_else(|| {
            Failure::invalid("the process-wide pool is a pool: leave the stack away")
        })
    }
}

/// A profile's file may have slashes in its path: the device is as short as the rest lets it be.
fn split(text: &str) -> (&str, &str) {
    let slashes = text.match_indices('/').map(|(at, _)| (&text[..at], &text[at + 1..]));
    let is_right = |(device, stack): &(&str, &str)| {
        device.parse::<DeviceName>().is_ok() && stack.parse::<Stack>().is_ok()
    };
    let is_file = |device: &str| device.strip_prefix("sim:").is_some_and(|path| path.contains('/'));
    match slashes.clone().find(is_right) {
        Some(found) => found,
        // What is wrong with it is said of the first part that could be a device's name.
        None if is_file(text) && std::path::Path::new(&text[4..]).exists() => (text, DEFAULT_STACK),
        None => slashes.clone().next().unwrap_or((text, DEFAULT_STACK)),
    }
}
