//! When the pool takes new memory, although what is spare could be moved instead.
//!
//! Slack is for loops that settle: with some more memory every block of a step finds its place of the step before, and no
//! page moves again. Where that does not come about, more memory saves few moves, and is not worth having.

/// What is spare of the pages that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spare {
    /// All of them. New memory only saves moves.
    Enough,
    /// Some or none. New memory is needed in any case.
    TooLittle,
}

/// How often as much as is reserved is freed before the beginning is over. Found by trial: with 1, two of five generated loops of
/// fixed shapes still moved pages after their third step; with 3, `gpt6x512_fp32_sgd` reserved as much as without this rule.
const BEGINNING_FREES: u64 = 2;

/// How much may be reserved.
///
/// `reserved ≤ (1 + slack) × peak_live_bytes` wherever pages could be moved instead.
#[derive(Debug)]
pub(super) struct Growth {
    slack: f64,
    /// What users held when somebody last looked: before new memory is thought of.
    live_bytes: u64,
    peak_live_bytes: u64,
    /// All that was ever given back.
    freed_bytes: u64,
    /// Pages have moved although enough was reserved: the slack was too little for this program to settle.
    has_run_out: bool,
}

impl Growth {
    pub(super) fn new(slack: f64) -> Growth {
        Growth { slack, live_bytes: 0, peak_live_bytes: 0, freed_bytes: 0, has_run_out: false }
    }

    pub(super) fn slack(&self) -> f64 {
        self.slack
    }

    /// Another slack may be enough.
    pub(super) fn set_slack(&mut self, slack: f64) {
        if slack != self.slack {
            (self.slack, self.has_run_out) = (slack, false);
        }
    }

    /// Whether so much may be reserved for a request of `wanted_bytes`.
    pub(super) fn is_within_slack(&self, reserved_bytes: u64, wanted_bytes: u64) -> bool {
        let peak = self.peak_live_bytes.max(self.live_bytes + wanted_bytes);
        reserved_bytes as f64 <= peak as f64 * (1.0 + self.slack)
    }

    /// Whether slack, if there is some, is to be spent on a request.
    pub(super) fn is_worth_slack(&self, spare: Spare, reserved_bytes: u64) -> bool {
        match spare {
            Spare::Enough => !self.has_run_out,
            // Only a higher peak comes here. Later on that is rare, and so are its moves.
            Spare::TooLittle => self.is_beginning(reserved_bytes),
        }
    }

    /// Everything is new, and nobody knows what a step will want back where it was.
    fn is_beginning(&self, reserved_bytes: u64) -> bool {
        self.freed_bytes < reserved_bytes.saturating_mul(BEGINNING_FREES)
    }

    /// Spare pages alone have served a request.
    pub(super) fn has_moved_enough(&mut self) {
        self.has_run_out = true;
    }

    pub(super) fn set_live_bytes(&mut self, bytes: u64) {
        self.live_bytes = bytes;
        self.peak_live_bytes = self.peak_live_bytes.max(bytes);
    }

    /// A block was placed, which is not among what was live before.
    pub(super) fn add_live(&mut self, block_bytes: u64) {
        self.set_live_bytes(self.live_bytes + block_bytes);
    }

    pub(super) fn add_freed(&mut self, bytes: u64) {
        self.freed_bytes = self.freed_bytes.saturating_add(bytes);
    }

    /// What may be reserved follows from now on from what is reserved, not from what was once used; and what did not settle
    /// then may settle now.
    pub(super) fn forget_peak(&mut self, reserved_bytes: u64) {
        let within_slack = (reserved_bytes as f64 / (1.0 + self.slack)) as u64;
        self.peak_live_bytes = self.live_bytes.max(within_slack.min(self.peak_live_bytes));
        self.has_run_out = false;
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
    fn slack_that_was_too_little_is_no_longer_spent() {
        let mut growth = with_100_live();
        assert!(growth.is_worth_slack(Spare::Enough, 110));
        growth.has_moved_enough();
        assert!(!growth.is_worth_slack(Spare::Enough, 110));
        growth.set_slack(0.25);
        assert!(!growth.is_worth_slack(Spare::Enough, 110), "nothing has changed");
        growth.set_slack(0.5);
        assert!(growth.is_worth_slack(Spare::Enough, 110));
        growth.has_moved_enough();
        growth.forget_peak(110);
        assert!(growth.is_worth_slack(Spare::Enough, 110));
    }

    #[test]
    fn a_peak_after_the_beginning_takes_what_is_spare_first() {
        let mut growth = with_100_live();
        growth.add_freed(219);
        assert!(growth.is_worth_slack(Spare::TooLittle, 110));
        growth.add_freed(1);
        assert!(!growth.is_worth_slack(Spare::TooLittle, 110));
        assert!(growth.is_worth_slack(Spare::Enough, 110), "that saves moves in every step");
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
