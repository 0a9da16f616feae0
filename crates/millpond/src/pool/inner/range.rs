//! Memory for blocks and slabs: what is there, what caches keep, what regions lend, and the driver's last.

use std::sync::atomic::Ordering;

use super::allocate::Patience;
use super::{Inner, WORTH_DRAINING_BYTES};
use crate::driver::{DriverError, DriverResult};
use crate::pool::back::{Placed, Reach, Wanted};
use crate::pool::counters::Tier;
use crate::pool::points::StreamSlot;
use crate::pool::streams::Settle;

/// How often everything is given up for a request before it fails: other threads may be quicker to take it.
const LAST_ATTEMPTS: usize = 8;

impl Inner {
    /// A range with memory under it, and whether that is reused or new. What caches keep is used before the driver is asked for more.
    /// `None`: not without waiting.
    pub(super) fn allocate_range(
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
        // As for what other streams have freed: waiting comes before growing beyond the slack.
        if !self.back.may_grow_by(wanted.bytes)
            && self.back.settle(Settle::Gone)?
            && let Some(placed) = self.back.allocate_in_place(wanted, reach)?
        {
            return Ok(Some((placed, Tier::Reuse)));
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
            answer = self.allocate_last(wanted)?;
            // Others may have taken what was freed for this, and have it in their caches again. If nothing has changed, they have not.
            let left = self.kept_bytes() + self.back.pending().spare_bytes;
            if left < wanted.bytes || left_before.replace(left) == Some(left) {
                break;
            }
        }
        if out_of_memory(&answer) {
            self.back.release_beyond(reserved_before);
        }
        self.look_at_fragmentation();
        answer.map(|placed| Some((placed, Tier::Device)))
    }

    /// Memory is out: gives up everything that is kept, and waits for whatever can be waited for.
    #[cold]
    fn allocate_last(&self, wanted: Wanted) -> DriverResult<DriverResult<Placed>> {
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
        if out_of_memory(&answer) && self.relieve() > 0 {
            answer = self.back.allocate_mapping(wanted);
        }
        Ok(answer)
    }

    /// Whether to empty caches before the driver is asked for memory. Caches that were emptied have to fill again, so with slack
    /// to spend it is not done for every request that finds no place, unless they have come to keep more than the slack. Without slack,
    /// memory comes first: it is done whenever there is not enough.
    pub(super) fn is_worth_draining(&self, bytes: u64) -> bool {
        /// Requests between two drains, for a slack of 1.
        const PATIENCE: f64 = 4096.0;
        // Relaxed: roughly often enough is enough.
        let missed = self.misses_since_drain.fetch_add(1, Ordering::Relaxed);
        let slack = self.back.slack();
        if slack == 0.0 && !self.back.needs_new_memory(bytes) {
            return false;
        }
        let kept = self.kept_bytes();
        let has_waited = missed >= (slack * PATIENCE) as u64;
        // What the last time did not gain is no cache's: it is left over in slabs and by rounding.
        let gain = kept.saturating_sub(self.kept_after_drain.load(Ordering::Relaxed));
        let is_much = gain as f64 > slack * self.back.used_bytes().saturating_sub(kept) as f64;
        let worth = if has_waited {
            kept >= bytes.min(WORTH_DRAINING_BYTES)
        } else {
            is_much && gain >= WORTH_DRAINING_BYTES
        };
        if worth {
            self.misses_since_drain.store(0, Ordering::Relaxed);
        }
        worth
    }

    /// What is used and nobody's: kept in caches, and left over in slabs and by rounding.
    pub(super) fn kept_bytes(&self) -> u64 {
        self.back.used_bytes().saturating_sub(self.live_bytes())
    }
}

fn out_of_memory(answer: &DriverResult<Placed>) -> bool {
    answer.as_ref().is_err_and(DriverError::is_out_of_memory)
}
