//! Which kind of block serves a request.

use super::Inner;
use crate::pool::bins::STEP_BYTES;
use crate::pool::config::{aligned_to, own_step};
use crate::pool::shelf::{LARGEST_CACHED_BYTES, cached_bytes};
use crate::pool::size_class::{Class, LARGEST_BYTES};
use crate::resource::AllocError;

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

impl Inner {
    /// The kind of block that serves a request. The alignment may change at any moment, so it is looked at once.
    #[inline(always)]
    pub(super) fn shape_of(&self, bytes: usize) -> Result<Shape, AllocError> {
        /// More than any device addresses, and little enough to be rounded and added up.
        const MOST_BYTES: u64 = 1 << 50;
        let alignment = self.settings.alignment();
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
