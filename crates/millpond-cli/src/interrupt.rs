//! Ctrl-C: once, and what is finished is shown; twice, and the program ends.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};

/// What a report says that Ctrl-C has cut short.
pub(crate) const NOTE: &str = "Interrupted: only what was finished by then is here.";

/// The exit code of a program that Ctrl-C has ended.
const EXIT_CODE: i32 = 130;

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Listens from now on.
pub(crate) fn listen() -> Result<()> {
    let interrupted = || {
        // Relaxed: nothing else is said by it.
        if REQUESTED.swap(true, Ordering::Relaxed) {
            std::process::exit(EXIT_CODE);
        }
        eprintln!("\nmillpond: stopping; what is finished will be shown (Ctrl-C again: at once)");
    };
    ctrlc::set_handler(interrupted).context("cannot listen for Ctrl-C")
}

/// Whether to stop at the next opportunity.
pub(crate) fn is_requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}
