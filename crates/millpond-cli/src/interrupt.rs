//! Ctrl-C: once, and what is finished is shown; twice, and the program ends. SIGTERM is not caught: it ends any command at once.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use signal_hook::consts::SIGINT;
use signal_hook::iterator::Signals;

use crate::output::say;

/// What a report says that Ctrl-C has cut short.
pub(crate) const NOTE: &str = "Interrupted: only what was finished by then is here.";

/// The exit code of a program that Ctrl-C has ended.
const EXIT_CODE: i32 = 130;

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Listens from now on.
pub(crate) fn listen() -> Result<()> {
    let listening = "cannot listen for Ctrl-C";
    let mut signals = Signals::new([SIGINT]).context(listening)?;
    let wait = move || {
        for _ in signals.forever() {
            // Relaxed: nothing else is said by it.
            if REQUESTED.swap(true, Ordering::Relaxed) {
                std::process::exit(EXIT_CODE);
            }
            // What the terminal shows of Ctrl-C is in the line before.
            say("");
            say("millpond: stopping; what is finished will be shown (Ctrl-C again: at once)");
        }
    };
    let thread = std::thread::Builder::new().name("millpond-ctrl-c".to_owned());
    thread.spawn(wait).context(listening).map(drop)
}

/// Whether to stop at the next opportunity.
pub(crate) fn is_requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}
