//! Sizes: which kind of block serves a request, and where caches keep it.
//!
//! Slabs serve classes of blocks, eight for each doubling, from 256 bytes to 32 KiB:
//!
//! ```text
//!   256 512 768 … 2048 │ 2304 … 4096 │ 4608 … 8192 │ 9216 … 16384 │ 18432 … 32768
//!   step 256           │ 256         │ 512         │ 1024         │ 2048
//! ```
//!
//! A block is at most 12.5 % larger than what was asked for (from 2 KiB on). Larger requests are blocks of their own: up to 1 MiB in sizes
//! that go on as classes do, so that any block of a shelf serves any request that comes there, and above in steps of 512 bytes.
//!
//! A cache has one shelf for each class, and one for each size of blocks of their own up to 1 MiB:
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
//!
//! ```text
//!   request ≤ block_bytes ≤ request × 9/8        from 2 KiB to 1 MiB, with the default alignment
//!   shelf(request) = shelf(block that serves it)
//! ```

use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use super::back::STEP_BYTES;
use super::config::{aligned_to, own_step};
use crate::resource::{ALIGNMENT, AllocError};

/// The largest block that comes from a slab.
pub(super) const LARGEST_BYTES: usize = 32 << 10;
/// How many classes there are.
pub(super) const CLASSES: usize = 40;

/// A class of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Class(pub(super) u8);

const BLOCK_BYTES: [u32; CLASSES] = {
    let mut sizes = [0; CLASSES];
    let mut bytes = 0;
    let mut step = ALIGNMENT as u32;
    let mut class = 0;
    while class < CLASSES {
        bytes += step;
        sizes[class] = bytes;
        // From 4 KiB on, eight steps make the next doubling.
        if bytes >= 4096 && bytes.is_power_of_two() {
            step = bytes / 8;
        }
        class += 1;
    }
    sizes
};

/// How blocks are found in a slab: in units of the largest power of two that divides their size, so that a rotation does what a division
/// would, and shows whether an address is a multiple of it, too.
///
/// ```text
///   blocks of 768 bytes, units of 256   │ block 0 · · │ block 1 · · │ …    words of units where no block begins stay free
/// ```
#[derive(Clone, Copy, Debug)]
pub(super) struct Units {
    rotation: u8,
    /// Units that a block has: odd, 15 at most.
    per_block: u8,
    /// One over that.
    reciprocal: u16,
}

const RECIPROCAL_BITS: u32 = 15;

impl Units {
    /// One block, of whatever size.
    pub(super) const ONE_BLOCK: Units =
        Units { rotation: 0, per_block: 1, reciprocal: (1 << RECIPROCAL_BITS) + 1 };

    pub(super) fn of(class: Class) -> Units {
        let bytes = BLOCK_BYTES[class.index()];
        let rotation = bytes.trailing_zeros();
        let per_block = (bytes >> rotation) as u16;
        // For up to 1,024 units the product's error stays below one unit.
        let reciprocal = (1 << RECIPROCAL_BITS) / per_block + 1;
        Units { rotation: rotation as u8, per_block: per_block as u8, reciprocal }
    }

    /// The unit that begins at an offset of a slab. More than a slab has, if none does: also of an offset from below the slab, which is
    /// nearly 2⁶⁴.
    #[inline]
    pub(super) fn at(self, offset: u64) -> usize {
        offset.rotate_right(self.rotation.into()) as usize
    }

    /// The first unit of a block.
    #[inline]
    pub(super) fn of_block(self, index: usize) -> usize {
        index * usize::from(self.per_block)
    }

    /// The block that begins with a unit of a slab, if one does.
    #[inline]
    pub(super) fn block_at(self, unit: usize) -> Option<usize> {
        let index = (unit * usize::from(self.reciprocal)) >> RECIPROCAL_BITS;
        (self.of_block(index) == unit).then_some(index)
    }
}

/// The class of every multiple of the alignment.
const CLASS_OF: [u8; LARGEST_BYTES / ALIGNMENT + 1] = {
    let mut classes = [0; LARGEST_BYTES / ALIGNMENT + 1];
    let mut units = 1;
    let mut class = 0;
    while units < classes.len() {
        if units * ALIGNMENT > BLOCK_BYTES[class] as usize {
            class += 1;
        }
        classes[units] = class as u8;
        units += 1;
    }
    classes
};

impl Class {
    /// The class that serves a request of 1 to [`LARGEST_BYTES`] bytes.
    #[inline]
    pub(super) fn of(bytes: usize) -> Class {
        Class(CLASS_OF[bytes.div_ceil(ALIGNMENT)])
    }

    #[inline]
    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }

    /// The size of its blocks.
    #[inline]
    pub(super) fn block_bytes(self) -> u64 {
        u64::from(BLOCK_BYTES[self.index()])
    }

    /// The size of its slabs: eight blocks at least, from 64 to 256 KiB, in whole stretches of the page map.
    pub(super) fn slab_bytes(self) -> u64 {
        (self.block_bytes() * 8)
            .clamp(64 << 10, 256 << 10)
            .next_multiple_of(super::blocks::STRETCH_BYTES)
    }

    /// How many blocks a slab holds: 256 at most.
    pub(super) fn blocks(self) -> usize {
        (self.slab_bytes() / self.block_bytes()) as usize
    }
}

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
pub(super) struct SizeAndShelf(u64);

const _: () = assert!(LARGEST_PENDING_BYTES <= u32::MAX as usize);
const _: () = assert!(SHELF_NUMBERS * STACK_BYTES <= u16::MAX as usize);

impl SizeAndShelf {
    pub(super) const fn new(bytes: u64, shelf: Shelf) -> SizeAndShelf {
        SizeAndShelf((shelf.0 as u64) << 32 | bytes as u32 as u64)
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
pub(super) struct AtomicSizeAndShelf(AtomicU64);

impl AtomicSizeAndShelf {
    pub(super) fn new(both: SizeAndShelf) -> AtomicSizeAndShelf {
        AtomicSizeAndShelf(AtomicU64::new(both.0))
    }

    #[inline]
    pub(super) fn load(&self) -> SizeAndShelf {
        SizeAndShelf(self.0.load(Ordering::Relaxed))
    }

    #[inline]
    pub(super) fn store(&self, both: SizeAndShelf) {
        self.0.store(both.0, Ordering::Relaxed);
    }
}

/// The kind of block that serves a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    OfSlab(Class),
    Own { bytes: u64, align: u64 },
}

impl Shape {
    /// The block's size, and what its address is a multiple of, at the least.
    pub(super) fn bytes_and_align(self) -> (u64, u64) {
        match self {
            Shape::OfSlab(class) => (class.block_bytes(), STEP_BYTES),
            Shape::Own { bytes, align } => (bytes, align),
        }
    }
}

impl Shape {
    /// The kind of block that serves a request, where blocks are aligned so. The alignment may change at any moment, so it is looked at
    /// once.
    #[inline(always)]
    pub(super) fn of(bytes: usize, alignment: usize) -> Result<Shape, AllocError> {
        /// More than any device addresses, and little enough to be rounded and added up.
        const MOST_BYTES: u64 = 1 << 50;
        let aligned = aligned_to(bytes, alignment);
        if let Some(aligned) = aligned.filter(|aligned| *aligned <= LARGEST_BYTES) {
            return Ok(Shape::OfSlab(Class::of(aligned)));
        }
        let step = own_step(alignment);
        let own = aligned_to(bytes, step).map(|size| size as u64).filter(|size| *size < MOST_BYTES);
        let mut bytes = own.ok_or(AllocError::TooLarge { bytes })?;
        if bytes <= LARGEST_CACHED_BYTES as u64 {
            bytes = cached_bytes(bytes);
        }
        Ok(Shape::Own { bytes, align: step as u64 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_has_the_smallest_class_that_holds_it() {
        assert_eq!(BLOCK_BYTES[CLASSES - 1] as usize, LARGEST_BYTES);
        for bytes in 1..=LARGEST_BYTES {
            let class = Class::of(bytes);
            assert!(class.block_bytes() >= bytes as u64);
            assert!(class.0 == 0 || u64::from(BLOCK_BYTES[class.index() - 1]) < bytes as u64);
            let waste = class.block_bytes() as f64 / bytes as f64;
            assert!(bytes < 2048 || waste <= 1.125, "{bytes} bytes become {}", class.block_bytes());
        }
        for class in (0..CLASSES as u8).map(Class) {
            assert!((8..=256).contains(&class.blocks()) && class.block_bytes() % 256 == 0);
            let units = Units::of(class);
            let in_slab = units.of_block(class.blocks());
            let find = |offset| Some(units.at(offset)).filter(|unit| *unit < in_slab);
            for offset in (0..class.slab_bytes()).step_by(64) {
                let index = (offset / class.block_bytes()) as usize;
                let exact = offset.is_multiple_of(class.block_bytes()) && index < class.blocks();
                let found = find(offset).and_then(|unit| units.block_at(unit));
                assert_eq!(found, exact.then_some(index), "{class:?} at {offset}");
                assert_eq!(find(offset.wrapping_sub(1 << 50)), None);
            }
        }
    }

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
