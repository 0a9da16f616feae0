//! Growth ahead of need: memory that is created before a request wants it, so that no request waits for the driver.
//!
//! It is mapped nowhere, and the next request that grows the pool maps it instead of memory of its own.
//!
//! ```text
//!   ahead_bytes ≤ reserved_bytes / AHEAD_PART
//!   reserved_bytes, with what is ahead ≤ (1 + slack) × peak_live_bytes
//! ```

use super::plan::{HANDLE_PAGES, class_of};
use super::{Back, State};
use crate::driver::{Driver, RelaxedCalls};

/// What lies ready is this part of all memory, at the most.
const AHEAD_PART: usize = 32;

impl Back {
    /// Creates memory until enough of it lies ready; returns how many bytes. Requests go on meanwhile.
    pub(in crate::pool) fn grow_ahead(&self) -> u64 {
        if self.is_captures() || !self.has_pages() {
            return 0;
        }
        let _relaxed = RelaxedCalls::enter(&self.driver);
        // A request that finds no more memory waits for what is on its way here.
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
    /// The next handle that is to lie ready, in pages.
    fn pages_ahead(&self) -> Option<usize> {
        let most = self.handles.pages / AHEAD_PART;
        let left = most.checked_sub(self.loose_pages()).filter(|left| *left > 0)?;
        let pages = HANDLE_PAGES[class_of(left.min(self.largest_handle_pages))];
        let grown = self.reserved_bytes + self.pages.start_of(pages);
        (!self.is_short && self.growth.is_within_slack(grown, 0)).then_some(pages)
    }
}
