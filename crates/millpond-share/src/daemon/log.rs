//! What the daemon says to people: lines on standard error. Nobody who fails to read them, or makes it say many, holds it up.

use std::cell::Cell;
use std::io::Write;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::time::{Duration, Instant};

use millpond_text::shown_in_line;

/// Lines that wait to be written; what comes while there are so many is left out.
const MOST_WAITING: usize = 256;
/// Lines at once, and then one after each of these times.
const MOST_AT_ONCE: u32 = 100;
const TIME_OF_A_LINE: Duration = Duration::from_millis(100);
/// At the end, who reads has so long to take the rest.
const LAST_PATIENCE: Duration = Duration::from_millis(200);

/// See the module. A thread of its own writes, so that only that one waits for a reader.
#[derive(Debug)]
pub(super) struct Log {
    lines: Option<SyncSender<String>>,
    written: Receiver<()>,
    /// How many lines may be said at once, as of when.
    allowance: Cell<(u32, Instant)>,
    left_out: Cell<u64>,
}

impl Log {
    /// On standard error. Without a thread there is no log, which is no reason not to serve.
    pub(super) fn new() -> Log {
        let (lines, waiting) = sync_channel::<String>(MOST_WAITING);
        let (done, written) = channel();
        let write = move || {
            for line in waiting {
                // Whether anybody reads is not our concern.
                let _ = writeln!(std::io::stderr(), "{line}");
            }
            let _ = done.send(());
        };
        let writer = std::thread::Builder::new().name("millpond-log".to_owned()).spawn(write);
        Log {
            lines: writer.is_ok().then_some(lines),
            written,
            allowance: Cell::new((MOST_AT_ONCE, Instant::now())),
            left_out: Cell::new(0),
        }
    }

    /// Says a line, if there have not been too many.
    pub(super) fn say(&self, line: String) {
        let Some(lines) = &self.lines else { return };
        if !self.may_say() {
            self.left_out.set(self.left_out.get() + 1);
            return;
        }
        if lines.try_send(written(self.left_out.take(), &line)).is_err() {
            self.left_out.set(self.left_out.get() + 1);
        }
    }

    fn may_say(&self) -> bool {
        let (left, then) = self.allowance.get();
        let grown = u32::try_from(then.elapsed().as_millis() / TIME_OF_A_LINE.as_millis());
        let grown = grown.unwrap_or(MOST_AT_ONCE);
        let left = left.saturating_add(grown).min(MOST_AT_ONCE);
        let then = if grown > 0 { Instant::now() } else { then };
        self.allowance.set((left.saturating_sub(1), then));
        left > 0
    }
}

/// A line as it is written, after a line of how many were left out. What clients call themselves may be in it: it stays one line.
fn written(left_out: u64, line: &str) -> String {
    let line = shown_in_line(line);
    match left_out {
        0 => line.into_owned(),
        more => format!("{more} lines are left out here\n{line}"),
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        if self.lines.take().is_some() {
            let _ = self.written.recv_timeout(LAST_PATIENCE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stays_one_and_commands_nothing() {
        let hostile = "client 7\nclient 8 is gone \u{1b}[2J\u{202e}";
        let shown = r"client 7\nclient 8 is gone \u{1b}[2J\u{202e}";
        assert_eq!(written(0, hostile), shown);
        assert_eq!(written(3, hostile), format!("3 lines are left out here\n{shown}"));
    }

    #[test]
    fn a_flood_is_cut_short_and_the_next_line_says_by_how_much() {
        let log = Log::new();
        (0..1000).for_each(|_| log.say(String::new()));
        assert!(log.left_out.get() >= 890, "{}", log.left_out.get());
        std::thread::sleep(TIME_OF_A_LINE * 2);
        log.say("a line of a test".to_owned());
        assert_eq!(log.left_out.get(), 0);
    }
}
