//! All that the back's lock protects: ranges are taken here, and freed.
//!
//! ```text
//!   used_bytes     = Σ blocks, slabs and kept ranges
//!   reserved_bytes = Σ handles + Σ chunks, but while memory is on its way
//!   every page that a block, a slab or a kept range touches is mapped, and owned through that address
//! ```

use std::collections::VecDeque;

use super::chunks::Chunks;
use super::growth::Growth;
use super::handles::{HandleId, Handles, Mapping};
use super::heap::{Found, Heap, KeepPoints, Node, NodeId, Use};
use super::kept::Kept;
use super::mapping::Leaving;
use super::pages::Pages;
use super::place::keep_points;
use super::{Placed, Requester, Room, SearchEffort, Wanted, avoiding_unwaitable_streams};
use crate::driver::{Driver, DriverResult};
use crate::pool::blocks::HeaderId;
use crate::pool::streams::{OrderBy, Points, StreamSlot, Streams};

/// See the [module](self), which has the equations.
#[derive(Debug)]
pub(in crate::pool) struct State {
    pub(in crate::pool) heap: Heap,
    pub(in crate::pool) pages: Pages,
    pub(in crate::pool) streams: Streams,
    /// Memory of a driver without pages.
    pub(super) chunks: Chunks,
    pub(super) handles: Handles,
    pub(super) largest_handle_pages: usize,
    /// The driver had no more memory when it was last asked, and none was given back since.
    pub(super) is_short: bool,
    /// The last search for memory that its stream comes after anyway, if it found none and no memory was freed since.
    pub(super) failed_search: Option<FailedSearch>,
    /// What had been freed when time went by, for the last few times.
    pub(super) freed_before: VecDeque<(u32, Points)>,
    /// Free ranges that streams keep for themselves.
    pub(super) kept: Kept,
    /// Mappings that are to be unmapped.
    pub(super) leaving: Vec<Leaving>,
    /// Ranges that wait for a capture's end, or for the device: other streams cannot be made to wait for their points.
    pub(super) withheld: Vec<NodeId>,
    pub(super) used_bytes: u64,
    /// The most used bytes since statistics were reset, without the bytes used now.
    pub(super) peak_used_bytes: u64,
    pub(super) reserved_bytes: u64,
    pub(super) peak_reserved_bytes: u64,
    /// Trimming leaves so many bytes.
    pub(super) keep_bytes: u64,
    /// The fewest bytes that the driver is asked for, where it has no pages.
    pub(super) grows_by_bytes: u64,
    pub(super) growth: Growth,
    pub(in crate::pool) counts: BackCounts,
    /// Headers of blocks that are gone. They are here because a thread that takes a block has this lock.
    pub(super) unused_headers: Vec<HeaderId>,
}

/// A search that found no memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct FailedSearch {
    pub(super) requester: StreamSlot,
    pub(super) bytes: u64,
    pub(super) align: u64,
    /// The [passes](Streams::passes) by then.
    pub(super) passes: u64,
}

/// Counts of what the back has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::pool) struct BackCounts {
    pub(in crate::pool) page_moves: u64,
    pub(in crate::pool) pages_created: u64,
    pub(in crate::pool) pages_released: u64,
    pub(in crate::pool) cross_stream_waits: u64,
}

impl State {
    /// Takes a range of open pages whose points the stream comes after, or is made to.
    pub(super) fn take_in_place(
        &mut self,
        wanted: Wanted,
        effort: SearchEffort,
        driver: &dyn Driver,
    ) -> DriverResult<Option<NodeId>> {
        let Wanted { bytes, used_for, requester, .. } = wanted;
        let Some(found) = self.find_in_place(wanted, effort) else { return Ok(None) };
        self.order(found, bytes, requester, driver)?;
        self.used_bytes += bytes;
        Ok(Some(self.take(found, bytes, used_for, keep_points(used_for))))
    }

    /// As [`take_in_place`](Self::take_in_place), and tries other ranges when a stream turns out to be captured, or gone.
    pub(super) fn take_in_place_retrying(
        &mut self,
        wanted: Wanted,
        effort: SearchEffort,
        driver: &dyn Driver,
    ) -> DriverResult<Option<NodeId>> {
        let attempt = |state: &mut State| state.take_in_place(wanted, effort, driver);
        avoiding_unwaitable_streams(self, attempt, |state| state.streams.find_gone_streams(driver))
    }

    /// As [`take_in_place`](Self::take_in_place), for a block of a stream that need not wait for anything.
    #[inline]
    pub(super) fn take_without_wait(
        &mut self,
        bytes: u64,
        align: u64,
        requester: StreamSlot,
    ) -> Option<(NodeId, u64)> {
        let found = self.find_ordered_anywhere(bytes, align, requester)?;
        self.used_bytes += bytes;
        Some((self.take(found, bytes, Use::Block, KeepPoints::No), found.start))
    }

    /// Takes a range out of the hole around it.
    #[inline(always)]
    pub(super) fn take(
        &mut self,
        found: Found,
        bytes: u64,
        used_for: Use,
        keep_points: KeepPoints,
    ) -> NodeId {
        let hole = self.heap.node(found.node).range();
        let pages = self.pages.whole_in(found.start..found.start + bytes, hole);
        let taken = match keep_points {
            KeepPoints::Yes => self.heap.take(found, bytes, used_for),
            KeepPoints::No => self.heap.take_ordered(found, bytes, used_for),
        };
        self.hole_above_begins(taken);
        if self.pages.take(pages.clone()).has_shared {
            self.own(pages, taken, keep_points);
        }
        taken
    }

    /// The rest of a hole above a taken range begins there.
    #[inline]
    pub(super) fn hole_above_begins(&mut self, taken: NodeId) {
        let above = self.heap.node(taken).next.node();
        let hole = self.heap.node(above);
        if hole.used_for == Use::Free {
            self.pages.hole_begins(above, hole);
        }
    }

    /// Frees a node, which becomes part of the hole beside it. Returns the hole.
    #[inline(always)]
    pub(super) fn merge(&mut self, node: NodeId) -> NodeId {
        let range = self.heap.node(node).range();
        let hole = self.heap.free(node);
        let merged = self.heap.node(hole);
        let pages = self.pages.whole_in(range, merged.range());
        self.pages.hole_begins(hole, merged);
        if self.pages.give_back(pages.clone()).has_shared {
            self.disown(pages, hole);
        }
        hole
    }

    /// Makes a stream come after the points of a range of a hole, where it does not already.
    pub(super) fn order(
        &mut self,
        found: Found,
        bytes: u64,
        requester: Requester,
        driver: &dyn Driver,
    ) -> DriverResult<()> {
        let points = self.points_around(found, bytes);
        if self.streams.are_ordered(&points, requester.slot) {
            return Ok(());
        }
        let waits = self.streams.order(&points, requester.slot, requester.handle, driver)?;
        self.failed_search = None;
        self.counts.cross_stream_waits += waits as u64;
        if waits > 1
            && let Some(point) = self.streams.point_after(&points, requester.slot, driver)
        {
            // The rest of the range is for other requests, which would have to wait for as many points.
            self.heap.node_mut(found.node).points = point;
        }
        Ok(())
    }

    /// The largest free range that could be used as it is. Slow.
    pub(super) fn largest_hole_bytes(&self) -> u64 {
        let holes = self.heap.all().filter(|node| node.used_for == Use::Free);
        let largest = |hole: &Node| {
            let touched = self.pages.of(hole.start, hole.bytes);
            let open = |page: &usize| self.pages.is_open(*page);
            if touched.len() <= 2 {
                return if touched.clone().all(|page| open(&page)) { hole.bytes } else { 0 };
            }
            let (mut most, mut page) = (0, touched.start);
            let end = touched.end.min(self.pages.count());
            while let Some(first) = (page..end).find(open) {
                page = (first..end).find(|page| !open(page)).unwrap_or(end);
                let from = self.pages.start_of(first).max(hole.start);
                most = most.max(self.pages.start_of(page).min(hole.end()) - from);
            }
            most
        };
        holes.map(largest).max().unwrap_or(0)
    }

    /// Pages of memory that no range uses.
    pub(in crate::pool) fn spare_pages(&self) -> usize {
        self.handles.pages.saturating_sub(self.pages.used())
    }

    /// Whether new memory for `bytes` would keep the pool within its slack.
    pub(super) fn may_grow_by(&self, bytes: u64) -> bool {
        let reserved = self.reserved_bytes + bytes.max(self.grows_by_bytes);
        self.growth.is_within_slack(reserved, bytes)
    }

    pub(super) fn placed(&mut self, node: NodeId) -> Placed {
        let Node { start, used_for, ref points, .. } = *self.heap.node(node);
        if used_for == Use::Block {
            let header = self.unused_headers.pop();
            return Placed { room: Room { node, start, header }, points: Points::default() };
        }
        Placed { room: Room { node, start, header: None }, points: points.clone() }
    }

    pub(super) fn reserve(&mut self, bytes: u64) {
        self.reserved_bytes += bytes;
        self.peak_reserved_bytes = self.peak_reserved_bytes.max(self.reserved_bytes);
    }

    /// From now on the bound on growth follows from the reserved bytes, not from an old peak.
    pub(in crate::pool) fn forget_peak(&mut self) {
        self.growth.forget_peak(self.reserved_bytes);
    }

    pub(super) fn count_used(&mut self, bytes: u64) {
        self.used_bytes += bytes;
    }

    /// Pages that can be released while `keep_bytes` stay reserved.
    pub(super) fn pages_above_keeping(&self, page_bytes: u64) -> usize {
        (self.reserved_bytes.saturating_sub(self.keep_bytes) / page_bytes) as usize
    }

    /// Frees blocks of their own at a point of a stream.
    #[inline]
    pub(super) fn free(
        &mut self,
        blocks: impl IntoIterator<Item = (NodeId, HeaderId)>,
        stream: StreamSlot,
    ) {
        // Only the stream itself comes after this.
        if self.failed_search.is_some_and(|failed_search| failed_search.requester == stream) {
            self.failed_search = None;
        }
        let (point, mut can_serve_others) = self.streams.point_and_waitable(stream);
        if self.streams.order_by() == OrderBy::SameStream {
            can_serve_others = self.can_serve_others(&Points::of(point));
        }
        for (node, header) in blocks {
            self.unused_headers.push(header);
            // A block has no points while it is used.
            self.heap.node_mut(node).points.become_of(point);
            self.give_back_if(can_serve_others, node);
        }
    }

    pub(super) fn give_back(&mut self, node: NodeId) {
        self.failed_search = None;
        self.give_back_if(self.can_serve_others(&self.heap.node(node).points), node);
    }

    fn can_serve_others(&self, points: &Points) -> bool {
        match self.streams.order_by() {
            OrderBy::Events => self.streams.can_wait_for(points),
            // A capture's memory serves the one stream it is for.
            OrderBy::SameStream => self.streams.are_ordered(points, StreamSlot(0)),
        }
    }

    #[inline(always)]
    fn give_back_if(&mut self, can_serve_others: bool, node: NodeId) {
        if !can_serve_others {
            // Free ranges that it merged with would have to wait, too.
            self.withheld.push(node);
            return;
        }
        let bytes = self.heap.node(node).bytes;
        // The peak is noted here, before it falls, and not at the two places where `used_bytes` rises.
        self.peak_used_bytes = self.peak_used_bytes.max(self.used_bytes);
        self.used_bytes -= bytes;
        let merged = self.merge(node);
        self.streams.forget_needless(&mut self.heap.node_mut(merged).points);
    }

    /// Frees ranges that had to wait for a capture's end, or for the device, if they need not any more.
    pub(super) fn give_back_withheld(&mut self, driver: &dyn Driver) {
        if self.withheld.is_empty() || self.streams.order_by() == OrderBy::SameStream {
            return;
        }
        // A stream that is still captured says so again.
        let _ = self.streams.record_all(driver);
        for node in std::mem::take(&mut self.withheld) {
            self.give_back(node);
        }
    }

    /// Where there is memory, by address: from and to. Unused memory counts at the first of its addresses only.
    pub(in crate::pool) fn ranges_with_memory(&self) -> Vec<(u64, u64)> {
        let chunks = self.chunks.ranges(&self.heap);
        if !chunks.is_empty() {
            return chunks;
        }
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for page in 0..self.pages.count() {
            let Some(mapping) = self.pages.mapping(page) else { continue };
            let handle = self.handles.handle(self.handles.mapping(mapping).handle);
            let is_first = handle.mappings.first() == Some(&mapping);
            let is_shown = self.pages.is_open(page) && (self.pages.is_used(page) || is_first);
            if !is_shown {
                continue;
            }
            let (start, end) = (self.pages.start_of(page), self.pages.start_of(page + 1));
            match ranges.last_mut() {
                Some(last) if last.1 == start => last.1 = end,
                _ => ranges.push((start, end)),
            }
        }
        ranges
    }

    /// Checks the equations of this module and of its parts. The caller holds `mapping`. Slow.
    pub(super) fn assert_valid(&self, span_bytes: u64, page_bytes: u64) {
        self.heap.assert_valid(span_bytes);
        self.assert_kept_valid();
        let in_use = |node: &&Node| matches!(node.used_for, Use::Block | Use::Slab | Use::Kept);
        let used_bytes = self.heap.all().filter(in_use).map(|node| node.bytes).sum::<u64>();
        assert_eq!(self.used_bytes, used_bytes);
        for node in self.heap.all().filter(in_use) {
            let is_open = self.pages.are_open(node.start, node.bytes);
            assert!(is_open, "memory is missing under {node:?}");
        }
        let reserved = self.handles.pages as u64 * page_bytes + self.chunks.reserved_bytes();
        assert_eq!(self.reserved_bytes, reserved);
        if page_bytes > 0 {
            self.assert_pages_valid();
            self.assert_handles_valid();
        }
    }

    /// Every page is used while something touches it, and every run of unused pages knows its hole.
    fn assert_pages_valid(&self) {
        let mut used = vec![false; self.pages.count()];
        let mut leaving = 0;
        for node in self.heap.all().filter(|node| node.used_for != Use::Free) {
            let pages = self.pages.of(node.start, node.bytes);
            leaving += if node.used_for == Use::Leaving { pages.len() } else { 0 };
            used[pages].fill(true);
        }
        for (page, used) in used.iter().enumerate() {
            assert_eq!(self.pages.is_used(page), *used, "page {page}");
            if !used {
                let hole = self.heap.node(self.pages.hole_around(page));
                let (start, end) = (self.pages.start_of(page), self.pages.start_of(page + 1));
                assert_eq!(hole.used_for, Use::Free, "page {page}");
                assert!(hole.start <= start && end <= hole.end(), "page {page} in {hole:?}");
            }
        }
        assert_eq!(self.pages.used() + leaving, used.iter().filter(|used| **used).count());
        for left in &self.leaving {
            assert_eq!(self.heap.node(left.node).used_for, Use::Leaving);
            assert!(self.handles.mapping(left.mapping).leaves);
        }
    }

    /// `owned` has the pages that are used through the mappings. No page of a handle is used through two of them, and it is closed at its
    /// other addresses.
    fn assert_handles_valid(&self) {
        let mut loose = 0;
        for (number, handle) in self.handles.handles.iter() {
            let id = HandleId(number);
            loose += usize::from(handle.mappings.is_empty());
            let mappings = || handle.mappings.iter().map(|id| *self.handles.mapping(*id));
            let in_use = |mapping: &Mapping, index: usize| {
                !mapping.leaves && self.pages.is_used(mapping.first + index)
            };
            for index in 0..handle.pages {
                let owners = mappings().filter(|mapping| in_use(mapping, index)).count();
                assert!(owners <= 1, "page {index} of {handle:?} has {owners} owners");
                let leaves = mappings().all(|mapping| mapping.leaves);
                let owned = self.owned(id) & 1 << index != 0;
                assert!(leaves || owned == (owners == 1), "page {index} of {handle:?}");
                for mapping in mappings() {
                    let page = mapping.first + index;
                    let is_open = !mapping.leaves && (owners == 0 || in_use(&mapping, index));
                    assert_eq!(
                        self.pages.is_open(page),
                        is_open,
                        "page {page}, {index} of {handle:?}"
                    );
                    assert_eq!(self.pages.is_shared(page), handle.sharing.is_some(), "page {page}");
                    assert_eq!(self.memory_of(page), (id, index));
                }
            }
            assert_eq!(handle.sharing.is_some(), handle.mappings.len() > 1, "{handle:?}");
        }
        assert_eq!(self.handles.loose.len(), loose);
        let pages = self.handles.handles.iter().map(|(_, handle)| handle.pages).sum::<usize>();
        assert_eq!(self.handles.pages, pages);
    }

    /// The largest block that is certain to need no new memory: all spare pages, mapped in a row, but for one, since a block need not
    /// begin on a page. Without pages, the largest free range.
    pub(in crate::pool) fn largest_free_bytes(&self, page_bytes: u64) -> u64 {
        if self.chunks.reserved_bytes() == 0 {
            return self.spare_pages().saturating_sub(1) as u64 * page_bytes;
        }
        self.heap.largest_first(0).next().map_or(0, |id| self.heap.node(id).bytes)
    }

    pub(in crate::pool) fn reserved_bytes(&self) -> u64 {
        self.reserved_bytes
    }

    /// The most bytes of blocks and slabs, also of those that caches keep, since they were last reset.
    pub(in crate::pool) fn peak_used_bytes(&self) -> u64 {
        self.peak_used_bytes.max(self.used_bytes)
    }

    pub(in crate::pool) fn reset_peak_used(&mut self) {
        self.peak_used_bytes = self.used_bytes;
    }

    pub(in crate::pool) fn peak_reserved_bytes(&self) -> u64 {
        self.peak_reserved_bytes
    }
}
