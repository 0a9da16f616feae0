//! What of the back is under its lock: where ranges are taken, where their memory is to come from, what is given back.

use super::{Leaving, Placed, Plan, Prefer, Source, State, Taker};
use crate::driver::{Driver, DriverResult, PhysicalHandle};
use crate::pool::heap::{Node, NodeId, Use, position};
use crate::pool::pages::PageNumber;
use crate::pool::points::Points;

impl State {
    /// A range whose pages all have memory, and that the stream may use or can be made to wait for. Within the
    /// slack, a range that must be waited for is not taken.
    pub(super) fn take_in_place(
        &mut self,
        bytes: u64,
        align: u64,
        used_for: Use,
        taker: Taker,
        driver: &dyn Driver,
    ) -> DriverResult<Option<NodeId>> {
        let mapped = |node: &Node| {
            position(node, bytes, align).is_some_and(|start| self.pages.is_mapped(start, bytes))
        };
        let ordered = |node: &Node| self.streams.are_ordered(&node.points, taker.slot);
        let found = self.heap.find(bytes, align, |node| ordered(node) && mapped(node));
        let found = match found {
            Some(found) => Some(found),
            None if self.streams.are_several() && !self.may_grow_by(bytes) => {
                self.heap.find(bytes, align, mapped)
            }
            None => None,
        };
        let Some(found) = found else { return Ok(None) };
        if !self.streams.are_ordered(&self.heap.node(found).points, taker.slot) {
            let points = self.heap.node(found).points.clone();
            let waits = self.streams.order(&points, taker.slot, taker.handle, driver)?;
            self.counts.cross_stream_waits += waits as u64;
        }
        let node = self.heap.take(found, bytes, align, used_for);
        if used_for != Use::Slab {
            self.heap.node_mut(node).points = Points::default();
        }
        let start = self.heap.node(node).start;
        self.pages.add_user(start, bytes);
        self.count_used(bytes);
        Ok(Some(node))
    }

    pub(super) fn find_anywhere(&self, bytes: u64, align: u64, taker: Taker) -> Option<NodeId> {
        self.heap
            .find(bytes, align, |node| self.streams.are_ordered(&node.points, taker.slot))
            .or_else(|| self.heap.find(bytes, align, |_| true))
    }

    /// Whether new memory for `bytes` would keep the pool within its slack.
    pub(super) fn may_grow_by(&self, bytes: u64) -> bool {
        let peak = self.peak_used_bytes.max(self.used_bytes + bytes);
        (self.reserved_bytes + bytes) as f64 <= peak as f64 * (1.0 + self.slack)
    }

    /// Where `count` pages come from: loose ones, new ones within the slack, spare ones, new ones.
    pub(super) fn plan(&mut self, count: usize, page_bytes: u64, prefer: Prefer) -> Plan {
        let mut sources = Vec::with_capacity(count);
        while sources.len() < count
            && let Some(handle) = self.loose.pop()
        {
            sources.push(Source::Loose(handle));
        }
        let mut leaving = Vec::new();
        let rest = count - sources.len();
        let grows = prefer == Prefer::New && self.may_grow_by(rest as u64 * page_bytes);
        if rest > 0 && !grows {
            for (run, handles) in self.take_spare(rest, page_bytes) {
                sources.extend(handles.into_iter().map(Source::Moved));
                leaving.push(run);
            }
        }
        sources.resize_with(count, || Source::New);
        Plan { sources, leaving, created: 0 }
    }

    /// Takes up to `most` spare pages out of the free ranges, so that nobody else uses their addresses.
    pub(super) fn take_spare(
        &mut self,
        most: usize,
        page_bytes: u64,
    ) -> Vec<(Leaving, Vec<PhysicalHandle>)> {
        let mut taken = Vec::new();
        let mut count = 0;
        while count < most.min(self.pages.spare() + count) {
            let found = self.heap.largest_first(page_bytes).find_map(|id| {
                let node = self.heap.node(id);
                Some((id, self.pages.spare_run(node.start, node.bytes, most - count)?))
            });
            let Some((id, (first, pages))) = found else { break };
            let (start, bytes) = (self.pages.start_of(first), pages as u64 * page_bytes);
            let node = self.heap.take_at(id, start, bytes, Use::Leaving);
            let points = self.heap.node(node).points.clone();
            let handles: Vec<PhysicalHandle> =
                self.pages.of(start, bytes).filter_map(|page| self.pages.handle(page)).collect();
            // Spare no longer: the addresses are on their way out.
            self.pages.add_user(start, bytes);
            count += pages;
            taken.push((Leaving { node, start, bytes, points }, handles));
        }
        taken
    }

    /// A plan has failed: everything is as before, but for new memory, which is kept for the next time.
    pub(super) fn undo(&mut self, plan: Plan, page_bytes: u64) {
        self.reserve(plan.created as u64 * page_bytes);
        for source in plan.sources {
            if let Source::Loose(handle) = source {
                self.loose.push(handle);
            }
        }
        for run in plan.leaving {
            self.pages.remove_user(run.start, run.bytes);
            self.heap.free(run.node);
        }
    }

    /// Keeps pages of a hole, in order of address, from being used until their mappings, which nobody has used, are gone.
    pub(super) fn leave(&mut self, hole: NodeId, pages: &[PageNumber], page_bytes: u64) {
        // From above: what is left of the hole keeps its node.
        for page in pages.iter().rev() {
            let start = self.pages.start_of(*page);
            let node = self.heap.take_at(hole, start, page_bytes, Use::Leaving);
            self.pages.add_user(start, page_bytes);
            let points = Points::default();
            self.leaving.push(Leaving { node, start, bytes: page_bytes, points });
        }
    }

    pub(super) fn placed(&mut self, node: NodeId) -> Placed {
        let Node { start, used_for, ref points, .. } = *self.heap.node(node);
        let points = points.clone();
        let header = if used_for == Use::Block { self.unused_headers.pop() } else { None };
        Placed { node, start, header, points }
    }

    pub(super) fn reserve(&mut self, bytes: u64) {
        self.reserved_bytes += bytes;
        self.peak_reserved_bytes = self.peak_reserved_bytes.max(self.reserved_bytes);
    }

    pub(super) fn count_used(&mut self, bytes: u64) {
        self.used_bytes += bytes;
        self.peak_used_bytes = self.peak_used_bytes.max(self.used_bytes);
    }

    pub(super) fn give_back(&mut self, node: NodeId) {
        let (start, bytes) = (self.heap.node(node).start, self.heap.node(node).bytes);
        self.used_bytes -= bytes;
        self.pages.remove_user(start, bytes);
        let merged = self.heap.free(node);
        self.heap.node_mut(merged).points.forget_passed(&self.streams);
    }

    /// Checks the equations above [`State`], while nobody maps anything. Slow.
    pub(super) fn assert_valid(&self, span_bytes: u64, page_bytes: u64) {
        self.heap.assert_valid(span_bytes);
        self.pages.assert_valid();
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
        assert_eq!(self.reserved_bytes, pages as u64 * page_bytes);
        for left in &self.leaving {
            assert_eq!(self.heap.node(left.node).used_for, Use::Leaving);
        }
    }

    /// What can be had as one block without new memory, at the least: all spare pages, moved together, but for the one that a block
    /// which does not begin on a page needs more.
    pub(in crate::pool) fn largest_free_bytes(&self, page_bytes: u64) -> u64 {
        self.pages.spare().saturating_sub(1) as u64 * page_bytes
    }

    pub(in crate::pool) fn reserved_bytes(&self) -> u64 {
        self.reserved_bytes
    }

    pub(in crate::pool) fn peak_reserved_bytes(&self) -> u64 {
        self.peak_reserved_bytes
    }
}
