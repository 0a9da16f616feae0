//! Memory for blocks and slabs: free ranges first, then what caches keep, what regions lend, and the driver's last.

use crate::driver::{DriverError, DriverResult};
use crate::pool::back::{Placed, Reach, Wanted};
use crate::pool::background;
use crate::pool::points::StreamSlot;
use crate::pool::regions::Sweep;
use crate::pool::statistics::Tier;
use crate::pool::streams::Settle;
use crate::pool::tiers::{Patience, Tiers};

/// What caches must keep for it to be worth emptying them before the driver is asked for more.
const WORTH_DRAINING_BYTES: u64 = 256 << 10;
/// How often everything is given up for a request before it fails: other threads may be quicker to take it.
const LAST_ATTEMPTS: usize = 8;

impl Tiers {
    /// A range with memory under it, and whether that is reused or new. What caches keep is used before the driver is asked for more.
    /// `None`: not without waiting.
    pub(in crate::pool) fn allocate_range(
        &self,
        wanted: Wanted,
        patience: Patience,
    ) -> DriverResult<Option<(Placed, Tier)>> {
        let reach = match patience {
            Patience::Some => Reach::WithinSlack,
            Patience::None => Reach::Ordered,
        };
        if let Some(placed) = self.back.allocate_in_place(wanted, reach)? {
            return Ok(Some((placed, Tier::Reuse)));
        }
        if patience == Patience::None {
            return Ok(None);
        }
        if self.is_worth_draining(wanted.bytes) {
            let in_place = || self.back.allocate_in_place(wanted, reach);
            if let Some(placed) = self.drain_until(in_place)? {
                return Ok(Some((placed, Tier::Reuse)));
            }
        }
        // As for what other streams have freed: waiting comes before growing beyond the slack. Each time the search comes by more streams
        // that turn out to be gone.
        while !self.back.may_grow_by(wanted.bytes) && self.back.settle(Settle::Gone)? {
            if let Some(placed) = self.back.allocate_in_place(wanted, reach)? {
                return Ok(Some((placed, Tier::Reuse)));
            }
        }
        self.back.set_live_bytes(Some(self.live_bytes()));
        self.borrow_pages(wanted.bytes);
        let reserved_before = self.back.reserved_bytes();
        let mut answer = self.back.allocate_mapping(wanted);
        let mut left_before = None;
        for _ in 0..LAST_ATTEMPTS {
            if !out_of_memory(&answer) {
                break;
            }
            answer = self.allocate_giving_up_everything(wanted)?;
            // Others may have taken what was freed for this, and have it in their caches again. If nothing has changed, they have not.
            let left = self.kept_bytes() + self.back.pending().spare_bytes;
            if left < wanted.bytes || left_before.replace(left) == Some(left) {
                break;
            }
        }
        if out_of_memory(&answer) {
            self.back.release_beyond(reserved_before);
        }
        background::look_at_fragmentation(self);
        background::look_at_growth(self);
        answer.map(|placed| Some((placed, Tier::Device)))
    }

    /// Memory is out: gives up everything that is kept, and waits for whatever can be waited for.
    #[cold]
    fn allocate_giving_up_everything(&self, wanted: Wanted) -> DriverResult<DriverResult<Placed>> {
        self.drain();
        let mut answer = self.back.allocate_mapping(wanted);
        // Nobody's stream cannot be made to wait: the host must.
        let which = match wanted.taker.slot {
            StreamSlot::NOBODY => Settle::All,
            _ => Settle::Gone,
        };
        if out_of_memory(&answer) && self.back.settle(which)? {
            answer = self.back.allocate_mapping(wanted);
        }
        if out_of_memory(&answer) && self.release_for_request() > 0 {
            answer = self.back.allocate_mapping(wanted);
        }
        Ok(answer)
    }

    /// Whether to empty caches before the driver is asked for memory. Caches that were emptied have to fill again, so with slack
    /// to spend it is not done for every request that finds no place, unless they have come to keep more than the slack. Without slack,
    /// memory comes first: it is done whenever there is not enough.
    fn is_worth_draining(&self, bytes: u64) -> bool {
        /// Requests between two drains, for a slack of 1.
        const PATIENCE: f64 = 4096.0;
        let missed = self.caches.count_request_without_place();
        let slack = self.back.slack();
        if slack == 0.0 && !self.back.needs_new_memory(bytes) {
            return false;
        }
        let kept = self.kept_bytes();
        let has_waited = missed >= (slack * PATIENCE) as u64;
        // What the last time did not gain is no cache's: it is left over in slabs and by rounding.
        let gain = kept.saturating_sub(self.caches.kept_after_drain());
        let is_much = gain as f64 > slack * self.back.used_bytes().saturating_sub(kept) as f64;
        let worth = if has_waited {
            kept >= bytes.min(WORTH_DRAINING_BYTES)
        } else {
            is_much && gain >= WORTH_DRAINING_BYTES
        };
        if worth {
            self.caches.forget_requests_without_place();
        }
        worth
    }

    /// What is used and nobody's: kept in caches, and left over in slabs and by rounding.
    pub(super) fn kept_bytes(&self) -> u64 {
        self.back.used_bytes().saturating_sub(self.live_bytes())
    }

    /// Gives back whatever the pool and its regions do not use, because one of them has nothing left. Returns how many bytes,
    /// so that nobody tries again in vain.
    pub(super) fn release_for_request(&self) -> usize {
        let parent = self.family.parent();
        let root = parent.as_deref().unwrap_or(self);
        let reserved = root.release_reserve();
        let alone = root.family.has_no_regions();
        if alone && root.back.has_pages() && self.direct_is_unused() {
            // Its own pages the pool can move: giving them back would gain nothing.
            return reserved;
        }
        reserved + root.release_unused()
    }

    fn direct_is_unused(&self) -> bool {
        self.settings.direct_above() == usize::MAX
    }

    /// Gives back everything that nobody uses, waiting for work where needed; returns how many bytes.
    pub(in crate::pool) fn release_unused(&self) -> usize {
        if self.has_forked() {
            return 0;
        }
        let mut released = self.sweep_regions(Sweep::Waiting);
        for region in self.family.regions() {
            region.drain();
            released += region.back.trim();
        }
        self.drain();
        let released = released + self.back.trim();
        self.forget_gone_streams();
        released as usize
    }

    /// Gives back everything that nobody holds, what was set aside too.
    pub(in crate::pool) fn trim(&self) -> usize {
        if self.has_forked() {
            return 0;
        }
        self.release_reserve();
        self.release_unused()
    }
}

fn out_of_memory(answer: &DriverResult<Placed>) -> bool {
    answer.as_ref().is_err_and(DriverError::is_out_of_memory)
}
