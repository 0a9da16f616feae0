//! One line of RMM's log, as it is written.

use std::fmt::Write;

/// The first line of a log.
pub(crate) const HEADER: &str = "Thread,Time,Action,Pointer,Size,Stream\n";

/// What a line tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Allocate,
    AllocateFailure,
    Free,
}

impl Action {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Action::Allocate => "allocate",
            Action::AllocateFailure => "allocate failure",
            Action::Free => "free",
        }
    }
}

/// One line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub(crate) thread: u64,
    /// Of any day: only its time is written.
    pub(crate) time_us: u64,
    pub(crate) action: Action,
    pub(crate) addr: u64,
    pub(crate) bytes: u64,
    pub(crate) stream: u64,
}

impl Line {
    /// Appends the line.
    pub(crate) fn write_to(&self, text: &mut String) {
        let Line { thread, action, bytes, stream, .. } = *self;
        let (seconds, micros) = (self.time_us / 1_000_000, self.time_us % 1_000_000);
        let (hours, minutes, seconds) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        let action = action.name();
        let line =
            write!(text, "{thread},{hours:02}:{minutes:02}:{seconds:02}.{micros:06},{action},");
        // `(nil)` is what RMM writes for null.
        let pointer = match self.addr {
            0 => text.write_str("(nil)"),
            addr => write!(text, "{addr:#x}"),
        };
        let rest = writeln!(text, ",{bytes},{stream:#x}");
        line.and(pointer).and(rest).expect("a string takes everything");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_as_rmm_writes_it() {
        let line = Line {
            thread: 17,
            time_us: (((24 + 23) * 60 + 5) * 60 + 9) * 1_000_000 + 42,
            action: Action::Allocate,
            addr: 0x7f00_0000_0200,
            bytes: 1000,
            stream: 0x55aa,
        };
        let failed = Line { action: Action::AllocateFailure, addr: 0, ..line };
        let mut text = String::new();
        line.write_to(&mut text);
        failed.write_to(&mut text);
        assert_eq!(
            text,
            "17,23:05:09.000042,allocate,0x7f0000000200,1000,0x55aa\n\
             17,23:05:09.000042,allocate failure,(nil),1000,0x55aa\n"
        );
    }
}
