//! What went wrong last, in each thread.

use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::OnceLock;

/// What a thread has to be told is kept under a key of the C library's and not in `thread_local!`, which has to be registered with memory
/// that there may be none of, and the process would end. None, if the process has used up its keys.
static KEY: OnceLock<Option<libc::pthread_key_t>> = OnceLock::new();

/// A thread that is ending has nobody left who asks.
unsafe extern "C" fn forget(text: *mut c_void) {
    // SAFETY: only texts from `into_raw` are under the key, each in one thread.
    drop(unsafe { CString::from_raw(text.cast()) });
}

fn key() -> Option<libc::pthread_key_t> {
    *KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: memory for a key, and a function that takes what is kept under it.
        let made = unsafe { libc::pthread_key_create(&raw mut key, Some(forget)) };
        (made == 0).then_some(key)
    })
}

/// Remembers what the thread is told when it asks.
pub(crate) fn remember(reason: &str) {
    let Some(key) = key() else { return };
    let text: Vec<u8> = reason.bytes().filter(|byte| *byte != 0).collect();
    let text = CString::new(text).unwrap_or_default().into_raw();
    // SAFETY: the key was made; what was under it is this thread's and nobody's any more.
    unsafe {
        let before = libc::pthread_getspecific(key);
        let is_kept = libc::pthread_setspecific(key, text.cast()) == 0;
        let gone = if is_kept { before } else { text.cast() };
        if !gone.is_null() {
            forget(gone);
        }
    }
}

/// What went wrong in the last call of this thread that failed, in one line, with the remedy. Empty if none has. Stays until the
/// thread's next failure or end.
#[unsafe(no_mangle)]
pub extern "C" fn millpond_last_error() -> *const c_char {
    const NOTHING: &CStr = c"";
    // SAFETY: the key was made.
    let last = key().map(|key| unsafe { libc::pthread_getspecific(key) });
    last.filter(|last| !last.is_null()).map_or(NOTHING.as_ptr(), |last| last.cast_const().cast())
}

/// The version of the library, such as `0.1.0`.
#[unsafe(no_mangle)]
pub extern "C" fn millpond_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
