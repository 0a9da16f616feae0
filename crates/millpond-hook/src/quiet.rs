//! How long the program has asked nothing of the device.

use std::time::{Duration, Instant};

/// Looks at the number of calls from time to time.
#[derive(Debug)]
pub(crate) struct Quiet {
    calls: Option<usize>,
    since: Instant,
    reported: Instant,
}

impl Quiet {
    pub(crate) fn new() -> Quiet {
        let now = Instant::now();
        Quiet { calls: None, since: now, reported: now }
    }

    /// Until it is worth looking again.
    pub(crate) fn pause(&self, idle: Duration) -> Duration {
        (idle / 4).max(Duration::from_millis(1))
    }

    /// Whether no call has come and none has been under way for so long.
    pub(crate) fn lasts(&mut self, calls: usize, is_occupied: bool, idle: Duration) -> bool {
        if is_occupied || self.calls != Some(calls) {
            self.calls = Some(calls);
            self.since = Instant::now();
            return false;
        }
        self.since.elapsed() >= idle
    }

    /// Whether the last report was so long ago; from now on this one is the last.
    pub(crate) fn is_time_to_report(&mut self, every: Duration) -> bool {
        let due = self.reported.elapsed() >= every;
        if due {
            self.reported = Instant::now();
        }
        due
    }
}
