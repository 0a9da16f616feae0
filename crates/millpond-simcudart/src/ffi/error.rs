//! Last errors, and what errors are called.

use std::ffi::{CStr, c_char, c_int};

use crate::{code, driver_ffi, thread};

const UNRECOGNISED: &CStr = c"unrecognized error code";

#[unsafe(no_mangle)]
extern "C" fn cudaGetLastError() -> c_int {
    thread::take_last_error()
}

#[unsafe(no_mangle)]
extern "C" fn cudaPeekAtLastError() -> c_int {
    thread::last_error()
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetErrorName(error: c_int) -> *const c_char {
    code::name(error).unwrap_or(UNRECOGNISED).as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetErrorString(error: c_int) -> *const c_char {
    match code::text(error) {
        Some(text) => text.as_ptr(),
        None if code::name(error).is_none() => UNRECOGNISED.as_ptr(),
        // The driver has the same error, and a text for it. Without a driver the name must do.
        None => driver_ffi::error_text(error).unwrap_or_else(|| cudaGetErrorName(error)),
    }
}
