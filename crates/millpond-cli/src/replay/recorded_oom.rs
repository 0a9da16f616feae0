//! Memory that ran out when the trace was recorded.

use millpond::replay::{FailedRequest, Program};
use serde::Serialize;

use crate::output::mib;

/// The last request that failed when the trace was recorded.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RecordedOom {
    /// How many failed in all.
    pub(crate) times: usize,
    pub(crate) event: u32,
    pub(crate) asked_bytes: u64,
    pub(crate) live_bytes: u64,
    /// `None` where it was not recorded.
    pub(crate) device_free_bytes: Option<u64>,
}

impl RecordedOom {
    pub(crate) fn of(program: &Program) -> Option<RecordedOom> {
        let failed = program.failed_requests();
        let FailedRequest { event, bytes, live_bytes, device_free_bytes, .. } = *failed.last()?;
        let (times, asked_bytes) = (failed.len(), bytes);
        Some(RecordedOom { times, event, asked_bytes, live_bytes, device_free_bytes })
    }

    /// What was asked for, and what there was.
    pub(crate) fn described(&self) -> String {
        let free = self.device_free_bytes.map_or_else(String::new, |bytes| {
            format!(" and {} MiB free on the device", mib(bytes))
        });
        let (asked, live) = (mib(self.asked_bytes), mib(self.live_bytes));
        format!("{asked} MiB asked for with {live} MiB live{free}")
    }

    /// One line; `has_room`: the smallest devices were looked for with what failed.
    pub(crate) fn line(&self, has_room: bool) -> String {
        let when = match self.times {
            1 => format!("at event {}", self.event),
            times => format!("{times} times, last at event {}", self.event),
        };
        let room = match (has_room, self.times) {
            (false, _) => "",
            (true, 1) => "; FITS IN has room for it",
            (true, _) => "; FITS IN has room for each of them",
        };
        format!("recorded: out of memory {when}, {}{room}", self.described())
    }
}
