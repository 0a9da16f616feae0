//! Lines on standard error. Never on standard output, which is the program's.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::environment::LOG_VARIABLE;

/// A line that the user should see.
pub(crate) fn warn(line: &str) {
    millpond_text::say(&format!("millpond: {line}"));
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
