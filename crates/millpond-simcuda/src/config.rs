//! What to simulate: the environment variable `MILLPOND_SIM`.
//!
//! ```text
//! MILLPOND_SIM=profile=v100-16g,devices=2,capacity=4GiB,seed=7
//! ```
//!
//! | key | value | default |
//! | --- | --- | --- |
//! | `profile` | a built-in profile, or a profile file | `a100-80g` |
//! | `devices` | how many | 1 |
//! | `capacity` | bytes of each, like `4GiB` | the profile's |
//! | `shared` | a name: processes that give the same one share the devices | none: a device of its own |
//! | `clock` | `virtual`, or how many times faster than real time the device runs | `virtual`; 1 when shared |
//! | `seed` | what random choices follow from | 0 |
//! | `order` | `timed`, or `adversarial`: streams overtake each other as far as they may | `timed` |
//! | `faults` | how managed memory comes in: `driver` or `naive` | `driver` |
//! | `kernel` | how long a kernel takes that is not one of our own, like `20us` | what the memory's speed gives |
//! | `fail` | calls that fail: `alloc@3+map` fails the fourth allocation and every map; `@9` the tenth call | none |
//! | `log` | a file for a line per call | none |
//! | `driver` | the driver's version, 11040 to 13000 | 12090 |
//! | `without` | what the driver lacks: `vmm`, `pools` or `vmm+pools` | nothing |

use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;
use millpond::driver::Call;
use millpond::nearest::suggestion;
use millpond_sim::{Fault, FaultModel, Profile, RunOrder, SharedName, SimClock, SimOptions};

/// The environment variable.
pub(crate) const VARIABLE: &str = "MILLPOND_SIM";

/// CUDA 12.9.
const DEFAULT_VERSION: i32 = 12090;
const VERSIONS: std::ops::RangeInclusive<i32> = 11040..=13000;
const MOST_DEVICES: usize = 64;
const REAL_TIME: SimClock = SimClock::Real { speed: 1000 };

const KEYS: [&str; 13] = [
    "profile", "devices", "capacity", "shared", "clock", "seed", "order", "faults", "kernel",
    "fail", "log", "driver", "without",
];

/// What to simulate.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) profile: Profile,
    pub(crate) devices: usize,
    pub(crate) options: SimOptions,
    /// The name under which processes share the devices.
    pub(crate) shared: Option<SharedName>,
    /// How long unknown kernels take at least.
    pub(crate) kernel: Duration,
    pub(crate) fail: Vec<Fault>,
    pub(crate) log: Option<PathBuf>,
    pub(crate) driver_version: i32,
}

/// What is wrong with the variable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("'{0}' is not key=value")]
    NotAPair(String),
    #[error("unknown key '{key}'{suggestion} (known: {})", KEYS.join(", "))]
    UnknownKey { key: String, suggestion: String },
    #[error("{key}={value}: {reason}")]
    BadValue { key: &'static str, value: String, reason: String },
    #[error("{0}")]
    Profile(#[from] millpond_sim::ProfileError),
}

impl Config {
    /// What the environment says, or the default.
    pub(crate) fn from_environment() -> Result<Config, ConfigError> {
        // What is not text is not a configuration.
        let text = std::env::var_os(VARIABLE).unwrap_or_default();
        Config::parse(&text.to_string_lossy())
    }

    pub(crate) fn parse(text: &str) -> Result<Config, ConfigError> {
        let mut config = Config {
            profile: Profile::named("a100-80g")?,
            devices: 1,
            options: SimOptions::default(),
            shared: None,
            kernel: Duration::ZERO,
            fail: Vec::new(),
            log: None,
            driver_version: DEFAULT_VERSION,
        };
        let mut capacity = None;
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let (key, value) =
                pair.split_once('=').ok_or_else(|| ConfigError::NotAPair(pair.into()))?;
            let Some(&key) = KEYS.iter().find(|known| **known == key) else {
                let suggestion = suggestion(key, KEYS);
                return Err(ConfigError::UnknownKey { key: key.to_owned(), suggestion });
            };
            let bad = |reason: &str| ConfigError::BadValue {
                key,
                value: value.to_owned(),
                reason: reason.to_owned(),
            };
            match key {
                "profile" => config.profile = Profile::named(value)?,
                "capacity" => {
                    let bytes = value.parse::<ByteSize>();
                    capacity = Some(bytes.map_err(|_| bad("a size such as 4GiB is wanted"))?.0);
                }
                _ => config.set(key, value).ok_or_else(|| bad(wanted(key)))?,
            }
        }
        if let Some(bytes) = capacity {
            config.profile = config.profile.with_capacity(bytes)?;
        }
        if config.shared.is_some() && config.options.clock == SimClock::Virtual {
            config.options.clock = REAL_TIME;
        }
        Ok(config)
    }

    /// `None`: the value is none for this key.
    fn set(&mut self, key: &str, value: &str) -> Option<()> {
        match key {
            "devices" => {
                let number = value.parse().ok();
                self.devices = number.filter(|number| (1..=MOST_DEVICES).contains(number))?;
            }
            "shared" => self.shared = Some(SharedName::new(value).ok()?),
            "clock" if value == "virtual" => self.options.clock = SimClock::Virtual,
            "clock" => self.options.clock = SimClock::real(value.parse().ok()?)?,
            "seed" => self.options.seed = value.parse().ok()?,
            "order" => {
                self.options.run_order = match value {
                    "timed" => RunOrder::Timed,
                    "adversarial" => RunOrder::Adversarial,
                    _ => return None,
                };
            }
            "faults" => {
                self.options.fault_model = match value {
                    "driver" => FaultModel::Driver,
                    "naive" => FaultModel::Naive,
                    _ => return None,
                };
            }
            "kernel" => self.kernel = duration(value)?,
            "fail" => self.fail = value.split('+').map(fault).collect::<Option<_>>()?,
            "log" => self.log = Some((!value.is_empty()).then(|| value.into())?),
            "driver" => {
                let version = value.parse().ok();
                self.driver_version = version.filter(|version| VERSIONS.contains(version))?;
            }
            "without" => {
                for lacking in value.split('+') {
                    match lacking {
                        "vmm" => self.options.without_virtual_memory = true,
                        "pools" => self.options.without_pools = true,
                        _ => return None,
                    }
                }
            }
            _ => unreachable!("every known key is here"),
        }
        Some(())
    }
}

fn wanted(key: &str) -> &'static str {
    match key {
        "devices" => "a number from 1 to 64 is wanted",
        "shared" => "a name of up to 32 letters, digits, -, _ and . is wanted",
        "clock" => "'virtual' or a factor from 0.001 to 1000 is wanted",
        "order" => "'timed' or 'adversarial' is wanted",
        "faults" => "'driver' or 'naive' is wanted",
        "kernel" => "a time such as 20us or 1.5ms is wanted",
        "fail" => "calls such as alloc@3+map are wanted, by the names of millpond's driver calls",
        "driver" => "a version from 11040 to 13000 is wanted",
        "without" => "'vmm', 'pools' or 'vmm+pools' is wanted",
        "log" => "the name of a file is wanted",
        _ => "a whole number is wanted",
    }
}

/// `alloc@3`, `@9`, `map`.
fn fault(text: &str) -> Option<Fault> {
    match text.split_once('@') {
        Some(("", nth)) => Some(Fault::Nth(nth.parse().ok()?)),
        Some((call, nth)) => Some(Fault::NthOf(Call::from_name(call)?, nth.parse().ok()?)),
        None => Some(Fault::All(Call::from_name(text)?)),
    }
}

fn duration(text: &str) -> Option<Duration> {
    let units = [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let (number, factor) =
        units.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)))?;
    Duration::try_from_secs_f64(number.trim().parse::<f64>().ok()? * factor).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_understood() {
        let config = Config::parse(
            "profile=v100-16g, devices=2,capacity=4GiB,seed=7,order=adversarial,faults=naive,kernel=20us,\
             fail=alloc@3+map+@9,log=/tmp/calls,driver=11080,without=vmm+pools,clock=10,shared=lab-1",
        )
        .unwrap();
        assert_eq!(config.devices, 2);
        assert_eq!(config.profile.capacity_bytes, (4_u64 << 30) as f64);
        assert_eq!(config.kernel, Duration::from_micros(20));
        let fail = [Fault::NthOf(Call::Alloc, 3), Fault::All(Call::Map), Fault::Nth(9)];
        assert_eq!(config.fail, fail);
        assert_eq!(config.options.clock, SimClock::Real { speed: 10_000 });
        assert_eq!(config.shared, SharedName::new("lab-1").ok());
        assert!(config.options.without_virtual_memory && config.options.without_pools);
    }

    #[test]
    fn nothing_is_the_default_and_sharing_takes_real_time() {
        let config = Config::parse("").unwrap();
        assert_eq!((config.devices, config.options.clock), (1, SimClock::Virtual));
        assert_eq!(config.profile.name, "a100-80g");
        assert_eq!(Config::parse("shared=x").unwrap().options.clock, REAL_TIME);
    }

    #[test]
    fn what_is_wrong_is_said_with_what_would_be_right() {
        for (text, message) in [
            ("profil=a", "unknown key 'profil', did you mean 'profile'?"),
            ("devices", "'devices' is not key=value"),
            ("devices=0", "devices=0: a number from 1 to 64 is wanted"),
            ("capacity=lots", "capacity=lots: a size such as 4GiB is wanted"),
            ("shared=a/b", "shared=a/b: a name of up to 32 letters"),
            ("clock=-1", "clock=-1: 'virtual' or a factor"),
            ("fail=cuMemAlloc", "fail=cuMemAlloc: calls such as alloc@3+map"),
            ("driver=10000", "driver=10000: a version from 11040"),
            ("kernel=20", "kernel=20: a time such as 20us"),
            ("profile=a1", "unknown profile 'a1'"),
        ] {
            let error = Config::parse(text).unwrap_err().to_string();
            assert!(error.starts_with(message), "{text}: {error}");
        }
    }
}
