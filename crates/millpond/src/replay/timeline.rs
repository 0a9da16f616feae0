//! What was live and reserved over the events of a replay, in a bounded number of buckets that keep every peak.

/// The least and the most of something within some events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The least it was.
    pub least: u64,
    /// The most it was.
    pub most: u64,
}

impl Span {
    fn of(value: u64) -> Span {
        Span { least: value, most: value }
    }

    fn with(self, other: Span) -> Span {
        Span { least: self.least.min(other.least), most: self.most.max(other.most) }
    }
}

/// What was live and reserved within some events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Bytes that users held.
    pub live: Span,
    /// Bytes taken from the driver.
    pub reserved: Span,
}

impl Bucket {
    fn of(live_bytes: u64, reserved_bytes: u64) -> Bucket {
        Bucket { live: Span::of(live_bytes), reserved: Span::of(reserved_bytes) }
    }

    fn with(self, other: Bucket) -> Bucket {
        Bucket { live: self.live.with(other.live), reserved: self.reserved.with(other.reserved) }
    }
}

/// The most of something, and when it was first reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peak {
    /// How much.
    pub bytes: u64,
    /// The number of the event, from 0.
    pub event: u64,
}

impl Peak {
    fn see(&mut self, bytes: u64, event: u64) {
        if bytes > self.bytes {
            *self = Peak { bytes, event };
        }
    }
}

/// What was live and reserved over the events of a replay.
///
/// Bucket `n` has what was after the events from `n * width_events()` on, `width_events()` of them, and whatever was in between when one event had
/// several steps. The width is a power of two, and doubles when there would be more buckets than [`Timeline::MOST_BUCKETS`]: two
/// become one that has the lesser least and the greater most. So memory is bounded, and no peak is ever lost.
#[derive(Clone, Debug)]
pub struct Timeline {
    width_events: u64,
    buckets: Vec<Bucket>,
    /// What is since the last event that was recorded.
    now: Bucket,
    event: u64,
    peak_live: Peak,
    peak_reserved: Peak,
}

impl Timeline {
    /// More buckets there are never.
    pub const MOST_BUCKETS: usize = 4096;

    /// Before the first event nothing is live, and so much is reserved.
    pub fn new(reserved_bytes: u64) -> Timeline {
        let now = Bucket::of(0, reserved_bytes);
        Timeline {
            width_events: 1,
            buckets: vec![now],
            now,
            event: 0,
            peak_live: Peak::default(),
            peak_reserved: Peak { bytes: reserved_bytes, event: 0 },
        }
    }

    /// After this event so much is live and reserved. What was before has lasted until then. Events come in order; one that does not
    /// counts as of the moment of the last.
    pub fn record(&mut self, event: u64, live_bytes: u64, reserved_bytes: u64) {
        let event = event.max(self.event);
        self.reach(event);
        self.event = event;
        self.now = Bucket::of(live_bytes, reserved_bytes);
        self.peak_live.see(live_bytes, event);
        self.peak_reserved.see(reserved_bytes, event);
        if self.first_of_next() > event {
            let last = self.buckets.last_mut().expect("there is always one");
            *last = last.with(self.now);
        } else {
            self.buckets.push(self.now);
        }
    }

    /// What is now lasts until there were so many events.
    pub fn end(&mut self, events: u64) {
        self.reach(events);
        self.event = self.event.max(events.saturating_sub(1));
    }

    /// Makes the buckets wide enough for an event, and fills all that begin before it with what is now.
    fn reach(&mut self, event: u64) {
        while event / self.width_events >= Self::MOST_BUCKETS as u64 {
            self.widen();
        }
        while self.first_of_next() < event {
            self.buckets.push(self.now);
        }
    }

    /// The first event of the bucket that comes next.
    fn first_of_next(&self) -> u64 {
        self.buckets.len() as u64 * self.width_events
    }

    fn widen(&mut self) {
        self.width_events *= 2;
        let pair = |pair: &[Bucket]| pair.iter().copied().reduce(Bucket::with).expect("not empty");
        self.buckets = self.buckets.chunks(2).map(pair).collect();
    }

    /// How many events a bucket stands for.
    pub fn width_events(&self) -> u64 {
        self.width_events
    }

    /// The buckets, in order; the last may stand for fewer events.
    pub fn buckets(&self) -> &[Bucket] {
        &self.buckets
    }

    /// The number of the last event that is covered.
    pub fn last_event(&self) -> u64 {
        self.event
    }

    /// The most that was live.
    pub fn peak_live(&self) -> Peak {
        self.peak_live
    }

    /// The most that was reserved.
    pub fn peak_reserved(&self) -> Peak {
        self.peak_reserved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What each event left behind, kept without any bound.
    fn span_of(values: &[(u64, u64)], event: u64, width: u64, initial: u64) -> Span {
        let before = values.iter().rev().find(|(at, _)| *at < event).map_or(initial, |v| v.1);
        let within = values.iter().filter(|(at, _)| (event..event + width).contains(at));
        let starts_with_one = values.iter().any(|(at, _)| *at == event);
        let carried = (!starts_with_one || event == 0).then_some(before);
        within.map(|v| v.1).chain(carried).map(Span::of).reduce(Span::with).unwrap()
    }

    #[test]
    fn buckets_are_what_a_list_of_everything_says() {
        let mut random = fastrand::Rng::with_seed(17);
        for length in [3_u64, 4096, 5000, 100_000] {
            let mut timeline = Timeline::new(7);
            let (mut values, mut event) = (Vec::new(), 0);
            while event < length {
                let reserved = random.u64(..1 << 40);
                timeline.record(event, reserved / 2, reserved);
                values.push((event, reserved));
                event += random.u64(0..40) / 10;
            }
            timeline.end(length);
            let width = timeline.width_events();
            assert!(timeline.buckets().len() <= Timeline::MOST_BUCKETS);
            assert_eq!(timeline.buckets().len() as u64, length.div_ceil(width));
            for (number, bucket) in timeline.buckets().iter().enumerate().step_by(97) {
                let expected = span_of(&values, number as u64 * width, width, 7);
                assert_eq!(bucket.reserved, expected, "bucket {number} of {length} events");
            }
            let most = values.iter().map(|value| value.1).max().unwrap();
            let first = values.iter().find(|value| value.1 == most).unwrap().0;
            assert_eq!(timeline.peak_reserved(), Peak { bytes: most, event: first });
            let shown = timeline.buckets().iter().map(|bucket| bucket.reserved.most).max();
            assert_eq!(shown, Some(most));
        }
    }

    #[test]
    fn one_event_that_stands_out_of_ten_million_is_kept() {
        let mut timeline = Timeline::new(0);
        for event in 0..10_000_000 {
            let live = if event == 7_654_321 { 1000 } else { 10 };
            timeline.record(event, live, 2 * live);
        }
        assert!(timeline.buckets().len() <= Timeline::MOST_BUCKETS);
        assert_eq!(timeline.peak_live(), Peak { bytes: 1000, event: 7_654_321 });
        let bucket = timeline.buckets()[7_654_321 / timeline.width_events() as usize];
        assert_eq!(bucket.live, Span { least: 10, most: 1000 });
    }

    #[test]
    fn gaps_have_what_was_before_them() {
        let mut timeline = Timeline::new(5);
        timeline.record(2, 10, 20);
        timeline.record(2, 0, 20);
        timeline.end(5);
        let live: Vec<Span> = timeline.buckets().iter().map(|bucket| bucket.live).collect();
        let [none, up] = [Span::of(0), Span { least: 0, most: 10 }];
        assert_eq!(live, [none, none, up, none, none]);
        assert_eq!(timeline.last_event(), 4);
    }
}
