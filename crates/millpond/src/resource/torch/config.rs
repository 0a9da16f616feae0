//! How the allocator behaves, in PyTorch's own words.

use std::str::FromStr;

use super::sizes::{INTERVALS, LARGE_SEGMENT_BYTES};
use crate::nearest::suggestion;

/// How a [`PyTorchCaching`](super::PyTorchCaching) behaves. The default is PyTorch's.
///
/// Read from the text that PyTorch takes in `PYTORCH_CUDA_ALLOC_CONF`:
///
/// ```
/// use millpond::resource::TorchConfig;
///
/// let config: TorchConfig = "max_split_size_mb:128,expandable_segments:True".parse()?;
/// assert_eq!((config.max_split_bytes, config.expandable_segments), (Some(128 << 20), true));
/// assert_eq!(
///     "max_split_size:128".parse::<TorchConfig>().unwrap_err().to_string(),
///     "max_split_size:128: no such setting, did you mean 'max_split_size_mb'?"
/// );
/// # Ok::<(), millpond::resource::TorchConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct TorchConfig {
    /// `max_split_size_mb`: blocks of this size and more are never split, and serve only requests as large. 20 MiB at least;
    /// `None`, the default: all are split.
    pub max_split_bytes: Option<usize>,
    /// `max_non_split_rounding_mb`: a block that must not be split serves requests that are smaller by less than this. 20 MiB
    /// at least, and by default.
    pub max_non_split_rounding_bytes: usize,
    /// `garbage_collection_threshold`: once this share of the allowed memory is reserved, unused segments are given back, the
    /// longest unused first, before more is taken. Between 0 and 1; `None`, the default: never. As in PyTorch it has no effect
    /// unless [`memory_fraction`](Self::memory_fraction) is below 1.
    pub garbage_collection_threshold: Option<f64>,
    /// `roundup_power2_divisions`: into how many steps each doubling of sizes is divided, by magnitude: below 2 MiB, below 4 MiB,
    /// and so on, and from 32 GiB. Powers of two; 0 and 1, the default is 0: multiples of 512 bytes.
    pub roundup_power2_divisions: [usize; INTERVALS],
    /// `expandable_segments`: one segment a stream and pool that grows by mapping pages, instead of many. Off by default, and
    /// without effect on devices without virtual memory management.
    pub expandable_segments: bool,
    /// `per_process_memory_fraction`: the share of the device's memory that may be reserved. Between 0 and 1; `None`, the default,
    /// and 1: all there is, which is then not counted.
    pub memory_fraction: Option<f64>,
}

impl Default for TorchConfig {
    fn default() -> TorchConfig {
        TorchConfig {
            max_split_bytes: None,
            max_non_split_rounding_bytes: LARGE_SEGMENT_BYTES,
            garbage_collection_threshold: None,
            roundup_power2_divisions: [0; INTERVALS],
            expandable_segments: false,
            memory_fraction: None,
        }
    }
}

/// A setting that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}:{value}: {remedy}")]
pub struct TorchConfigError {
    /// Which setting.
    pub key: String,
    /// What it was to be.
    pub value: String,
    /// What it may be.
    pub remedy: String,
}

const KEYS: [&str; 6] = [
    "max_split_size_mb",
    "max_non_split_rounding_mb",
    "garbage_collection_threshold",
    "roundup_power2_divisions",
    "expandable_segments",
    "per_process_memory_fraction",
];

impl TorchConfig {
    /// Refuses settings that make no sense.
    ///
    /// # Errors
    /// The first setting that is wrong, and what it may be.
    pub fn check(&self) -> Result<(), TorchConfigError> {
        let wrong = |key: &str, value: String, remedy: &str| {
            Err(TorchConfigError { key: key.into(), value, remedy: remedy.into() })
        };
        let mib = |bytes: usize| (bytes >> 20).to_string();
        let at_least_20 = "must be 20 at least";
        match self.max_split_bytes {
            Some(bytes) if bytes < LARGE_SEGMENT_BYTES => {
                return wrong(KEYS[0], mib(bytes), at_least_20);
            }
            _ => {}
        }
        if self.max_non_split_rounding_bytes < LARGE_SEGMENT_BYTES {
            return wrong(KEYS[1], mib(self.max_non_split_rounding_bytes), at_least_20);
        }
        match self.garbage_collection_threshold {
            Some(share) if !(share > 0.0 && share < 1.0) => {
                return wrong(KEYS[2], share.to_string(), "must be between 0 and 1");
            }
            _ => {}
        }
        let right = |divisions: usize| divisions == 0 || divisions.is_power_of_two();
        if let Some(divisions) = self.roundup_power2_divisions.iter().find(|count| !right(**count))
        {
            return wrong(KEYS[3], divisions.to_string(), "must be a power of two, or 0 for none");
        }
        match self.memory_fraction {
            Some(share) if !(0.0..=1.0).contains(&share) => {
                wrong(KEYS[5], share.to_string(), "must be 0 to 1")
            }
            _ => Ok(()),
        }
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let mib = || {
            let count: usize = value.parse().map_err(|_| "must be a number of MiB")?;
            count.checked_mul(1 << 20).ok_or("is more than any device has")
        };
        let share = || value.parse().map_err(|_| "must be a number between 0 and 1");
        match key {
            "max_split_size_mb" => self.max_split_bytes = Some(mib()?),
            "max_non_split_rounding_mb" => self.max_non_split_rounding_bytes = mib()?,
            "garbage_collection_threshold" => self.garbage_collection_threshold = Some(share()?),
            "roundup_power2_divisions" => self.roundup_power2_divisions = divisions(value)?,
            "per_process_memory_fraction" => self.memory_fraction = Some(share()?),
            "expandable_segments" => {
                self.expandable_segments = match value {
                    "True" => true,
                    "False" => false,
                    _ => return Err("must be True or False".into()),
                }
            }
            "backend" if value == "native" => {}
            "backend" => return Err("only native is this allocator, use another for others".into()),
            _ => return Err(format!("no such setting{}", suggestion(key, KEYS))),
        }
        Ok(())
    }
}

impl FromStr for TorchConfig {
    type Err = TorchConfigError;

    fn from_str(text: &str) -> Result<TorchConfig, TorchConfigError> {
        let mut config = TorchConfig::default();
        let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        for setting in outside_brackets(&text).into_iter().filter(|setting| !setting.is_empty()) {
            let (key, value) = setting.split_once(':').unwrap_or((setting, ""));
            config.set(key, value).map_err(|remedy| TorchConfigError {
                key: key.into(),
                value: value.into(),
                remedy,
            })?;
        }
        config.check()?;
        Ok(config)
    }
}

/// The parts between commas, where commas inside of `[…]` do not count.
fn outside_brackets(text: &str) -> Vec<&str> {
    let mut depth = 0_i32;
    text.split(|c: char| {
        depth += i32::from(c == '[') - i32::from(c == ']');
        c == ',' && depth == 0
    })
    .collect()
}

/// `4`, or `[256:1,512:2,1024:4,>:8]`: from so many MiB to the double, so many divisions; `>` is all above. What is below the first is
/// as the first, what lies between two named sizes is not divided.
fn divisions(value: &str) -> Result<[usize; INTERVALS], String> {
    const REMEDY: &str = "must be a power of two, or a list like [256:1,512:2,>:8]";
    let count = |text: &str| text.parse::<usize>().map_err(|_| REMEDY);
    let Some(list) = value.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) else {
        return Ok([count(value)?; INTERVALS]);
    };
    let mut divisions = [0; INTERVALS];
    let mut last = None;
    for entry in list.split(',') {
        let (from, steps) = entry.split_once(':').ok_or(REMEDY)?;
        let steps = count(steps)?;
        if from == ">" {
            divisions[last.map_or(0, |last: usize| last + 1)..].fill(steps);
            continue;
        }
        let from = Some(count(from)?).filter(|from| from.is_power_of_two()).ok_or(REMEDY)?;
        let interval = (from.ilog2() as usize).min(INTERVALS - 1);
        if last.is_none() {
            divisions[..interval].fill(steps);
        }
        divisions[interval] = steps;
        last = Some(interval);
    }
    Ok(divisions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pytorchs_text_is_understood() {
        let config: TorchConfig = "garbage_collection_threshold:0.8, max_split_size_mb:64,\
             roundup_power2_divisions:[256:1,512:2,1024:4,>:8],backend:native,\
             max_non_split_rounding_mb:30,per_process_memory_fraction:0.5,expandable_segments:False"
            .parse()
            .unwrap();
        let mut divisions = [1; INTERVALS];
        divisions[9..].copy_from_slice(&[2, 4, 8, 8, 8, 8, 8]);
        assert_eq!(
            config,
            TorchConfig {
                max_split_bytes: Some(64 << 20),
                max_non_split_rounding_bytes: 30 << 20,
                garbage_collection_threshold: Some(0.8),
                roundup_power2_divisions: divisions,
                expandable_segments: false,
                memory_fraction: Some(0.5),
            }
        );
        assert_eq!("".parse(), Ok(TorchConfig::default()));
    }

    #[test]
    fn wrong_settings_are_refused_with_a_remedy() {
        for (text, message) in [
            ("max_split_size_mb:19", "max_split_size_mb:19: must be 20 at least"),
            ("max_split_size_mb", "max_split_size_mb:: must be a number of MiB"),
            ("expandable_segments:true", "expandable_segments:true: must be True or False"),
            (
                "garbage_collection_threshold:1",
                "garbage_collection_threshold:1: must be between 0 and 1",
            ),
            (
                "garbage_collection_threshold:NaN",
                "garbage_collection_threshold:NaN: must be between 0 and 1",
            ),
            (
                "roundup_power2_divisions:3",
                "roundup_power2_divisions:3: must be a power of two, or 0 for none",
            ),
            (
                "roundup_power2_divisions:[3:4]",
                "roundup_power2_divisions:[3:4]: must be a power of two, or a list like [256:1,512:2,>:8]",
            ),
            (
                "expandable_segment:True",
                "expandable_segment:True: no such setting, did you mean 'expandable_segments'?",
            ),
            (
                "max_split_size_mb:99999999999999999999",
                "max_split_size_mb:99999999999999999999: must be a number of MiB",
            ),
        ] {
            assert_eq!(text.parse::<TorchConfig>().unwrap_err().to_string(), message);
        }
    }
}
