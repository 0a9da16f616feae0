//! Why there is no device, and what the driver's errors mean to Millpond.

use millpond::device::DEFAULT_DEVICE;
use millpond::driver::{Call, DriverErrorKind};

use crate::libcuda_ffi::{LibraryError, Status};

/// Why a device could not be opened. Each says in one line what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no driver.
    #[error(
        "no CUDA driver here (libcuda.so.1 not found): install NVIDIA's driver or use a simulated device such as {DEFAULT_DEVICE}"
    )]
    NoDriver,
    /// There is something of the driver's name that cannot be used.
    #[error(
        "{library} is no CUDA driver that can be used ({why}): name another one, or use a simulated device such as {DEFAULT_DEVICE}"
    )]
    NotADriver {
        /// What was opened.
        library: String,
        /// What is wrong with it.
        why: String,
    },
    /// The driver is from before CUDA 11.4.
    #[error("the CUDA driver is of version {}.{}: install one for CUDA 11.4 or newer", .version / 1000, .version % 1000 / 10)]
    TooOld {
        /// Its version, as it counts: 10020 is 10.2.
        version: u32,
    },
    /// The driver is there and works, but has no device.
    #[error(
        "the CUDA driver sees no device: see what nvidia-smi lists and whether CUDA_VISIBLE_DEVICES hides it, or use a simulated device such as {DEFAULT_DEVICE}"
    )]
    NoDevice,
    /// There are devices, but none of this number.
    #[error("cuda:{number} is not there: the last device is cuda:{}", .count - 1)]
    NoSuchDevice {
        /// The number asked for.
        number: u32,
        /// How many devices there are, at least 1.
        count: u32,
    },
    /// The driver could not start, or not use the device.
    #[error("the CUDA driver does not start: {0}")]
    NotStarted(String),
}

impl OpenError {
    pub(crate) fn from_library(error: LibraryError, named: Option<&str>) -> OpenError {
        let library = || named.unwrap_or("libcuda.so.1").to_owned();
        match error {
            LibraryError::NotFound(_) if named.is_none() => OpenError::NoDriver,
            LibraryError::NotFound(why) | LibraryError::NotADriver(why) => {
                OpenError::NotADriver { library: library(), why }
            }
            LibraryError::Missing(name) => {
                OpenError::NotADriver { library: library(), why: format!("it has no {name}") }
            }
            LibraryError::TooOld(version) => OpenError::TooOld { version: version.max(0) as u32 },
            LibraryError::NoDevice => OpenError::NoDevice,
            error @ LibraryError::NotStarted { .. } => OpenError::NotStarted(error.to_string()),
        }
    }
}

/// What a status means for programs.
pub(crate) fn kind_of(call: Call, status: Status) -> DriverErrorKind {
    match status {
        Status::OUT_OF_MEMORY => DriverErrorKind::OutOfMemory,
        Status::INVALID_VALUE => DriverErrorKind::InvalidValue,
        Status::INVALID_HANDLE => DriverErrorKind::InvalidHandle,
        Status::NOT_SUPPORTED => DriverErrorKind::NotSupported,
        Status::ILLEGAL_ADDRESS => DriverErrorKind::IllegalAddress,
        Status::NOT_READY => DriverErrorKind::NotReady,
        // A stream that is not captured, or not the one where the capture began: the wrong argument.
        Status::ILLEGAL_STATE | Status::CAPTURE_UNMATCHED if call == Call::EndCapture => {
            DriverErrorKind::InvalidValue
        }
        Status::CAPTURE_INVALIDATED | Status::CAPTURE_UNJOINED => {
            DriverErrorKind::CaptureInvalidated
        }
        Status::CAPTURE_UNSUPPORTED
        | Status::CAPTURE_MERGE
        | Status::CAPTURE_UNMATCHED
        | Status::CAPTURE_ISOLATION
        | Status::CAPTURE_IMPLICIT
        | Status::CAPTURED_EVENT
        | Status::CAPTURE_WRONG_THREAD => DriverErrorKind::CaptureUnsupported,
        Status(code) => DriverErrorKind::Other { code: code as i32 },
    }
}

#[cfg(test)]
mod tests {
    use millpond::driver::{Call, DriverErrorKind};

    use super::{OpenError, kind_of};
    use crate::libcuda_ffi::{LibraryError, Status};

    #[test]
    fn statuses_have_the_numbers_of_the_headers() {
        let kinds = [
            (1, DriverErrorKind::InvalidValue),
            (2, DriverErrorKind::OutOfMemory),
            (4, DriverErrorKind::Other { code: 4 }),
            (400, DriverErrorKind::InvalidHandle),
            (401, DriverErrorKind::Other { code: 401 }),
            (600, DriverErrorKind::NotReady),
            (700, DriverErrorKind::IllegalAddress),
            (719, DriverErrorKind::Other { code: 719 }),
            (801, DriverErrorKind::NotSupported),
            (900, DriverErrorKind::CaptureUnsupported),
            (901, DriverErrorKind::CaptureInvalidated),
            (904, DriverErrorKind::CaptureInvalidated),
            (906, DriverErrorKind::CaptureUnsupported),
            // No CUDA has it yet.
            (99_999, DriverErrorKind::Other { code: 99_999 }),
        ];
        for (number, kind) in kinds {
            assert_eq!(kind_of(Call::Alloc, Status(number)), kind, "{number}");
        }
        for number in [401, 903] {
            assert_eq!(kind_of(Call::EndCapture, Status(number)), DriverErrorKind::InvalidValue);
        }
    }

    #[test]
    fn errors_are_one_line_that_says_what_to_do() {
        let errors = [
            OpenError::from_library(LibraryError::NotFound("no such file".into()), None),
            OpenError::from_library(
                LibraryError::NotFound("no such file".into()),
                Some("/x/libcuda.so"),
            ),
            OpenError::from_library(LibraryError::TooOld(10020), None),
            OpenError::from_library(LibraryError::NoDevice, None),
            OpenError::from_library(LibraryError::Missing("cuMemAlloc"), None),
            OpenError::NoSuchDevice { number: 3, count: 2 },
        ];
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert!(texts.iter().all(|text| !text.contains('\n')), "{texts:?}");
        assert!(texts[0].starts_with("no CUDA driver here (libcuda.so.1 not found): install"));
        assert!(texts[1].contains("/x/libcuda.so") && texts[1].contains("no such file"));
        assert!(texts[2].contains("10.2"));
        assert!(texts[5].contains("cuda:3") && texts[5].contains("cuda:1"));
    }
}
