//! Names that blocks were allocated under.

use std::collections::BTreeMap;

use millpond::driver::DevicePtr;
use millpond::pool::{TagScope, TagUsage, tag};
use millpond_tests::conformance::Wrong;

use super::Machine;
use crate::transition::Name;

/// The scopes that a thread is in while this lives. The innermost ends first.
pub(super) struct Scopes(Vec<TagScope>);

impl Scopes {
    pub(super) fn enter(name: Name) -> Scopes {
        Scopes(name.iter().copied().map(tag).collect())
    }
}

impl Drop for Scopes {
    fn drop(&mut self) {
        while let Some(innermost) = self.0.pop() {
            drop(innermost);
        }
    }
}

/// The named blocks that are held: their name, and how large they are.
#[derive(Default)]
pub(super) struct Tags(BTreeMap<DevicePtr, (String, u64)>);

impl Tags {
    pub(super) fn allocated(&mut self, ptr: DevicePtr, bytes: usize, name: Name) {
        if !name.is_empty() {
            self.0.insert(ptr, (name.join("/"), bytes as u64));
        }
    }

    pub(super) fn freed(&mut self, ptr: DevicePtr) {
        self.0.remove(&ptr);
    }

    /// By name, the largest first.
    fn sums(&self) -> Vec<TagUsage> {
        let mut sums: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for (name, bytes) in self.0.values() {
            let (live_bytes, live_blocks) = sums.entry(name).or_default();
            *live_bytes += bytes;
            *live_blocks += 1;
        }
        let usage = |(tag, (live_bytes, live_blocks)): (&str, (u64, u64))| TagUsage {
            tag: tag.to_owned(),
            live_bytes,
            live_blocks,
        };
        let mut sums: Vec<TagUsage> = sums.into_iter().map(usage).collect();
        // Stable: what is equal stays in the order of names.
        sums.sort_by_key(|usage| std::cmp::Reverse(usage.live_bytes));
        sums
    }
}

impl Machine {
    pub(super) fn check_tags(&self) -> Result<(), Wrong> {
        let (expected, said) = (self.tags.sums(), self.pool.live_by_tag());
        match said == expected {
            true => Ok(()),
            false => Err(format!("by name {expected:?} is live, but the pool says {said:?}")),
        }
    }
}
