//! What a call answers.

use std::ffi::c_int;
use std::fmt::Display;

use millpond::driver::{DriverError, DriverErrorKind};
use millpond::pool::ConfigError;
use millpond::{AllocError, FreeError};

/// What a call answers. More may be added.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum millpond_status {
    /// Done.
    Ok = 0,
    /// A pointer is null, a text is no text, a name or a setting makes no sense.
    InvalidArgument = 1,
    /// Memory is out, or a limit is reached.
    OutOfMemory = 2,
    /// A bad free: the address is not of this pool.
    Foreign = 3,
    /// A bad free: the address is inside a block.
    Interior = 4,
    /// A bad free: the block is free already.
    AlreadyFree = 5,
    /// A bad free: the block was allocated with another size.
    WrongSize = 6,
    /// The request must not wait, and cannot be served at once.
    WouldWait = 7,
    /// The process is a forked child of the one that opened the pool.
    Forked = 8,
    /// What this pool stands on cannot do that.
    NotSupported = 9,
    /// The device's driver refused.
    Driver = 10,
    /// A file could not be written.
    Io = 11,
    /// The pool has been closed, or never was one.
    Closed = 12,
    /// A mistake of Millpond's own.
    Internal = 13,
    /// The host has no memory left for what the call would have to note.
    HostOutOfMemory = 14,
}

/// A text in one line, whatever it quotes of the caller's: what would begin another one, or move the cursor, is escaped.
pub fn one_line(text: &str) -> String {
    millpond_text::shown_in_line(text).into_owned()
}

/// Why a call failed, and what to do.
#[derive(Debug)]
pub struct Failure {
    /// Which way it failed.
    pub status: millpond_status,
    /// One line, with the remedy.
    pub reason: String,
}

impl Failure {
    /// A failure and its reason.
    pub fn new(status: millpond_status, reason: impl Display) -> Failure {
        Failure { status, reason: one_line(&reason.to_string()) }
    }

    /// Something makes no sense.
    pub fn invalid(reason: impl Display) -> Failure {
        Failure::new(millpond_status::InvalidArgument, reason)
    }

    /// Something was asked of an address where no block begins: what, and why not.
    pub fn no_block(asked: &str, error: FreeError) -> Failure {
        let reason = match &error {
            FreeError::Foreign { ptr } => {
                format!(
                    "{asked} of {ptr}: it is not from this pool, or was freed before, give a live block's address"
                )
            }
            FreeError::Interior { ptr, block } => {
                format!("{asked} of {ptr}: it is inside the block at {block}, give that address")
            }
            FreeError::AlreadyFree { ptr } => {
                format!("{asked} of {ptr}: the block is free already, give a live block's address")
            }
            _ => return error.into(),
        };
        Failure { reason, ..error.into() }
    }

    pub(crate) fn code(&self) -> c_int {
        self.status as c_int
    }
}

impl From<AllocError> for Failure {
    fn from(error: AllocError) -> Failure {
        let status = match &error {
            error if error.is_out_of_memory() => millpond_status::OutOfMemory,
            AllocError::WouldWait { .. } => millpond_status::WouldWait,
            AllocError::Forked => millpond_status::Forked,
            AllocError::Driver(error) => return Failure::from(error.clone()),
            _ => millpond_status::Driver,
        };
        Failure::new(status, error)
    }
}

impl From<FreeError> for Failure {
    fn from(error: FreeError) -> Failure {
        let status = match &error {
            FreeError::Foreign { .. } => millpond_status::Foreign,
            FreeError::Interior { .. } => millpond_status::Interior,
            FreeError::AlreadyFree { .. } => millpond_status::AlreadyFree,
            FreeError::WrongSize { .. } => millpond_status::WrongSize,
            FreeError::Driver(error) => return Failure::from(error.clone()),
            _ => millpond_status::Driver,
        };
        let remedy = match &error {
            FreeError::Foreign { .. } => "; free it once, where it was allocated",
            FreeError::AlreadyFree { .. } => "; free it once",
            FreeError::WrongSize { .. } => "; give the size that was asked for",
            // It says so itself.
            _ => "",
        };
        Failure::new(status, format!("{error}{remedy}"))
    }
}

impl From<DriverError> for Failure {
    fn from(error: DriverError) -> Failure {
        let status = match error.is_out_of_memory() {
            true => millpond_status::OutOfMemory,
            false => millpond_status::Driver,
        };
        match error.kind {
            // The only handles of a driver's that come from outside are streams.
            DriverErrorKind::InvalidHandle => Failure::new(
                status,
                format!(
                    "{error}: give a stream of the pool's device that was not destroyed, or 0 for the default one"
                ),
            ),
            _ => Failure::new(status, error),
        }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Failure {
        Failure::invalid(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_one_line() {
        let reason =
            Failure::invalid("'a\nb\r\u{7f}\u{9b}\u{202e}\u{2028}\0' is no name, ä is").reason;
        assert_eq!(reason, r"'a\nb\u{d}\u{7f}\u{9b}\u{202e}\u{2028}\u{0}' is no name, ä is");
    }

    #[test]
    fn a_bad_free_says_what_to_do() {
        let ptr = millpond::driver::DevicePtr(0x1000);
        let cases = [
            (FreeError::Foreign { ptr }, "free it once, where it was allocated"),
            (FreeError::AlreadyFree { ptr }, "free it once"),
            (FreeError::Interior { ptr, block: ptr }, "free that address instead"),
            (
                FreeError::WrongSize { ptr, given_bytes: 1, allocated_bytes: 2 },
                "give the size that was asked for",
            ),
        ];
        for (error, remedy) in cases {
            let reason = Failure::from(error).reason;
            assert!(reason.ends_with(remedy), "{reason}");
        }
    }
}
