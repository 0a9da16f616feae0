//! The block sizes that slabs serve: eight for each doubling, from 256 bytes to 32 KiB.
//!
//! ```text
//!   256 512 768 … 2048 │ 2304 … 4096 │ 4608 … 8192 │ 9216 … 16384 │ 18432 … 32768
//!   step 256           │ 256         │ 512         │ 1024         │ 2048
//! ```
//!
//! A block is at most 12.5 % larger than what was asked for (from 2 KiB on). Larger requests are blocks of their own, in steps of 512 bytes.

use crate::resource::ALIGNMENT;

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
            .next_multiple_of(super::page_map::STRETCH_BYTES)
    }

    /// How many blocks a slab holds: 256 at most.
    pub(super) fn blocks(self) -> usize {
        (self.slab_bytes() / self.block_bytes()) as usize
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
}
