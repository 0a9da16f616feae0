//! The smallest device on which an allocator can do a program.

use super::{Bench, Program, ReplayError, Replayed};
use crate::stack::Stack;

/// The device's pages: capacities are multiples of this.
const PAGE_BYTES: u64 = 2 << 20;
/// How exactly the smallest device is found: to this part of it, or to a page.
const PART: u64 = 256;

impl Bench {
    /// The smallest device on which the program comes to its end, to within half a percent. `None`: not even on the one it was tried on.
    ///
    /// Assumes that it fits on every larger one, too, up to that.
    ///
    /// # Errors
    /// The trace cannot be read any more.
    pub fn smallest_bytes(
        &self,
        stack: &Stack,
        program: &Program,
        replayed: &Replayed,
    ) -> Result<Option<u64>, ReplayError> {
        if replayed.outcome.stopped.is_some() {
            return Ok(None);
        }
        let fits = |pages: u64| -> Result<bool, ReplayError> {
            let smaller = self.with_capacity(pages * PAGE_BYTES)?;
            match smaller.replay(stack, program) {
                Ok(answer) => Ok(answer.outcome.stopped.is_none()),
                Err(ReplayError::Trace(error)) => Err(error.into()),
                // Too small even to be made is too small.
                Err(_) => Ok(false),
            }
        };
        // Nothing can do with less than is live.
        let mut too_small = replayed.outcome.peak_live_bytes.div_ceil(PAGE_BYTES).saturating_sub(1);
        let mut enough = self.capacity_bytes() / PAGE_BYTES;
        let reserved = replayed.outcome.peak_reserved_bytes.div_ceil(PAGE_BYTES).max(1);
        // Mostly what was reserved will do, and often hardly less.
        for pages in [reserved, reserved - reserved / PART] {
            if pages > too_small && pages < enough && fits(pages)? {
                enough = pages;
            }
        }
        while enough - too_small > (enough / PART).max(1) {
            let pages = too_small + (enough - too_small) / 2;
            if fits(pages)? {
                enough = pages;
            } else {
                too_small = pages;
            }
        }
        Ok(Some(enough * PAGE_BYTES))
    }
}
