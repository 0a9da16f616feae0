//! Streams, for programs that have no CUDA to make them with.

use std::ffi::{c_int, c_void};

use millpond::driver::{Stream, StreamFlags};

use crate::boundary_ffi::{answer, place};
use crate::host_memory_ffi;
use crate::pool_ffi::{millpond_pool, opened, with_pool};

/// Makes a stream of the pool's device. It does not wait for the default stream.
///
/// # Safety
/// A pool, and memory for a pointer; either may be null, which is an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_stream_create(
    pool: *mut millpond_pool,
    out: *mut *mut c_void,
) -> c_int {
    answer(|| {
        // SAFETY: the caller's promise.
        let ((_, open), out) = unsafe { (opened(pool)?, place(out, "out")?) };
        host_memory_ffi::ensure()?;
        let stream = open.resource().driver().create_stream(StreamFlags::NON_BLOCKING)?;
        *out = stream.0 as *mut c_void;
        Ok(())
    })
}

/// Destroys a stream. What is queued on it still runs.
///
/// # Safety
/// A pool; null is an error. On a real device, a stream of it that is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_stream_destroy(
    pool: *mut millpond_pool,
    stream: *mut c_void,
) -> c_int {
    let destroy = |open: &crate::open::Open| {
        Ok(open.resource().driver().destroy_stream(Stream::from_raw(stream as u64))?)
    };
    // SAFETY: the caller's promise.
    unsafe { with_pool(pool, destroy) }
}

/// Waits until everything queued on a stream has run.
///
/// # Safety
/// As [`millpond_stream_destroy`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_stream_synchronize(
    pool: *mut millpond_pool,
    stream: *mut c_void,
) -> c_int {
    let wait = |open: &crate::open::Open| {
        Ok(open.resource().driver().synchronize_stream(Stream::from_raw(stream as u64))?)
    };
    // SAFETY: the caller's promise.
    unsafe { with_pool(pool, wait) }
}
