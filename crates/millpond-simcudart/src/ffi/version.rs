//! Versions, the driver's own functions for programs that want them, and what has no effect.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
use std::ptr::null_mut;

use crate::abi::ChannelFormat;
use crate::code::Code;
use crate::driver_ffi::{DefaultStream, RUNTIME_VERSION, find_for_program};
use crate::program_memory_ffi::answer;

/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`.
const PER_THREAD: c_ulonglong = 2;

entry_points! {
    nothing fn cudaRuntimeGetVersion(_driver, out: *mut c_int) { answer(out, RUNTIME_VERSION) }
    nothing fn cudaDriverGetVersion(_driver, out: *mut c_int) {
        // Without a driver its version is zero, and that is no error.
        let driver = crate::driver_ffi::loaded(DefaultStream::Legacy);
        answer(out, driver.map_or(0, |driver| driver.version))
    }

    driver fn cudaGetDriverEntryPoint(
        driver, name: *const c_char, out: *mut *mut c_void, flags: c_ulonglong, status: *mut c_int,
    ) { entry_point(name, out, RUNTIME_VERSION.min(driver.version), flags, status) }
    driver fn cudaGetDriverEntryPoint_ptsz(
        driver, name: *const c_char, out: *mut *mut c_void, flags: c_ulonglong, status: *mut c_int,
    ) { entry_point(name, out, RUNTIME_VERSION.min(driver.version), per_thread(flags), status) }
    driver fn cudaGetDriverEntryPointByVersion(
        _driver, name: *const c_char, out: *mut *mut c_void, version: c_uint, flags: c_ulonglong, status: *mut c_int,
    ) { entry_point(name, out, version as c_int, flags, status) }
    driver fn cudaGetDriverEntryPointByVersion_ptsz(
        _driver, name: *const c_char, out: *mut *mut c_void, version: c_uint, flags: c_ulonglong, status: *mut c_int,
    ) { entry_point(name, out, version as c_int, per_thread(flags), status) }

    // Nobody profiles a stand-in.
    context fn cudaProfilerStart(_driver) { Ok(()) }
    context fn cudaProfilerStop(_driver) { Ok(()) }
    // Doubles were demoted to floats on devices that nobody has any more.
    nothing fn cudaSetDoubleForDevice(_driver, _value: *mut f64) { Ok(()) }
    nothing fn cudaSetDoubleForHost(_driver, _value: *mut f64) { Ok(()) }
}

#[unsafe(no_mangle)]
extern "C" fn cudaCreateChannelDesc(
    x: c_int,
    y: c_int,
    z: c_int,
    w: c_int,
    kind: c_int,
) -> ChannelFormat {
    ChannelFormat { bits: [x, y, z, w], kind }
}

/// Where a program that was compiled for per-thread default streams says nothing, it means them.
fn per_thread(flags: c_ulonglong) -> c_ulonglong {
    if flags == 0 { PER_THREAD } else { flags }
}

/// # Safety
/// The name is null or a C string.
unsafe fn entry_point(
    name: *const c_char,
    out: *mut *mut c_void,
    version: c_int,
    flags: c_ulonglong,
    status: *mut c_int,
) -> Result<(), Code> {
    if name.is_null() || flags > PER_THREAD {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the caller's promise.
    let (found, found_status) = unsafe { find_for_program(name, version, flags) }?;
    answer(out, if found_status == 0 { found } else { null_mut() })?;
    if !status.is_null() {
        answer(status, found_status)
    } else if found.is_null() {
        Err(Code::SYMBOL_NOT_FOUND)
    } else {
        Ok(())
    }
}
