//! Growth: how much may be reserved, in handles of which size, and memory that is created ahead of need.
//!
//! Memory ahead of need is mapped nowhere. The next request that grows the pool maps it instead of memory of its own, and so does not wait
//! for the driver.
//!
//! ```text
//!   reserved_bytes ≤ (1 + max(slack, LEAST_SLACK)) × peak_live_bytes, wherever memory that is there can serve instead
//!   memory is created ahead while loose pages ≤ pages of all handles / AHEAD_PART
//!   pages of a handle ∈ HANDLE_PAGES, ≤ largest_handle_pages
//! ```

use super::place::{Prefer, Source};
use super::{Back, State, Wanted};
use crate::driver::{Driver, RelaxedCalls};

/// The least slack, also where less is set. With none, memory is mapped once more for nearly every request: `moe16x12` then makes 132
/// driver calls a thousand events in its second half instead of 4, and reserves more in the end.
const LEAST_SLACK: f64 = 0.015;

/// Pages of the handles that are asked for.
pub(super) const HANDLE_PAGES: [usize; 4] = [1, 4, 16, 64];

/// A handle may be larger than the block that it is asked for, but not than this part of all memory: growing little by little takes
/// many calls.
const LARGEST_PART: usize = 100;

/// The slack, and the live bytes that it is measured by.
#[derive(Debug)]
pub(super) struct Growth {
    slack: f64,
    /// The bytes that users held at the last look, which every request takes before it considers new memory.
    live_bytes: u64,
    peak_live_bytes: u64,
}

impl Growth {
    pub(super) fn new(slack: f64) -> Growth {
        Growth { slack, live_bytes: 0, peak_live_bytes: 0 }
    }

    pub(super) fn slack(&self) -> f64 {
        self.slack
    }

    pub(super) fn set_slack(&mut self, slack: f64) {
        self.slack = slack;
    }

    /// Whether `reserved_bytes` may be reserved, for a request of `wanted_bytes`.
    pub(super) fn is_within_slack(&self, reserved_bytes: u64, wanted_bytes: u64) -> bool {
        let peak = self.peak_live_bytes.max(self.live_bytes + wanted_bytes);
        reserved_bytes as f64 <= peak as f64 * (1.0 + self.slack.max(LEAST_SLACK))
    }

    pub(super) fn set_live_bytes(&mut self, bytes: u64) {
        self.live_bytes = bytes;
        self.peak_live_bytes = self.peak_live_bytes.max(bytes);
    }

    /// A block was placed that was not counted as live before.
    pub(super) fn add_live(&mut self, block_bytes: u64) {
        self.set_live_bytes(self.live_bytes + block_bytes);
    }

    /// From now on the bound follows from the bytes that are reserved now, not from an old peak of live bytes.
    pub(super) fn forget_peak(&mut self, reserved_bytes: u64) {
        let within_slack = (reserved_bytes as f64 / (1.0 + self.slack)) as u64;
        self.peak_live_bytes = self.live_bytes.max(within_slack.min(self.peak_live_bytes));
    }
}

/// How large handles may be. On a small device a handle that is partly used would be much of its memory; without slack, the rest of any
/// handle would be too much.
pub(super) fn largest_handle_pages(slack: f64, capacity_bytes: u64, page_bytes: u64) -> usize {
    /// A device has room for so many handles, at least.
    const HANDLES_OF_DEVICE: u64 = 1536;
    if slack == 0.0 || page_bytes == 0 {
        return 1;
    }
    let most = (capacity_bytes / page_bytes / HANDLES_OF_DEVICE).max(1);
    HANDLE_PAGES[class_of(most as usize)]
}

/// The largest size of handles of at most so many pages.
pub(super) fn class_of(pages: usize) -> usize {
    HANDLE_PAGES.iter().rposition(|size| *size <= pages).expect("a handle has a page")
}

/// This part of all memory lies ready, at most.
const AHEAD_PART: usize = 32;

impl Back {
    /// Creates memory until enough of it lies ready; returns how many bytes. Requests go on meanwhile.
    pub(in crate::pool) fn grow_ahead(&self) -> u64 {
        if self.belongs_to_capture() || !self.has_pages() {
            return 0;
        }
        let _relaxed = RelaxedCalls::enter(&self.driver);
        // A request that finds no more memory waits for this lock, and so for the memory that is created here.
        let _growing = self.growing_ahead.lock();
        let mut created = 0;
        loop {
            let Some(pages) = self.state.lock().pages_ahead() else { break };
            let bytes = pages as u64 * self.page_bytes;
            // Requests find out for themselves that there is no more.
            let Ok(memory) = self.driver.create(bytes as usize, self.properties) else { break };
            let mut state = self.state.lock();
            let handle = state.add_handle(memory, pages, self.page_bytes);
            state.handles.loose.push(handle);
            created += bytes;
        }
        created
    }

    /// Whether memory should be created before it is wanted.
    pub(in crate::pool) fn should_grow_ahead(&self) -> bool {
        self.has_pages() && self.state.lock().pages_ahead().is_some()
    }
}

impl State {
    /// Whether all of a block is to be new memory: within the slack, that is better than mapping free memory once more.
    pub(super) fn should_grow(&self, missing_pages: usize, wanted: Wanted, prefer: Prefer) -> bool {
        let new_pages = missing_pages.saturating_sub(self.loose_pages());
        let grown = self.reserved_bytes + self.pages.start_of(new_pages);
        prefer == Prefer::New && self.growth.is_within_slack(grown, wanted.bytes)
    }

    /// A new handle of at most `most` pages. At the end of a block, after `ahead` pages of it, it may be larger, up to a small part of all
    /// memory.
    pub(super) fn new_memory(&self, most: usize, ahead: Option<usize>, wanted: Wanted) -> Source {
        let largest = self.largest_handle_pages;
        let exact = HANDLE_PAGES[class_of(most.min(largest))];
        let ample = self.handles.pages / LARGEST_PART;
        let ample = HANDLE_PAGES[class_of(most.max(ample).min(largest))];
        let may_be_more = ahead.is_some_and(|ahead| {
            let grown = self.reserved_bytes + self.pages.start_of(ahead + ample);
            self.growth.is_within_slack(grown, wanted.bytes)
        });
        Source::New(if may_be_more { ample } else { exact })
    }

    /// The next handle that is to lie ready, in pages.
    fn pages_ahead(&self) -> Option<usize> {
        let most = self.handles.pages / AHEAD_PART;
        let left = most.checked_sub(self.loose_pages()).filter(|left| *left > 0)?;
        let pages = HANDLE_PAGES[class_of(left.min(self.largest_handle_pages))];
        let grown = self.reserved_bytes + self.pages.start_of(pages);
        (!self.is_short && self.growth.is_within_slack(grown, 0)).then_some(pages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A slack of a quarter: exact in binary, so that the bounds are.
    fn with_100_live() -> Growth {
        let mut growth = Growth::new(0.25);
        growth.set_live_bytes(100);
        growth
    }

    #[test]
    fn the_request_counts_as_live_and_stays_counted_once_it_is_placed() {
        let mut growth = with_100_live();
        assert!(growth.is_within_slack(125, 0) && !growth.is_within_slack(126, 0));
        assert!(growth.is_within_slack(250, 100) && !growth.is_within_slack(251, 100));
        assert!(!growth.is_within_slack(126, 0), "a request that is thought of leaves nothing");
        growth.add_live(100);
        growth.set_live_bytes(50);
        assert!(growth.is_within_slack(250, 0) && !growth.is_within_slack(251, 0));
    }

    #[test]
    fn an_old_peak_is_forgotten_but_for_what_is_reserved() {
        let mut growth = with_100_live();
        growth.set_live_bytes(10);
        growth.forget_peak(50);
        assert!(growth.is_within_slack(50, 0) && !growth.is_within_slack(51, 0));
        growth.forget_peak(0);
        assert!(growth.is_within_slack(12, 0) && !growth.is_within_slack(13, 0));
    }
}
