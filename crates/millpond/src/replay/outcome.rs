//! What came of a replay.

use std::time::Duration;

use crate::resource::{AllocError, FreeError};
use crate::trace::TraceError;

/// What came of a replay.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The most bytes that were live at a time, as they were asked for.
    pub peak_live_bytes: u64,
    /// The most bytes that the resource had taken from the driver at a time, by the driver's own count.
    pub peak_reserved_bytes: u64,
    /// What was live, weighed with the time it was: as recorded, or event by event where no time was.
    pub mean_live_bytes: f64,
    /// What was reserved, weighed likewise.
    pub mean_reserved_bytes: f64,
    /// Allocations and frees that were done.
    pub operations: u64,
    /// Allocations whose address was the recorded one. Of the program's [`allocations`](super::Program::allocations), and by chance only, unless the driver
    /// answers with [`RecordedAddresses`](super::RecordedAddresses).
    pub addresses_matched: u64,
    /// What the operations took on the host, without the driver's calls. Measured.
    pub host_time: Duration,
    /// Calls made to the driver, failed ones too.
    pub driver_calls: u64,
    /// Why it did not come to its end.
    pub stopped: Option<Stopped>,
}

/// Why and where a replay stopped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stopped {
    /// A block could not be had.
    #[error("event {event}: {error}")]
    Allocation {
        /// The event's number, from 0.
        event: u32,
        /// What the resource said.
        error: AllocError,
    },
    /// A block was not taken back, which is the resource's fault.
    #[error("event {event}: {error}")]
    Free {
        /// The event's number, from 0.
        event: u32,
        /// What the resource said.
        error: FreeError,
    },
    /// The trace could not be read to its end.
    #[error("the trace: {error}")]
    Unreadable {
        /// Why.
        error: TraceError,
    },
}

impl Outcome {
    /// Peak reserved over peak live, unless nothing was.
    pub fn ratio(&self) -> Option<f64> {
        (self.peak_live_bytes > 0)
            .then(|| self.peak_reserved_bytes as f64 / self.peak_live_bytes as f64)
    }

    /// Reserved over live, weighed with time, unless nothing was live.
    pub fn mean_ratio(&self) -> Option<f64> {
        (self.mean_live_bytes > 0.0).then(|| self.mean_reserved_bytes / self.mean_live_bytes)
    }

    /// What an allocation or a free took on the host, without the driver's calls. Measured.
    pub fn ns_per_operation(&self) -> f64 {
        self.host_time.as_nanos() as f64 / self.operations.max(1) as f64
    }
}
