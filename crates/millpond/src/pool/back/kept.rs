//! Free ranges that are kept for the stream that freed them, once there are several streams.
//!
//! A stream finds its own memory without a look at that of others. A range that it has freed stays as it is, so that a request of the same
//! size fits. It counts as used meanwhile, so no page is closed or opened for it, and no event recorded. Where memory is short a stream
//! takes a range of another stream, and waits for that one stream. All kept ranges merge with the free ones before the driver is asked for
//! more.
//!
//! ```text
//!   Σ ranges = nodes that are kept; each has the points of its stream alone
//!   ranges of a stream are sorted by size
//!   streams[places[stream]] = (stream, its ranges, at least one)
//! ```

use std::collections::{HashMap, HashSet};

use super::heap::{Found, NodeId, Use, position};
use super::{Requester, Room, State};
use crate::driver::Driver;
use crate::pool::blocks::{HeaderId, Numbers};
use crate::pool::streams::{Points, StreamSlot};

/// Ranges that are kept for a stream, at most.
const MOST_OF_STREAM: usize = 32;
/// A stream takes a range of its own that is larger than the request by this part of it, at most.
const MOST_LARGER: u64 = 16;
/// Ranges of a stream that are looked at for one that is aligned, at most.
const LOOKED_AT: usize = 4;
/// Other streams that are looked at for a range, at most.
const STREAMS_LOOKED_AT: usize = 8;

/// A stream's ranges, by size.
type Ranges = Vec<(u64, NodeId)>;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// Streams that have freed a block. The first block that a stream frees is not kept: many streams are used for one request.
    seen: HashSet<StreamSlot, Numbers>,
    /// Streams that have ranges.
    streams: Vec<(StreamSlot, Ranges)>,
    /// Where a stream is among them.
    places: HashMap<StreamSlot, usize, Numbers>,
    /// How many ranges there are.
    ranges: usize,
    /// The next stream whose ranges other streams look at.
    next: usize,
    /// Empty lists, for the next streams.
    unused: Vec<Ranges>,
}

impl Kept {
    pub(super) fn is_empty(&self) -> bool {
        self.ranges == 0
    }

    fn ranges_of(&self, stream: StreamSlot) -> Option<&Ranges> {
        self.places.get(&stream).map(|place| &self.streams[*place].1)
    }

    fn add(&mut self, stream: StreamSlot, bytes: u64, node: NodeId) {
        let place = *self.places.entry(stream).or_insert_with(|| {
            self.streams.push((stream, self.unused.pop().unwrap_or_default()));
            self.streams.len() - 1
        });
        let ranges = &mut self.streams[place].1;
        let place = ranges.partition_point(|range| *range < (bytes, node));
        ranges.insert(place, (bytes, node));
        self.ranges += 1;
    }

    fn remove(&mut self, stream: StreamSlot, bytes: u64, node: NodeId) {
        let place = self.places[&stream];
        let ranges = &mut self.streams[place].1;
        let range = ranges.binary_search(&(bytes, node)).expect("a range of that stream");
        ranges.remove(range);
        self.ranges -= 1;
        if ranges.is_empty() {
            let none = self.take_all_of(stream);
            self.unused.push(none);
        }
    }

    /// Takes the smaller half of a stream's ranges, if these are many: they serve least.
    fn take_excess(&mut self, stream: StreamSlot) -> Ranges {
        let Some(place) = self.places.get(&stream) else { return Ranges::new() };
        let ranges = &mut self.streams[*place].1;
        if ranges.len() <= MOST_OF_STREAM {
            return Ranges::new();
        }
        self.ranges -= MOST_OF_STREAM / 2;
        ranges.drain(..MOST_OF_STREAM / 2).collect()
    }

    fn take_all_of(&mut self, stream: StreamSlot) -> Ranges {
        let Some(place) = self.places.remove(&stream) else { return Ranges::new() };
        let (_, ranges) = self.streams.swap_remove(place);
        if let Some((moved, _)) = self.streams.get(place) {
            self.places.insert(*moved, place);
        }
        self.ranges -= ranges.len();
        ranges
    }
}

impl State {
    /// Keeps blocks for the stream that frees them now, so that they do not merge with the free ranges.
    pub(super) fn keep(
        &mut self,
        blocks: impl IntoIterator<Item = (NodeId, HeaderId)>,
        stream: StreamSlot,
    ) {
        let (point, can_serve_others) = self.streams.point_and_waitable(stream);
        if self.kept.seen.insert(stream) || !can_serve_others {
            return self.free(blocks, stream);
        }
        for (node, header) in blocks {
            self.unused_headers.push(header);
            let kept = self.heap.node_mut(node);
            kept.used_for = Use::Kept;
            kept.points.become_of(point);
            self.peak_used_bytes = self.peak_used_bytes.max(self.used_bytes);
            self.kept.add(stream, self.heap.node(node).bytes, node);
        }
        let smallest = self.kept.take_excess(stream);
        self.merge_kept(smallest);
    }

    /// Takes a range of the stream's own that is not much larger than the request. Larger ones would be cut into pieces that fit no
    /// request, while there is memory that fits and that the stream comes after.
    #[inline]
    pub(super) fn take_own_kept(
        &mut self,
        stream: StreamSlot,
        bytes: u64,
        align: u64,
    ) -> Option<NodeId> {
        self.take_kept(stream, bytes, align, bytes + bytes / MOST_LARGER)
    }

    /// Takes a part of a range of at most so many bytes that is kept for a stream: as little larger as possible.
    #[inline]
    fn take_kept(
        &mut self,
        stream: StreamSlot,
        bytes: u64,
        align: u64,
        most: u64,
    ) -> Option<NodeId> {
        if self.kept.is_empty() {
            return None;
        }
        let ranges = self.kept.ranges_of(stream)?;
        let first = ranges.partition_point(|(size, _)| *size < bytes);
        let fits = |(_, node): &(u64, NodeId)| {
            let start = position(self.heap.node(*node), bytes, align)?;
            Some((*node, start))
        };
        let looked_at = ranges[first..].iter().take_while(|(size, _)| *size <= most);
        let (node, start) = looked_at.take(LOOKED_AT).find_map(fits)?;
        let range = self.heap.node(node).range();
        self.kept.remove(stream, range.end - range.start, node);
        let taken = self.heap.cut(Found { node, start }, bytes, Use::Block);
        let (below, above) = (self.heap.node(taken).prev, self.heap.node(taken).next);
        let is_left = [start > range.start, start + bytes < range.end];
        for (rest, _) in [below, above].into_iter().zip(is_left).filter(|(_, is_left)| *is_left) {
            let rest = rest.node();
            self.kept.add(stream, self.heap.node(rest).bytes, rest);
        }
        self.heap.node_mut(taken).points = Points::NONE;
        Some(taken)
    }

    /// Takes a part of a range that is kept for another stream, where new memory would exceed the slack: the stream waits for all that
    /// the other has freed.
    #[inline(never)]
    pub(super) fn take_over(
        &mut self,
        requester: Requester,
        bytes: u64,
        align: u64,
        driver: &dyn Driver,
    ) -> Option<NodeId> {
        if self.kept.is_empty() || self.may_grow_by(bytes) {
            return None;
        }
        for _ in 0..self.kept.streams.len().min(STREAMS_LOOKED_AT) {
            self.kept.next = (self.kept.next + 1) % self.kept.streams.len();
            let (owner, ref ranges) = self.kept.streams[self.kept.next];
            if owner == requester.slot || ranges.last().is_none_or(|(most, _)| *most < bytes) {
                continue;
            }
            // The stream cannot be waited for, and is marked as one now.
            let Ok(waits) =
                self.streams.order_after(owner, requester.slot, requester.handle, driver)
            else {
                self.merge_kept_of(owner);
                return None;
            };
            self.failed_search = None;
            self.counts.cross_stream_waits += u64::from(waits);
            if let Some(node) = self.take_kept(owner, bytes, align, u64::MAX) {
                return Some(node);
            }
        }
        None
    }

    /// Merges the ranges kept for a stream with the free ones.
    pub(super) fn merge_kept_of(&mut self, stream: StreamSlot) {
        let ranges = self.kept.take_all_of(stream);
        self.merge_kept(ranges);
    }

    /// Merges all kept ranges with the free ones.
    pub(super) fn merge_all_kept(&mut self) {
        let (streams, ranges) = (std::mem::take(&mut self.kept.streams), self.kept.ranges);
        self.kept.ranges -= ranges;
        self.kept.places.clear();
        for (_, mut ranges) in streams {
            self.merge_kept(ranges.drain(..));
            self.kept.unused.push(ranges);
        }
    }

    /// Merges the ranges kept for streams that are gone with the free ones, and forgets these streams.
    pub(super) fn merge_kept_of_gone_streams(&mut self) {
        let State { kept, streams, .. } = self;
        kept.seen.retain(|stream| !streams.is_gone(*stream));
        let gone = kept.streams.iter().map(|(stream, _)| *stream);
        let gone: Vec<_> = gone.filter(|stream| streams.is_gone(*stream)).collect();
        gone.into_iter().for_each(|stream| self.merge_kept_of(stream));
    }

    fn merge_kept(&mut self, ranges: impl IntoIterator<Item = (u64, NodeId)>) {
        for (_, node) in ranges {
            self.heap.node_mut(node).used_for = Use::Block;
            self.give_back(node);
        }
    }

    /// Checks the equation above. Slow.
    pub(super) fn assert_kept_valid(&self) {
        let nodes = self.heap.all().filter(|node| node.used_for == Use::Kept).count();
        let ranges = self.kept.streams.iter().map(|(_, ranges)| ranges.len()).sum::<usize>();
        assert_eq!((ranges, self.kept.ranges), (nodes, nodes), "ranges that are kept");
        for (place, (stream, ranges)) in self.kept.streams.iter().enumerate() {
            assert_eq!(self.kept.places[stream], place, "{stream:?}");
            assert!(!ranges.is_empty() && ranges.is_sorted(), "{ranges:?}");
            for (bytes, node) in ranges {
                let node = self.heap.node(*node);
                assert_eq!((node.bytes, node.used_for), (*bytes, Use::Kept));
                assert!(node.points.are_all_of(*stream), "{node:?} is kept for {stream:?}");
            }
        }
    }

    /// A block that was placed, with a header for it if there is one at hand.
    pub(super) fn room(&mut self, node: NodeId) -> Room {
        Room { node, start: self.heap.node(node).start, header: self.unused_headers.pop() }
    }
}
