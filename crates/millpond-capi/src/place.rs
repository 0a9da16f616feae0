//! From the name of a device and a stack to what allocates there.

use std::path::Path;

use millpond::device::{DEFAULT_DEVICE, DeviceName};
use millpond::pool::Pool;
use millpond::{Stack, StackError};
use millpond_sim::Profile;

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
        let stack: Stack = stack.parse().map_err(|error| match &error {
            // It may have been meant to name a device.
            StackError::UnknownName { name } if !names_device && text.starts_with(name) => {
                Failure::invalid(format!(
                    "{error}; if it is to name a device: those are sim:PROFILE (such as {DEFAULT_DEVICE}) and cuda:N"
                ))
            }
            _ => Failure::invalid(error),
        })?;
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

/// The device and the stack, where a text that is to name a device goes on with a stack.
pub fn device_and_stack(text: &str) -> Option<(&str, &str)> {
    let names_device = ["sim:", "cuda:"].iter().any(|kind| text.starts_with(kind));
    Some(split(text)).filter(|(device, _)| names_device && *device != text)
}

/// Where the device's name ends. The path of a profile's file may have slashes, too.
fn split(text: &str) -> (&str, &str) {
    let slashes = text.match_indices('/').map(|(at, _)| (&text[..at], &text[at + 1..]));
    let shortest = slashes.clone().next().unwrap_or((text, DEFAULT_STACK));
    let Some(profile) = shortest.0.strip_prefix("sim:") else { return shortest };
    let is_file = |device: &str| Path::new(&device["sim:".len()..]).is_file();
    if Profile::names().any(|name| name == profile) {
        return shortest;
    }
    if let Some(found) = slashes.clone().find(|(device, _)| is_file(device)) {
        return found;
    }
    // There is no such device. What is said of it is said of what it most likely was to be.
    let ends_in_stack = slashes.clone().find(|(_, stack)| stack.parse::<Stack>().is_ok());
    let is_path = matches!(profile, "" | "." | ".." | "~") || text.contains(".toml");
    match ends_in_stack {
        _ if is_file(text) => (text, DEFAULT_STACK),
        _ if !is_path => shortest,
        Some(found) => found,
        None => (text, DEFAULT_STACK),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said of a text that is wrong.
    fn refusal(text: &str) -> String {
        let opened = Place::read(text).and_then(|place| place.open());
        opened.err().unwrap_or_else(|| panic!("{text} is right")).reason
    }

    #[test]
    fn what_is_wrong_is_said_of_the_part_that_is() {
        let cases = [
            ("sim:a100-80g/limit:4XiB/pool", "limit: bytes = 4XiB: must be a size such as 4GiB"),
            ("sim:a100-80g/limit:99999999999999999999GiB/pool", "must be a size such as 4GiB"),
            ("sim:a100-80g/trace/pool", "trace needs its path"),
            ("sim:a100-80g/pool/pool", "pool is a resource and stands last"),
            ("sim:a100-80g/", "an empty text names no allocator"),
            ("sim:a100-80h/pool", "unknown profile 'a100-80h', did you mean 'a100-80g'?"),
            ("sim:a100-80h/limit:4XiB/pool", "limit: bytes = 4XiB"),
            ("sim:/no/such/profile.toml", "cannot read profile file '/no/such/profile.toml'"),
            ("sim:/no/such/profile.toml/pool", "cannot read profile file '/no/such/profile.toml'"),
            ("sim:./no.toml/limit:4GiB/pool", "cannot read profile file './no.toml'"),
            ("sim:no/such.toml", "cannot read profile file 'no/such.toml'"),
            ("sim:no.toml", "cannot read profile file 'no.toml'"),
            ("sim:", "'sim:' names no device"),
            ("cuda:x/pool", "'cuda:x' names no device"),
            ("limit:4XiB/pool", "limit: bytes = 4XiB"),
            ("gpu:0", "unknown allocator 'gpu'"),
            ("gpu:0", "those are sim:PROFILE (such as sim:a100-80g) and cuda:N"),
            ("cuda", "those are sim:PROFILE"),
            ("a100-80g/pool", "those are sim:PROFILE"),
            ("SIM:A100-80G", "those are sim:PROFILE"),
        ];
        for (text, expected) in cases {
            let reason = refusal(text);
            assert!(reason.contains(expected), "{text}: {reason}");
        }
    }

    #[test]
    fn an_allocator_is_not_taken_for_a_device() {
        for text in ["limit:4GiB/trak/pool", "sim:a100-80g/pol", "cuda:0/pol"] {
            assert!(!refusal(text).contains("PROFILE"), "{}", refusal(text));
        }
        assert_eq!(
            device_and_stack("sim:a100-80g/limit:4GiB/pool"),
            Some(("sim:a100-80g", "limit:4GiB/pool"))
        );
        assert_eq!(device_and_stack("cuda:0/pool"), Some(("cuda:0", "pool")));
        for device in ["sim:a100-80g", "cuda:0", "sim:no/such.toml", "gpu/0"] {
            assert_eq!(device_and_stack(device), None);
        }
    }

    #[test]
    fn a_profiles_file_may_have_slashes_in_its_path() {
        let directory = std::env::temp_dir().join(format!("millpond-place-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let file = directory.join("pool");
        std::fs::write(&file, "base = \"v100-16g\"\n").unwrap();
        let file = file.to_str().unwrap();
        let with_stack = format!("sim:{file}/limit:1GiB/pool");
        assert_eq!(split(&with_stack), (&*format!("sim:{file}"), "limit:1GiB/pool"));
        assert_eq!(split(&format!("sim:{file}")), (&*format!("sim:{file}"), "pool"));
        let wrong = format!("sim:{file}/limit:4XiB/pool");
        assert!(refusal(&wrong).contains("limit: bytes = 4XiB"), "{}", refusal(&wrong));
        std::fs::remove_dir_all(directory).unwrap();
    }
}
