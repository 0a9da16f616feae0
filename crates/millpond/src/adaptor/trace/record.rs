//! One line of RMM's log.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::driver::{DevicePtr, Stream};

/// The first line of a log.
pub(super) const HEADER: &str = "Thread,Time,Action,Pointer,Size,Stream\n";

/// What a line tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Allocate,
    AllocateFailure,
    Free,
}

impl Action {
    fn name(self) -> &'static str {
        match self {
            Action::Allocate => "allocate",
            Action::AllocateFailure => "allocate failure",
            Action::Free => "free",
        }
    }
}

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
        let (seconds, micros) = (self.micros / 1_000_000, self.micros % 1_000_000);
        let (hours, minutes, seconds) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        let (thread, action, bytes) = (self.thread, self.action.name(), self.bytes);
        let line =
            write!(text, "{thread},{hours:02}:{minutes:02}:{seconds:02}.{micros:06},{action},");
        // `(nil)` is what RMM writes for null.
        let pointer = match self.ptr.is_null() {
            true => text.write_str("(nil)"),
            false => write!(text, "{}", self.ptr),
        };
        let rest = writeln!(text, ",{bytes},{:#x}", self.stream.0);
        line.and(pointer).and(rest).expect("a string takes everything");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_as_rmm_writes_it() {
        let record = Record {
            thread: 17,
            micros: ((23 * 60 + 5) * 60 + 9) * 1_000_000 + 42,
            action: Action::Allocate,
            ptr: DevicePtr(0x7f00_0000_0200),
            bytes: 1000,
            stream: Stream(0x55aa),
        };
        let failed = Record { action: Action::AllocateFailure, ptr: DevicePtr::NULL, ..record };
        let mut text = String::new();
        record.write_to(&mut text);
        failed.write_to(&mut text);
        assert_eq!(
            text,
            "17,23:05:09.000042,allocate,0x7f0000000200,1000,0x55aa\n\
             17,23:05:09.000042,allocate failure,(nil),1000,0x55aa\n"
        );
    }
}
