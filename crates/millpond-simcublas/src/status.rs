//! What the functions of the libraries answer.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A `cublasStatus_t` that is not success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status(pub(crate) c_int);

impl Status {
    #[cfg(not(feature = "lt"))]
    pub(crate) const NOT_INITIALIZED: Status = Status(1);
    pub(crate) const INVALID_VALUE: Status = Status(7);
    pub(crate) const EXECUTION_FAILED: Status = Status(13);
    pub(crate) const INTERNAL_ERROR: Status = Status(14);
    pub(crate) const NOT_SUPPORTED: Status = Status(15);
}

/// Runs the body of an entry point. A panic must not leave the library.
pub(crate) fn run(body: impl FnOnce() -> Result<(), Status>) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Status::INTERNAL_ERROR)) {
        Ok(()) => 0,
        Err(status) => status.0,
    }
}
