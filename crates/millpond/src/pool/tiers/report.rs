//! What tiers hold and have done: sums over threads and regions, made when they are asked for, and the layout of memory.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::driver::Driver;
use crate::pool::back::Use;
use crate::pool::blocks::Header;
use crate::pool::lock_free::Kind;
use crate::pool::regions::BelongsTo;
use crate::pool::statistics::{PoolStats, ThreadCounters};
use crate::pool::tiers::Tiers;
use crate::resource::{AllocError, OutOfMemory, Recoverable, Resource, Usage};
use crate::trace::{
    Block, BlockState, EventKind, SegmentType, Setting, Snapshot, SnapshotEntry, SnapshotSegment,
    StackId,
};

impl Tiers {
    pub(in crate::pool) fn live_bytes(&self) -> u64 {
        self.live().0 as u64
    }

    /// Live bytes and blocks.
    fn live(&self) -> (i64, i64) {
        self.caches.sum_counters(|counters| {
            let sum = |of: fn(&ThreadCounters) -> i64| counters.iter().map(|c| of(c)).sum::<i64>();
            // Not below 0: a block that moves between threads meanwhile may have been seen freed and not allocated.
            (sum(ThreadCounters::live_bytes).max(0), sum(ThreadCounters::live_blocks).max(0))
        })
    }

    pub(in crate::pool) fn stats(&self) -> PoolStats {
        if self.has_forked() {
            return PoolStats::default();
        }
        self.accounts.since_reset(|| self.stats_in_all())
    }

    pub(in crate::pool) fn reset_stats(&self) {
        if self.has_forked() {
            return;
        }
        let reset_peaks = || {
            self.reset_peaks();
            self.family.regions().iter().for_each(|region| region.reset_peaks());
        };
        self.accounts.reset(|| self.stats_in_all(), reset_peaks);
    }

    /// Lets the peaks of threads begin anew.
    pub(in crate::pool) fn reset_peaks_of_threads(&self) {
        let of_thread = |counters: &Arc<ThreadCounters>| counters.in_statistics.reset_peak();
        self.caches.sum_counters(|counters| counters.iter().for_each(of_thread));
    }

    fn reset_peaks(&self) {
        self.reset_peaks_of_threads();
        self.back.state().reset_peak_used();
    }

    /// What the pool and its regions have counted, those too that are gone.
    fn stats_in_all(&self) -> PoolStats {
        let usage = self.usage();
        let mut stats = self.own_stats();
        let (regions, gone) = self.family.regions_and(|| self.accounts.of_gone_regions());
        stats.add(&gone);
        let mut captured_bytes = 0;
        for region in regions {
            stats.add(&region.own_stats());
            if region.family.belongs_to == BelongsTo::Capture {
                captured_bytes += region.own_usage().reserved_bytes as u64;
            }
        }
        PoolStats {
            current_usage: usage.live_bytes as u64,
            peak_usage: usage.peak_live_bytes as u64,
            // The two are not of one moment.
            fragmentation_bytes: usage.reserved_bytes.saturating_sub(usage.live_bytes) as u64,
            reserved_bytes: usage.reserved_bytes as u64,
            captured_bytes,
            driver_calls: usage.driver_calls,
            fragmentation_rate: self.fragmentation(),
            ..stats
        }
    }

    /// What these tiers have counted, without regions.
    pub(in crate::pool) fn own_stats(&self) -> PoolStats {
        let counted = self.caches.sum_counters(PoolStats::of_threads);
        let counts = self.back.state().counts;
        PoolStats {
            pages_created: counts.pages_created,
            pages_released: counts.pages_released,
            page_moves: counts.page_moves,
            cross_stream_waits: counts.cross_stream_waits,
            late_double_frees: self.accounts.late_double_frees(),
            ..counted
        }
    }

    /// What the pool and its regions hold together.
    pub(in crate::pool) fn usage(&self) -> Usage {
        if self.has_forked() {
            // Another thread may have held a lock when the process was forked.
            return Usage::default();
        }
        let add = |mut sum: Usage, region: Arc<Tiers>| {
            let more = region.own_usage();
            sum.live_bytes += more.live_bytes;
            sum.live_blocks += more.live_blocks;
            sum.reserved_bytes += more.reserved_bytes;
            sum.peak_live_bytes += more.peak_live_bytes;
            sum.peak_reserved_bytes += more.peak_reserved_bytes;
            sum.largest_free_bytes = sum.largest_free_bytes.max(more.largest_free_bytes);
            sum
        };
        let usage = self.family.regions().into_iter().fold(self.own_usage(), add);
        self.accounts.with_remembered_peaks(usage)
    }

    /// A region is about to go, and takes its peaks along.
    pub(in crate::pool) fn remember_peaks(&self) {
        self.accounts.remember_peaks(&self.usage());
    }

    /// As [`usage`](Self::usage), of the pool a region belongs to.
    fn family_usage(&self) -> Usage {
        self.family.parent().map_or_else(|| self.usage(), |parent| parent.usage())
    }

    /// What these tiers hold, without regions.
    pub(in crate::pool) fn own_usage(&self) -> Usage {
        let (live, blocks) = self.live();
        let peaks = |counters: &[Arc<ThreadCounters>]| -> i64 {
            counters.iter().map(|counters| counters.peak_live_bytes()).sum()
        };
        let peak = self.caches.sum_counters(peaks).max(live);
        let page_bytes = self.back.driver().device().granularity_bytes as u64;
        let direct = self.direct.usage();
        let state = self.back.state();
        let peak_placed_bytes = state.peak_used_bytes() as usize + direct.peak_reserved_bytes;
        let peak_reserved_bytes = state.peak_reserved_bytes() as usize + direct.peak_reserved_bytes;
        Usage {
            live_bytes: live as usize,
            live_blocks: blocks as usize,
            reserved_bytes: state.reserved_bytes() as usize + direct.reserved_bytes,
            // Peaks of threads that were not at the same time cannot be more than was ever placed.
            peak_live_bytes: (peak as usize).min(peak_placed_bytes),
            peak_reserved_bytes,
            largest_free_bytes: state.largest_free_bytes(page_bytes) as usize,
            driver_calls: self.back.driver().calls() + direct.driver_calls,
        }
    }

    /// The share of what is reserved that nobody holds.
    pub(in crate::pool) fn fragmentation(&self) -> f64 {
        let usage = self.own_usage();
        if usage.reserved_bytes == 0 {
            return 0.0;
        }
        1.0 - usage.live_bytes as f64 / usage.reserved_bytes as f64
    }
}

impl Tiers {
    /// What stands in memory. Threads that allocate meanwhile may be seen half way.
    pub(in crate::pool) fn snapshot(&self) -> Snapshot {
        if self.has_forked() {
            return Snapshot::default();
        }
        let mut segments = self.segments((0, 0));
        for (number, region) in self.family.regions().into_iter().enumerate() {
            let kind = u64::from(region.family.belongs_to == BelongsTo::Capture);
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
    fn write_oom_snapshot(&self, bytes: usize, device_free: usize) -> Option<String> {
        let path = self.settings.get().oom_snapshot?;
        let parent = self.family.parent();
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
    pub(in crate::pool) fn out_of_memory(&self, bytes: usize) -> AllocError {
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
    pub(in crate::pool) fn recoverable(&self) -> Recoverable {
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
