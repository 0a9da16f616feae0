//! Blocks: allocated, freed, and used on several streams.

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use millpond::driver::{DevicePtr, Stream};
use millpond::pool::{ByHandle, Pool, Remembered};

use crate::boundary_ffi::{answer, panicked, place};
use crate::host_memory_ffi;
use crate::pool_ffi::{direct, is_parents, millpond_pool, opened, with_pool};
use crate::status::{Failure, millpond_status};

const OK: c_int = millpond_status::Ok as c_int;

#[inline]
fn stream_of(stream: *mut c_void) -> Stream {
    Stream::from_raw(stream as u64)
}

#[inline]
fn device_ptr(ptr: *mut c_void) -> DevicePtr {
    DevicePtr(ptr as u64)
}

/// A block of at least `bytes`, aligned to 256, for work queued on `stream` from now on. No bytes give null.
///
/// # Safety
/// A pool, and memory for a pointer; either may be null, which is an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_alloc(
    pool: *mut millpond_pool,
    bytes: usize,
    stream: *mut c_void,
    out: *mut *mut c_void,
) -> c_int {
    // The legacy stream's other handle, 1, is not found here: no cache is remembered by it.
    // SAFETY: the caller's promise.
    if let Some(out) = unsafe { out.as_mut() }
        // SAFETY: as above.
        && let Some(ptr) = unsafe { Pool::allocate_by_handle(pool, bytes, Stream(stream as u64)) }
    {
        *out = ptr.0 as *mut c_void;
        return OK;
    }
    // SAFETY: as above.
    unsafe { alloc_placed(pool, bytes, stream, out) }
}

/// The thread's cache has no such block: the next is a free range with memory. A function of its own, for which the other path need not
/// save registers.
///
/// # Safety
/// As [`millpond_alloc`].
#[inline(never)]
unsafe extern "C" fn alloc_placed(
    pool: *mut millpond_pool,
    bytes: usize,
    stream: *mut c_void,
    out: *mut *mut c_void,
) -> c_int {
    let stream_of = Stream(stream as u64);
    // SAFETY: the caller's promise, here and below.
    let place = || unsafe { Pool::place_by_handle(pool, bytes, stream_of) };
    // SAFETY: as above.
    if let Some(out) = unsafe { out.as_mut() }
        && host_memory_ffi::ensure().is_ok()
    {
        match catch_unwind(AssertUnwindSafe(place)) {
            Ok(Some(ptr)) => {
                *out = ptr.0 as *mut c_void;
                return OK;
            }
            Ok(None) => {}
            Err(_) => return panicked(),
        }
    }
    // SAFETY: as above.
    unsafe { alloc_uncached(pool, bytes, stream, out) }
}

/// The thread's cache has no such block, or there is something around the pool, or something is wrong.
///
/// # Safety
/// As [`millpond_alloc`].
#[inline(never)]
unsafe extern "C" fn alloc_uncached(
    pool: *mut millpond_pool,
    bytes: usize,
    stream: *mut c_void,
    out: *mut *mut c_void,
) -> c_int {
    answer(|| {
        host_memory_ffi::ensure()?;
        // SAFETY: the caller's promise.
        let (direct, out) = unsafe { (direct(pool), place(out, "out")?) };
        let ptr = match direct {
            Some(pool) => pool.allocate_uncached(bytes, stream_of(stream))?,
            // SAFETY: the caller's promise.
            None => unsafe { opened(pool) }?.1.allocate(bytes, stream_of(stream))?,
        };
        *out = ptr.0 as *mut c_void;
        Ok(())
    })
}

/// As `millpond_alloc`, but what cannot be had without waiting for the driver or another stream is refused
/// (`MILLPOND_STATUS_WOULD_WAIT`). For a pool with nothing around it.
///
/// # Safety
/// As [`millpond_alloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_alloc_now(
    pool: *mut millpond_pool,
    bytes: usize,
    stream: *mut c_void,
    out: *mut *mut c_void,
) -> c_int {
    answer(|| {
        host_memory_ffi::ensure()?;
        // SAFETY: the caller's promise.
        let ((_, open), out) = unsafe { (opened(pool)?, place(out, "out")?) };
        *out = open.allocate_now(bytes, stream_of(stream))?.0 as *mut c_void;
        Ok(())
    })
}

/// Takes a block back, of the size that was asked for, at this point of `stream`: all work that uses it is queued there, or ordered
/// before. A bad free is an error and changes nothing. Null does nothing.
///
/// # Safety
/// A pool; null is an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_free(
    pool: *mut millpond_pool,
    ptr: *mut c_void,
    bytes: usize,
    stream: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    let freed = unsafe {
        Pool::deallocate_last_by_handle(pool, device_ptr(ptr), bytes, Stream(stream as u64))
    };
    match freed {
        ByHandle::Freed => OK,
        // SAFETY: the caller's promise, here and below.
        ByHandle::Remembered(remembered) => unsafe { free_remembered(remembered, ptr, bytes) },
        // SAFETY: as above.
        ByHandle::Unknown => unsafe { free_uncached(pool, ptr, bytes, stream) },
    }
}

/// Not the block that was allocated last. A function of its own, for which the other path need not save registers.
///
/// # Safety
/// As [`millpond_free`], with what it has found.
#[inline(never)]
unsafe extern "C" fn free_remembered(
    remembered: Remembered,
    ptr: *mut c_void,
    bytes: usize,
) -> c_int {
    // SAFETY: the caller's promise, here and below.
    if unsafe { remembered.deallocate(device_ptr(ptr), bytes) } {
        return OK;
    }
    // SAFETY: as above.
    unsafe { free_unguessed(remembered, ptr, bytes) }
}

/// Not a block as such blocks usually are. Where one thread allocates and another frees, all frees come by here.
///
/// # Safety
/// As [`millpond_free`], with what it has found.
#[inline(never)]
unsafe extern "C" fn free_unguessed(
    remembered: Remembered,
    ptr: *mut c_void,
    bytes: usize,
) -> c_int {
    // SAFETY: the caller's promise, here and below.
    if unsafe { remembered.deallocate_unguessed(device_ptr(ptr), bytes) } {
        return OK;
    }
    // SAFETY: as above.
    let (pool, stream) = unsafe { remembered.asked_for() };
    // SAFETY: as above.
    unsafe { free_uncached(pool, ptr, bytes, stream.0 as *mut c_void) }
}

/// The thread's cache does not own the block or has no room for it, or there is something around the pool, or something is wrong.
///
/// # Safety
/// As [`millpond_free`].
#[inline(never)]
unsafe extern "C" fn free_uncached(
    pool: *mut millpond_pool,
    ptr: *mut c_void,
    bytes: usize,
    stream: *mut c_void,
) -> c_int {
    let (ptr, stream) = (device_ptr(ptr), stream_of(stream));
    answer(|| {
        // SAFETY: the caller's promise, here and below.
        match unsafe { direct(pool) } {
            Some(pool) => pool.deallocate_uncached(ptr, bytes, stream)?,
            // SAFETY: as above.
            None if unsafe { is_parents(pool) } => {}
            // SAFETY: as above.
            None => unsafe { opened(pool) }?.1.deallocate(ptr, bytes, stream)?,
        }
        Ok(())
    })
}

/// As `millpond_free`, of a block whose size the caller does not know. For stacks that end in a pool.
///
/// # Safety
/// A pool; null is an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_free_unsized(
    pool: *mut millpond_pool,
    ptr: *mut c_void,
    stream: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise, here and below.
    if unsafe { is_parents(pool) } {
        return OK;
    }
    // SAFETY: as above.
    unsafe { with_pool(pool, |open| open.deallocate_unsized(device_ptr(ptr), stream_of(stream))) }
}

/// As `millpond_free`, with any size that the block holds: what was asked for, rounded up. Where a stack does not end in a pool only the
/// size that was asked for will do.
///
/// # Safety
/// A pool; null is an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_free_within(
    pool: *mut millpond_pool,
    ptr: *mut c_void,
    bytes: usize,
    stream: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise, here and below.
    if unsafe { is_parents(pool) } {
        return OK;
    }
    let free = |open: &crate::open::Open| {
        open.deallocate_within(device_ptr(ptr), bytes, stream_of(stream))
    };
    // SAFETY: as above.
    unsafe { with_pool(pool, free) }
}

/// Says that a block is used on another stream, too: when it is freed, its memory waits for what that stream has been given by then.
///
/// # Safety
/// A pool; null is an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_record_stream(
    pool: *mut millpond_pool,
    ptr: *mut c_void,
    stream: *mut c_void,
) -> c_int {
    let record = |open: &crate::open::Open| {
        let recorded = open.pool()?.record_stream(device_ptr(ptr), stream_of(stream));
        recorded.map_err(|error| Failure::no_block("record_stream", error))
    };
    // SAFETY: the caller's promise.
    unsafe { with_pool(pool, record) }
}

/// What a block was asked for with.
///
/// # Safety
/// A pool, and memory for the answer; either may be null, which is an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_block_bytes(
    pool: *mut millpond_pool,
    ptr: *mut c_void,
    out: *mut usize,
) -> c_int {
    answer(|| {
        // SAFETY: the caller's promise.
        let ((_, open), out) = unsafe { (opened(pool)?, place(out, "out")?) };
        let bytes = open.pool()?.bytes_of(device_ptr(ptr));
        *out = bytes.map_err(|error| Failure::no_block("block_bytes", error))?;
        Ok(())
    })
}

/// Whether the host may read and write this pool's blocks itself: 1 if they are pinned or managed memory, or cut from such, else 0.
///
/// # Safety
/// A pool, and memory for the answer; either may be null, which is an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_host_reaches(pool: *mut millpond_pool, out: *mut c_int) -> c_int {
    answer(|| {
        // SAFETY: the caller's promise.
        let ((_, open), out) = unsafe { (opened(pool)?, place(out, "out")?) };
        *out = c_int::from(open.host_reaches);
        Ok(())
    })
}
