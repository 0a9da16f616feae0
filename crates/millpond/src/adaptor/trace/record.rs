//! One line of RMM's log, while it waits to be written.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::driver::{DevicePtr, Stream};
use crate::trace::{Action, Line};

/// A line that is not written yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    /// The operating system's number of the thread.
    pub(super) thread: u32,
    /// Since the beginning of 1970, UTC.
    pub(super) micros: u64,
    pub(super) action: Action,
    pub(super) ptr: DevicePtr,
    pub(super) bytes: usize,
    pub(super) stream: Stream,
}

/// Now, as records count time.
pub(super) fn now_micros() -> u64 {
    // A clock before 1970 is wrong anyway.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros() as u64)
}

impl Record {
    /// Appends the line.
    pub(super) fn write_to(&self, text: &mut String) {
        let line = Line {
            thread: self.thread.into(),
            time_us: self.micros,
            action: self.action,
            addr: self.ptr.0,
            bytes: self.bytes as u64,
            stream: self.stream.0,
        };
        line.write_to(text);
    }
}
