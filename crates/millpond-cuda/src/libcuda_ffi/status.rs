//! What a call of the driver answers.

use std::ffi::CStr;

use cudarc::driver::sys::CUresult;

use super::functions::RawStatus;
use super::library::Cuda;

/// An answer that is not success. Any number: newer drivers have more of them than any list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status(pub(crate) u32);

macro_rules! statuses {
    ($($name:ident = $of:ident;)*) => {
        impl Status {
            $(pub(crate) const $name: Status = Status(CUresult::$of as u32);)*
        }
    };
}

statuses! {
    INVALID_VALUE = CUDA_ERROR_INVALID_VALUE;
    OUT_OF_MEMORY = CUDA_ERROR_OUT_OF_MEMORY;
    INVALID_HANDLE = CUDA_ERROR_INVALID_HANDLE;
    ILLEGAL_STATE = CUDA_ERROR_ILLEGAL_STATE;
    NOT_READY = CUDA_ERROR_NOT_READY;
    ILLEGAL_ADDRESS = CUDA_ERROR_ILLEGAL_ADDRESS;
    NOT_SUPPORTED = CUDA_ERROR_NOT_SUPPORTED;
    CAPTURE_UNSUPPORTED = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    CAPTURE_INVALIDATED = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    CAPTURE_MERGE = CUDA_ERROR_STREAM_CAPTURE_MERGE;
    CAPTURE_UNMATCHED = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    CAPTURE_UNJOINED = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    CAPTURE_ISOLATION = CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    CAPTURE_IMPLICIT = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    CAPTURED_EVENT = CUDA_ERROR_CAPTURED_EVENT;
    CAPTURE_WRONG_THREAD = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

impl Status {
    pub(super) fn check(raw: RawStatus) -> Result<(), Status> {
        if raw == 0 { Ok(()) } else { Err(Status(raw)) }
    }

    /// The driver's own name and text for it, such as `CUDA_ERROR_NOT_READY: device not ready`.
    pub(crate) fn describe(self, cuda: &Cuda) -> String {
        let ask = |function: Option<
            unsafe extern "C" fn(u32, *mut *const std::ffi::c_char) -> RawStatus,
        >| {
            let mut text = std::ptr::null();
            // SAFETY: the driver writes a pointer to text of its own, which stays, or null.
            let status = unsafe { function?(self.0, &mut text) };
            if status != 0 || text.is_null() {
                return None;
            }
            // SAFETY: not null, so such a text, and it ends with a zero.
            Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        };
        let functions = &cuda.functions;
        match (ask(functions.cuGetErrorName), ask(functions.cuGetErrorString)) {
            (Some(name), Some(text)) => format!("{name}: {text}"),
            (Some(name), None) => name,
            _ => self.to_string(),
        }
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CUDA error {}", self.0)
    }
}

/// Calls a function of the driver; one that is not there is not supported.
macro_rules! call {
    ($cuda:expr, $name:ident($($argument:expr),* $(,)?)) => {
        match $cuda.functions.$name {
            Some(function) => $crate::libcuda_ffi::status::Status::check(function($($argument),*)),
            None => Err($crate::libcuda_ffi::status::Status::NOT_SUPPORTED),
        }
    };
}
pub(super) use call;
