//! Moments in streams after which memory may be used again.

/// A stream, as the pool numbers them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
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

/// Points of several streams, the newest of each. Usually one, so the first is kept in place; in 24 bytes, because every free range
/// has some and a search reads them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Points {
    /// [Nobody's](StreamSlot::NOBODY), if there are none: it frees nothing.
    first: Point,
    more: Option<Box<More>>,
}

/// The points of other streams: at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct More(Vec<Point>);

impl Default for Points {
    #[inline]
    fn default() -> Points {
        Points::NONE
    }
}

// Not derived: nearly always there is one, and nothing to call.
impl Clone for Points {
    #[inline]
    fn clone(&self) -> Points {
        let more = if self.more.is_none() { None } else { self.more.clone() };
        Points { first: self.first, more }
    }
}

impl Points {
    pub(super) const NONE: Points =
        Points { first: Point { stream: StreamSlot::NOBODY, number: 0 }, more: None };

    /// One point.
    #[inline]
    pub(super) fn of(point: Point) -> Points {
        Points { first: point, more: None }
    }

    /// As [`of`](Self::of), where there are some already. Field by field: what is put together elsewhere and copied in one piece the machine
    /// has to wait for.
    #[inline]
    pub(super) fn become_of(&mut self, point: Point) {
        self.first.stream = point.stream;
        self.first.number = point.number;
        self.more = None;
    }

    /// These, of which none are left. Field by field, as [`become_of`](Self::become_of).
    #[inline]
    pub(super) fn take(&mut self) -> Points {
        let Point { stream, number } = self.first;
        let taken = Points { first: Point { stream, number }, more: self.more.take() };
        (self.first.stream, self.first.number) = (StreamSlot::NOBODY, 0);
        taken
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.first.stream == StreamSlot::NOBODY
    }

    #[inline]
    fn more(&self) -> &[Point] {
        self.more.as_ref().map_or(&[], |more| &more.0)
    }

    #[inline]
    pub(super) fn add(&mut self, point: Point) {
        debug_assert_ne!(point.stream, StreamSlot::NOBODY);
        if self.is_empty() {
            self.first = point;
        } else if self.first.stream == point.stream {
            self.first.number = self.first.number.max(point.number);
        } else {
            self.add_to_more(point);
        }
    }

    fn add_to_more(&mut self, point: Point) {
        let more = &mut self.more.get_or_insert_with(|| Box::new(More(Vec::new()))).0;
        match more.iter_mut().find(|old| old.stream == point.stream) {
            Some(old) => old.number = old.number.max(point.number),
            None => more.push(point),
        }
    }

    #[inline]
    pub(super) fn merge(&mut self, other: Points) {
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
            other.more().iter().for_each(|point| self.add(*point));
        }
    }

    /// Forgets points that are needless beside the others, where there are several.
    #[inline]
    pub(super) fn forget_where(&mut self, is_needless: impl Fn(Point, &[Point]) -> bool) {
        if self.more.is_some() {
            self.forget_of_several(is_needless);
        }
    }

    #[inline(never)]
    fn forget_of_several(&mut self, is_needless: impl Fn(Point, &[Point]) -> bool) {
        let Some(more) = self.more.take() else { return };
        let mut points = more.0;
        points.push(self.first);
        let mut place = 0;
        while let Some(&point) = points.get(place) {
            if is_needless(point, &points) {
                points.swap_remove(place);
            } else {
                place += 1;
            }
        }
        *self = match points.pop() {
            Some(first) => Points::of(first),
            None => Points::default(),
        };
        if !points.is_empty() {
            self.more = Some(Box::new(More(points)));
        }
    }

    /// Whether there are none, or of one stream only.
    #[inline]
    pub(super) fn are_all_of(&self, stream: StreamSlot) -> bool {
        let of_stream = self.first.stream == stream || self.is_empty();
        of_stream && self.more.is_none()
    }

    pub(super) fn len(&self) -> usize {
        usize::from(!self.is_empty()) + self.more().len()
    }

    #[inline]
    pub(super) fn iter(&self) -> impl Iterator<Item = Point> + '_ {
        let first = (!self.is_empty()).then_some(self.first);
        first.into_iter().chain(self.more().iter().copied())
    }
}
