//! What a driver call can answer instead of success.

use super::Call;

/// The answer of a driver call.
pub type DriverResult<T> = Result<T, DriverError>;

/// A driver call that failed: which one, how, and what was wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {kind}{}", .detail.as_deref().map(|d| format!(" ({d})")).unwrap_or_default())]
pub struct DriverError {
    /// The call that failed.
    pub call: Call,
    /// How it failed; what programs decide by.
    pub kind: DriverErrorKind,
    /// What was wrong, for people.
    pub detail: Option<Box<str>>,
}

/// The ways a driver call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum DriverErrorKind {
    /// The device, or the host for memory kept there, has not enough.
    #[error("out of memory")]
    OutOfMemory,
    /// An argument is out of range, misaligned, or names memory it may not name.
    #[error("invalid value")]
    InvalidValue,
    /// A handle names nothing of this driver (never did, or no longer).
    #[error("invalid handle")]
    InvalidHandle,
    /// The device cannot do this.
    #[error("not supported by this device")]
    NotSupported,
    /// Executed work touched memory that was not there. The device is lost to this process.
    #[error("illegal address: work on the device touched memory that is not mapped")]
    IllegalAddress,
    /// The call is forbidden while a stream is being captured.
    #[error("not permitted while a stream is being captured")]
    CaptureUnsupported,
    /// The capture was spoiled by an earlier forbidden call.
    #[error("the capture was invalidated")]
    CaptureInvalidated,
    /// A time was asked of events that have not passed yet.
    #[error("not ready")]
    NotReady,
    /// Anything else, with the driver's own number.
    #[error("driver error {code}")]
    Other {
        /// The driver's own number for it.
        code: i32,
    },
}

impl DriverError {
    /// An error with no more to say than its kind.
    pub fn new(call: Call, kind: DriverErrorKind) -> Self {
        Self { call, kind, detail: None }
    }

    /// An error that says what was wrong.
    pub fn with_detail(call: Call, kind: DriverErrorKind, detail: impl Into<String>) -> Self {
        Self { call, kind, detail: Some(detail.into().into_boxed_str()) }
    }

    /// Whether memory ran out, which callers treat apart: giving some back may help.
    pub fn is_out_of_memory(&self) -> bool {
        self.kind == DriverErrorKind::OutOfMemory
    }
}
