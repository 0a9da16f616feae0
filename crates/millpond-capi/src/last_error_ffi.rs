//! What went wrong last, in each thread.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Remembers what the thread is told when it asks.
pub(crate) fn remember(reason: &str) {
    let text: Vec<u8> = reason.bytes().filter(|byte| *byte != 0).collect();
    let text = CString::new(text).unwrap_or_default();
    // A thread that is ending has nobody left who asks.
    let _ = LAST.try_with(|last| *last.borrow_mut() = text);
}

/// What went wrong in the last call of this thread that failed, in one line, with the remedy. Empty if none has. Stays until the
/// thread's next failure or end.
#[unsafe(no_mangle)]
pub extern "C" fn millpond_last_error() -> *const c_char {
    const NOTHING: &CStr = c"";
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(NOTHING.as_ptr())
}

/// The version of the library, such as `0.1.0`.
#[unsafe(no_mangle)]
pub extern "C" fn millpond_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
