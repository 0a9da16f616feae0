//! What is tried: every allocator that takes device memory, and the settings that users of each turn.

use anyhow::Result;
use millpond::Stack;
use millpond::pool::PoolConfig;

/// The setting that PyTorch's pools have otherwise than others.
pub(super) const THREAD_CACHE: &str = "thread_cache_max_bytes";

/// What PyTorch does when nobody sets anything: what everything else is compared with.
pub(crate) const USUAL: &str = "torch";

const STACKS_BEFORE_POOLS: [&str; 9] = [
    USUAL,
    "torch:expandable_segments=true",
    "torch:roundup_power2_divisions=4",
    "torch:roundup_power2_divisions=8",
    "torch:garbage_collection_threshold=0.8",
    "torch:max_split_size=128MiB",
    "torch:max_split_size=512MiB",
    "async",
    "async:release_threshold_bytes=0B",
];
const SLACKS_OF_POOLS: [Option<&str>; 6] =
    [None, Some("0"), Some("0.02"), Some("0.05"), Some("0.1"), Some("0.3")];
const STACKS_BEHIND_POOLS: [&str; 7] =
    ["bestfit", "bfc", "arena", "buddy", "binning", "slab", "direct"];

/// Whose job was recorded, and so which pool it would get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recorder {
    PyTorch,
    Other,
}

pub(crate) fn for_job_of(recorder: Recorder) -> Result<Vec<Stack>> {
    let pools = SLACKS_OF_POOLS.map(|slack| pool(slack, recorder));
    let others = |stacks: &[&str]| stacks.iter().map(ToString::to_string).collect::<Vec<_>>();
    let texts = [others(&STACKS_BEFORE_POOLS), pools.to_vec(), others(&STACKS_BEHIND_POOLS)];
    texts.iter().flatten().map(|text| Ok(text.parse()?)).collect()
}

fn pool(slack: Option<&str>, recorder: Recorder) -> String {
    let slack = slack.map(|slack| format!("slack={slack}"));
    let cache = (recorder == Recorder::PyTorch).then(|| {
        let mib = PoolConfig::PYTORCH_THREAD_CACHE_MAX_BYTES >> 20;
        format!("{THREAD_CACHE}={mib}MiB")
    });
    let options: Vec<String> = slack.into_iter().chain(cache).collect();
    if options.is_empty() { "pool".to_owned() } else { format!("pool:{}", options.join(",")) }
}
