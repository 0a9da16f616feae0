//! Resources and adaptors by name: one text builds any stack of them.
//!
//! ```text
//!   [adaptor[:options]/]…resource[:options]           options: key=value,key=value
//!
//!   pool
//!   limit:4GiB/pool:slack=0.05
//!   trace:/tmp/log.csv/track/limit:bytes=4GiB/direct
//! ```
//!
//! The first that is named is the one that is called. Sizes are written `4GiB`, `64KiB`, `1000`. Where an adaptor has one option that
//! matters, its value may stand alone (`limit:4GiB`). [`RESOURCES`] and [`ADAPTORS`] list everything with its options and defaults,
//! and so does `millpond allocators`. Whatever is wrong is answered with what would be right:
//!
//! ```
//! use millpond::Stack;
//!
//! let error = "limit:4GiB/pol".parse::<Stack>().unwrap_err();
//! assert!(error.to_string().starts_with("unknown allocator 'pol', did you mean 'pool'?"));
//! let error = "limit:4GiB/pool:slak=0.1".parse::<Stack>().unwrap_err();
//! assert!(error.to_string().starts_with("pool has no option 'slak', did you mean 'slack'?"));
//! let error = "limit:much/pool".parse::<Stack>().unwrap_err();
//! assert_eq!(error.to_string(), "limit: bytes = much: must be a size such as 4GiB");
//! ```

mod adaptors;
mod entry;
mod error;
mod handles;
mod options;
mod parse;
mod pool_options;
mod resources;
mod torch_options;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

pub use adaptors::ADAPTORS;
pub use entry::{AdaptorEntry, Kind, Made, MakeError, OptionSpec, ResourceEntry};
pub use error::StackError;
pub use handles::Handles;
pub use options::Options;
pub use resources::RESOURCES;

use crate::driver::Driver;
use crate::pool::{ConfigError, PoolConfig};
use crate::resource::Resource;

/// Builds a stack on a device.
///
/// ```
/// use std::sync::Arc;
/// use millpond::{Driver, Resource, Stream, stack};
/// use millpond_sim::{Profile, SimGpu};
///
/// let gpu: Arc<dyn Driver> = Arc::new(SimGpu::new(Profile::named("a100-80g")?));
/// let resource = stack::build("limit:1MiB/pool:slack=0.05", gpu)?;
/// let block = resource.allocate(1 << 20, Stream::LEGACY)?;
/// assert!(resource.allocate(1, Stream::LEGACY).is_err());
/// resource.deallocate(block, 1 << 20, Stream::LEGACY)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// A name, an option or a value is wrong, or something could not be made.
pub fn build(text: &str, driver: Arc<dyn Driver>) -> Result<Arc<dyn Resource>, StackError> {
    Ok(text.parse::<Stack>()?.build(driver)?.resource)
}

/// Names of all resources that take the device's memory for blocks of any size: only those can be compared with each other.
pub fn comparable() -> impl Iterator<Item = &'static str> {
    const OTHERS: [&str; 3] = ["managed", "pinned", "fixed"];
    RESOURCES.iter().map(|entry| entry.name).filter(|name| !OTHERS.contains(name))
}

/// A stack that was named and not built yet. Its names and the form of its options are right.
#[derive(Clone, Debug)]
pub struct Stack {
    /// The outermost first.
    adaptors: Vec<Layer<AdaptorEntry>>,
    resource: Layer<ResourceEntry>,
}

/// An entry of a table, with what was chosen.
#[derive(Clone, Debug)]
struct Layer<E: 'static> {
    entry: &'static E,
    options: Options,
}

/// A stack that was built.
#[derive(Clone)]
pub struct Built {
    /// What allocates.
    pub resource: Arc<dyn Resource>,
    /// What its adaptors have seen.
    pub handles: Handles,
}

impl Stack {
    /// With the settings of `MILLPOND_CONF` for a pool that it stands on, where it says nothing else itself.
    ///
    /// # Errors
    /// A setting that makes no sense, named.
    pub fn with_settings_of_env(mut self) -> Result<Stack, ConfigError> {
        for (setting, value) in PoolConfig::settings_of_env()? {
            if self.resource.entry.name == "pool" {
                self.resource.options.set_default(&setting, &value);
            }
        }
        Ok(self)
    }

    /// With nothing in it that works by the clock, unless it says so itself: what it does then follows from what is asked of it.
    ///
    /// ```
    /// use millpond::Stack;
    ///
    /// let stack = "limit:1GiB/pool:slack=0".parse::<Stack>()?.without_background();
    /// assert_eq!(stack.to_string(), "limit:bytes=1GiB/pool:slack=0");
    /// # Ok::<(), millpond::stack::StackError>(())
    /// ```
    pub fn without_background(mut self) -> Stack {
        self.resource.options.set_default("enable_defrag", "false");
        self
    }

    /// Whether there is nothing around its resource.
    pub fn is_bare(&self) -> bool {
        self.adaptors.is_empty()
    }

    /// Whether the host reaches its blocks: they are pinned or managed memory, or cut from such.
    ///
    /// ```
    /// use millpond::Stack;
    ///
    /// assert!("limit:1GiB/bestfit:upstream=pinned".parse::<Stack>()?.host_reaches());
    /// assert!(!"limit:1GiB/pool".parse::<Stack>()?.host_reaches());
    /// # Ok::<(), millpond::stack::StackError>(())
    /// ```
    pub fn host_reaches(&self) -> bool {
        let is_reached = |name| matches!(name, "managed" | "pinned");
        let Layer { entry, options } = &self.resource;
        let has_upstream = entry.options.iter().any(|option| option.name == "upstream");
        is_reached(entry.name) || has_upstream && is_reached(options.word("upstream"))
    }

    /// Makes the resource on a device, and the adaptors around it.
    ///
    /// # Errors
    /// A value that the resource refuses, a file that cannot be created, or a driver that has nothing left.
    pub fn build(&self, driver: Arc<dyn Driver>) -> Result<Built, StackError> {
        let Layer { entry, options } = &self.resource;
        let mut handles = Handles::default();
        let mut resource = (entry.make)(options, driver, &mut handles)
            .map_err(|error| error.of(entry.name, options))?;
        for Layer { entry, options } in self.adaptors.iter().rev() {
            resource = (entry.make)(options, resource, &mut handles)
                .map_err(|error| error.of(entry.name, options))?;
        }
        handles.outermost_first();
        Ok(Built { resource, handles })
    }
}

impl FromStr for Stack {
    type Err = StackError;

    fn from_str(text: &str) -> Result<Stack, StackError> {
        parse::stack(text)
    }
}

/// As it is read, with the options that were given.
impl fmt::Display for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Layer { entry, options } in &self.adaptors {
            write!(f, "{}{options}/", entry.name)?;
        }
        write!(f, "{}{}", self.resource.entry.name, self.resource.options)
    }
}

impl fmt::Debug for Built {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Built").field("usage", &self.resource.usage()).finish_non_exhaustive()
    }
}
