//! How much may be reserved for what is live.

/// Slack that there always is. With none, memory is mapped once more for nearly every request: `moe16x12` then makes 132 driver calls a
/// thousand events in its second half instead of 4, and reserves more in the end.
const LEAST_SLACK: f64 = 0.015;

/// `reserved ≤ (1 + max(slack, LEAST_SLACK)) × peak_live_bytes`, wherever memory that is there can serve instead.
#[derive(Debug)]
pub(super) struct Growth {
    slack: f64,
    /// What users held when somebody last looked: before new memory is thought of.
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

    /// Whether so much may be reserved for a request of `wanted_bytes`.
    pub(super) fn is_within_slack(&self, reserved_bytes: u64, wanted_bytes: u64) -> bool {
        let peak = self.peak_live_bytes.max(self.live_bytes + wanted_bytes);
        reserved_bytes as f64 <= peak as f64 * (1.0 + self.slack.max(LEAST_SLACK))
    }

    pub(super) fn set_live_bytes(&mut self, bytes: u64) {
        self.live_bytes = bytes;
        self.peak_live_bytes = self.peak_live_bytes.max(bytes);
    }

    /// A block was placed, which is not among what was live before.
    pub(super) fn add_live(&mut self, block_bytes: u64) {
        self.set_live_bytes(self.live_bytes + block_bytes);
    }

    /// What may be reserved follows from now on from what is reserved, not from what was once used.
    pub(super) fn forget_peak(&mut self, reserved_bytes: u64) {
        let within_slack = (reserved_bytes as f64 / (1.0 + self.slack)) as u64;
        self.peak_live_bytes = self.live_bytes.max(within_slack.min(self.peak_live_bytes));
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
