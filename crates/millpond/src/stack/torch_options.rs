//! PyTorch's settings as options of a stack.

use super::entry::{Kind, MakeError, OptionSpec};
use super::options::Options;
use crate::resource::{TorchConfig, TorchConfigError};

const DIVISIONS: &str = "power of two, or a list such as [256:1,512:2,>:8]";

/// The fields of [`TorchConfig`] with their defaults, under PyTorch's names but that sizes are sizes.
pub(super) const TORCH_OPTIONS: &[OptionSpec] = &[
    OptionSpec::new(
        "max_split_size",
        Kind::SizeOrNone,
        "none",
        "blocks of this size and more are never split; 20MiB at least",
    ),
    OptionSpec::new(
        "max_non_split_rounding",
        Kind::Size,
        "20MiB",
        "by how much a block that is not split may be too large",
    ),
    OptionSpec::new(
        "garbage_collection_threshold",
        Kind::FractionOrNone,
        "none",
        "the reserved share of the allowed memory above which unused segments go",
    ),
    OptionSpec::new(
        "roundup_power2_divisions",
        Kind::Text(DIVISIONS),
        "0",
        "into how many steps each doubling of sizes is divided; 0: multiples of 512 bytes",
    ),
    OptionSpec::new(
        "expandable_segments",
        Kind::Switch,
        "false",
        "one segment for each stream and pool, which grows by mapping pages",
    ),
    OptionSpec::new(
        "per_process_memory_fraction",
        Kind::FractionOrNone,
        "none",
        "the share of the device's memory that may be reserved",
    ),
];

pub(super) fn torch_config(options: &Options) -> Result<TorchConfig, MakeError> {
    let divisions =
        format!("roundup_power2_divisions:{}", options.text("roundup_power2_divisions"));
    let config = TorchConfig {
        max_split_bytes: options.size_or_none("max_split_size"),
        max_non_split_rounding_bytes: options.size("max_non_split_rounding"),
        garbage_collection_threshold: options.fraction_or_none("garbage_collection_threshold"),
        expandable_segments: options.switch("expandable_segments"),
        memory_fraction: options.fraction_or_none("per_process_memory_fraction"),
        ..divisions.parse().map_err(refused)?
    };
    config.check().map_err(refused)?;
    Ok(config)
}

/// PyTorch counts sizes in MiB, and says so in the name.
fn refused(error: TorchConfigError) -> MakeError {
    match error.key.strip_suffix("_mb") {
        Some(size) => MakeError::value(size, "must be 20MiB at least"),
        None => MakeError::value(&error.key, error.remedy),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_pytorchs_own_defaults() {
        let options = Options::new(TORCH_OPTIONS, Vec::new()).unwrap();
        assert_eq!(torch_config(&options), Ok(TorchConfig::default()));
    }
}
