//! Three small resources that are right, and the same with one bug each.
//!
//! They exist to show that the conformance suite passes what is right and finds what is wrong.

mod aliases;
mod moving_pages;
mod regions;

use std::collections::BTreeMap;

use millpond::driver::{DevicePtr, DriverError};
use millpond::resource::OutOfMemory;
use millpond::{AllocError, FreeError, Usage};

pub use aliases::{AliasBug, Aliases};
pub use moving_pages::{MovingPages, PageBug};
pub use regions::{RegionBug, Regions};

/// The block that a free names, if it is right: one begins there and has as many bytes.
fn block_to_free<B>(
    live: &BTreeMap<DevicePtr, B>,
    (ptr, given_bytes): (DevicePtr, usize),
    bytes_of: impl Fn(&B) -> usize,
) -> Result<&B, FreeError> {
    let Some(block) = live.get(&ptr) else {
        return Err(match live.range(..ptr).next_back() {
            Some((start, block)) if ptr < start.offset(bytes_of(block)) => {
                FreeError::Interior { ptr, block: *start }
            }
            _ => FreeError::Foreign { ptr },
        });
    };
    let allocated_bytes = bytes_of(block);
    if allocated_bytes == given_bytes {
        return Ok(block);
    }
    Err(FreeError::WrongSize { ptr, given_bytes, allocated_bytes })
}

/// Why a request failed, given the driver's answer to it.
fn refused(usage: &Usage, bytes: usize, error: DriverError) -> AllocError {
    if !error.is_out_of_memory() {
        return error.into();
    }
    AllocError::OutOfMemory(Box::new(OutOfMemory {
        requested_bytes: bytes,
        live_bytes: usage.live_bytes,
        reserved_bytes: usage.reserved_bytes,
        ..OutOfMemory::default()
    }))
}
