//! What a free range came from.

use super::ordered::{Ordered, Point, StreamSlot};
use crate::driver::{Driver, DriverResult, Stream};

/// What memory was freed after: the newest point of each stream. Usually one, so the first is kept in place.
#[derive(Debug, Default)]
pub(super) struct Frees {
    first: Option<Point>,
    more: Vec<Point>,
}

// Not derived: every split of a range clones them, and nearly always there is one.
impl Clone for Frees {
    #[inline]
    fn clone(&self) -> Frees {
        let more = if self.more.is_empty() { Vec::new() } else { self.more.clone() };
        Frees { first: self.first, more }
    }
}

impl From<Point> for Frees {
    #[inline]
    fn from(point: Point) -> Frees {
        Frees { first: Some(point), more: Vec::new() }
    }
}

impl Frees {
    #[inline]
    pub(super) fn add(&mut self, point: Point) {
        match &mut self.first {
            None => self.first = Some(point),
            Some(first) if first.slot == point.slot => {
                first.number = first.number.max(point.number)
            }
            Some(_) => match self.more.iter_mut().find(|known| known.slot == point.slot) {
                Some(known) => known.number = known.number.max(point.number),
                None => self.more.push(point),
            },
        }
    }

    #[inline]
    pub(super) fn merge(&mut self, other: &Frees) {
        other.iter().for_each(|point| self.add(point));
    }

    #[inline]
    fn iter(&self) -> impl Iterator<Item = Point> + '_ {
        self.first.iter().chain(&self.more).copied()
    }

    /// Makes later work of `taker` come after all of them.
    #[inline]
    pub(super) fn order(
        &self,
        ordered: &mut Ordered,
        taker: StreamSlot,
        handle: Stream,
        driver: &dyn Driver,
    ) -> DriverResult<()> {
        self.iter().try_for_each(|point| ordered.order(point, taker, handle, driver))
    }
}
