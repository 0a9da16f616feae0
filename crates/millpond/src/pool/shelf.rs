//! Where a cache keeps a block: one shelf for each class of slabs, and one for each size of blocks of their own, up to 1 MiB. These sizes
//! go on as classes do, eight for each doubling, so that any block of a shelf serves any request that comes there.
//!
//! ```text
//!   0 … 39: classes, to 32 KiB │ 40 … 79: sizes, to 1 MiB │ 80: pending, to 16 MiB │ 81: no cache keeps it
//!                                36 40 44 … 64 │ 72 80 … 128 │ … 1024 KiB
//! ```
//!
//! What is pending is not kept to be handed out again: it is given back with the next block that the thread takes from the back, so that
//! the two need one lock. Only with slack to spend and while there is one stream: with several, what one has freed decides where others'
//! blocks are placed.
//!
//! Both kinds are numbered together so that a hit need not ask which kind a block is: where sizes are random, the machine would
//! guess wrong every other time.

use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use super::size_class::{CLASSES, Class, LARGEST_BYTES};

/// The largest block that a cache keeps.
pub(super) const LARGEST_CACHED_BYTES: usize = 1 << 20;

/// Shelves for each doubling of size.
const OF_DOUBLING: usize = 1 << DOUBLING_BITS;
const DOUBLING_BITS: u32 = 3;
/// How many shelves there are.
pub(super) const SHELVES: usize =
    CLASSES + OF_DOUBLING * (LARGEST_CACHED_BYTES / LARGEST_BYTES).ilog2() as usize;

/// The size of a block of its own that a cache may keep, for a request of more than classes have and at most
/// [`LARGEST_CACHED_BYTES`]: at most an eighth more.
#[inline]
pub(super) const fn cached_bytes(bytes: u64) -> u64 {
    let step_bits = (bytes - 1).ilog2() - DOUBLING_BITS;
    ((bytes - 1) >> step_bits << step_bits) + (1 << step_bits)
}

/// The largest block that is left pending, and how many are.
pub(super) const LARGEST_PENDING_BYTES: usize = 16 << 20;
pub(super) const MOST_PENDING: usize = 4;

/// How many there are, with the two that serve no request.
pub(super) const SHELF_NUMBERS: usize = SHELVES + 2;

/// What the stack of a shelf takes among those of a cache.
pub(super) const STACK_BYTES: usize = 64;

/// A shelf, as the place of its stack in a cache: below `SHELF_NUMBERS × STACK_BYTES`, and a multiple of the latter. So whoever has one
/// need neither multiply nor compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Shelf(u32);

impl Shelf {
    /// Of blocks that no cache keeps.
    pub(super) const NONE: Shelf = Shelf::numbered(SHELVES + 1);
    /// Of blocks that are to be given back.
    pub(super) const PENDING: Shelf = Shelf::numbered(SHELVES);

    /// The shelf of an [index](Self::index).
    pub(super) const fn at(index: usize) -> Shelf {
        Shelf::numbered(index)
    }

    const fn numbered(number: usize) -> Shelf {
        assert!(number < SHELF_NUMBERS);
        Shelf((number * STACK_BYTES) as u32)
    }

    /// The shelf of a slab's blocks.
    pub(super) fn of_class(class: Class) -> Shelf {
        Shelf::numbered(class.index())
    }

    /// The shelf of a block of its own.
    pub(super) fn of_own(block_bytes: u64) -> Shelf {
        if block_bytes > LARGEST_PENDING_BYTES as u64 {
            return Shelf::NONE;
        }
        if block_bytes > LARGEST_CACHED_BYTES as u64 {
            return Shelf::PENDING;
        }
        debug_assert_eq!(block_bytes, cached_bytes(block_bytes));
        let doubling = (block_bytes - 1).ilog2();
        let step = (block_bytes - 1) >> (doubling - DOUBLING_BITS);
        let of_doubling = step as usize % OF_DOUBLING;
        let of_doublings = (doubling - LARGEST_BYTES.ilog2()) as usize * OF_DOUBLING;
        Shelf::numbered(CLASSES + of_doublings + of_doubling)
    }

    /// Whether caches keep its blocks to hand them out again.
    pub(super) fn serves(self) -> bool {
        self.index() < SHELVES
    }

    /// The size of its blocks, where it [serves](Self::serves).
    pub(super) fn block_bytes(self) -> u64 {
        if let Some(class) = self.class() {
            return class.block_bytes();
        }
        let step = self.index() - CLASSES;
        let below = (LARGEST_BYTES as u64) << (step / OF_DOUBLING);
        below + below / OF_DOUBLING as u64 * (step % OF_DOUBLING + 1) as u64
    }

    /// The class of its blocks; none for blocks of their own.
    #[inline]
    pub(super) fn class(self) -> Option<Class> {
        (self.index() < CLASSES).then_some(Class(self.index() as u8))
    }

    #[inline]
    pub(super) const fn index(self) -> usize {
        self.place() / STACK_BYTES
    }

    /// Where its stack begins among those of a cache, in bytes.
    #[inline]
    pub(super) const fn place(self) -> usize {
        self.0 as usize
    }
}

/// A shelf that all threads read and any may change. Relaxed: it orders nothing, and who sees an old one serves by the old settings.
#[derive(Debug)]
pub(super) struct AtomicShelf(AtomicU16);

impl AtomicShelf {
    pub(super) const fn new(shelf: Shelf) -> AtomicShelf {
        AtomicShelf(AtomicU16::new(shelf.0 as u16))
    }

    #[inline]
    pub(super) fn load(&self) -> Shelf {
        Shelf(u32::from(self.0.load(Ordering::Relaxed)))
    }

    pub(super) fn store(&self, shelf: Shelf) {
        self.0.store(shelf.0 as u16, Ordering::Relaxed);
    }
}

/// How a cache keeps a block: on which shelf, and how large it is, as far as 32 bits say that, which they do of all that it keeps. In one
/// number, which goes from the block's header to a cache by one load and one store, and of which either half is read by itself:
///
/// ```text
///   63           32 31            0
///   shelf          │ size
/// ```
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept(u64);

const _: () = assert!(LARGEST_PENDING_BYTES <= u32::MAX as usize);
const _: () = assert!(SHELF_NUMBERS * STACK_BYTES <= u16::MAX as usize);

impl Kept {
    pub(super) const fn new(bytes: u64, shelf: Shelf) -> Kept {
        Kept((shelf.0 as u64) << 32 | bytes as u32 as u64)
    }

    /// The lower 32 bits of the size.
    #[inline]
    pub(super) fn bytes(self) -> u64 {
        u64::from(self.0 as u32)
    }

    #[inline]
    pub(super) fn shelf(self) -> Shelf {
        Shelf((self.0 >> 32) as u32)
    }
}

/// As a block's header has it. Relaxed: as all of a header.
#[derive(Debug)]
pub(super) struct AtomicKept(AtomicU64);

impl AtomicKept {
    pub(super) fn new(kept: Kept) -> AtomicKept {
        AtomicKept(AtomicU64::new(kept.0))
    }

    #[inline]
    pub(super) fn load(&self) -> Kept {
        Kept(self.0.load(Ordering::Relaxed))
    }

    #[inline]
    pub(super) fn store(&self, kept: Kept) {
        self.0.store(kept.0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shelves_rise_with_size_and_classes_have_their_own() {
        let own = |bytes| Shelf::of_own(bytes).index();
        assert!(
            (0..CLASSES).all(|class| Shelf::numbered(class).class() == Some(Class(class as u8)))
        );
        let mut sizes = std::collections::BTreeMap::new();
        for bytes in LARGEST_BYTES as u64 + 1..=LARGEST_CACHED_BYTES as u64 {
            let block_bytes = cached_bytes(bytes);
            assert!((bytes..=bytes + bytes / 8).contains(&block_bytes), "{bytes}: {block_bytes}");
            assert_eq!(cached_bytes(block_bytes), block_bytes);
            assert_eq!(Shelf::of_own(block_bytes).block_bytes(), block_bytes);
            sizes.insert(block_bytes, own(block_bytes));
        }
        assert!(sizes.values().copied().eq(CLASSES..SHELVES), "{sizes:?}");
        assert_eq!(own(LARGEST_CACHED_BYTES as u64), SHELVES - 1);
        assert_eq!(Shelf::of_own(LARGEST_CACHED_BYTES as u64 + 512), Shelf::PENDING);
        assert_eq!(Shelf::of_own(LARGEST_PENDING_BYTES as u64), Shelf::PENDING);
        assert_eq!(Shelf::of_own(LARGEST_PENDING_BYTES as u64 + 512), Shelf::NONE);
    }
}
