//! What must be true of the resource, the model and the device: after each step, and at the end.

use std::panic::{AssertUnwindSafe, catch_unwind};

use millpond::driver::Driver;

use super::{CAPACITY_BYTES, Lab, MOST_EVENTS_KEPT, Peak, Wrong};

impl Lab {
    /// The resource's account, the model and the driver's own books agree.
    pub fn check_books(&self) -> Result<(), Wrong> {
        let usage = catch_unwind(AssertUnwindSafe(|| self.resource().usage()))
            .map_err(|_| "the resource's own checks failed, as was said above")?;
        let (live, blocks) = (self.live_bytes(), self.blocks.len() + self.apart.len());
        if (usage.live_bytes, usage.live_blocks) != (live, blocks) {
            return Err(format!(
                "the resource says {} bytes in {} blocks are live, but it is {live} in {blocks}",
                usage.live_bytes, usage.live_blocks,
            ));
        }
        let held = self.gpu.held().total_bytes() - self.held_before.total_bytes();
        if usage.reserved_bytes != held {
            return Err(format!(
                "the resource says {} bytes are reserved, but the driver counts {held}",
                usage.reserved_bytes
            ));
        }
        if usage.driver_calls != self.calls {
            return Err(format!(
                "the resource says it made {} driver calls, but the driver counts {}",
                usage.driver_calls, self.calls
            ));
        }
        let peak_is_right = match self.peak {
            Peak::Exact => usage.peak_live_bytes == self.peak_live_bytes,
            Peak::AtLeast => usage.peak_live_bytes >= self.peak_live_bytes,
            Peak::Unknown => usage.peak_live_bytes >= usage.live_bytes,
        };
        if usage.reserved_bytes < usage.live_bytes
            || !peak_is_right
            || !(usage.reserved_bytes..=CAPACITY_BYTES * 8).contains(&usage.peak_reserved_bytes)
        {
            let peak = self.peak_live_bytes;
            return Err(format!(
                "the account is wrong (at most {peak} bytes were live): {usage:?}"
            ));
        }
        self.check_findings()
    }

    pub(super) fn check_findings(&self) -> Result<(), Wrong> {
        match self.gpu.findings().first() {
            Some(finding) => Err(finding.to_string()),
            None => Ok(()),
        }
    }

    /// Runs everything, and checks every sum the device computed.
    pub fn settle(&mut self) -> Result<(), Wrong> {
        self.driver_says(|gpu| gpu.synchronize_device())?;
        self.check_findings()?;
        let checked = self.sums.check(&*self.gpu);
        self.driver_says(|_| checked)?
    }

    /// Frees everything, and checks that nothing is left: after `trim` if the resource promises that, and
    /// in any case when it is gone.
    pub fn close(mut self, returns_upstream: bool) -> Result<(), Wrong> {
        while let Some(block) = self.block(0) {
            let stream = *block.used_on.first().expect("used where it was allocated");
            let injected = self.gpu.injected_faults();
            if let Err(error) = self.free(&block, stream)?
                && self.gpu.injected_faults() == injected
            {
                return Err(format!("the last free failed: {error}"));
            }
        }
        self.settle()?;
        let injected = self.gpu.injected_faults();
        self.trim()?;
        if self.gpu.injected_faults() > injected {
            self.trim()?;
        }
        let left = self.resource().usage().reserved_bytes;
        if returns_upstream && left > 0 {
            return Err(format!("nothing is held, but trim leaves {left} bytes reserved"));
        }
        let events = self.gpu.held().events - self.held_before.events;
        if events > MOST_EVENTS_KEPT {
            return Err(format!("nothing is held, but {events} events are left"));
        }
        self.resource = None;
        let held = self.gpu.held();
        if held != self.held_before {
            return Err(format!(
                "the resource is gone and left something behind: {held:?} instead of {:?}",
                self.held_before
            ));
        }
        self.settle()
    }
}
