//! How a pool behaves, read and changed while it runs.

use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::back::STEP_BYTES;
use super::shelves::Bounds;
use super::sizes::{AtomicShelf, Class, LARGEST_BYTES, LARGEST_CACHED_BYTES, Shelf, cached_bytes};
use crate::nearest::nearest;
use crate::resource::ALIGNMENT;
use crate::written;

/// How a pool behaves. Every field can be changed while the pool runs.
///
/// ```
/// use millpond::pool::PoolConfig;
///
/// let config: PoolConfig = "slack:0.05,thread_cache_max_blocks:128".parse()?;
/// assert_eq!(config, PoolConfig { slack: 0.05, thread_cache_max_blocks: 128, ..PoolConfig::default() });
/// assert_eq!(
///     "slak:0.05".parse::<PoolConfig>().unwrap_err().to_string(),
///     "slak = 0.05: no such setting, did you mean slack?"
/// );
/// # Ok::<(), millpond::pool::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct PoolConfig {
    /// Every block's address is a multiple of this: a power of two, 256 at least.
    pub alignment: usize,
    /// Blocks of one size that a thread keeps for one stream. 0 switches thread caches off.
    pub thread_cache_max_blocks: usize,
    /// Bytes that a thread keeps for one stream.
    pub thread_cache_max_bytes: usize,
    /// Blocks of one size, up to 1 MiB, that the global cache keeps for one stream. 0 switches the global cache off.
    pub global_cache_max_blocks: usize,
    /// Bytes that the global cache keeps for one stream.
    pub global_cache_max_bytes: usize,
    /// Blocks that go from a slab, the global cache or those set aside to a thread cache at a time. A new `thread_cache_max_blocks` that is less, and not 0,
    /// lowers it.
    pub batch_alloc_count: usize,
    /// How much more than the most that was live may be reserved before memory that nothing uses is mapped again instead: 0.08 is
    /// eight percent. It is spent where all of a block can be new memory within it. Less than 0.015 is taken for that; at 0, caches are
    /// emptied as well whenever there is not enough, and memory comes in pieces of 2 MiB, so that nearly all of it can be used.
    pub slack: f64,
    /// Blocks larger than this are the driver's own allocations, as if there were no pool: not in regions and captures, and
    /// only with the default alignment. `None`: all blocks are the pool's.
    pub direct_above_bytes: Option<usize>,
    /// The pool gives unused memory back while more than this is reserved. The thread that frees blocks above 1 MiB looks at every 64th of
    /// them, and gives back what was not used since its last look and whose work is done. `None`: unused memory stays until the
    /// background or [`trim`](crate::Resource::trim) gives it back.
    pub release_threshold_bytes: Option<usize>,
    /// The share of what is reserved and not live above which the background empties caches to merge what they hold.
    pub defrag_threshold: f64,
    /// How often the background looks, in milliseconds. Memory that was not used from one look to the next goes back.
    pub defrag_interval_ms: u64,
    /// Whether the pool counts what it does.
    pub enable_stats: bool,
    /// Whether the background does anything at all.
    pub enable_defrag: bool,
    /// Whether the background creates memory before a request wants it, once the pool grows: up to a thirty-second of what is reserved,
    /// within the slack. A request that grows the pool maps that memory and does not wait for the driver to create it.
    pub grow_ahead: bool,
    /// Where to write a snapshot of the pool's memory when it runs out, in PyTorch's format.
    pub oom_snapshot: Option<PathBuf>,
}

impl Default for PoolConfig {
    fn default() -> PoolConfig {
        PoolConfig {
            alignment: ALIGNMENT,
            thread_cache_max_blocks: 64,
            thread_cache_max_bytes: 64 << 20,
            global_cache_max_blocks: 1024,
            global_cache_max_bytes: 64 << 20,
            batch_alloc_count: 16,
            slack: 0.08,
            direct_above_bytes: None,
            release_threshold_bytes: None,
            defrag_threshold: 0.3,
            defrag_interval_ms: 5000,
            enable_stats: true,
            enable_defrag: true,
            grow_ahead: false,
            oom_snapshot: None,
        }
    }
}

/// A setting that makes no sense. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} = {value}: {remedy}")]
pub struct ConfigError {
    /// Which setting.
    pub field: String,
    /// What it was to be.
    pub value: String,
    /// What it may be.
    pub remedy: String,
}

impl ConfigError {
    fn new(field: &str, value: &dyn Display, remedy: impl Into<String>) -> ConfigError {
        ConfigError { field: field.into(), value: value.to_string(), remedy: remedy.into() }
    }
}

/// The largest alignment: a page of the devices there are.
const MOST_ALIGNMENT: usize = 2 << 20;
const MOST_BLOCKS: usize = 1 << 20;
/// A day.
const LONGEST_INTERVAL_MS: u64 = 24 * 60 * 60 * 1000;

impl PoolConfig {
    /// What a thread keeps in PyTorch's pools, unless told otherwise. PyTorch allocates in one thread what it frees in another, backward, so
    /// that blocks in caches are where they are not asked for. Of 64 MiB, 4 and 1, a transformer with sentences of different lengths (693 MiB
    /// live) reserved 1,154, 786 and 766 MiB, and a small one of fixed shapes (65) 120, 126 and 80.
    pub const PYTORCH_THREAD_CACHE_MAX_BYTES: usize = 1 << 20;

    /// Refuses settings that make no sense, alone or together.
    ///
    /// # Errors
    /// The first setting that is wrong, and what it may be.
    pub fn check(&self) -> Result<(), ConfigError> {
        let right = |ok: bool, field: &str, value: &dyn Display, remedy: &str| {
            if ok { Ok(()) } else { Err(ConfigError::new(field, value, remedy)) }
        };
        let aligned = self.alignment.is_power_of_two()
            && (ALIGNMENT..=MOST_ALIGNMENT).contains(&self.alignment);
        right(aligned, "alignment", &self.alignment, "must be a power of two from 256 to 2097152")?;
        let blocks = "must be 0 to 1048576";
        let (thread, global) = (self.thread_cache_max_blocks, self.global_cache_max_blocks);
        right(thread <= MOST_BLOCKS, "thread_cache_max_blocks", &thread, blocks)?;
        right(global <= MOST_BLOCKS, "global_cache_max_blocks", &global, blocks)?;
        let batch = self.batch_alloc_count;
        let some = (1..=MOST_BLOCKS).contains(&batch);
        right(some, "batch_alloc_count", &batch, "must be 1 to 1048576")?;
        right(
            thread == 0 || batch <= thread,
            "batch_alloc_count",
            &batch,
            "must not exceed thread_cache_max_blocks, into which a batch goes",
        )?;
        right(
            (0.0..=100.0).contains(&self.slack),
            "slack",
            &self.slack,
            "must be a fraction from 0 to 100, such as 0.1",
        )?;
        right(
            (0.0..=1.0).contains(&self.defrag_threshold),
            "defrag_threshold",
            &self.defrag_threshold,
            "must be a fraction from 0 to 1, such as 0.3",
        )?;
        right(
            (1..=LONGEST_INTERVAL_MS).contains(&self.defrag_interval_ms),
            "defrag_interval_ms",
            &self.defrag_interval_ms,
            "must be 1 to 86400000",
        )
    }

    /// These settings in place of others: a batch that stays as it was is lowered to what a new bound of thread caches lets in.
    pub(super) fn in_place_of(mut self, before: &PoolConfig) -> PoolConfig {
        if self.batch_alloc_count == before.batch_alloc_count && self.thread_cache_max_blocks > 0 {
            self.batch_alloc_count = self.batch_alloc_count.min(self.thread_cache_max_blocks);
        }
        self
    }

    /// The settings that `MILLPOND_CONF` names, `key:value,key:value`; the defaults for all others.
    ///
    /// # Errors
    /// A setting that makes no sense, named.
    pub fn from_env() -> Result<PoolConfig, ConfigError> {
        let mut config = PoolConfig::default();
        for (field, value) in PoolConfig::settings_of_env()? {
            config.set(&field, &value)?;
        }
        Ok(config)
    }

    /// What `MILLPOND_CONF` says, as (setting, value). All of it together makes sense.
    pub(crate) fn settings_of_env() -> Result<Vec<(String, String)>, ConfigError> {
        settings_in(CONF, &std::env::var(CONF).unwrap_or_default())
    }

    /// Changes what a text such as `slack:0.05,enable_stats:False,global_cache_max_bytes:16MiB` names, and nothing else. Sizes are bytes or
    /// have a unit; a switch is `True`, `true` or `1`, or `False`, `false` or `0`.
    ///
    /// # Errors
    /// A setting that makes no sense, alone or with the others, named. Nothing has changed then.
    pub fn update(&mut self, text: &str) -> Result<(), ConfigError> {
        let mut config = self.clone();
        for setting in settings(text) {
            let (field, value) = setting?;
            config.set(field, value)?;
        }
        let config = config.in_place_of(self);
        config.check()?;
        *self = config;
        Ok(())
    }

    /// Changes one setting, given as text.
    fn set(&mut self, field: &str, value: &str) -> Result<(), ConfigError> {
        fn read<T: FromStr>(field: &str, value: &str, what: &str) -> Result<T, ConfigError> {
            value.parse().map_err(|_| ConfigError::new(field, &value, format!("must be {what}")))
        }
        let wrong = |what: &str| ConfigError::new(field, &value, format!("must be {what}"));
        let count = |value| read(field, value, "a whole number");
        let fraction = |value| read(field, value, "a fraction such as 0.1");
        let size = |value| {
            let bytes = written::size(value).and_then(|bytes| usize::try_from(bytes).ok());
            bytes.ok_or_else(|| wrong("a size such as 1048576 or 1MiB"))
        };
        let switch = |value| written::switch(value).ok_or_else(|| wrong("true or false"));
        match field {
            "alignment" => self.alignment = size(value)?,
            "thread_cache_max_blocks" => self.thread_cache_max_blocks = count(value)?,
            "thread_cache_max_bytes" => self.thread_cache_max_bytes = size(value)?,
            "global_cache_max_blocks" => self.global_cache_max_blocks = count(value)?,
            "global_cache_max_bytes" => self.global_cache_max_bytes = size(value)?,
            "batch_alloc_count" => self.batch_alloc_count = count(value)?,
            "slack" => self.slack = fraction(value)?,
            "direct_above_bytes" => {
                self.direct_above_bytes = if value == "none" { None } else { Some(size(value)?) };
            }
            "release_threshold_bytes" => {
                self.release_threshold_bytes =
                    if value == "none" { None } else { Some(size(value)?) };
            }
            "defrag_threshold" => self.defrag_threshold = fraction(value)?,
            "defrag_interval_ms" => {
                self.defrag_interval_ms = read(field, value, "a whole number")?;
            }
            "enable_stats" => self.enable_stats = switch(value)?,
            "enable_defrag" => self.enable_defrag = switch(value)?,
            "grow_ahead" => self.grow_ahead = switch(value)?,
            "oom_snapshot" => {
                self.oom_snapshot = if value == "none" { None } else { Some(value.into()) };
            }
            _ => {
                let remedy = match nearest(field, FIELDS.iter().copied()) {
                    Some(near) => format!("no such setting, did you mean {near}?"),
                    None => format!("no such setting, there are {}", FIELDS.join(", ")),
                };
                return Err(ConfigError::new(field, &value, remedy));
            }
        }
        Ok(())
    }
}

/// The environment variable that settings come from.
const CONF: &str = "MILLPOND_CONF";

/// The names of all settings.
const FIELDS: [&str; 15] = [
    "alignment",
    "thread_cache_max_blocks",
    "thread_cache_max_bytes",
    "global_cache_max_blocks",
    "global_cache_max_bytes",
    "batch_alloc_count",
    "slack",
    "direct_above_bytes",
    "release_threshold_bytes",
    "defrag_threshold",
    "defrag_interval_ms",
    "enable_stats",
    "enable_defrag",
    "grow_ahead",
    "oom_snapshot",
];

/// `key:value,key:value`, as in `MILLPOND_CONF`. What is not named has its default.
impl FromStr for PoolConfig {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<PoolConfig, ConfigError> {
        let mut config = PoolConfig::default();
        config.update(text)?;
        Ok(config)
    }
}

/// What the text of an environment variable names, as (setting, value). Whoever reads what is wrong with it may not know that it is set.
fn settings_in(variable: &str, text: &str) -> Result<Vec<(String, String)>, ConfigError> {
    let named = |error: ConfigError| ConfigError {
        remedy: format!("{} (in the environment variable {variable})", error.remedy),
        ..error
    };
    text.parse::<PoolConfig>().map_err(named)?;
    let owned = |(field, value): (&str, &str)| (field.to_owned(), value.to_owned());
    settings(text).map(|setting| setting.map(owned)).collect()
}

/// What a text names, as (setting, value).
fn settings(text: &str) -> impl Iterator<Item = Result<(&str, &str), ConfigError>> {
    let all = text.split(',').map(str::trim).filter(|setting| !setting.is_empty());
    all.map(|setting| match setting.split_once(':') {
        Some((field, value)) => Ok((field.trim(), value.trim())),
        None => Err(ConfigError::new(setting, &"", "must be written key:value")),
    })
}

/// The settings as the pool uses them: those that hot paths read are apart.
#[derive(Debug)]
pub(super) struct Settings {
    thread_blocks: AtomicUsize,
    thread_bytes: AtomicU64,
    global_blocks: AtomicUsize,
    global_bytes: AtomicU64,
    batch: AtomicUsize,
    alignment: AtomicUsize,
    /// By size in units of the least alignment: the shelf that serves it, if all blocks there are aligned enough.
    shelves: [AtomicShelf; LARGEST_CACHED_BYTES / ALIGNMENT],
    direct_above: AtomicUsize,
    release_threshold: AtomicUsize,
    counts: AtomicBool,
    all: Mutex<PoolConfig>,
}

impl Settings {
    pub(super) fn new(config: &PoolConfig) -> Settings {
        let settings = Settings {
            thread_blocks: AtomicUsize::default(),
            thread_bytes: AtomicU64::default(),
            global_blocks: AtomicUsize::default(),
            global_bytes: AtomicU64::default(),
            batch: AtomicUsize::default(),
            alignment: AtomicUsize::default(),
            shelves: [const { AtomicShelf::new(Shelf::NONE) }; _],
            direct_above: AtomicUsize::default(),
            release_threshold: AtomicUsize::default(),
            counts: AtomicBool::default(),
            all: Mutex::default(),
        };
        settings.set(config);
        settings
    }

    // Relaxed: a bound that is seen a little later bounds a little later.

    pub(super) fn set(&self, config: &PoolConfig) {
        self.thread_blocks.store(config.thread_cache_max_blocks, Ordering::Relaxed);
        self.thread_bytes.store(config.thread_cache_max_bytes as u64, Ordering::Relaxed);
        self.global_blocks.store(config.global_cache_max_blocks, Ordering::Relaxed);
        self.global_bytes.store(config.global_cache_max_bytes as u64, Ordering::Relaxed);
        self.batch.store(config.batch_alloc_count, Ordering::Relaxed);
        self.alignment.store(config.alignment, Ordering::Relaxed);
        for (units, shelf) in (1..).zip(&self.shelves) {
            let bytes = units * ALIGNMENT;
            let aligned = bytes.next_multiple_of(config.alignment);
            let serving = if aligned <= LARGEST_BYTES {
                Shelf::of_class(Class::of(aligned))
            } else if config.alignment as u64 <= STEP_BYTES {
                Shelf::of_own(cached_bytes(bytes as u64))
            } else {
                // Among blocks that were aligned to less before there may be one that will not do.
                Shelf::NONE
            };
            shelf.store(serving);
        }
        let direct_above = config.direct_above_bytes.unwrap_or(usize::MAX);
        self.direct_above.store(direct_above, Ordering::Relaxed);
        let release_threshold = config.release_threshold_bytes.unwrap_or(usize::MAX);
        self.release_threshold.store(release_threshold, Ordering::Relaxed);
        self.counts.store(config.enable_stats, Ordering::Relaxed);
        self.all.lock().clone_from(config);
    }

    pub(super) fn get(&self) -> PoolConfig {
        self.all.lock().clone()
    }

    /// What one thread may keep for one stream.
    #[inline]
    pub(super) fn bounds(&self) -> Bounds {
        Bounds {
            blocks: self.thread_blocks.load(Ordering::Relaxed),
            bytes: self.thread_bytes.load(Ordering::Relaxed),
        }
    }

    /// What the global cache may keep for one stream: blocks of one class, and bytes.
    pub(super) fn global_bounds(&self) -> Bounds {
        Bounds {
            blocks: self.global_blocks.load(Ordering::Relaxed),
            bytes: self.global_bytes.load(Ordering::Relaxed),
        }
    }

    pub(super) fn batch(&self) -> usize {
        self.batch.load(Ordering::Relaxed)
    }

    /// The shelf that serves a request of 1 to [`LARGEST_CACHED_BYTES`] bytes, if all blocks there are aligned enough.
    #[inline]
    pub(super) fn shelf_of(&self, bytes: usize) -> Option<Shelf> {
        let shelf = self.shelves.get(bytes.wrapping_sub(1) / ALIGNMENT)?;
        Some(shelf.load())
    }

    #[inline]
    pub(super) fn alignment(&self) -> usize {
        self.alignment.load(Ordering::Relaxed)
    }

    /// Whether the pool counts what it does.
    pub(super) fn counts(&self) -> bool {
        self.counts.load(Ordering::Relaxed)
    }

    pub(super) fn direct_above(&self) -> usize {
        self.direct_above.load(Ordering::Relaxed)
    }

    /// How much may stay reserved that nothing uses, if there is a bound.
    #[inline]
    pub(super) fn release_threshold(&self) -> Option<usize> {
        let bytes = self.release_threshold.load(Ordering::Relaxed);
        (bytes != usize::MAX).then_some(bytes)
    }
}

/// What sizes and addresses of blocks of their own are multiples of.
#[inline]
pub(super) fn own_step(alignment: usize) -> usize {
    alignment.max(STEP_BYTES as usize)
}

/// A size as a multiple of a power of two. By a mask: a division would cost more than all the rest of a cache hit.
#[inline]
pub(super) fn aligned_to(bytes: usize, alignment: usize) -> Option<usize> {
    let mask = alignment - 1;
    Some(bytes.checked_add(mask)? & !mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_can_be_given_as_text() {
        let values = [
            "512", "8", "4096", "9", "99", "4", "0.5", "1000", "5MiB", "0.9", "77", "false",
            "false", "true", "/x/y",
        ];
        let settings: Vec<_> =
            FIELDS.iter().zip(values).map(|(field, value)| format!("{field}:{value}")).collect();
        let config: PoolConfig = settings.join(", ").parse().unwrap();
        let expected = PoolConfig {
            alignment: 512,
            thread_cache_max_blocks: 8,
            thread_cache_max_bytes: 4096,
            global_cache_max_blocks: 9,
            global_cache_max_bytes: 99,
            batch_alloc_count: 4,
            slack: 0.5,
            direct_above_bytes: Some(1000),
            release_threshold_bytes: Some(5 << 20),
            defrag_threshold: 0.9,
            defrag_interval_ms: 77,
            enable_stats: false,
            enable_defrag: false,
            grow_ahead: true,
            oom_snapshot: Some("/x/y".into()),
        };
        assert_eq!(config, expected);
    }

    #[test]
    fn what_is_wrong_in_the_environment_is_said_of_it() {
        for (text, expected) in [
            (
                "slak:0",
                "slak = 0: no such setting, did you mean slack? (in the environment variable X)",
            ),
            ("slack", "slack = : must be written key:value (in the environment variable X)"),
            (
                "slack:-1",
                "must be a fraction from 0 to 100, such as 0.1 (in the environment variable X)",
            ),
        ] {
            let error = settings_in("X", text).unwrap_err().to_string();
            assert!(error.ends_with(expected), "{error}");
        }
        let right = settings_in("X", "slack:0").unwrap();
        assert_eq!(right, [("slack".to_owned(), "0".to_owned())]);
    }

    #[test]
    fn an_update_changes_what_it_names_or_nothing() {
        let mut config = PoolConfig { slack: 0.5, ..PoolConfig::default() };
        config.update("enable_stats:false").unwrap();
        let expected = PoolConfig { slack: 0.5, enable_stats: false, ..PoolConfig::default() };
        assert_eq!(config, expected);
        let error = config.update("enable_stats:true,batch_alloc_count:65").unwrap_err();
        assert_eq!(error.field, "batch_alloc_count");
        assert_eq!(config, expected);
    }

    #[test]
    fn sizes_and_switches_are_read_as_pytorch_and_people_write_them() {
        for (text, enable_stats) in [
            ("True", true),
            ("true", true),
            ("1", true),
            ("False", false),
            ("false", false),
            ("0", false),
        ] {
            let config: PoolConfig = format!("enable_stats:{text}").parse().unwrap();
            assert_eq!(config.enable_stats, enable_stats, "{text}");
        }
        let text = "alignment:4KiB,thread_cache_max_bytes:1MiB,global_cache_max_bytes:1.5GiB,direct_above_bytes:1GB";
        let expected = PoolConfig {
            alignment: 4096,
            thread_cache_max_bytes: 1 << 20,
            global_cache_max_bytes: 3 << 29,
            direct_above_bytes: Some(1_000_000_000),
            ..PoolConfig::default()
        };
        assert_eq!(text.parse(), Ok(expected));
    }

    #[test]
    fn bad_settings_are_refused_by_name() {
        let cases = [
            ("alignment:300", "alignment"),
            ("alignment:128", "alignment"),
            ("alignment:4194304", "alignment"),
            ("batch_alloc_count:0", "batch_alloc_count"),
            ("batch_alloc_count:65", "batch_alloc_count"),
            ("slack:-1", "slack"),
            ("slack:nan", "slack"),
            ("slack:much", "slack"),
            ("defrag_threshold:1.5", "defrag_threshold"),
            ("defrag_interval_ms:0", "defrag_interval_ms"),
            ("enable_stats:maybe", "enable_stats"),
            ("thread_cache_max_bytes:1XiB", "thread_cache_max_bytes"),
            ("direct_above_bytes:99999999999999999999GiB", "direct_above_bytes"),
            ("direct_above_bytes:-1", "direct_above_bytes"),
            ("thread_cache_max_blocks:2000000", "thread_cache_max_blocks"),
            ("nonsense", "nonsense"),
        ];
        for (text, field) in cases {
            let error = text.parse::<PoolConfig>().expect_err(text);
            assert_eq!(error.field, field, "{text}: {error}");
        }
    }
}
