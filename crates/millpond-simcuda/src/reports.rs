//! What the simulated GPU finds wrong, in words: an error number says nothing of who touched what.
//!
//! The log gets all of it. Standard error gets what loses the device, and the first suspicion about a pointer that was passed as a parameter of its own;
//! a program may be right all the same, so more than one would be noise.

use std::sync::atomic::{AtomicBool, Ordering};

use millpond_sim::{Finding, Report, Suspicion};

use crate::call_log;

/// Whether a suspicion was said already.
static HAS_SUSPECTED: AtomicBool = AtomicBool::new(false);

/// Called with the device's lock held.
pub(crate) fn tell(report: Report<'_>) {
    match report {
        Report::Finding(finding) => {
            call_log::remark(&format!("finding: {finding}"));
            if let Finding::IllegalAddress { .. } = finding {
                millpond_text::say(&format!("millpond: the simulated device is lost: {finding}"));
            }
        }
        Report::Suspicion(suspicion) => {
            call_log::remark(&format!("suspicion: {suspicion}"));
            if suspicion.word.is_whole_parameter() {
                say_once(suspicion);
            }
        }
    }
}

fn say_once(suspicion: &Suspicion) {
    // Relaxed: only whether it is the first matters.
    if !HAS_SUSPECTED.swap(true, Ordering::Relaxed) {
        millpond_text::say(&format!("millpond: perhaps wrong: {suspicion}"));
    }
}
