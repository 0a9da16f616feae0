//! Finds work that uses memory it may not use.
//!
//! The detector sees executed work only: which physical bytes it read or wrote, and what came before
//! it. It knows nothing of who allocates. Two accesses to one physical byte, one of them a write, that
//! nothing orders are a race, even if this time they ran in a harmless order, and whatever addresses
//! they used.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use millpond::driver::{DevicePtr, StreamId, TouchKind};

use crate::order::{Epoch, Order, StreamIndex};
use crate::unknown_kernel::Suspicion;

/// Reads of a stretch that are remembered, where none comes after another. Streams that nobody ever waited for could leave any
/// number of them; the oldest are forgotten then.
const MOST_READS: usize = 128;

/// Findings after the first few say nothing new, nor do suspicions.
const MOST_FINDINGS: usize = 64;

/// Something that work did wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Finding {
    /// Two accesses to the same bytes that nothing orders.
    #[error("race on {bytes} bytes at {address}: {second} is not ordered after {first}")]
    Race {
        /// Where the second access saw them.
        address: DevicePtr,
        /// How many bytes they share.
        bytes: u64,
        /// The access that ran first.
        first: Access,
        /// The access that ran second.
        second: Access,
    },
    /// Memory that had been freed on a stream was used by later work.
    #[error("use of freed memory: {bytes} bytes at {address} by {by}, freed by {freed}")]
    UseOfFreed {
        /// Where.
        address: DevicePtr,
        /// How many bytes.
        bytes: u64,
        /// Who used them.
        by: Access,
        /// Who had freed them.
        freed: Access,
    },
    /// Work touched an address behind which there is nothing, or nothing for it.
    #[error("illegal address {address} by {by}: {reason}")]
    IllegalAddress {
        /// The first bad address.
        address: DevicePtr,
        /// Who touched it.
        by: Access,
        /// What is wrong there.
        reason: String,
    },
}

/// What a device tells at once, if there is anything to tell.
#[derive(Clone, Copy, Debug)]
pub enum Report<'d> {
    /// Work did something wrong.
    Finding(&'d Finding),
    /// A kernel may have.
    Suspicion(&'d Suspicion),
}

/// An access, for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// The kind of work.
    pub work: &'static str,
    /// The stream it ran on.
    pub stream: StreamId,
    /// When it ran, in virtual time.
    pub at: Duration,
    /// Read or write.
    pub kind: TouchKind,
}

impl std::fmt::Display for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.kind {
            TouchKind::Read => "read",
            TouchKind::Write => "write",
        };
        write!(f, "{kind} by {} on stream {} at {:?}", self.work, self.stream.0, self.at)
    }
}

/// Who is at work, and what came before it.
#[derive(Clone, Debug)]
pub(crate) struct Actor {
    pub(crate) epoch: Epoch,
    pub(crate) order: Arc<Order>,
    pub(crate) work: &'static str,
    pub(crate) stream: StreamId,
    pub(crate) at: u64,
}

impl Actor {
    fn comes_after(&self, earlier: &Mark) -> bool {
        earlier.epoch.stream == self.epoch.stream || self.order.covers(earlier.epoch)
    }

    pub(crate) fn access(&self, kind: TouchKind) -> Access {
        let at = Duration::from_nanos(self.at);
        Access { work: self.work, stream: self.stream, at, kind }
    }
}

/// A past access. Small, since there is one for each stretch of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    epoch: Epoch,
    work: &'static str,
    stream: StreamId,
    at: u64,
}

impl Mark {
    fn of(actor: &Actor) -> Mark {
        Mark { epoch: actor.epoch, work: actor.work, stream: actor.stream, at: actor.at }
    }

    fn access(&self, kind: TouchKind) -> Access {
        let at = Duration::from_nanos(self.at);
        Access { work: self.work, stream: self.stream, at, kind }
    }
}

/// What is remembered of a stretch of physical memory.
#[derive(Clone, Debug)]
struct Stretch {
    end: u64,
    last_write: Option<Mark>,
    /// The reads since the last write that no later one comes after: whoever comes after that comes after them.
    reads: Vec<Mark>,
    /// The last write was a stream-ordered free.
    freed: bool,
}

/// What an access means for the memory's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Use(TouchKind),
    Allocate,
    Free,
}

/// Stretches do not overlap; what no stretch covers was never touched since its frame was handed out.
#[derive(Debug, Default)]
pub(crate) struct Detector {
    stretches: BTreeMap<u64, Stretch>,
    findings: Vec<Finding>,
    suspicions: Vec<Suspicion>,
    /// Is told of each of them.
    pub(crate) told: Option<fn(Report<'_>)>,
}

impl Detector {
    pub(crate) fn findings(&self) -> &[Finding] {
        &self.findings
    }

    pub(crate) fn take_findings(&mut self) -> Vec<Finding> {
        std::mem::take(&mut self.findings)
    }

    pub(crate) fn report(&mut self, finding: Finding) {
        if self.findings.len() < MOST_FINDINGS {
            if let Some(tell) = self.told {
                tell(Report::Finding(&finding));
            }
            self.findings.push(finding);
        }
    }

    pub(crate) fn suspicions(&self) -> &[Suspicion] {
        &self.suspicions
    }

    pub(crate) fn suspect(&mut self, suspicion: Suspicion) {
        if self.suspicions.len() < MOST_FINDINGS {
            if let Some(tell) = self.told {
                tell(Report::Suspicion(&suspicion));
            }
            self.suspicions.push(suspicion);
        }
    }

    /// `actor` touches `bytes` of physical memory at `start`, which it knows as `address`.
    pub(crate) fn touch(
        &mut self,
        start: u64,
        bytes: u64,
        address: DevicePtr,
        effect: Effect,
        actor: &Actor,
    ) {
        let end = start + bytes;
        self.split_at(start);
        self.split_at(end);
        let mut cursor = start;
        let mut gaps = Vec::new();
        let mut findings = Vec::new();
        for (&at, stretch) in self.stretches.range_mut(start..end) {
            if at > cursor {
                gaps.push((cursor, at));
            }
            cursor = stretch.end;
            let address = DevicePtr(address.0 + (at - start));
            findings.extend(stretch.touch(at, address, effect, actor));
        }
        if cursor < end {
            gaps.push((cursor, end));
        }
        for (gap, end) in gaps {
            let mut stretch = Stretch { end, last_write: None, reads: Vec::new(), freed: false };
            stretch.touch(gap, address, effect, actor);
            self.stretches.insert(gap, stretch);
        }
        self.merge(start, end);
        findings.into_iter().for_each(|finding| self.report(finding));
    }

    /// Stretches of a range, and beside it, of which the same is remembered become one: pieces would only ever get smaller.
    fn merge(&mut self, start: u64, end: u64) {
        let beside = self.stretches.range(..start).next_back().filter(|(_, it)| it.end == start);
        let mut at = beside.map_or(start, |(at, _)| *at);
        while let Some(stretch) = self.stretches.get(&at)
            && stretch.end <= end
            && let Some(next) = self.stretches.get(&stretch.end)
        {
            let upper = stretch.end;
            if !stretch.remembers_the_same_as(next) {
                at = upper;
                continue;
            }
            let end = next.end;
            self.stretches.remove(&upper);
            self.stretches.get_mut(&at).expect("just found").end = end;
        }
    }

    /// How many stretches are remembered.
    pub(crate) fn stretches(&self) -> usize {
        self.stretches.len()
    }

    /// Adds the streams of all accesses that are remembered.
    pub(crate) fn add_streams_to(&self, known: &mut HashSet<StreamIndex>) {
        let marks = self.stretches.values().flat_map(|it| it.reads.iter().chain(&it.last_write));
        known.extend(marks.map(|mark| mark.epoch.stream));
    }

    /// Memory of a pool that has no block in it yet is no better than freed.
    pub(crate) fn mark_unallocated(&mut self, start: u64, bytes: u64, at: u64) {
        // Number 0 comes before all work.
        let epoch = Epoch { stream: StreamIndex::LEGACY, seq: 0 };
        let nobody = Mark { epoch, work: "its pool, never allocated", stream: StreamId(0), at };
        let end = start + bytes;
        let stretch = Stretch { end, last_write: Some(nobody), reads: Vec::new(), freed: true };
        self.stretches.insert(start, stretch);
    }

    /// The driver has taken physical memory back: what comes next there is ordered by it.
    pub(crate) fn forget(&mut self, start: u64, bytes: u64) {
        if self.stretches.is_empty() {
            return;
        }
        self.split_at(start);
        self.split_at(start + bytes);
        let gone: Vec<u64> =
            self.stretches.range(start..start + bytes).map(|(at, _)| *at).collect();
        for at in gone {
            self.stretches.remove(&at);
        }
    }

    fn split_at(&mut self, at: u64) {
        let Some((_, stretch)) = self.stretches.range_mut(..at).next_back() else { return };
        if stretch.end > at {
            let upper = stretch.clone();
            stretch.end = at;
            self.stretches.insert(at, upper);
        }
    }
}

impl Stretch {
    fn touch(
        &mut self,
        start: u64,
        address: DevicePtr,
        effect: Effect,
        actor: &Actor,
    ) -> Option<Finding> {
        let bytes = self.end - start;
        let kind = match effect {
            Effect::Use(kind) => kind,
            Effect::Allocate | Effect::Free => TouchKind::Write,
        };
        let race =
            |first: Access| Finding::Race { address, bytes, first, second: actor.access(kind) };
        let unordered_write = self.last_write.filter(|write| !actor.comes_after(write));
        let finding = if let Some(write) = unordered_write {
            Some(race(write.access(TouchKind::Write)))
        } else if self.freed && matches!(effect, Effect::Use(_)) {
            let freed = self.last_write.expect("a free is a write").access(TouchKind::Write);
            Some(Finding::UseOfFreed { address, bytes, by: actor.access(kind), freed })
        } else if kind == TouchKind::Write {
            self.reads
                .iter()
                .find(|read| !actor.comes_after(read))
                .map(|read| race(read.access(TouchKind::Read)))
        } else {
            None
        };
        let mark = Mark::of(actor);
        match effect {
            Effect::Use(TouchKind::Read) => self.read(mark, actor),
            Effect::Use(TouchKind::Write) => self.written(mark),
            Effect::Allocate => {
                self.written(mark);
                self.freed = false;
            }
            Effect::Free => {
                self.written(mark);
                self.freed = true;
            }
        }
        finding
    }

    fn read(&mut self, mark: Mark, actor: &Actor) {
        self.reads.retain(|read| !actor.comes_after(read));
        if self.reads.len() == MOST_READS {
            self.reads.remove(0);
        }
        self.reads.push(mark);
    }

    fn remembers_the_same_as(&self, other: &Stretch) -> bool {
        self.last_write == other.last_write
            && self.reads == other.reads
            && self.freed == other.freed
    }

    fn written(&mut self, mark: Mark) {
        self.last_write = Some(mark);
        self.reads.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(number: u32) -> StreamIndex {
        StreamIndex { place: number, number }
    }

    fn actor(stream: u32, seq: u64, order: Order) -> Actor {
        let epoch = Epoch { stream: numbered(stream), seq };
        let stream = StreamId(u64::from(stream));
        Actor { epoch, order: Arc::new(order), work: "work", stream, at: seq }
    }

    fn write(detector: &mut Detector, start: u64, bytes: u64, actor: &Actor) {
        let effect = Effect::Use(TouchKind::Write);
        detector.touch(start, bytes, DevicePtr(start), effect, actor);
    }

    #[test]
    fn only_what_nothing_orders_is_a_race() {
        let mut detector = Detector::default();
        let first = actor(1, 1, Order::default());
        write(&mut detector, 0, 100, &first);
        write(&mut detector, 50, 10, &actor(1, 2, Order::default()));
        let mut after = Order::default();
        after.add(Epoch { stream: numbered(1), seq: 2 });
        write(&mut detector, 0, 100, &actor(2, 3, after));
        assert_eq!(detector.findings(), []);
        write(&mut detector, 90, 20, &actor(3, 4, Order::default()));
        assert!(matches!(
            detector.findings(),
            [Finding::Race { address: DevicePtr(90), bytes: 10, .. }]
        ));
    }

    #[test]
    fn reads_do_not_race_with_reads_but_with_the_next_write() {
        let mut detector = Detector::default();
        for stream in 1..4 {
            let reader = actor(stream, u64::from(stream), Order::default());
            detector.touch(0, 8, DevicePtr(0), Effect::Use(TouchKind::Read), &reader);
        }
        assert_eq!(detector.findings(), []);
        write(&mut detector, 0, 8, &actor(1, 9, Order::default()));
        assert_eq!(detector.findings().len(), 1);
    }

    #[test]
    fn pieces_of_which_the_same_is_remembered_are_one() {
        let mut detector = Detector::default();
        let on_stream = |seq| actor(1, seq, Order::default());
        for piece in (0..100).rev() {
            write(&mut detector, piece * 8, 8, &on_stream(1 + piece));
        }
        assert_eq!(detector.stretches.len(), 100);
        write(&mut detector, 4, 792, &on_stream(200));
        let ends = |detector: &Detector| -> Vec<(u64, u64)> {
            detector.stretches.iter().map(|(at, stretch)| (*at, stretch.end)).collect()
        };
        assert_eq!(ends(&detector), [(0, 4), (4, 796), (796, 800)]);
        // One piece of work, piece by piece, is as good as all at once.
        for piece in 0..100 {
            write(&mut detector, piece * 8, 8, &on_stream(300));
        }
        assert_eq!(ends(&detector), [(0, 800)]);
        assert_eq!(detector.findings(), []);
    }

    #[test]
    fn of_many_reads_those_are_remembered_that_none_comes_after() {
        let mut detector = Detector::default();
        let read = |detector: &mut Detector, actor: &Actor| {
            detector.touch(0, 8, DevicePtr(0), Effect::Use(TouchKind::Read), actor);
        };
        let reads = |detector: &Detector| detector.stretches[&0].reads.len();
        for number in 0..1000_u32 {
            let seq = u64::from(number);
            read(&mut detector, &actor(number, seq + 1, Order::after_all(seq)));
            assert_eq!(reads(&detector), 1, "each comes after the one before");
        }
        for number in 0..2 * MOST_READS as u32 {
            read(&mut detector, &actor(number, 2000, Order::after_all(1000)));
        }
        assert_eq!(reads(&detector), MOST_READS);
        write(&mut detector, 0, 8, &actor(5000, 5000, Order::after_all(1000)));
        assert_eq!(detector.findings().len(), 1);
    }

    #[test]
    fn use_after_a_free_in_the_same_stream_is_found() {
        let mut detector = Detector::default();
        let on_stream = |seq| actor(1, seq, Order::default());
        detector.touch(0, 8, DevicePtr(0), Effect::Allocate, &on_stream(1));
        write(&mut detector, 0, 8, &on_stream(2));
        detector.touch(0, 8, DevicePtr(0), Effect::Free, &on_stream(3));
        assert_eq!(detector.findings(), []);
        write(&mut detector, 0, 8, &on_stream(4));
        assert!(matches!(detector.take_findings()[..], [Finding::UseOfFreed { .. }]));
        detector.forget(0, 4);
        write(&mut detector, 0, 4, &actor(7, 5, Order::default()));
        assert_eq!(detector.findings(), []);
    }
}
