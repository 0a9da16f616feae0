//! What a free range came from.

use super::ordered::{Ordered, Point, StreamSlot};
use crate::driver::{Driver, DriverResult, Stream};

/// What memory was freed after: the newest point of each stream. Usually one, so the first is kept in place.
#[derive(Clone, Debug, Default)]
pub(super) struct Frees {
    first: Option<Point>,
    /// Those of other streams; few words where there are none, since every free range has this.
    #[expect(clippy::box_collection, reason = "a vector is three words")]
    more: Option<Box<Vec<Point>>>,
}

impl From<Point> for Frees {
    #[inline]
    fn from(point: Point) -> Frees {
        Frees { first: Some(point), more: None }
    }
}

impl Frees {
    #[inline]
    pub(super) fn add(&mut self, point: Point) {
        match &mut self.first {
            None => self.first = Some(point),
            Some(first) if first.slot == point.slot => {
                first.number = first.number.max(point.number);
            }
            Some(_) => self.add_other(point),
        }
    }

    fn add_other(&mut self, point: Point) {
        let more = self.more.get_or_insert_default();
        match more.iter_mut().find(|known| known.slot == point.slot) {
            Some(known) => known.number = known.number.max(point.number),
            None => more.push(point),
        }
    }

    #[inline]
    pub(super) fn merge(&mut self, other: &Frees) {
        if let Some(first) = other.first {
            self.add(first);
        }
        if let Some(more) = &other.more {
            more.iter().for_each(|point| self.add(*point));
        }
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
        if let Some(first) = self.first {
            ordered.order(first, taker, handle, driver)?;
        }
        let more = self.more.iter().flat_map(|more| more.iter());
        more.copied().try_for_each(|point| ordered.order(point, taker, handle, driver))
    }
}
