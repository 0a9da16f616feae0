//! Three small resources that are right, and the same with one bug each.
//!
//! They exist to show that the conformance suite passes what is right and finds what is wrong.

mod aliases;
mod moving_pages;
mod regions;

use millpond::FreeError;
use millpond::driver::DevicePtr;

pub use aliases::{AliasBug, Aliases};
pub use moving_pages::{MovingPages, PageBug};
pub use regions::{RegionBug, Regions};

/// What is wrong with freeing an address where no block begins, given the last block before it.
fn not_a_block(ptr: DevicePtr, before: Option<(DevicePtr, usize)>) -> FreeError {
    match before {
        Some((block, bytes)) if ptr < block.offset(bytes) => FreeError::Interior { ptr, block },
        _ => FreeError::Foreign { ptr },
    }
}
