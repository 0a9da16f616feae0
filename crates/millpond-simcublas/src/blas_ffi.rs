//! `libcublas.so.12`: handles and their settings. What it multiplies is in `products_ffi`.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::driver_ffi::Stream;
use crate::status::{Status, run};

macro_rules! not_supported {
    ($name:ident) => {
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        extern "C" fn $name() -> std::ffi::c_int {
            Status::NOT_SUPPORTED.0
        }
    };
}

include!(concat!(env!("OUT_DIR"), "/not_supported.rs"));

/// The version of the library whose place this takes.
const VERSION: c_int = 120_804;

#[derive(Clone, Copy)]
struct Handle {
    stream: usize,
    pointer_mode: c_int,
    math_mode: c_int,
    atomics_mode: c_int,
}

/// By number, so that a handle that was destroyed, or never was one, is found out.
static HANDLES: Mutex<(BTreeMap<usize, Handle>, usize)> = Mutex::new((BTreeMap::new(), 0));

fn handles() -> MutexGuard<'static, (BTreeMap<usize, Handle>, usize)> {
    HANDLES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The stream that a handle is set to.
pub(crate) fn stream_of(handle: usize) -> Result<Stream, Status> {
    let handle = handles().0.get(&handle).copied().ok_or(Status::NOT_INITIALIZED)?;
    Ok(handle.stream as Stream)
}

fn change(handle: usize, change: impl FnOnce(&mut Handle)) -> Result<(), Status> {
    handles().0.get_mut(&handle).map(change).ok_or(Status::NOT_INITIALIZED)
}

/// Answers with something of a handle.
///
/// # Safety
/// The pointer is null or can be written.
unsafe fn tell<Value>(
    handle: usize,
    out: *mut Value,
    value: impl FnOnce(&Handle) -> Value,
) -> Result<(), Status> {
    let value = handles().0.get(&handle).map(value).ok_or(Status::NOT_INITIALIZED)?;
    if out.is_null() {
        return Err(Status::INVALID_VALUE);
    }
    // SAFETY: not null, so it can be written.
    unsafe { out.write_unaligned(value) };
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasCreate_v2(out: *mut usize) -> c_int {
    run(|| {
        if out.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        let mut handles = handles();
        handles.1 += 1;
        // No address of anything, and no small number.
        let number = 0x6d62_0000_0000 + handles.1 * 16;
        handles
            .0
            .insert(number, Handle { stream: 0, pointer_mode: 0, math_mode: 0, atomics_mode: 0 });
        // SAFETY: not null, so it can be written.
        unsafe { out.write_unaligned(number) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cublasDestroy_v2(handle: usize) -> c_int {
    run(|| handles().0.remove(&handle).map(drop).ok_or(Status::NOT_INITIALIZED))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasGetVersion_v2(handle: usize, out: *mut c_int) -> c_int {
    // SAFETY: the caller's pointer.
    run(|| unsafe { tell(handle, out, |_| VERSION) })
}

/// Major, minor and patch of the version.
#[unsafe(no_mangle)]
unsafe extern "C" fn cublasGetProperty(part: c_int, out: *mut c_int) -> c_int {
    run(|| {
        let value = match part {
            0 => VERSION / 10_000,
            1 => VERSION / 100 % 100,
            2 => VERSION % 100,
            _ => return Err(Status::INVALID_VALUE),
        };
        if out.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: not null, so it can be written.
        unsafe { out.write_unaligned(value) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cublasSetStream_v2(handle: usize, stream: usize) -> c_int {
    run(|| change(handle, |handle| handle.stream = stream))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasGetStream_v2(handle: usize, out: *mut usize) -> c_int {
    // SAFETY: the caller's pointer.
    run(|| unsafe { tell(handle, out, |handle| handle.stream) })
}

/// Nothing here needs room.
#[unsafe(no_mangle)]
extern "C" fn cublasSetWorkspace_v2(
    handle: usize,
    _workspace: *mut c_void,
    _bytes: usize,
) -> c_int {
    run(|| change(handle, |_| {}))
}

#[unsafe(no_mangle)]
extern "C" fn cublasSetMathMode(handle: usize, mode: c_int) -> c_int {
    run(|| change(handle, |handle| handle.math_mode = mode))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasGetMathMode(handle: usize, out: *mut c_int) -> c_int {
    // SAFETY: the caller's pointer.
    run(|| unsafe { tell(handle, out, |handle| handle.math_mode) })
}

#[unsafe(no_mangle)]
extern "C" fn cublasSetPointerMode_v2(handle: usize, mode: c_int) -> c_int {
    run(|| change(handle, |handle| handle.pointer_mode = mode))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasGetPointerMode_v2(handle: usize, out: *mut c_int) -> c_int {
    // SAFETY: the caller's pointer.
    run(|| unsafe { tell(handle, out, |handle| handle.pointer_mode) })
}

#[unsafe(no_mangle)]
extern "C" fn cublasSetAtomicsMode(handle: usize, mode: c_int) -> c_int {
    run(|| change(handle, |handle| handle.atomics_mode = mode))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasGetAtomicsMode(handle: usize, out: *mut c_int) -> c_int {
    // SAFETY: the caller's pointer.
    run(|| unsafe { tell(handle, out, |handle| handle.atomics_mode) })
}

#[unsafe(no_mangle)]
extern "C" fn cublasGetStatusName(status: c_int) -> *const c_char {
    let name = match status {
        0 => c"CUBLAS_STATUS_SUCCESS",
        1 => c"CUBLAS_STATUS_NOT_INITIALIZED",
        3 => c"CUBLAS_STATUS_ALLOC_FAILED",
        7 => c"CUBLAS_STATUS_INVALID_VALUE",
        8 => c"CUBLAS_STATUS_ARCH_MISMATCH",
        11 => c"CUBLAS_STATUS_MAPPING_ERROR",
        13 => c"CUBLAS_STATUS_EXECUTION_FAILED",
        14 => c"CUBLAS_STATUS_INTERNAL_ERROR",
        15 => c"CUBLAS_STATUS_NOT_SUPPORTED",
        16 => c"CUBLAS_STATUS_LICENSE_ERROR",
        _ => c"CUBLAS_STATUS_UNKNOWN",
    };
    name.as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn cublasGetStatusString(status: c_int) -> *const c_char {
    cublasGetStatusName(status)
}
