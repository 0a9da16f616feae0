//! A trace in a few figures.

use std::collections::HashSet;

use super::live::Change;
use super::{DeviceTrace, Event, EventKind, InitialBlock, LiveBlocks, Segment, Trace};

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
    /// What was live, weighed with the time it was: as recorded, or event by event where no time was.
    pub mean_live_bytes: u64,
    /// What the recorded allocator had taken from the driver, weighed likewise.
    pub recorded_mean_reserved_bytes: u64,
    /// Whether the recorded allocator was PyTorch's with expandable segments.
    pub is_expandable: bool,
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
                mean_live_bytes: sum.mean_live_bytes.saturating_add(device.mean_live_bytes),
                recorded_mean_reserved_bytes: sum
                    .recorded_mean_reserved_bytes
                    .saturating_add(device.recorded_mean_reserved_bytes),
                is_expandable: sum.is_expandable || device.is_expandable,
                initial_blocks: sum.initial_blocks + device.initial_blocks,
                unknown_frees: sum.unknown_frees + device.unknown_frees,
                unknown_free_bytes: sum
                    .unknown_free_bytes
                    .saturating_add(device.unknown_free_bytes),
            }
        })
    }
}

impl Summary {
    /// What the recorded allocator had reserved over what was live, weighed with time. `None` where either was not recorded.
    pub fn recorded_mean_ratio(&self) -> Option<f64> {
        let (live, reserved) = (self.mean_live_bytes, self.recorded_mean_reserved_bytes);
        (live > 0 && reserved > 0).then(|| reserved as f64 / live as f64)
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
    /// When the last event was.
    last_us: Option<u64>,
    /// Microseconds, or events; and bytes times these.
    time: f64,
    live_time: f64,
    balance_time: f64,
}

impl Summing {
    pub(crate) fn segment(&mut self, segment: &Segment) {
        self.at_end += i128::from(segment.bytes);
        self.summary.is_expandable |= segment.expandable;
    }

    pub(crate) fn initial(&mut self, block: &InitialBlock) {
        self.live.add(block);
        self.summary.initial_blocks = self.live.len();
        self.summary.peak_live_bytes = self.live.live_bytes();
    }

    pub(crate) fn event(&mut self, event: &Event) {
        self.pass_until(event.time_us);
        let summary = &mut self.summary;
        summary.events += 1;
        summary.is_expandable |=
            matches!(event.kind, EventKind::SegmentMap | EventKind::SegmentUnmap);
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

    /// What the last event left lasts until the next, as in a replay.
    fn pass_until(&mut self, time_us: u64) {
        let lasts = match self.last_us.replace(time_us) {
            None => return,
            Some(last_us) if last_us == 0 || time_us == 0 => 1.0,
            Some(last_us) => time_us.saturating_sub(last_us) as f64,
        };
        self.time += lasts;
        self.live_time += lasts * self.live.live_bytes() as f64;
        self.balance_time += lasts * self.balance as f64;
    }

    /// What was reserved before the first event is not recorded, but what was at the end is: the
    /// segments. So the events' balance is laid against that, and never below 0.
    pub(crate) fn finish(self) -> Summary {
        let before = (self.at_end - self.balance).max(-self.lowest);
        // All 0 where no time has passed.
        let mean = |bytes_time: f64| bytes_time / self.time.max(f64::MIN_POSITIVE);
        let mean_reserved =
            if self.time > 0.0 { before as f64 + mean(self.balance_time) } else { 0.0 };
        Summary {
            streams: self.streams.len(),
            recorded_peak_reserved_bytes: u64::try_from(before + self.highest).unwrap_or(u64::MAX),
            mean_live_bytes: mean(self.live_time) as u64,
            recorded_mean_reserved_bytes: mean_reserved as u64,
            ..self.summary
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(late.summary().is_expandable);
        // No segments, yet something is freed: it was there.
        assert_eq!(peak(&device(&[(SegmentFree, 0, 8), (SegmentAlloc, 0, 4)], &[])), 8);
    }

    #[test]
    fn what_was_reserved_is_weighed_with_time() {
        use EventKind::{Alloc, FreeCompleted, SegmentAlloc};
        let at = |time_us, event: Event| Event { time_us, ..event };
        let events = vec![
            at(100, Event::new(SegmentAlloc, 0, 40)),
            at(100, Event::new(Alloc, 0, 20)),
            at(130, Event::new(SegmentAlloc, 64, 60)),
            at(130, Event::new(Alloc, 64, 60)),
            at(140, Event::new(FreeCompleted, 64, 60)),
        ];
        // 100 were there before.
        let segments = device(&[], &[200]).segments;
        let summary = DeviceTrace { device: 0, events, segments }.summary();
        assert_eq!(summary.mean_live_bytes, (30 * 20 + 10 * 80) / 40);
        assert_eq!(summary.recorded_mean_reserved_bytes, 100 + (30 * 40 + 10 * 100) / 40);
        let ratio = summary.recorded_mean_ratio().unwrap();
        assert!((ratio - 155.0 / 35.0).abs() < 1e-9, "{ratio}");
        // Without a clock each event counts alike, and alone there is nothing to weigh.
        let without =
            device(&[(SegmentAlloc, 0, 40), (Alloc, 0, 20), (FreeCompleted, 0, 20)], &[40]);
        assert_eq!(without.summary().mean_live_bytes, 10);
        assert_eq!(device(&[(SegmentAlloc, 0, 40)], &[40]).summary().recorded_mean_ratio(), None);
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
