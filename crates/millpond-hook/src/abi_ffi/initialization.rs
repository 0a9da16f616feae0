//! Finding functions by name.

use std::ffi::{CStr, c_char, c_void};

use crate::entry_ffi::entries;
use crate::names::{NEWEST, own_form};

/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`.
const PER_THREAD_STREAM: u64 = 2;

/// Ours in place of what the driver found. `again` asks the driver for another version: of versions that are newer than our table
/// it is only known that they are the same function if the driver says so.
fn replace(
    name: *const c_char,
    found: *mut *const c_void,
    version: i32,
    flags: u64,
    again: impl FnOnce(*mut *const c_void, i32) -> i32,
) {
    if name.is_null() || found.is_null() {
        return;
    }
    // SAFETY: the driver has taken both: it has read the name and written what it found.
    let (name, driver_has) = unsafe { (CStr::from_ptr(name), *found) };
    let Ok(name) = name.to_str() else { return };
    if driver_has.is_null() {
        return;
    }
    if version > NEWEST {
        let mut known = std::ptr::null();
        if again(&mut known, NEWEST) != 0 || known != driver_has {
            return;
        }
    }
    if let Some(own) = own_form(name, version.min(NEWEST), flags & PER_THREAD_STREAM != 0) {
        // SAFETY: the driver has just written there.
        unsafe { *found = own };
    }
}

entries! {
    fn cuGetProcAddress(name: *const c_char, found: *mut *const c_void, version: i32, flags: u64) {
        let answer = real(name, found, version, flags);
        if answer == 0 {
            replace(name, found, version, flags, |found, version| real(name, found, version, flags));
        }
        answer
    }

    fn cuGetProcAddress_v2 / cuGetProcAddress_v2_ptsz(
        name: *const c_char,
        found: *mut *const c_void,
        version: i32,
        flags: u64,
        status: *mut i32,
    ) {
        let answer = real(name, found, version, flags, status);
        if answer == 0 {
            // The form that is for threads' own streams gives such by itself.
            let flags = if PER_THREAD && flags == 0 { PER_THREAD_STREAM } else { flags };
            let mut unused = 0;
            let again = |found, version| real(name, found, version, flags, &mut unused);
            replace(name, found, version, flags, again);
        }
        answer
    }
}
