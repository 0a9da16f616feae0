//! Recording work instead of running it.

use super::Driver;

/// How strictly other calls are refused while a stream is captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum CaptureMode {
    /// No thread may make an unsafe call.
    #[default]
    Global,
    /// The capturing thread may make none.
    ThreadLocal,
    /// Anybody may; that the capture does not depend on them is the caller's word.
    Relaxed,
}

/// One capture, from begin to end; never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CaptureId(pub u64);

/// Whether a stream is being captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CaptureState {
    /// No: its work runs.
    None,
    /// Yes, by this capture.
    Active(CaptureId),
    /// It was, until a forbidden call spoiled the capture; it must still be ended.
    Invalidated,
}

/// A handle of recorded work that can be launched again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Graph(pub u64);

/// While this lives, this thread's calls are allowed beside captures, which they have nothing to do with.
///
/// What a library does for itself, such as getting memory, must neither be refused because somebody captures a stream
/// nor spoil that capture.
#[derive(Debug)]
pub struct RelaxedCalls<'a> {
    driver: &'a dyn Driver,
    before: Option<CaptureMode>,
}

impl<'a> RelaxedCalls<'a> {
    /// Relaxes this thread's mode. A driver that refuses leaves it as it was: calls may then be refused, too.
    pub fn enter(driver: &'a dyn Driver) -> RelaxedCalls<'a> {
        RelaxedCalls { driver, before: driver.exchange_capture_mode(CaptureMode::Relaxed).ok() }
    }
}

impl Drop for RelaxedCalls<'_> {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // Tried twice, since a thread that stays relaxed would no longer be warned of its own mistakes.
            let again = || self.driver.exchange_capture_mode(before);
            let _ = again().or_else(|_| again());
        }
    }
}
