//! CUDA's numbers for what a call answers.

use millpond::driver::{DriverError, DriverErrorKind};

/// What a call answers instead of success, as CUDA numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) i32);

/// What a call answers.
pub(crate) type Answer<T = ()> = Result<T, Code>;

macro_rules! codes {
    ($($constant:ident = $number:literal, $name:literal, $text:literal;)*) => {
        impl Code {
            $(#[allow(dead_code)] // the table wants them all
            pub(crate) const $constant: Code = Code($number);)*
        }

        /// Number, name and text of each, in the order of the numbers. The texts end in a null byte, for C reads them.
        const CODES: &[(i32, &str, &str)] = &[$(($number, concat!($name, "\0"), concat!($text, "\0")),)*];
    };
}

codes! {
    SUCCESS = 0, "CUDA_SUCCESS", "no error";
    INVALID_VALUE = 1, "CUDA_ERROR_INVALID_VALUE", "invalid argument";
    OUT_OF_MEMORY = 2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory";
    NOT_INITIALIZED = 3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error";
    DEINITIALIZED = 4, "CUDA_ERROR_DEINITIALIZED", "driver shutting down";
    DEVICE_UNAVAILABLE = 46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable";
    NO_DEVICE = 100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected";
    INVALID_DEVICE = 101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal";
    INVALID_IMAGE = 200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid";
    INVALID_CONTEXT = 201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context";
    NO_BINARY_FOR_GPU = 209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device";
    PEER_ACCESS_UNSUPPORTED = 217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "peer access is not supported between these two devices";
    INVALID_PTX = 218, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed";
    INVALID_SOURCE = 300, "CUDA_ERROR_INVALID_SOURCE", "device kernel source is invalid";
    FILE_NOT_FOUND = 301, "CUDA_ERROR_FILE_NOT_FOUND", "file not found";
    OPERATING_SYSTEM = 304, "CUDA_ERROR_OPERATING_SYSTEM", "operating system call failed";
    INVALID_HANDLE = 400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle";
    ILLEGAL_STATE = 401, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state";
    NOT_FOUND = 500, "CUDA_ERROR_NOT_FOUND", "named symbol not found";
    NOT_READY = 600, "CUDA_ERROR_NOT_READY", "device not ready";
    ILLEGAL_ADDRESS = 700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered";
    LAUNCH_OUT_OF_RESOURCES = 701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch";
    LAUNCH_TIMEOUT = 702, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated";
    PEER_ACCESS_ALREADY_ENABLED = 704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled";
    PEER_ACCESS_NOT_ENABLED = 705, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer access has not been enabled";
    PRIMARY_CONTEXT_ACTIVE = 708, "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE", "cannot set while device is active in this process";
    CONTEXT_IS_DESTROYED = 709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed";
    HOST_MEMORY_ALREADY_REGISTERED = 712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "part or all of the requested memory range is already mapped";
    HOST_MEMORY_NOT_REGISTERED = 713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "pointer does not correspond to a registered memory region";
    MISALIGNED_ADDRESS = 716, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address";
    LAUNCH_FAILED = 719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure";
    COOPERATIVE_LAUNCH_TOO_LARGE = 720, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "too many blocks in cooperative launch";
    NOT_PERMITTED = 800, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted";
    NOT_SUPPORTED = 801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported";
    STREAM_CAPTURE_UNSUPPORTED = 900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing";
    STREAM_CAPTURE_INVALIDATED = 901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture";
    STREAM_CAPTURE_MERGE = 902, "CUDA_ERROR_STREAM_CAPTURE_MERGE", "operation would result in a merge of separate capture sequences";
    STREAM_CAPTURE_UNMATCHED = 903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "capture was not ended in the same stream as it began";
    STREAM_CAPTURE_UNJOINED = 904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work";
    STREAM_CAPTURE_ISOLATION = 905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "dependency created on uncaptured work in another stream";
    STREAM_CAPTURE_IMPLICIT = 906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "operation would make the legacy stream depend on a capturing blocking stream";
    CAPTURED_EVENT = 907, "CUDA_ERROR_CAPTURED_EVENT", "operation not permitted on an event last recorded in a capturing stream";
    STREAM_CAPTURE_WRONG_THREAD = 908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "attempt to terminate a thread-local capture sequence from another thread";
    TIMEOUT = 909, "CUDA_ERROR_TIMEOUT", "wait operation timed out";
    UNKNOWN = 999, "CUDA_ERROR_UNKNOWN", "unknown error";
}

impl Code {
    fn entry(self) -> Option<&'static (i32, &'static str, &'static str)> {
        CODES.binary_search_by_key(&self.0, |entry| entry.0).ok().map(|at| &CODES[at])
    }

    /// CUDA's name of it, with a null byte at its end.
    pub(crate) fn name(self) -> Option<&'static str> {
        self.entry().map(|entry| entry.1)
    }

    /// What it means, with a null byte at its end.
    pub(crate) fn text(self) -> Option<&'static str> {
        self.entry().map(|entry| entry.2)
    }
}

impl From<DriverErrorKind> for Code {
    fn from(kind: DriverErrorKind) -> Code {
        match kind {
            DriverErrorKind::OutOfMemory => Code::OUT_OF_MEMORY,
            DriverErrorKind::InvalidValue => Code::INVALID_VALUE,
            DriverErrorKind::InvalidHandle => Code::INVALID_HANDLE,
            DriverErrorKind::NotSupported => Code::NOT_SUPPORTED,
            DriverErrorKind::IllegalAddress => Code::ILLEGAL_ADDRESS,
            DriverErrorKind::CaptureUnsupported => Code::STREAM_CAPTURE_UNSUPPORTED,
            DriverErrorKind::CaptureInvalidated => Code::STREAM_CAPTURE_INVALIDATED,
            DriverErrorKind::NotReady => Code::NOT_READY,
            DriverErrorKind::Other { code } => Code(code),
            _ => Code::UNKNOWN,
        }
    }
}

impl From<DriverError> for Code {
    fn from(error: DriverError) -> Code {
        error.kind.into()
    }
}

#[cfg(test)]
mod tests {
    use super::{CODES, Code};

    #[test]
    fn codes_are_in_order_and_end_where_c_expects_it() {
        assert!(CODES.is_sorted_by_key(|entry| entry.0));
        assert!(CODES.iter().all(|entry| entry.1.ends_with('\0') && entry.2.ends_with('\0')));
        assert_eq!(Code(2).name(), Some("CUDA_ERROR_OUT_OF_MEMORY\0"));
        assert_eq!(Code(12345).name(), None);
    }
}
