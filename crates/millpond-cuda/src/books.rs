//! What was asked of the driver and not given back.
//!
//! A block leaves the books before the driver is asked to free it, because from then on its address may be another block's; it comes
//! back if the driver refuses. No lock is held during a call.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::libcuda_ffi::PinnedMemory;

/// Blocks of one kind, by address. `bytes == Σ sizes`
#[derive(Debug, Default)]
pub(crate) struct Blocks(Mutex<BlocksOfKind>);

#[derive(Debug, Default)]
struct BlocksOfKind {
    sizes: HashMap<u64, usize>,
    bytes: usize,
}

impl Blocks {
    pub(crate) fn insert(&self, ptr: u64, bytes: usize) {
        let blocks = &mut *self.0.lock();
        blocks.bytes += bytes;
        // The driver gives an address again only after it was freed, if need be by somebody else.
        blocks.bytes -= blocks.sizes.insert(ptr, bytes).unwrap_or(0);
    }

    pub(crate) fn take(&self, ptr: u64) -> Option<usize> {
        let blocks = &mut *self.0.lock();
        let bytes = blocks.sizes.remove(&ptr)?;
        blocks.bytes -= bytes;
        Some(bytes)
    }

    /// Takes a block only if it is of this size.
    pub(crate) fn take_sized(&self, ptr: u64, bytes: usize) -> bool {
        let blocks = &mut *self.0.lock();
        let is_it = blocks.sizes.get(&ptr) == Some(&bytes);
        if is_it {
            blocks.sizes.remove(&ptr);
            blocks.bytes -= bytes;
        }
        is_it
    }

    /// Takes everything.
    pub(crate) fn take_all(&self) -> Vec<(u64, usize)> {
        std::mem::take(&mut *self.0.lock()).sizes.into_iter().collect()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.lock().bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().sizes.len()
    }
}

/// Pinned memory, by address.
#[derive(Debug, Default)]
pub(crate) struct PinnedBlocks(Mutex<HashMap<u64, PinnedMemory>>);

impl PinnedBlocks {
    pub(crate) fn insert(&self, memory: PinnedMemory) {
        let before = self.0.lock().insert(memory.address(), memory);
        assert!(before.is_none(), "the driver gave the same pinned memory twice");
    }

    pub(crate) fn take(&self, ptr: u64) -> Option<PinnedMemory> {
        self.0.lock().remove(&ptr)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.lock().values().map(PinnedMemory::bytes).sum()
    }
}

/// Stream-ordered blocks, by address: their pool and size.
#[derive(Debug, Default)]
pub(crate) struct OrderedBlocks(Mutex<HashMap<u64, (u64, usize)>>);

impl OrderedBlocks {
    pub(crate) fn insert(&self, ptr: u64, pool: u64, bytes: usize) {
        self.0.lock().insert(ptr, (pool, bytes));
    }

    pub(crate) fn take(&self, ptr: u64) -> Option<(u64, usize)> {
        self.0.lock().remove(&ptr)
    }

    /// Takes the addresses of all.
    pub(crate) fn take_all(&self) -> Vec<u64> {
        std::mem::take(&mut *self.0.lock()).into_keys().collect()
    }

    /// Bytes of the blocks of pools that are not among these: destroyed ones, which live on until their last block.
    pub(crate) fn bytes_outside(&self, pools: &[u64]) -> usize {
        let blocks = self.0.lock();
        blocks.values().filter(|(pool, _)| !pools.contains(pool)).map(|(_, bytes)| bytes).sum()
    }
}

/// Physical bytes that are held: for as long as there is a handle of them or a mapping.
#[derive(Debug)]
pub(crate) struct HeldBytes {
    bytes: usize,
    total: Arc<AtomicUsize>,
}

impl HeldBytes {
    pub(crate) fn new(bytes: usize, total: &Arc<AtomicUsize>) -> Arc<HeldBytes> {
        // Relaxed: a count that orders nothing.
        total.fetch_add(bytes, Ordering::Relaxed);
        Arc::new(HeldBytes { bytes, total: Arc::clone(total) })
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// What is mapped where.
#[derive(Debug, Default)]
pub(crate) struct Mappings(Mutex<BTreeMap<u64, Mapping>>);

/// One mapping.
#[derive(Debug)]
pub(crate) struct Mapping {
    bytes: usize,
    /// Kept for its drop.
    _held: Arc<HeldBytes>,
}

impl Mappings {
    pub(crate) fn insert(&self, ptr: u64, bytes: usize, held: Arc<HeldBytes>) {
        self.0.lock().insert(ptr, Mapping { bytes, _held: held });
    }

    /// Takes the mappings that lie in a range, if they fill it without gaps and none of them reaches out of it.
    pub(crate) fn take(&self, ptr: u64, bytes: usize) -> Option<Vec<(u64, Mapping)>> {
        let end = ptr.checked_add(bytes as u64).filter(|_| bytes > 0)?;
        let mut mappings = self.0.lock();
        let mut reached = ptr;
        for (start, mapping) in mappings.range(ptr..end) {
            if *start != reached {
                return None;
            }
            reached = start + mapping.bytes as u64;
        }
        if reached != end {
            return None;
        }
        let starts: Vec<u64> = mappings.range(ptr..end).map(|(start, _)| *start).collect();
        Some(starts.into_iter().filter_map(|start| mappings.remove_entry(&start)).collect())
    }

    /// Takes everything: addresses and sizes.
    pub(crate) fn take_all(&self) -> Vec<(u64, usize)> {
        let all = std::mem::take(&mut *self.0.lock());
        all.into_iter().map(|(ptr, mapping)| (ptr, mapping.bytes)).collect()
    }

    /// Puts back what was taken.
    pub(crate) fn put_back(&self, taken: Vec<(u64, Mapping)>) {
        self.0.lock().extend(taken);
    }

    /// Whether anything is mapped in a range.
    pub(crate) fn any_in(&self, ptr: u64, bytes: usize) -> bool {
        let end = ptr.saturating_add(bytes as u64);
        let mappings = self.0.lock();
        // The last that begins before the end is the only one that can reach in.
        let last = mappings.range(..end).next_back();
        last.is_some_and(|(start, mapping)| start + mapping.bytes as u64 > ptr)
    }

    /// Whether a range is mapped from its beginning to its end.
    pub(crate) fn fill(&self, ptr: u64, bytes: usize) -> bool {
        let Some(end) = ptr.checked_add(bytes as u64).filter(|_| bytes > 0) else { return false };
        let mappings = self.0.lock();
        let first = mappings.range(..=ptr).next_back().map_or(ptr, |(start, _)| *start);
        let mut reached = first;
        for (start, mapping) in mappings.range(first..end) {
            if *start != reached {
                return false;
            }
            reached = start + mapping.bytes as u64;
        }
        reached >= end
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::{Blocks, HeldBytes, Mappings, OrderedBlocks};

    #[test]
    fn blocks_add_up() {
        let blocks = Blocks::default();
        blocks.insert(100, 10);
        blocks.insert(200, 20);
        assert!(!blocks.take_sized(200, 19) && blocks.bytes() == 30);
        assert!(blocks.take_sized(200, 20) && blocks.bytes() == 10);
        assert_eq!((blocks.take(100), blocks.take(100)), (Some(10), None));
        // Freed behind our back, and given again.
        blocks.insert(100, 10);
        blocks.insert(100, 30);
        assert_eq!((blocks.bytes(), blocks.len()), (30, 1));
    }

    #[test]
    fn only_whole_mappings_are_taken() {
        let total = Arc::default();
        let mappings = Mappings::default();
        let held: Vec<_> = (0..3).map(|_| HeldBytes::new(10, &total)).collect();
        for (number, held) in held.iter().enumerate() {
            mappings.insert(100 + 10 * number as u64, 10, Arc::clone(held));
        }
        for (ptr, bytes) in
            [(100, 5), (100, 15), (105, 10), (95, 20), (120, 20), (130, 10), (100, 0)]
        {
            assert!(mappings.take(ptr, bytes).is_none(), "{ptr} {bytes}");
        }
        assert!(mappings.take(u64::MAX, 10).is_none());
        drop(held);
        assert_eq!(count(&total), 30, "mapped memory is held");
        for (ptr, bytes) in [(100, 30), (100, 5), (105, 10), (129, 1)] {
            assert!(mappings.fill(ptr, bytes) && mappings.any_in(ptr, bytes), "{ptr} {bytes}");
        }
        for (ptr, bytes) in [(99, 2), (100, 31), (130, 1), (0, 10), (100, 0), (u64::MAX, 9)] {
            assert!(!mappings.fill(ptr, bytes), "{ptr} {bytes}");
        }
        assert!(mappings.any_in(95, 6) && !mappings.any_in(95, 5) && !mappings.any_in(130, 9));
        let two = mappings.take(100, 20).unwrap();
        assert!(mappings.any_in(0, 1000) && !mappings.any_in(0, 120));
        mappings.put_back(two);
        drop(mappings.take(100, 30).unwrap());
        assert_eq!(count(&total), 0);
    }

    fn count(total: &Arc<AtomicUsize>) -> usize {
        total.load(Ordering::Relaxed)
    }

    #[test]
    fn blocks_of_destroyed_pools_are_known() {
        let blocks = OrderedBlocks::default();
        blocks.insert(1, 7, 100);
        blocks.insert(2, 8, 50);
        assert_eq!(blocks.bytes_outside(&[7]), 50);
        assert_eq!(blocks.take(2), Some((8, 50)));
        assert_eq!(blocks.bytes_outside(&[7]), 0);
    }
}
