//! What is done to a pool from time to time: set aside, emptied, merged, given back.

use std::ffi::c_int;

use millpond::Resource;

use crate::boundary_ffi::tell;
use crate::host_memory_ffi;
use crate::pool_ffi::{millpond_pool, with_pool};

/// Sets `count` blocks for requests of `bytes` aside, for any stream: all of them, or none.
///
/// # Safety
/// A pool; null is an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_preallocate(
    pool: *mut millpond_pool,
    bytes: usize,
    count: usize,
) -> c_int {
    let preallocate = |open: &crate::open::Open| {
        host_memory_ffi::ensure()?;
        Ok(open.pool()?.preallocate(bytes, count)?)
    };
    // SAFETY: the caller's promise.
    unsafe { with_pool(pool, preallocate) }
}

/// Gives everything back that nobody holds. `released_bytes` may be null.
///
/// # Safety
/// A pool; null is an error. Memory for the answer, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_trim(
    pool: *mut millpond_pool,
    released_bytes: *mut usize,
) -> c_int {
    let trim = |open: &crate::open::Open| {
        // SAFETY: the caller's promise.
        unsafe { tell(released_bytes, open.resource().trim()) };
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { with_pool(pool, trim) }
}

/// Empties the caches of all threads and the global cache. Their memory stays with the pool, where it can merge.
///
/// # Safety
/// A pool; null is an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_trim_cache(pool: *mut millpond_pool) -> c_int {
    let trim = |open: &crate::open::Open| {
        open.pool()?.trim_cache();
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { with_pool(pool, trim) }
}

/// Merges what caches keep, and gives back what nobody has needed for a while. Waits for nothing. `released_bytes` may be null.
///
/// # Safety
/// As [`millpond_trim`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_defragment(
    pool: *mut millpond_pool,
    released_bytes: *mut usize,
) -> c_int {
    let defragment = |open: &crate::open::Open| {
        // SAFETY: the caller's promise.
        unsafe { tell(released_bytes, open.pool()?.defragment()) };
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { with_pool(pool, defragment) }
}

/// Gives everything back that nobody holds, preallocated blocks too, and counts anew. A held block is not touched.
/// `released_bytes` may be null.
///
/// # Safety
/// As [`millpond_trim`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_release_all(
    pool: *mut millpond_pool,
    released_bytes: *mut usize,
) -> c_int {
    let release = |open: &crate::open::Open| {
        // SAFETY: the caller's promise.
        unsafe { tell(released_bytes, open.pool()?.release_all()) };
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { with_pool(pool, release) }
}
