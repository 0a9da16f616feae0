//! What of the back is under its lock: where ranges are taken, where their memory is to come from, what is given back.

use std::collections::HashSet;

use super::growth::Spare;
use super::mapping::{Plan, Prefer, Source};
use super::{Leaving, Placed, Reach, State, Taker, Wanted};
use crate::driver::{Driver, DriverResult, PhysicalHandle};
use crate::pool::headers::HeaderId;
use crate::pool::heap::{Found, Node, NodeId, Use};
use crate::pool::pages::PageNumber;
use crate::pool::points::{Points, StreamSlot};
use crate::pool::streams::Order;

impl State {
    /// A range whose pages all have memory, and that the stream may use or can be made to wait for.
    pub(super) fn take_in_place(
        &mut self,
        wanted: Wanted,
        reach: Reach,
        driver: &dyn Driver,
    ) -> DriverResult<Option<NodeId>> {
        let Wanted { bytes, used_for, taker, .. } = wanted;
        let Some(found) = self.find_in_place(wanted, reach) else { return Ok(None) };
        self.order(found.node, taker, driver)?;
        self.used_bytes += bytes;
        Ok(Some(match used_for {
            // Others who get a block of it must come after what this stream comes after.
            Use::Slab => self.take(found, bytes, used_for),
            _ => self.take_ordered(found, bytes, used_for),
        }))
    }

    /// As [`take_in_place`](Self::take_in_place), for a block of a stream that need not wait for anything.
    #[inline]
    pub(super) fn take_at_once(
        &mut self,
        bytes: u64,
        align: u64,
        taker: StreamSlot,
    ) -> Option<(NodeId, u64)> {
        let found = self.find_ordered(bytes, align, taker)?;
        self.used_bytes += bytes;
        Some((self.take_ordered(found, bytes, Use::Block), found.start))
    }

    /// Takes a range out of the hole around it, with the points of all.
    pub(super) fn take(&mut self, found: Found, bytes: u64, used_for: Use) -> NodeId {
        self.pages.take(found.start..found.start + bytes, self.heap.node(found.node).range());
        self.heap.take(found, bytes, used_for)
    }

    /// As [`take`](Self::take), for whoever has waited for the points.
    #[inline]
    fn take_ordered(&mut self, found: Found, bytes: u64, used_for: Use) -> NodeId {
        self.pages.take(found.start..found.start + bytes, self.heap.node(found.node).range());
        self.heap.take_ordered(found, bytes, used_for)
    }

    /// Lets a node become part of the hole that it lies beside; says which.
    #[inline(always)]
    pub(super) fn merge(&mut self, node: NodeId) -> NodeId {
        let range = self.heap.node(node).range();
        let hole = self.heap.free(node);
        self.pages.give_back(range, self.heap.node(hole).range());
        hole
    }

    /// A range whose pages all have memory, and that the stream comes after anyway.
    #[inline]
    fn find_ordered(&self, bytes: u64, align: u64, taker: StreamSlot) -> Option<Found> {
        let (streams, pages) = (&self.streams, &self.pages);
        self.heap.find(bytes, align, move |node, start| {
            streams.are_ordered(&node.points, taker) && pages.is_mapped(start, bytes)
        })
    }

    fn find_in_place(&self, wanted: Wanted, reach: Reach) -> Option<Found> {
        let Wanted { bytes, align, taker, .. } = wanted;
        let found = self.find_ordered(bytes, align, taker.slot);
        if found.is_some() {
            return found;
        }
        let usable = |node: &Node, start: u64| {
            self.streams.can_serve(&node.points, taker.slot) && self.pages.is_mapped(start, bytes)
        };
        if reach == Reach::Every {
            let score = |node: &Node, start| usable(node, start).then_some(node.bytes);
            return self.heap.find_lowest(bytes, align, score);
        }
        let may_wait = || match reach {
            Reach::Ordered => false,
            Reach::WithinSlack => !self.may_grow_by(bytes),
            Reach::Any | Reach::Every => true,
        };
        if self.has_unordered(taker) && may_wait() {
            return self.heap.find(bytes, align, usable);
        }
        None
    }

    /// Makes a stream come after the points of a free range, where it does not already.
    pub(super) fn order(
        &mut self,
        free: NodeId,
        taker: Taker,
        driver: &dyn Driver,
    ) -> DriverResult<()> {
        if self.streams.are_ordered(&self.heap.node(free).points, taker.slot) {
            return Ok(());
        }
        let points = self.heap.node(free).points.clone();
        let waits = self.streams.order(&points, taker.slot, taker.handle, driver)?;
        self.counts.cross_stream_waits += waits as u64;
        if waits > 1
            && let Some(point) = self.streams.point_after(&points, taker.slot, driver)
        {
            // What is left of the range is for others, who would have to wait for as many.
            self.heap.node_mut(free).points = point;
        }
        Ok(())
    }

    /// Whether there can be ranges that this taker has to wait for.
    fn has_unordered(&self, taker: Taker) -> bool {
        self.streams.are_several() || taker.slot == StreamSlot::NOBODY
    }

    /// A range for which pages may be missing. With every range to be looked at, the one that misses fewest.
    pub(super) fn find_anywhere(&self, wanted: Wanted, reach: Reach) -> Option<Found> {
        let Wanted { bytes, align, taker, .. } = wanted;
        let ordered = |node: &Node, _| self.streams.are_ordered(&node.points, taker.slot);
        let usable = |node: &Node, _| self.streams.can_serve(&node.points, taker.slot);
        if reach == Reach::Every {
            let missing = |start| self.pages.missing(start, bytes).len() as u64;
            let score = |node: &Node, start| usable(node, start).then(|| missing(start));
            return self.heap.find_lowest(bytes, align, score);
        }
        self.heap.find(bytes, align, ordered).or_else(|| self.heap.find(bytes, align, usable))
    }

    /// Takes addresses that have no memory out of a free range that cannot be waited for: where there is none, nobody has used
    /// any. What a stream freed before it was captured would otherwise keep everything that it has merged with.
    pub(super) fn take_without_memory(&mut self, wanted: Wanted) -> Option<NodeId> {
        let Wanted { bytes, align, used_for, .. } = wanted;
        let found = self.heap.largest_first(bytes).find_map(|id| {
            let node = self.heap.node(id);
            let start = self.pages.room_without_memory(node.start..node.end(), bytes, align)?;
            Some(Found { node: id, start })
        })?;
        Some(self.take_ordered(found, bytes, used_for))
    }

    /// The largest free range with memory under all of it. Slow.
    pub(super) fn largest_hole_bytes(&self) -> u64 {
        let ranges = self.ranges_with_memory();
        let free = self.heap.all().filter(|node| node.used_for == Use::Free);
        let holes = free.flat_map(|node| {
            let first = ranges.partition_point(|(_, end)| *end <= node.start);
            let touching = ranges[first..].iter().take_while(|(start, _)| *start < node.end());
            touching.map(|(start, end)| node.end().min(*end) - node.start.max(*start))
        });
        holes.max().unwrap_or(0)
    }

    /// Whether new memory for `bytes` would keep the pool within its slack.
    pub(super) fn may_grow_by(&self, bytes: u64) -> bool {
        let reserved = self.reserved_bytes + bytes.max(self.grows_by_bytes);
        self.growth.is_within_slack(reserved, bytes)
    }

    /// Whether so many pages for a request are to be new, although others may be spare.
    fn grows_by_pages(&self, count: usize, page_bytes: u64, wanted: Wanted) -> bool {
        let spare = if count <= self.pages.spare() { Spare::Enough } else { Spare::TooLittle };
        let new_bytes = count as u64 * page_bytes;
        self.growth.is_worth_slack(spare, self.reserved_bytes)
            && self
                .growth
                .is_within_slack(self.reserved_bytes + new_bytes, wanted.bytes.max(new_bytes))
    }

    /// Where `count` pages come from: loose ones, new ones within the slack, spare ones, new ones.
    pub(super) fn plan(
        &mut self,
        count: usize,
        page_bytes: u64,
        prefer: Prefer,
        wanted: Wanted,
    ) -> Plan {
        let mut sources = Vec::with_capacity(count);
        while sources.len() < count
            && let Some(handle) = self.loose.pop()
        {
            sources.push(Source::Loose(handle));
        }
        let mut leaving = Vec::new();
        let rest = count - sources.len();
        let grows = prefer == Prefer::New && self.grows_by_pages(rest, page_bytes, wanted);
        if rest > 0 && !grows {
            let now = self.pages.now();
            let usable = |state: &State, points: &Points| match state.streams.order_by() {
                Order::Events => state.streams.can_serve(points, wanted.taker.slot),
                // All of it was freed by the one stream it is for.
                Order::SameStream => true,
            };
            for (run, handles) in self.take_spare(rest, page_bytes, now, usable) {
                sources.extend(handles.into_iter().map(Source::Moved));
                leaving.push(run);
            }
        }
        sources.resize_with(count, || Source::New);
        Plan { sources, leaving, created: 0 }
    }

    /// Takes up to `most` pages that have been spare since `since` out of the free ranges whose points are acceptable, so
    /// that nobody else uses their addresses.
    pub(super) fn take_spare(
        &mut self,
        most: usize,
        page_bytes: u64,
        since: u32,
        acceptable: impl Fn(&State, &Points) -> bool,
    ) -> Vec<(Leaving, Vec<PhysicalHandle>)> {
        let mut taken = Vec::new();
        let mut count = 0;
        while count < most.min(self.pages.spare() + count) {
            let found = self.heap.largest_first(page_bytes).find_map(|id| {
                let node = self.heap.node(id);
                let run = self.pages.spare_run(node.start, node.bytes, most - count, since)?;
                acceptable(self, &node.points).then_some((id, run))
            });
            let Some((id, (first, pages))) = found else { break };
            let (start, bytes) = (self.pages.start_of(first), pages as u64 * page_bytes);
            // Spare no longer: the addresses are on their way out.
            let node = self.take(Found { node: id, start }, bytes, Use::Leaving);
            let points = self.heap.node(node).points.clone();
            let handles: Vec<PhysicalHandle> =
                self.pages.of(start, bytes).filter_map(|page| self.pages.handle(page)).collect();
            count += pages;
            taken.push((Leaving { node, start, bytes, points, moved: Vec::new() }, handles));
        }
        taken
    }

    /// Takes up to `most` pages that are mapped nowhere, not even where they have moved from.
    pub(super) fn take_loose(&mut self, most: usize) -> Vec<PhysicalHandle> {
        let moved: HashSet<PhysicalHandle> =
            self.leaving.iter().flat_map(|left| &left.moved).copied().collect();
        let mut taken = Vec::new();
        self.loose.retain(|page| {
            let stays = moved.contains(page) || taken.len() == most;
            if !stays {
                taken.push(*page);
            }
            stays
        });
        taken
    }

    /// A plan has failed: everything is as before, but for new memory, which is kept for the next time.
    pub(super) fn undo(&mut self, plan: Plan, page_bytes: u64) {
        self.reserve(plan.created as u64 * page_bytes);
        self.counts.pages_created += plan.created as u64;
        for source in plan.sources {
            if let Source::Loose(handle) = source {
                self.loose.push(handle);
            }
        }
        for run in plan.leaving {
            self.merge(run.node);
        }
    }

    /// Keeps pages of a hole, in order of address, from being used until their mappings, which nobody has used, are gone.
    pub(super) fn leave(&mut self, hole: NodeId, pages: &[PageNumber], page_bytes: u64) {
        // From above: what is left of the hole keeps its node.
        for page in pages.iter().rev() {
            let start = self.pages.start_of(*page);
            let node = self.take(Found { node: hole, start }, page_bytes, Use::Leaving);
            let points = Points::default();
            self.leaving.push(Leaving {
                node,
                start,
                bytes: page_bytes,
                points,
                moved: Vec::new(),
            });
        }
    }

    pub(super) fn placed(&mut self, node: NodeId) -> Placed {
        let Node { start, used_for, ref points, .. } = *self.heap.node(node);
        if used_for == Use::Block {
            let header = self.unused_headers.pop();
            return Placed { node, start, header, points: Points::default() };
        }
        Placed { node, start, header: None, points: points.clone() }
    }

    pub(super) fn reserve(&mut self, bytes: u64) {
        self.reserved_bytes += bytes;
        self.peak_reserved_bytes = self.peak_reserved_bytes.max(self.reserved_bytes);
    }

    /// What was once used no longer says what may be reserved.
    pub(in crate::pool) fn forget_peak(&mut self) {
        self.growth.forget_peak(self.reserved_bytes);
    }

    pub(super) fn count_used(&mut self, bytes: u64) {
        self.used_bytes += bytes;
    }

    /// Pages that may go without reserving less than is to be kept.
    pub(super) fn pages_above_keeping(&self, page_bytes: u64) -> usize {
        (self.reserved_bytes.saturating_sub(self.keep_bytes) / page_bytes) as usize
    }

    /// Frees blocks of their own at a point of a stream.
    #[inline]
    pub(super) fn free(
        &mut self,
        blocks: impl IntoIterator<Item = (NodeId, HeaderId)>,
        stream: StreamSlot,
        driver: &dyn Driver,
    ) {
        let (point, mut can_serve_others) = self.streams.point_and_reach(stream);
        if self.streams.are_several() || self.streams.order_by() == Order::SameStream {
            // An event that cannot be recorded now is recorded when somebody has to wait for it. Tried first: it shows whether
            // the stream is captured, and what has to wait for a capture must not merge with the rest.
            let _ = self.streams.record(stream, driver);
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
        self.give_back_if(self.can_serve_others(&self.heap.node(node).points), node);
    }

    fn can_serve_others(&self, points: &Points) -> bool {
        match self.streams.order_by() {
            Order::Events => self.streams.can_wait_for(points),
            // A capture's memory serves the one stream it is for.
            Order::SameStream => self.streams.are_ordered(points, StreamSlot(0)),
        }
    }

    #[inline(always)]
    fn give_back_if(&mut self, can_serve_others: bool, node: NodeId) {
        if !can_serve_others {
            // It would spoil the free ranges that it merged with.
            self.withheld.push(node);
            return;
        }
        let bytes = self.heap.node(node).bytes;
        // Here and not where more is used: there are two such places.
        self.peak_used_bytes = self.peak_used_bytes.max(self.used_bytes);
        self.used_bytes -= bytes;
        self.growth.add_freed(bytes);
        let merged = self.merge(node);
        self.streams.forget_needless(&mut self.heap.node_mut(merged).points);
    }

    /// Gives back what had to wait for a capture, if that is over, or for the device.
    pub(super) fn give_back_withheld(&mut self, driver: &dyn Driver) {
        if self.withheld.is_empty() || self.streams.order_by() == Order::SameStream {
            return;
        }
        // A stream that is still captured says so again.
        let _ = self.streams.record_all(driver);
        for node in std::mem::take(&mut self.withheld) {
            self.give_back(node);
        }
    }

    /// Where there is memory, by address: from and to.
    pub(in crate::pool) fn ranges_with_memory(&self) -> Vec<(u64, u64)> {
        let chunks = self.chunks.ranges(&self.heap);
        if !chunks.is_empty() {
            return chunks;
        }
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for (page, _) in self.pages.all_mapped().filter(|_| self.reserved_bytes > 0) {
            let (start, end) = (self.pages.start_of(page), self.pages.end_of(page));
            match ranges.last_mut() {
                Some(last) if last.1 == start => last.1 = end,
                _ => ranges.push((start, end)),
            }
        }
        ranges
    }

    /// Checks the equations above [`State`], while nobody maps anything. Slow.
    pub(super) fn assert_valid(&self, span_bytes: u64, page_bytes: u64) {
        self.heap.assert_valid(span_bytes);
        let is_free = |node: &&Node| node.used_for == Use::Free;
        self.pages.assert_valid(self.heap.all().filter(is_free).map(Node::range));
        let in_use = |node: &&Node| matches!(node.used_for, Use::Block | Use::Slab);
        assert_eq!(
            self.used_bytes,
            self.heap.all().filter(in_use).map(|node| node.bytes).sum::<u64>()
        );
        for node in self.heap.all().filter(in_use) {
            assert!(
                self.pages.is_mapped(node.start, node.bytes),
                "memory is missing under {node:?}"
            );
        }
        let pages = self.pages.all_mapped().count() + self.loose.len();
        let reserved = pages as u64 * page_bytes + self.chunks.reserved_bytes();
        assert_eq!(self.reserved_bytes, reserved);
        for left in &self.leaving {
            assert_eq!(self.heap.node(left.node).used_for, Use::Leaving);
        }
    }

    /// What can be had as one block without new memory, at the least: all spare pages, moved together, but for the one that a block
    /// which does not begin on a page needs more. Without pages, the largest free range.
    pub(in crate::pool) fn largest_free_bytes(&self, page_bytes: u64) -> u64 {
        if self.chunks.reserved_bytes() == 0 {
            return self.pages.spare().saturating_sub(1) as u64 * page_bytes;
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
