//! Moments in streams after which memory may be used again.

/// A stream, as the pool numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct StreamSlot(pub(super) u32);

impl StreamSlot {
    /// Whoever takes memory for no stream in particular: what it takes must have passed.
    pub(super) const NOBODY: StreamSlot = StreamSlot(u32::MAX);
}

/// After everything queued on a stream up to some number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    pub(super) stream: StreamSlot,
    pub(super) number: u64,
}

/// Points of several streams, the newest of each. Usually one, so the first is kept in place.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Points {
    first: Option<Point>,
    more: Vec<Point>,
}

// Not derived: every placement clones points, and nearly always there is one.
impl Clone for Points {
    #[inline]
    fn clone(&self) -> Points {
        let more = if self.more.is_empty() { Vec::new() } else { self.more.clone() };
        Points { first: self.first, more }
    }
}

impl Points {
    /// One point.
    pub(super) fn of(point: Point) -> Points {
        Points { first: Some(point), more: Vec::new() }
    }

    pub(super) fn add(&mut self, point: Point) {
        let Some(first) = &mut self.first else {
            self.first = Some(point);
            return;
        };
        let mut known = std::iter::once(first).chain(&mut self.more);
        match known.find(|old| old.stream == point.stream) {
            Some(old) => old.number = old.number.max(point.number),
            None => self.more.push(point),
        }
    }

    pub(super) fn merge(&mut self, other: Points) {
        if self.first.is_none() {
            *self = other;
            return;
        }
        other.iter().for_each(|point| self.add(point));
    }

    /// Forgets points that are needless beside the others, where there are several.
    pub(super) fn forget_where(&mut self, is_needless: impl Fn(Point, &[Point]) -> bool) {
        let Some(first) = self.first.filter(|_| !self.more.is_empty()) else { return };
        let mut points = std::mem::take(&mut self.more);
        points.push(first);
        let mut place = 0;
        while let Some(&point) = points.get(place) {
            if is_needless(point, &points) {
                points.swap_remove(place);
            } else {
                place += 1;
            }
        }
        self.first = points.pop();
        self.more = points;
    }

    pub(super) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.more.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Point> + '_ {
        self.first.iter().chain(&self.more).copied()
    }
}
