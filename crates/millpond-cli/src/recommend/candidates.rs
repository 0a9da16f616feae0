//! What is tried: every allocator that takes device memory, and the settings that users of each turn.

use anyhow::Result;
use millpond::Stack;

/// What PyTorch does when nobody sets anything: what everything else is compared with.
pub(crate) const USUAL: &str = "torch";

const STACKS: [&str; 22] = [
    USUAL,
    "torch:expandable_segments=true",
    "torch:roundup_power2_divisions=4",
    "torch:roundup_power2_divisions=8",
    "torch:garbage_collection_threshold=0.8",
    "torch:max_split_size=128MiB",
    "torch:max_split_size=512MiB",
    "async",
    "async:release_threshold_bytes=0B",
    "pool",
    "pool:slack=0",
    "pool:slack=0.02",
    "pool:slack=0.05",
    "pool:slack=0.1",
    "pool:slack=0.3",
    "bestfit",
    "bfc",
    "arena",
    "buddy",
    "binning",
    "slab",
    "direct",
];

pub(crate) fn all() -> Result<Vec<Stack>> {
    STACKS.iter().map(|text| Ok(text.parse()?)).collect()
}
