//! Who called: a backtrace without the frames that are always there.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt;
use std::sync::Arc;

/// The functions that were running, the innermost first. Found out at once, named only when shown.
#[derive(Clone)]
pub(super) struct Callers(Option<Arc<Backtrace>>);

impl Callers {
    /// Of this point, if they are wanted.
    pub(super) fn here(wanted: bool) -> Callers {
        Callers(wanted.then(|| Arc::new(Backtrace::force_capture())))
    }
}

impl fmt::Debug for Callers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Callers(…)" } else { "Callers(not recorded)" })
    }
}

/// One frame a line, indented, from the first that is neither the library's nor the standard library's on.
impl fmt::Display for Callers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(backtrace) = &self.0 else {
            return f.write_str("    (callers were not recorded)\n");
        };
        if backtrace.status() != BacktraceStatus::Captured {
            return f.write_str("    (callers cannot be found on this platform)\n");
        }
        let text = backtrace.to_string();
        for frame in telling_frames(&text) {
            writeln!(f, "    {frame}")?;
        }
        Ok(())
    }
}

/// `function at file:line` of the frames that tell something, from a backtrace as the standard library prints it: a line
/// `  7: function` and, where it is known, a line `at file:line:column` after it.
fn telling_frames(text: &str) -> Vec<String> {
    let mut frames: Vec<String> = Vec::new();
    for line in text.lines().map(str::trim) {
        match line.strip_prefix("at ") {
            Some(place) => {
                if let Some(frame) = frames.last_mut() {
                    *frame += &format!(" at {place}");
                }
            }
            None => {
                frames.push(line.split_once(": ").map_or(line, |(_, function)| function).to_owned())
            }
        }
    }
    let first = frames.iter().position(|frame| !is_below(frame)).unwrap_or(0);
    let is_above = |frame: &String| frame.contains("__rust_begin_short_backtrace");
    let last = frames.iter().position(is_above).unwrap_or(frames.len());
    frames.drain(first..last.max(first)).collect()
}

/// Whether a frame is between a user's call and this module. Inlined functions go by their file, the others by their name.
fn is_below(frame: &str) -> bool {
    const NAMES: [&str; 5] = [
        "std::backtrace",
        "core::",
        "alloc::",
        "millpond::adaptor::",
        "millpond::resource::shared::",
    ];
    const FILES: [&str; 3] =
        [" at /rustc/", "/millpond/src/adaptor/", "/millpond/src/resource/shared.rs"];
    let name = frame.trim_start_matches('<');
    NAMES.iter().any(|start| name.starts_with(start))
        || FILES.iter().any(|file| frame.contains(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_that_are_always_there_are_left_out() {
        let text = "   0: std::backtrace::Backtrace::force_capture\n             at /rustc/x/backtrace.rs:1:2\n   \
                    1: millpond::adaptor::track::ledger::Ledger::allocated\n   \
                    2: then<alloc::sync::Arc<x>>\n             at /rustc/x/library/core/src/bool.rs:66:24\n   \
                    2: allocated\n             at /home/x/crates/millpond/src/adaptor/track/ledger.rs:129:23\n   \
                    2: <millpond::adaptor::track::Track<R> as millpond::resource::Resource>::allocate\n   \
                    3: trainer::load_weights\n             at ./src/trainer.rs:17:9\n   4: trainer::main\n   \
                    5: std::sys::backtrace::__rust_begin_short_backtrace\n   6: main\n";
        assert_eq!(
            telling_frames(text),
            ["trainer::load_weights at ./src/trainer.rs:17:9", "trainer::main"]
        );
    }
}
