//! Which exception a failure becomes. The classes are Python's own, so that each can be two things at once.

use millpond::TraceError;
use millpond_capi::status::{Failure, millpond_status, one_line};
use pyo3::{PyErr, import_exception};

import_exception!(millpond.errors, BadFree);
import_exception!(millpond.errors, Closed);
import_exception!(millpond.errors, DriverError);
import_exception!(millpond.errors, Error);
import_exception!(millpond.errors, FileError);
import_exception!(millpond.errors, Forked);
import_exception!(millpond.errors, InvalidArgument);
import_exception!(millpond.errors, NotSupported);
import_exception!(millpond.errors, OutOfMemory);
import_exception!(millpond.errors, OutOfRange);
import_exception!(millpond.errors, UnknownDevice);
import_exception!(millpond.errors, WouldWait);

/// The exception for a failure.
pub(crate) fn raised(failure: impl Into<Failure>) -> PyErr {
    let Failure { status, reason } = failure.into();
    match status {
        millpond_status::InvalidArgument => InvalidArgument::new_err(reason),
        millpond_status::OutOfMemory | millpond_status::HostOutOfMemory => {
            OutOfMemory::new_err(reason)
        }
        millpond_status::Foreign
        | millpond_status::Interior
        | millpond_status::AlreadyFree
        | millpond_status::WrongSize => BadFree::new_err(reason),
        millpond_status::WouldWait => WouldWait::new_err(reason),
        millpond_status::Forked => Forked::new_err(reason),
        millpond_status::NotSupported => NotSupported::new_err(reason),
        millpond_status::Driver => DriverError::new_err(reason),
        millpond_status::Io => FileError::new_err(reason),
        millpond_status::Closed => Closed::new_err(reason),
        _ => Error::new_err(reason),
    }
}

/// A file that is no trace, or cannot be read. `path` is named unless the error does so itself.
pub(crate) fn unreadable(path: &str, error: &TraceError) -> PyErr {
    FileError::new_err(one_line(&match error {
        TraceError::NoFile { .. } => error.to_string(),
        error => format!("{path}: {error}"),
    }))
}
