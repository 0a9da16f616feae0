//! The pool's memory as PyTorch's memory viewer shows it.
//!
//! Why memory is out, in numbers.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::blocks::Header;
use super::heap::Use;
use super::tiers::{BelongsTo, Tiers};
use super::word::Kind;
use crate::driver::Driver;
use crate::resource::{AllocError, OutOfMemory, Recoverable};
use crate::trace::{
    Block, BlockState, EventKind, SegmentType, Setting, Snapshot, SnapshotEntry, SnapshotSegment,
    StackId,
};

impl Tiers {
    /// What stands in memory. Threads that allocate meanwhile may be seen half way.
    pub(super) fn snapshot(&self) -> Snapshot {
        if self.has_forked() {
            return Snapshot::default();
        }
        let mut segments = self.segments((0, 0));
        for (number, region) in self.all_regions().into_iter().enumerate() {
            let kind = u64::from(region.belongs_to == BelongsTo::Capture);
            segments.extend(region.segments((kind, 1 + number as u64)));
        }
        let config = self.settings.get();
        let allocator_settings = vec![
            ("allocator".to_owned(), Setting::Text("millpond".to_owned())),
            ("slack".to_owned(), Setting::Float(config.slack)),
        ];
        Snapshot { segments, allocator_settings, ..Snapshot::default() }
    }

    fn segments(&self, pool: (u64, u64)) -> Vec<SnapshotSegment> {
        let (ranges, pieces) = {
            let state = self.back.state();
            let mut pieces = Vec::new();
            let mut nodes: Vec<_> = state.heap.all().collect();
            nodes.sort_unstable_by_key(|node| node.start);
            for node in nodes {
                self.add_pieces(node.start, node.bytes, node.used_for, &mut pieces);
            }
            (state.ranges_with_memory(), pieces)
        };
        let mut pieces = pieces.into_iter().peekable();
        let mut segments = Vec::new();
        for (start, end) in ranges {
            let addr = self.back.address_of(start).0;
            let mut segment = SnapshotSegment {
                pool,
                expandable: self.back.has_pages(),
                segment_type: SegmentType::Large,
                ..SnapshotSegment::new(addr, end - start)
            };
            while let Some(&piece) = pieces.peek()
                && piece.addr < end
            {
                let (from, to) = (piece.addr.max(start), (piece.addr + piece.bytes).min(end));
                if from < to {
                    let addr = self.back.address_of(from).0;
                    segment.blocks.push(Block { addr, bytes: to - from, ..piece });
                }
                if piece.addr + piece.bytes > end {
                    break;
                }
                pieces.next();
            }
            segments.push(segment);
        }
        segments
    }

    /// The blocks that a node consists of.
    fn add_pieces(&self, start: u64, bytes: u64, used_for: Use, pieces: &mut Vec<Block>) {
        let unused = |addr, bytes, state| Block {
            addr,
            bytes,
            requested_bytes: 0,
            state,
            stack: StackId::NONE,
        };
        let header = match used_for {
            Use::Block | Use::Slab => {
                self.page_map.get(start).filter(|header| header.start() == start)
            }
            Use::Free | Use::Kept | Use::Leaving | Use::Outside => None,
        };
        let Some(header) = header else {
            let state = match used_for {
                Use::Leaving => BlockState::PendingFree,
                _ => BlockState::Free,
            };
            pieces.push(unused(start, bytes, state));
            return;
        };
        let mut end = start;
        for index in 0..header.blocks() {
            let (state, requested_bytes) = state_of(header, index);
            let bytes = header.block_bytes();
            pieces.push(Block { addr: end, bytes, requested_bytes, state, stack: StackId::NONE });
            end += bytes;
        }
        if end < start + bytes {
            pieces.push(unused(end, start + bytes - end, BlockState::Free));
        }
    }

    /// Writes a snapshot of a pool that has nothing for a request, if its settings say where. Returns what came of it.
    pub(super) fn write_oom_snapshot(&self, bytes: usize, device_free: usize) -> Option<String> {
        let path = self.settings.get().oom_snapshot?;
        let parent = self.parent.upgrade();
        let root: &Tiers = parent.as_ref().map_or(self, |parent: &Arc<Tiers>| parent);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let entry = SnapshotEntry {
            action: EventKind::Oom,
            addr: device_free as u64,
            bytes: bytes as u64,
            stream: 0,
            pool: (0, 0),
            time_us: now.as_micros() as u64,
            stack: StackId::NONE,
        };
        let snapshot = Snapshot { device_traces: vec![vec![entry]], ..root.snapshot() };
        Some(match snapshot.save(&path) {
            Ok(()) => format!("a snapshot is in {}", path.display()),
            Err(error) => error.to_string(),
        })
    }
}

fn state_of(header: &Header, index: usize) -> (BlockState, u64) {
    let now = header.word(index).now();
    match now.kind() {
        Kind::Live => (BlockState::Allocated, header.requested(now) as u64),
        // In a cache: free, but for one stream only as yet.
        Kind::Free | Kind::Cached | Kind::Remote => (BlockState::Free, 0),
    }
}

impl Tiers {
    /// The error for a request that nothing could serve.
    #[cold]
    pub(super) fn explain(&self, bytes: usize) -> AllocError {
        let free = self.back.driver().memory_info().map_or(0, |info| info.free_bytes);
        let usage = self.family_usage();
        let largest_hole = self.back.pending().largest_hole_bytes;
        AllocError::OutOfMemory(Box::new(OutOfMemory {
            requested_bytes: bytes,
            live_bytes: usage.live_bytes,
            reserved_bytes: usage.reserved_bytes,
            largest_free_bytes: usage.largest_free_bytes.max(largest_hole as usize),
            device_free_bytes: free,
            recoverable: self.recoverable(),
            snapshot: self.write_oom_snapshot(bytes, free),
        }))
    }

    /// What each step of recovery would yield now. After a request that tried them all, what is left is too little for it, or
    /// others have freed it meanwhile.
    pub(super) fn recoverable(&self) -> Recoverable {
        let cached: u64 = self
            .page_map
            .headers()
            .flat_map(|header| {
                let cached = |index: &usize| {
                    matches!(header.word(*index).now().kind(), Kind::Cached | Kind::Remote)
                };
                (0..header.blocks()).filter(cached).map(|_| header.block_bytes())
            })
            .sum();
        let pending = self.back.pending();
        Recoverable {
            drain: cached as usize,
            // Neighbours are merged when they are freed.
            merge: 0,
            wait: pending.waiting_bytes as usize,
            r#move: pending.spare_bytes as usize,
            release: pending.loose_bytes as usize,
        }
    }
}
