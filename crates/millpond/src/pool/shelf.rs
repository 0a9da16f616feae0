//! Where a cache keeps a block: one shelf for each class of slabs, and one for each bin of blocks of their own, up to 1 MiB.
//!
//! ```text
//!   0 … 39: classes, to 32 KiB │ 40 … 200: bins, to 1 MiB (32 for each doubling) │ 202: pending, to 16 MiB │ 255: no cache keeps it
//! ```
//!
//! What is pending is not kept to be handed out again: it is given back with the next block that the thread takes from the back, so that
//! the two need one lock. Only with slack to spend and while there is one stream: with several, what one has freed decides where others'
//! blocks are placed.
//!
//! Both kinds are numbered together so that a hit need not ask which kind a block is: where sizes are random, the machine would
//! guess wrong every other time.

use super::bins::Bin;
use super::size_class::{CLASSES, Class, LARGEST_BYTES};

/// The largest block that a cache keeps.
pub(super) const LARGEST_CACHED_BYTES: usize = 1 << 20;

const FIRST_BIN: usize = Bin::of(LARGEST_BYTES as u64).index();
/// How many shelves there are.
pub(super) const SHELVES: usize =
    CLASSES + Bin::of(LARGEST_CACHED_BYTES as u64).index() - FIRST_BIN + 1;

/// The largest block that is left pending, and how many are.
pub(super) const LARGEST_PENDING_BYTES: usize = 16 << 20;
pub(super) const MOST_PENDING: usize = 4;

/// As many as there can be, so that no number has to be looked at; those that are no shelf keep nothing.
pub(super) const SHELF_NUMBERS: usize = 1 << u8::BITS;

const _: () = assert!(Shelf::PENDING.index() < Shelf::NONE.index());

/// The number of a shelf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shelf(pub(super) u8);

impl Shelf {
    /// Of blocks that no cache keeps.
    pub(super) const NONE: Shelf = Shelf(u8::MAX);
    /// Of blocks that are to be given back. Not beside the last bin, which is looked at for what nearly fits.
    pub(super) const PENDING: Shelf = Shelf(SHELVES as u8 + 1);

    /// The shelf of a slab's blocks.
    pub(super) fn of_class(class: Class) -> Shelf {
        Shelf(class.0)
    }

    /// The shelf of a block of its own.
    pub(super) fn of_own(block_bytes: u64) -> Shelf {
        if block_bytes > LARGEST_PENDING_BYTES as u64 {
            return Shelf::NONE;
        }
        if block_bytes > LARGEST_CACHED_BYTES as u64 {
            return Shelf::PENDING;
        }
        Shelf((CLASSES + Bin::of(block_bytes).index() - FIRST_BIN) as u8)
    }

    /// The class of its blocks; none for blocks of their own.
    #[inline]
    pub(super) fn class(self) -> Option<Class> {
        (self.index() < CLASSES).then_some(Class(self.0))
    }

    /// Whether its blocks are their own, and kept to be handed out again.
    #[inline]
    pub(super) fn is_bin(self) -> bool {
        (CLASSES..SHELVES).contains(&self.index())
    }

    #[inline]
    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shelves_rise_with_size_and_classes_have_their_own() {
        let own = |bytes| Shelf::of_own(bytes).index();
        assert!((0..CLASSES).all(|class| Shelf(class as u8).class() == Some(Class(class as u8))));
        let sizes = (LARGEST_BYTES as u64 + 512..=LARGEST_CACHED_BYTES as u64).step_by(512);
        for bytes in sizes {
            assert!((CLASSES..SHELVES).contains(&own(bytes)) && own(bytes) >= own(bytes - 512));
            assert_eq!(Shelf::of_own(bytes).class(), None);
        }
        assert_eq!(own(LARGEST_CACHED_BYTES as u64), SHELVES - 1);
        assert_eq!(Shelf::of_own(LARGEST_CACHED_BYTES as u64 + 512), Shelf::PENDING);
        assert_eq!(Shelf::of_own(LARGEST_PENDING_BYTES as u64), Shelf::PENDING);
        assert_eq!(Shelf::of_own(LARGEST_PENDING_BYTES as u64 + 512), Shelf::NONE);
    }
}
