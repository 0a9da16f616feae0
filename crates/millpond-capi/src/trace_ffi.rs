//! What a program allocates and frees, written down.

use std::ffi::{c_char, c_int};
use std::path::Path;

use crate::boundary_ffi::{answer, text};
use crate::host_memory_ffi;
use crate::pool_ffi::{millpond_pool, opened};
use crate::status::{Failure, millpond_status};

/// Writes every allocation and free of this pool's into a file from now on, in RMM's CSV format: `millpond replay FILE` reads it.
///
/// # Safety
/// A pool, and a string that ends with a zero; either may be null, which is an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_trace_start(
    pool: *mut millpond_pool,
    path: *const c_char,
) -> c_int {
    answer(|| {
        // SAFETY: the caller's promise.
        let ((handle, open), path) = unsafe { (opened(pool)?, text(path, "path")?) };
        host_memory_ffi::ensure()?;
        open.start_trace(path)?;
        handle.set_stacked(true, open);
        Ok(())
    })
}

/// Ends the trace. Everything is in the file then.
///
/// # Safety
/// A pool; null is an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_trace_stop(pool: *mut millpond_pool) -> c_int {
    answer(|| {
        // SAFETY: the caller's promise.
        let (handle, open) = unsafe { opened(pool) }?;
        handle.set_stacked(false, open);
        open.stop_trace()
    })
}

/// Writes what stands in the pool's memory now into a file, in the form that PyTorch's memory viewer reads.
///
/// # Safety
/// As [`millpond_trace_start`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_snapshot(pool: *mut millpond_pool, path: *const c_char) -> c_int {
    answer(|| {
        // SAFETY: the caller's promise.
        let ((_, open), path) = unsafe { (opened(pool)?, text(path, "path")?) };
        host_memory_ffi::ensure()?;
        let snapshot = open.pool()?.snapshot();
        let written = snapshot.save(Path::new(path));
        written.map_err(|error| Failure::new(millpond_status::Io, error))
    })
}
