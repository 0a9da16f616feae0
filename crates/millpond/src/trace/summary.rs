//! A trace in a few figures.

use std::collections::HashSet;

use super::live::Change;
use super::{DeviceTrace, Event, InitialBlock, LiveBlocks, Segment, Trace};

/// A trace in a few figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Summary {
    /// Everything recorded.
    pub events: usize,
    /// Streams on which memory was allocated, freed or taken.
    pub streams: usize,
    /// The most bytes that were live at a time, blocks of before the first event included.
    pub peak_live_bytes: u64,
    /// The most bytes that the recorded allocator had taken from the driver at a time.
    pub recorded_peak_reserved_bytes: u64,
    /// Blocks that were live before the first event.
    pub initial_blocks: usize,
    /// Completed frees that were skipped because their address was not live.
    pub unknown_frees: usize,
    /// What these frees say that the blocks had.
    pub unknown_free_bytes: u64,
}

impl Trace {
    /// All devices together: each figure is the sum over the devices, so the peaks are those of each
    /// device at its own moment.
    pub fn summary(&self) -> Summary {
        self.devices.iter().map(DeviceTrace::summary).fold(Summary::default(), |sum, device| {
            Summary {
                events: sum.events + device.events,
                streams: sum.streams + device.streams,
                peak_live_bytes: sum.peak_live_bytes.saturating_add(device.peak_live_bytes),
                recorded_peak_reserved_bytes: sum
                    .recorded_peak_reserved_bytes
                    .saturating_add(device.recorded_peak_reserved_bytes),
                initial_blocks: sum.initial_blocks + device.initial_blocks,
                unknown_frees: sum.unknown_frees + device.unknown_frees,
                unknown_free_bytes: sum
                    .unknown_free_bytes
                    .saturating_add(device.unknown_free_bytes),
            }
        })
    }
}

impl DeviceTrace {
    /// This device's figures.
    pub fn summary(&self) -> Summary {
        let mut summing = Summing::default();
        self.segments.iter().for_each(|segment| summing.segment(segment));
        self.initial_blocks().for_each(|block| summing.initial(&block));
        self.events.iter().for_each(|event| summing.event(event));
        summing.finish()
    }
}

/// A summary on its way: what was before the first event goes first.
#[derive(Default)]
pub(crate) struct Summing {
    live: LiveBlocks,
    streams: HashSet<u32>,
    summary: Summary,
    /// What the segments at the end have.
    at_end: i128,
    /// What the events add to the reserved bytes, and where that was lowest and highest.
    balance: i128,
    lowest: i128,
    highest: i128,
}

impl Summing {
    pub(crate) fn segment(&mut self, segment: &Segment) {
        self.at_end += i128::from(segment.bytes);
    }

    pub(crate) fn initial(&mut self, block: &InitialBlock) {
        self.live.add(block);
        self.summary.initial_blocks = self.live.len();
        self.summary.peak_live_bytes = self.live.live_bytes();
    }

    pub(crate) fn event(&mut self, event: &Event) {
        let summary = &mut self.summary;
        summary.events += 1;
        if event.kind.concerns_memory() {
            self.streams.insert(event.stream);
        }
        if self.live.apply(event) == Change::UnknownFree {
            summary.unknown_frees += 1;
            summary.unknown_free_bytes = summary.unknown_free_bytes.saturating_add(event.bytes);
        }
        summary.peak_live_bytes = summary.peak_live_bytes.max(self.live.live_bytes());
        self.balance += event.kind.reserved_sign() * i128::from(event.bytes);
        self.lowest = self.balance.min(self.lowest);
        self.highest = self.balance.max(self.highest);
    }

    /// What was reserved before the first event is not recorded, but what was at the end is: the
    /// segments. So the events' balance is laid against that, and never below 0.
    pub(crate) fn finish(self) -> Summary {
        let before = (self.at_end - self.balance).max(-self.lowest);
        Summary {
            streams: self.streams.len(),
            recorded_peak_reserved_bytes: u64::try_from(before + self.highest).unwrap_or(u64::MAX),
            ..self.summary
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::EventKind;

    fn device(events: &[(EventKind, u64, u64)], segment_bytes: &[u64]) -> DeviceTrace {
        let event = |&(kind, addr, bytes)| Event::new(kind, addr, bytes);
        let segment = |&bytes| Segment {
            addr: 0,
            bytes,
            stream: 0,
            pool: 0,
            expandable: false,
            blocks: Vec::new(),
        };
        DeviceTrace {
            device: 0,
            events: events.iter().map(event).collect(),
            segments: segment_bytes.iter().map(segment).collect(),
        }
    }

    #[test]
    fn what_was_reserved_before_the_first_event_counts() {
        use EventKind::{SegmentAlloc, SegmentFree, SegmentMap, SegmentUnmap};
        let peak = |d: &DeviceTrace| d.summary().recorded_peak_reserved_bytes;
        assert_eq!(peak(&device(&[(SegmentAlloc, 0, 10), (SegmentFree, 0, 10)], &[])), 10);
        // 30 at the end, of which 10 are new; 5 were unmapped on the way: 25 before.
        let late = device(&[(SegmentUnmap, 0, 5), (SegmentMap, 0, 10)], &[30]);
        assert_eq!(peak(&late), 30);
        // No segments, yet something is freed: it was there.
        assert_eq!(peak(&device(&[(SegmentFree, 0, 8), (SegmentAlloc, 0, 4)], &[])), 8);
    }

    #[test]
    fn absurd_sizes_do_not_overflow() {
        let huge = u64::MAX - 1;
        let events = [
            (EventKind::Alloc, 1, huge),
            (EventKind::Alloc, 2, huge),
            (EventKind::SegmentAlloc, 1, huge),
            (EventKind::SegmentAlloc, 2, huge),
            (EventKind::FreeCompleted, 1, 0),
        ];
        let summary = device(&events, &[huge, huge, huge]).summary();
        assert_eq!(summary.peak_live_bytes, u64::MAX);
        assert_eq!(summary.recorded_peak_reserved_bytes, u64::MAX);
    }
}
