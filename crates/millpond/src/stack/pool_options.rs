//! The pool's settings as options of a stack.

use super::entry::{Kind, OptionSpec};
use super::options::Options;
use crate::pool::PoolConfig;

/// The fields of [`PoolConfig`] with their defaults.
pub(super) const POOL_OPTIONS: &[OptionSpec] = &[
    OptionSpec::new("alignment", Kind::Size, "256B", "every address is a multiple of this"),
    OptionSpec::new(
        "thread_cache_max_blocks",
        Kind::Count,
        "64",
        "blocks of one size that a thread keeps for a stream; 0: no thread caches",
    ),
    OptionSpec::new(
        "thread_cache_max_bytes",
        Kind::Size,
        "64MiB",
        "bytes that a thread keeps for a stream",
    ),
    OptionSpec::new(
        "global_cache_max_blocks",
        Kind::Count,
        "1024",
        "blocks of one class that all threads together keep for a stream; 0: no global cache",
    ),
    OptionSpec::new(
        "global_cache_max_bytes",
        Kind::Size,
        "64MiB",
        "bytes that all threads together keep for a stream",
    ),
    OptionSpec::new(
        "batch_alloc_count",
        Kind::Count,
        "16",
        "blocks that go to a thread cache at a time",
    ),
    OptionSpec::new(
        "slack",
        Kind::Fraction,
        "0.08",
        "how much more than was live may be reserved before memory is used at other addresses",
    ),
    OptionSpec::new(
        "direct_above_bytes",
        Kind::SizeOrNone,
        "none",
        "larger blocks are plain allocations of the driver",
    ),
    OptionSpec::new(
        "release_threshold_bytes",
        Kind::SizeOrNone,
        "none",
        "unused memory goes back to the driver while more than this is reserved",
    ),
    OptionSpec::new(
        "defrag_threshold",
        Kind::Fraction,
        "0.3",
        "the unused share above which the background empties caches",
    ),
    OptionSpec::new(
        "defrag_interval_ms",
        Kind::Count,
        "5000",
        "how often the background looks, in milliseconds",
    ),
    OptionSpec::new("enable_stats", Kind::Switch, "true", "whether the pool counts what it does"),
    OptionSpec::new("enable_defrag", Kind::Switch, "true", "whether the background looks at all"),
    OptionSpec::new(
        "grow_ahead",
        Kind::Switch,
        "false",
        "whether the background creates memory before a request wants it",
    ),
    OptionSpec::new(
        "oom_snapshot",
        Kind::PathOrNone,
        "none",
        "where to write a snapshot of the memory when it runs out",
    ),
];

pub(super) fn pool_config(options: &Options) -> PoolConfig {
    // What no machine can count is refused by the pool's own check, as too large.
    let count = |name| usize::try_from(options.count(name)).unwrap_or(usize::MAX);
    PoolConfig {
        alignment: options.size("alignment"),
        thread_cache_max_blocks: count("thread_cache_max_blocks"),
        thread_cache_max_bytes: options.size("thread_cache_max_bytes"),
        global_cache_max_blocks: count("global_cache_max_blocks"),
        global_cache_max_bytes: options.size("global_cache_max_bytes"),
        batch_alloc_count: count("batch_alloc_count"),
        slack: options.fraction("slack"),
        direct_above_bytes: options.size_or_none("direct_above_bytes"),
        release_threshold_bytes: options.size_or_none("release_threshold_bytes"),
        defrag_threshold: options.fraction("defrag_threshold"),
        defrag_interval_ms: options.count("defrag_interval_ms"),
        enable_stats: options.switch("enable_stats"),
        enable_defrag: options.switch("enable_defrag"),
        grow_ahead: options.switch("grow_ahead"),
        oom_snapshot: options.path_or_none("oom_snapshot").map(Into::into),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_the_pools_own_defaults() {
        let options = Options::new(POOL_OPTIONS, Vec::new()).unwrap();
        assert_eq!(pool_config(&options), PoolConfig::default());
    }
}
