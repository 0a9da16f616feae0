//! The smallest device on which an allocator can do a program.

use super::{Bench, Outcome, Program, ReplayError, Replayed, Stopped};
use crate::resource::AllocError;
use crate::stack::Stack;

/// The device's pages: capacities are multiples of this.
const PAGE_BYTES: u64 = 2 << 20;
/// How exactly the smallest device is found: to this part of it, or to a page.
const PART: u64 = 256;
/// The largest device that is tried, which is several times what there is: 2 TiB.
const MOST_PAGES: u64 = (2 << 40) / PAGE_BYTES;

impl Bench {
    /// The smallest device on which the program comes to its end, to within half a percent, with room for every request that failed
    /// when it was recorded ([`Program::with_failed_requests`]). `None`: none that could be tried.
    ///
    /// Where the device it was tried on is too small, larger ones are tried, if it is a simulated one. Assumes that it fits on every
    /// larger one, too.
    ///
    /// # Errors
    /// The trace cannot be read any more, or somebody wants it to [end](Self::until).
    pub fn smallest_bytes(
        &self,
        stack: &Stack,
        program: &Program,
        replayed: &Replayed,
    ) -> Result<Option<u64>, ReplayError> {
        // How much of the device there is does not matter to them.
        if stack.host_reaches() {
            return Ok(None);
        }
        let search = Search { bench: self, stack, program: &program.with_failed_requests() };
        let capacity = self.capacity_bytes() / PAGE_BYTES;
        // Nothing can do with less than is live.
        let live = search.program.peak_live_bytes().div_ceil(PAGE_BYTES).saturating_sub(1);
        let here = match program.failed_requests() {
            [] => Tried::of(&replayed.outcome),
            _ if replayed.outcome.stopped.is_some() => Tried::of(&replayed.outcome),
            _ => search.on(capacity)?,
        };
        match here {
            Tried::Fits { reserved } => {
                search.between(live.min(capacity - 1), capacity, reserved).map(Some)
            }
            // There is not more of it than there is.
            Tried::TooSmall if self.is_real() => Ok(None),
            Tried::TooSmall => search.above(live.max(capacity)),
            Tried::Never => Ok(None),
        }
    }
}

/// What came of a device.
enum Tried {
    /// It is enough, and so many pages were reserved at the most.
    Fits {
        reserved: u64,
    },
    TooSmall,
    /// It failed for a reason that a larger one does not change.
    Never,
}

impl Tried {
    fn of(outcome: &Outcome) -> Tried {
        match &outcome.stopped {
            None => Tried::Fits { reserved: outcome.peak_reserved_bytes.div_ceil(PAGE_BYTES) },
            Some(Stopped::Allocation {
                error: AllocError::OutOfMemory(_) | AllocError::OutOfHostMemory { .. },
                ..
            }) => Tried::TooSmall,
            Some(_) => Tried::Never,
        }
    }
}

struct Search<'a> {
    bench: &'a Bench,
    stack: &'a Stack,
    program: &'a Program,
}

impl Search<'_> {
    fn on(&self, pages: u64) -> Result<Tried, ReplayError> {
        self.bench.ensure_goes_on()?;
        let other = self.bench.with_capacity(pages * PAGE_BYTES)?;
        match other.replay(self.stack, self.program) {
            Ok(answer) => Ok(Tried::of(&answer.outcome)),
            Err(ReplayError::Trace(error)) => Err(error.into()),
            // Too small even to be made is too small.
            Err(_) => Ok(Tried::TooSmall),
        }
    }

    fn fits(&self, pages: u64) -> Result<bool, ReplayError> {
        Ok(matches!(self.on(pages)?, Tried::Fits { .. }))
    }

    /// The smallest that is larger than one that is too small.
    fn above(&self, too_small: u64) -> Result<Option<u64>, ReplayError> {
        let mut too_small = too_small.max(1);
        while too_small < MOST_PAGES {
            let pages = too_small.saturating_mul(2).min(MOST_PAGES);
            match self.on(pages)? {
                Tried::Fits { reserved } => {
                    return self.between(too_small, pages, reserved).map(Some);
                }
                Tried::TooSmall => too_small = pages,
                Tried::Never => return Ok(None),
            }
        }
        Ok(None)
    }

    /// The smallest between one that is too small and one that is enough, with which so many pages were reserved.
    fn between(
        &self,
        mut too_small: u64,
        mut enough: u64,
        reserved: u64,
    ) -> Result<u64, ReplayError> {
        let reserved = reserved.max(1);
        // Mostly what was reserved will do, and often hardly less.
        for pages in [reserved, reserved - reserved / PART] {
            if pages > too_small && pages < enough && self.fits(pages)? {
                enough = pages;
            }
        }
        while enough - too_small > (enough / PART).max(1) {
            let pages = too_small + (enough - too_small) / 2;
            if self.fits(pages)? {
                enough = pages;
            } else {
                too_small = pages;
            }
        }
        Ok(enough * PAGE_BYTES)
    }
}
