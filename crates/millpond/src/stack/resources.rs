//! The resources that can be named.

use std::sync::Arc;

use super::entry::{Kind, MakeError, OptionSpec, ResourceEntry};
use super::handles::Handles;
use super::options::Options;
use super::pool_options::{POOL_OPTIONS, pool_config};
use super::torch_options::{TORCH_OPTIONS, torch_config};
use crate::driver::Driver;
use crate::pool::Pool;
use crate::resource::{
    Arena, ArenaConfig, Async, AsyncConfig, BestFit, BestFitConfig, Bfc, BfcConfig, Binning,
    BinningConfig, Buddy, BuddyConfig, Direct, FixedSize, FixedSizeConfig, Managed, ManagedConfig,
    Pinned, PinnedConfig, PyTorchCaching, Resource, Slab, SlabConfig, TorchConfigError,
};

/// All of them, in the order in which they are shown. A new one is one entry.
///
/// Options have the names and defaults of the fields of the resource's settings.
pub static RESOURCES: &[ResourceEntry] = &[
    ResourceEntry {
        name: "pool",
        about: "thread caches over best fit in addresses, with memory that has several addresses",
        options: POOL_OPTIONS,
        make: |options, driver, handles| {
            let pool = Pool::with_config(driver, pool_config(options))?;
            handles.pool = Some(pool.clone());
            Ok(Arc::new(pool))
        },
    },
    ResourceEntry {
        name: "direct",
        about: "every block is a plain allocation of the driver",
        options: &[],
        make: |_, driver, _| Ok(Arc::new(Direct::new(driver))),
    },
    ResourceEntry {
        name: "async",
        about: "the driver's own stream-ordered pool (cudaMallocAsync)",
        options: &[
            INITIAL,
            MAXIMUM,
            OptionSpec::new(
                "release_threshold_bytes",
                Kind::SizeOrNone,
                "none",
                "what the pool keeps unused when the host waits; none: all of it",
            ),
            OptionSpec::new(
                "follow_event_dependencies",
                Kind::Switch,
                "true",
                "reuse across streams that events order",
            ),
            OptionSpec::new(
                "allow_opportunistic",
                Kind::Switch,
                "true",
                "reuse across streams what has run",
            ),
            OptionSpec::new(
                "allow_internal_dependencies",
                Kind::Switch,
                "true",
                "reuse across streams by making the taker wait",
            ),
        ],
        make: |options, driver, _| Ok(Arc::new(Async::with_config(driver, async_config(options))?)),
    },
    ResourceEntry {
        name: "managed",
        about: "every block is memory that migrates between host and device",
        options: &[LIVE_MAXIMUM],
        make: |options, driver, _| {
            let config = ManagedConfig { maximum_bytes: options.size_or_none("maximum_bytes") };
            Ok(Arc::new(Managed::with_config(driver, config)))
        },
    },
    ResourceEntry {
        name: "pinned",
        about: "every block is host memory that the device reaches",
        options: &[LIVE_MAXIMUM],
        make: |options, driver, _| {
            let config = PinnedConfig { maximum_bytes: options.size_or_none("maximum_bytes") };
            Ok(Arc::new(Pinned::with_config(driver, config)))
        },
    },
    ResourceEntry {
        name: "bestfit",
        about: "best fit with coalescing over large blocks (RMM's pool)",
        options: &[INITIAL, MAXIMUM, UPSTREAM],
        make: |options, driver, _| {
            let upstream = upstream(options, driver)?;
            Ok(Arc::new(BestFit::with_config(upstream, best_fit_config(options))?))
        },
    },
    ResourceEntry {
        name: "arena",
        about: "an arena for each stream and thread over a global one, first fit (RMM's arena)",
        options: &[
            OptionSpec::new(
                "arena_bytes",
                Kind::SizeOrNone,
                "none",
                "all it ever has; none: half of what is free",
            ),
            UPSTREAM,
        ],
        make: |options, driver, _| {
            let upstream = upstream(options, driver)?;
            let config = ArenaConfig { arena_bytes: options.size_or_none("arena_bytes") };
            Ok(Arc::new(Arena::with_config(upstream, config)?))
        },
    },
    ResourceEntry {
        name: "bfc",
        about: "best fit with coalescing, in bins, over doubling regions (TensorFlow's)",
        options: &[
            OptionSpec::new(
                "maximum_bytes",
                Kind::SizeOrNone,
                "none",
                "the most it takes; none: the device's memory",
            ),
            OptionSpec::new("first_region_bytes", Kind::Size, "2MiB", "each region doubles"),
            OptionSpec::new(
                "most_waste_bytes",
                Kind::Size,
                "128MiB",
                "what may be left unused in a chunk less than twice too large",
            ),
            OptionSpec::new(
                "releases_regions",
                Kind::Switch,
                "true",
                "whether unused regions go back when memory is out",
            ),
            UPSTREAM,
        ],
        make: |options, driver, _| {
            let upstream = upstream(options, driver)?;
            Ok(Arc::new(Bfc::with_config(upstream, bfc_config(options))?))
        },
    },
    ResourceEntry {
        name: "buddy",
        about: "powers of two that split into halves and merge again (buddy system)",
        options: &[
            OptionSpec::new(
                "region_bytes",
                Kind::Size,
                "64MiB",
                "what it takes at a time, of any size",
            ),
            MAXIMUM,
            UPSTREAM,
        ],
        make: |options, driver, _| {
            let upstream = upstream(options, driver)?;
            Ok(Arc::new(Buddy::with_config(upstream, buddy_config(options))?))
        },
    },
    ResourceEntry {
        name: "slab",
        about: "caches of objects of equal size in slabs (slab allocator)",
        options: &[
            OptionSpec::new("slab_bytes", Kind::Size, "2MiB", "the size of a slab"),
            OptionSpec::new(
                "largest_object_bytes",
                Kind::Size,
                "256KiB",
                "larger blocks come from upstream themselves",
            ),
            OptionSpec::new(
                "empty_slabs_kept",
                Kind::Count,
                "1",
                "empty slabs that each cache keeps for the next time",
            ),
            UPSTREAM,
        ],
        make: |options, driver, _| {
            let upstream = upstream(options, driver)?;
            Ok(Arc::new(Slab::with_config(upstream, slab_config(options))?))
        },
    },
    ResourceEntry {
        name: "binning",
        about: "sizes routed to pools of one size each (RMM's binning)",
        options: &[
            OptionSpec::new(
                "least_exponent",
                Kind::Count,
                "18",
                "the smallest bin has 2 to this power bytes",
            ),
            OptionSpec::new(
                "most_exponent",
                Kind::Count,
                "22",
                "the largest bin has 2 to this power bytes; larger blocks come from upstream",
            ),
            BLOCKS_PER_CHUNK,
            UPSTREAM,
        ],
        make: |options, driver, _| {
            let upstream = upstream(options, driver)?;
            Ok(Arc::new(Binning::with_config(upstream, binning_config(options))?))
        },
    },
    ResourceEntry {
        name: "fixed",
        about: "blocks of one size; larger ones are refused (RMM's fixed size)",
        options: &[
            OptionSpec::new("block_bytes", Kind::Size, "1MiB", "the size of every block"),
            BLOCKS_PER_CHUNK,
            UPSTREAM,
        ],
        make: |options, driver, _| {
            let upstream = upstream(options, driver)?;
            Ok(Arc::new(FixedSize::with_config(upstream, fixed_size_config(options))?))
        },
    },
    ResourceEntry {
        name: "torch",
        about: "segments cut by best fit for each stream (PyTorch's caching allocator)",
        options: TORCH_OPTIONS,
        make: |options, driver, _| {
            let made = PyTorchCaching::with_config(driver, torch_config(options)?);
            let made =
                made.map_err(|TorchConfigError { key, remedy, .. }| MakeError::value(&key, remedy));
            Ok(Arc::new(made?))
        },
    },
];

const INITIAL: OptionSpec =
    OptionSpec::new("initial_bytes", Kind::Size, "0B", "taken when it is made");
const MAXIMUM: OptionSpec =
    OptionSpec::new("maximum_bytes", Kind::SizeOrNone, "none", "the most it takes");
const LIVE_MAXIMUM: OptionSpec =
    OptionSpec::new("maximum_bytes", Kind::SizeOrNone, "none", "what may be live at most");
const BLOCKS_PER_CHUNK: OptionSpec =
    OptionSpec::new("blocks_per_chunk", Kind::Count, "128", "blocks taken from upstream at a time");
const UPSTREAM: OptionSpec = OptionSpec::new(
    "upstream",
    Kind::OneOf(&["direct", "async", "managed", "pinned", "bestfit", "bfc", "pool"]),
    "direct",
    "what it takes its memory from",
);

/// What a resource takes its memory from, with the settings that it has if nothing is said.
fn upstream(options: &Options, driver: Arc<dyn Driver>) -> Result<Arc<dyn Resource>, MakeError> {
    let name = options.word("upstream");
    let entry = RESOURCES.iter().find(|entry| entry.name == name).expect("is one of the table");
    let defaults = Options::new(entry.options, Vec::new());
    let defaults = defaults.expect("resources need no options");
    (entry.make)(&defaults, driver, &mut Handles::default())
}

fn async_config(options: &Options) -> AsyncConfig {
    AsyncConfig {
        initial_bytes: options.size("initial_bytes"),
        maximum_bytes: options.size_or_none("maximum_bytes"),
        release_threshold_bytes: options.size_or_none("release_threshold_bytes"),
        follow_event_dependencies: options.switch("follow_event_dependencies"),
        allow_opportunistic: options.switch("allow_opportunistic"),
        allow_internal_dependencies: options.switch("allow_internal_dependencies"),
    }
}

fn best_fit_config(options: &Options) -> BestFitConfig {
    BestFitConfig {
        initial_bytes: options.size("initial_bytes"),
        maximum_bytes: options.size_or_none("maximum_bytes"),
    }
}

fn bfc_config(options: &Options) -> BfcConfig {
    BfcConfig {
        maximum_bytes: options.size_or_none("maximum_bytes"),
        first_region_bytes: options.size("first_region_bytes"),
        most_waste_bytes: options.size("most_waste_bytes"),
        releases_regions: options.switch("releases_regions"),
    }
}

fn buddy_config(options: &Options) -> BuddyConfig {
    BuddyConfig {
        region_bytes: options.size("region_bytes"),
        maximum_bytes: options.size_or_none("maximum_bytes"),
    }
}

fn slab_config(options: &Options) -> SlabConfig {
    SlabConfig {
        slab_bytes: options.size("slab_bytes"),
        largest_object_bytes: options.size("largest_object_bytes"),
        empty_slabs_kept: number(options, "empty_slabs_kept"),
    }
}

fn binning_config(options: &Options) -> BinningConfig {
    BinningConfig {
        least_exponent: exponent(options, "least_exponent"),
        most_exponent: exponent(options, "most_exponent"),
        blocks_per_chunk: number(options, "blocks_per_chunk"),
    }
}

fn fixed_size_config(options: &Options) -> FixedSizeConfig {
    FixedSizeConfig {
        block_bytes: options.size("block_bytes"),
        blocks_per_chunk: number(options, "blocks_per_chunk"),
    }
}

/// What no machine can count the resource refuses itself, as too large.
fn number(options: &Options, name: &str) -> usize {
    usize::try_from(options.count(name)).unwrap_or(usize::MAX)
}

fn exponent(options: &Options, name: &str) -> u32 {
    u32::try_from(options.count(name)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defaults(name: &str) -> Options {
        let entry = RESOURCES.iter().find(|entry| entry.name == name).unwrap();
        Options::new(entry.options, Vec::new()).unwrap()
    }

    #[test]
    fn the_table_has_the_resources_own_defaults() {
        assert_eq!(async_config(&defaults("async")), AsyncConfig::default());
        assert_eq!(best_fit_config(&defaults("bestfit")), BestFitConfig::default());
        assert_eq!(bfc_config(&defaults("bfc")), BfcConfig::default());
        assert_eq!(buddy_config(&defaults("buddy")), BuddyConfig::default());
        assert_eq!(slab_config(&defaults("slab")), SlabConfig::default());
        assert_eq!(binning_config(&defaults("binning")), BinningConfig::default());
        assert_eq!(fixed_size_config(&defaults("fixed")), FixedSizeConfig::default());
    }

    #[test]
    fn every_upstream_that_can_be_chosen_is_a_resource() {
        let Kind::OneOf(words) = UPSTREAM.kind else { panic!("upstreams are words") };
        for word in words {
            assert!(RESOURCES.iter().any(|entry| entry.name == *word), "{word}");
        }
    }
}
