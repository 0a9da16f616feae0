//! What must be true between any two calls.

use std::collections::BTreeMap;

use super::allocator::Allocator;
use super::block::BlockState;
use super::segment::Segment;
use super::sizes::PoolKind;
use crate::driver::DevicePtr;

impl Allocator {
    /// # Panics
    /// If the books are wrong.
    pub(super) fn assert_valid(&self) {
        let (mut live_bytes, mut live_blocks) = (0, 0);
        let mut ends: BTreeMap<DevicePtr, DevicePtr> = BTreeMap::new();
        let mut before = None;
        for (&ptr, block) in &self.books.blocks {
            let end = ends.entry(block.segment).or_insert(block.segment);
            assert_eq!(*end, ptr, "blocks fill their segment, end to end");
            *end = ptr.offset(block.bytes);
            if let Some(before) = before.replace(block) {
                assert!(!block.merges_with(before), "{before:?} and {block:?} at {ptr} are one");
            }
            let free = self.books.pool(block.pool);
            let entry = (block.bytes, ptr);
            let mapped = free.mapped.get(&block.stream).is_some_and(|set| set.contains(&entry));
            let unmapped = free.unmapped.get(&block.stream).is_some_and(|set| set.contains(&ptr));
            let is_unmapped = block.state == BlockState::Unmapped;
            assert_eq!((mapped, unmapped), (block.is_free(), is_unmapped), "{block:?} at {ptr}");
            if block.state == BlockState::Live {
                live_bytes += block.requested_bytes;
                live_blocks += 1;
            }
        }
        let usage = &self.usage;
        assert_eq!((live_bytes, live_blocks), (usage.live_bytes, usage.live_blocks));
        assert_eq!(ends.len(), self.segments.len(), "every segment has blocks");
        let mut reserved_bytes = 0;
        for (begin, segment) in &self.segments {
            let (bytes, of_driver) = match segment {
                Segment::Plain { bytes } => (*bytes, *bytes),
                Segment::Expandable(segment) => (segment.bytes, segment.memory_bytes()),
            };
            assert_eq!(ends[begin], begin.offset(bytes), "blocks fill the segment at {begin}");
            reserved_bytes += of_driver;
        }
        assert_eq!(reserved_bytes, usage.reserved_bytes);
        let listed = [PoolKind::Small, PoolKind::Large].map(|kind| {
            let free = self.books.pool(kind);
            let mapped: usize = free.mapped.values().map(|set| set.len()).sum();
            mapped + free.unmapped.values().map(|set| set.len()).sum::<usize>()
        });
        let nobodys =
            self.books.blocks.values().filter(|block| {
                matches!(block.state, BlockState::Free { .. } | BlockState::Unmapped)
            });
        assert_eq!(listed[0] + listed[1], nobodys.count(), "nothing else is listed");
    }
}
