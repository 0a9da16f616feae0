//! Recording work instead of running it.

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
