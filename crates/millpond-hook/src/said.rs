//! Lines on standard error. Never on standard output, which is the program's.

use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use millpond_text::shown_in_line;

use crate::environment::LOG_VARIABLE;

/// A line that the user should see.
pub(crate) fn warn(line: &str) {
    // In one write, so that lines of several processes stay whole. If nobody can read it, it is not said.
    let line = format!("millpond: {}\n", shown_in_line(line));
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// A line that the user should see once.
pub(crate) fn warn_once(said: &AtomicBool, line: &str) {
    if !said.swap(true, Ordering::Relaxed) {
        warn(line);
    }
}

/// A line for who wants to know what the hook does.
pub(crate) fn log(line: impl FnOnce() -> String) {
    static WANTED: OnceLock<bool> = OnceLock::new();
    static FIRST: OnceLock<Instant> = OnceLock::new();
    let wanted =
        WANTED.get_or_init(|| std::env::var_os(LOG_VARIABLE).is_some_and(|value| value != "0"));
    if *wanted {
        let since = *FIRST.get_or_init(Instant::now);
        warn(&format!(
            "{}: {:.1} ms: {}",
            std::process::id(),
            since.elapsed().as_secs_f64() * 1e3,
            line()
        ));
    }
}
