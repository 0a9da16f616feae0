//! Which physical memory lies under which addresses: a handle is given back as a whole, or not.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use millpond::driver::{Around, MemoryChange, PhysicalHandle};
use parking_lot::Mutex;

/// Sees what is mapped and unmapped.
#[derive(Clone, Debug, Default)]
pub(super) struct Mappings(Arc<Mutex<BTreeMap<u64, Mapping>>>);

#[derive(Clone, Copy, Debug)]
struct Mapping {
    bytes: u64,
    handle: PhysicalHandle,
}

impl Mappings {
    /// The bytes of all handles that lie under some of these addresses.
    pub(super) fn bytes_under(&self, ranges: impl IntoIterator<Item = Range<u64>>) -> usize {
        let mappings = self.0.lock();
        let mut handles = BTreeSet::new();
        for range in ranges {
            let before = mappings.range(..=range.start).next_back().map(|(start, _)| *start);
            let under = mappings.range(before.unwrap_or(range.start)..range.end);
            let touched = under.filter(|(start, mapping)| *start + mapping.bytes > range.start);
            handles.extend(touched.map(|(_, mapping)| (mapping.handle, mapping.bytes)));
        }
        handles.into_iter().map(|(_, bytes)| bytes as usize).sum()
    }
}

impl Around for Mappings {
    fn around<T>(&self, call: impl FnOnce() -> T) -> T {
        call()
    }

    fn memory_changed(&self, change: MemoryChange) {
        let mut mappings = self.0.lock();
        match change {
            MemoryChange::Mapped(ptr, bytes, handle) => {
                mappings.insert(ptr.0, Mapping { bytes: bytes as u64, handle });
            }
            MemoryChange::Unmapped(ptr, bytes) => {
                mappings.retain(|start, _| !(ptr.0..ptr.0 + bytes as u64).contains(start));
            }
            MemoryChange::Allocated(..) | MemoryChange::Freed(_) => {}
        }
    }
}
