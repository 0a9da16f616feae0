//! The points of a range of memory: moments in streams after which it may be used again.
//!
//! ```text
//!   points          at most one of each stream, the newest
//!   more            sorted by stream, without the first point's stream, never empty
//!   size_of Points  24 bytes: every free range has some, and a search reads them
//! ```

/// A stream, as the pool numbers them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::pool) struct StreamSlot(pub(in crate::pool) u32);

impl StreamSlot {
    /// No stream. A request for no stream gets only memory whose points have passed.
    pub(in crate::pool) const NONE: StreamSlot = StreamSlot(u32::MAX);
}

/// After everything queued on a stream up to some number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::pool) struct Point {
    pub(in crate::pool) stream: StreamSlot,
    pub(in crate::pool) number: u64,
}

/// Points of several streams, the newest of each. There is usually one, so the first is stored in place.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::pool) struct Points {
    /// Of [no stream](StreamSlot::NONE), if there are no points.
    first: Point,
    more: Option<Box<More>>,
}

/// The points of other streams, at least one, by stream: two lists become one in a single pass.
#[derive(Clone, Debug, PartialEq, Eq)]
struct More {
    points: Vec<Point>,
    /// With more points than this, the needless ones are looked for.
    forget_above: usize,
}

/// Among no more points than this, the needless ones are always looked for.
const FEW_POINTS: usize = 8;

impl Default for Points {
    #[inline]
    fn default() -> Points {
        Points::NONE
    }
}

// Not derived: nearly always there is one point, and this calls no function.
impl Clone for Points {
    #[inline]
    fn clone(&self) -> Points {
        let more = if self.more.is_none() { None } else { self.more.clone() };
        Points { first: self.first, more }
    }
}

impl Points {
    pub(in crate::pool) const NONE: Points =
        Points { first: Point { stream: StreamSlot::NONE, number: 0 }, more: None };

    /// One point.
    #[inline]
    pub(in crate::pool) fn of(point: Point) -> Points {
        Points { first: point, more: None }
    }

    /// As [`of`](Self::of), in place. It writes field by field: a processor cannot forward a copy in one piece from the stores that put it
    /// together, and waits.
    #[inline]
    pub(in crate::pool) fn become_of(&mut self, point: Point) {
        self.first.stream = point.stream;
        self.first.number = point.number;
        self.more = None;
    }

    /// Returns these and leaves none. It writes field by field, as [`become_of`](Self::become_of).
    #[inline]
    pub(in crate::pool) fn take(&mut self) -> Points {
        let Point { stream, number } = self.first;
        let taken = Points { first: Point { stream, number }, more: self.more.take() };
        (self.first.stream, self.first.number) = (StreamSlot::NONE, 0);
        taken
    }

    #[inline]
    pub(in crate::pool) fn is_empty(&self) -> bool {
        self.first.stream == StreamSlot::NONE
    }

    #[inline]
    fn more(&self) -> &[Point] {
        self.more.as_ref().map_or(&[], |more| &more.points)
    }

    #[inline]
    pub(in crate::pool) fn add(&mut self, point: Point) {
        debug_assert_ne!(point.stream, StreamSlot::NONE);
        if self.is_empty() {
            self.first = point;
        } else if self.first.stream == point.stream {
            self.first.number = self.first.number.max(point.number);
        } else {
            self.add_to_more(point);
        }
    }

    fn add_to_more(&mut self, point: Point) {
        let more = &mut self.more_mut().points;
        match more.binary_search_by_key(&point.stream, |old| old.stream) {
            Ok(at) => more[at].number = more[at].number.max(point.number),
            Err(at) => more.insert(at, point),
        }
    }

    fn more_mut(&mut self) -> &mut More {
        let none = || Box::new(More { points: Vec::new(), forget_above: FEW_POINTS });
        self.more.get_or_insert_with(none)
    }

    #[inline]
    pub(in crate::pool) fn merge(&mut self, other: Points) {
        if self.first.stream == other.first.stream && other.more.is_none() {
            self.first.number = self.first.number.max(other.first.number);
        } else {
            self.merge_others(other);
        }
    }

    #[inline(never)]
    fn merge_others(&mut self, other: Points) {
        if self.is_empty() {
            *self = other;
        } else if !other.is_empty() {
            self.add(other.first);
            self.add_all(other.more());
        }
    }

    /// Adds points that are sorted by stream.
    fn add_all(&mut self, others: &[Point]) {
        let first = self.first.stream;
        if let Ok(at) = others.binary_search_by_key(&first, |point| point.stream) {
            self.first.number = self.first.number.max(others[at].number);
        }
        let mut others = others.iter().filter(|point| point.stream != first).copied().peekable();
        if others.peek().is_none() {
            return;
        }
        let more = self.more_mut();
        let mut own = std::mem::take(&mut more.points).into_iter().peekable();
        loop {
            let (a, b) = (own.peek(), others.peek());
            let is_own = match (a, b) {
                (Some(a), Some(b)) => a.stream <= b.stream,
                (a, _) => a.is_some(),
            };
            let next = if is_own { own.next() } else { others.next() };
            let Some(next) = next else { break };
            match more.points.last_mut() {
                Some(last) if last.stream == next.stream => {
                    last.number = last.number.max(next.number);
                }
                _ => more.points.push(next),
            }
        }
    }

    /// Forgets points that are needless beside the others, where there are several: `forget` takes them out of a list that is sorted by
    /// stream. Where there are many, only when they have become twice as many since the last time.
    #[inline]
    pub(in crate::pool) fn forget_where(&mut self, forget: impl FnOnce(&mut Vec<Point>)) {
        if self.more.is_some() {
            self.forget_of_several(forget);
        }
    }

    #[inline(never)]
    fn forget_of_several(&mut self, forget: impl FnOnce(&mut Vec<Point>)) {
        let Some(more) = &mut self.more else { return };
        let count = more.points.len() + 1;
        if count > FEW_POINTS && count < more.forget_above {
            return;
        }
        let mut points = std::mem::take(&mut more.points);
        let place = points.partition_point(|point| point.stream < self.first.stream);
        points.insert(place, self.first);
        forget(&mut points);
        debug_assert!(points.is_sorted_by_key(|point| point.stream));
        self.first = points.pop().unwrap_or(Points::NONE.first);
        if points.is_empty() {
            self.more = None;
        } else {
            more.forget_above = 2 * (points.len() + 1);
            more.points = points;
        }
    }

    /// Whether there are none, or of one stream only.
    #[inline]
    pub(in crate::pool) fn are_all_of(&self, stream: StreamSlot) -> bool {
        let of_stream = self.first.stream == stream || self.is_empty();
        of_stream && self.more.is_none()
    }

    pub(in crate::pool) fn len(&self) -> usize {
        usize::from(!self.is_empty()) + self.more().len()
    }

    #[inline]
    pub(in crate::pool) fn iter(&self) -> impl Iterator<Item = Point> + '_ {
        let first = (!self.is_empty()).then_some(self.first);
        first.into_iter().chain(self.more().iter().copied())
    }
}
