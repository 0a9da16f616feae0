//! What a pool has done, and what any stack holds.

use std::ffi::{c_char, c_int};
use std::io::Write;

use millpond::Resource;
use millpond::pool::PoolStats;

use crate::boundary_ffi::{answer, tell, write_grown};
use crate::pool_ffi::{millpond_pool, opened, with_pool};
use crate::status::{Failure, millpond_status};

/// What a pool has done since its statistics were reset. Set `struct_bytes` to `sizeof(millpond_stats)` before any call; fields may
/// be added at the end.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct millpond_stats {
    /// The size of this struct as the program knows it.
    pub struct_bytes: usize,
    /// Bytes handed out, all together.
    pub total_allocated: u64,
    /// Bytes taken back, all together.
    pub total_freed: u64,
    /// Bytes that users hold.
    pub current_usage: u64,
    /// The most they held. Exact while one thread allocates and frees. With several it is never too low; it may be too high by what caches
    /// kept at the time (`thread_cache_max_bytes` for each thread and stream, `global_cache_max_bytes` for each stream) and what slabs had
    /// free, however often blocks go from one thread to another.
    pub peak_usage: u64,
    /// Bytes reserved from the driver and not held by users.
    pub fragmentation_bytes: u64,
    /// Blocks handed out.
    pub allocation_count: u64,
    /// Blocks taken back.
    pub free_count: u64,
    /// Allocations that the thread's own cache served.
    pub cache_hits: u64,
    /// Allocations that it could not.
    pub cache_misses: u64,
    /// Of those, the ones that the global cache served.
    pub global_hits: u64,
    /// Of those, the ones that preallocated blocks served.
    pub reserve_hits: u64,
    /// Of those, the ones that slabs or free ranges with memory served.
    pub reuse_hits: u64,
    /// Of those, the ones for which pages were moved or taken from the driver.
    pub device_allocations: u64,
    /// Physical bytes taken from the driver.
    pub reserved_bytes: u64,
    /// Of those, the ones that belong to captures.
    pub captured_bytes: u64,
    /// Pages taken from the driver.
    pub pages_created: u64,
    /// Pages given back to the driver.
    pub pages_released: u64,
    /// Pages of memory that nothing used, mapped once more for new blocks.
    pub page_moves: u64,
    /// How often a stream was made to wait for another.
    pub cross_stream_waits: u64,
    /// Frees that turned out, later, to have been second ones.
    pub late_double_frees: u64,
    /// Calls made to the driver.
    pub driver_calls: u64,
    /// The share of what is reserved that users do not hold: what `defrag_threshold` is compared with. Without regions and captures.
    pub fragmentation_rate: f64,
    /// For how long this has been counted.
    pub seconds: f64,
}

impl millpond_stats {
    fn of(stats: &PoolStats) -> millpond_stats {
        millpond_stats {
            struct_bytes: size_of::<millpond_stats>(),
            total_allocated: stats.total_allocated,
            total_freed: stats.total_freed,
            current_usage: stats.current_usage,
            peak_usage: stats.peak_usage,
            fragmentation_bytes: stats.fragmentation_bytes,
            allocation_count: stats.allocation_count,
            free_count: stats.free_count,
            cache_hits: stats.cache_hits,
            cache_misses: stats.cache_misses,
            global_hits: stats.global_hits,
            reserve_hits: stats.reserve_hits,
            reuse_hits: stats.reuse_hits,
            device_allocations: stats.device_allocations,
            reserved_bytes: stats.reserved_bytes,
            captured_bytes: stats.captured_bytes,
            pages_created: stats.pages_created,
            pages_released: stats.pages_released,
            page_moves: stats.page_moves,
            cross_stream_waits: stats.cross_stream_waits,
            late_double_frees: stats.late_double_frees,
            driver_calls: stats.driver_calls,
            fragmentation_rate: stats.fragmentation_rate,
            seconds: stats.seconds,
        }
    }
}

/// What any stack holds and what it took. Set `struct_bytes` to `sizeof(millpond_usage)` before any call; fields may be added at the end.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct millpond_usage {
    /// The size of this struct as the program knows it.
    pub struct_bytes: usize,
    /// Bytes that users hold.
    pub live_bytes: usize,
    /// Blocks that users hold.
    pub live_blocks: usize,
    /// Physical bytes taken from the driver.
    pub reserved_bytes: usize,
    /// The most that users held; of a pool used by several threads as `peak_usage` of `millpond_stats`.
    pub peak_live_bytes: usize,
    /// The most that was taken from the driver.
    pub peak_reserved_bytes: usize,
    /// The largest block that could be had without more from the driver.
    pub largest_free_bytes: usize,
}

/// What the pool has done since the statistics were reset.
///
/// # Safety
/// A pool, and a struct whose `struct_bytes` is set; either may be null, which is an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_get_stats(
    pool: *mut millpond_pool,
    out: *mut millpond_stats,
) -> c_int {
    answer(|| {
        // SAFETY: the caller's promise.
        let (_, open) = unsafe { opened(pool) }?;
        // SAFETY: the caller's promise.
        unsafe { write_grown(out, millpond_stats::of(&open.pool()?.stats())) }
    })
}

/// Counts anew from here. What is held at the moment still is.
///
/// # Safety
/// A pool; null is an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_reset_stats(pool: *mut millpond_pool) -> c_int {
    let reset = |open: &crate::open::Open| {
        open.pool()?.reset_stats();
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { with_pool(pool, reset) }
}

/// Prints the statistics to standard output.
///
/// # Safety
/// A pool; null is an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_print_stats(pool: *mut millpond_pool) -> c_int {
    let print = |open: &crate::open::Open| {
        let stats = open.pool()?.stats();
        let printed = writeln!(std::io::stdout(), "{stats}");
        printed.map_err(|error| Failure::new(millpond_status::Io, error))
    };
    // SAFETY: the caller's promise.
    unsafe { with_pool(pool, print) }
}

/// Writes the statistics as text into a buffer, as much as fits, with a zero at its end. `needed_bytes` is what all of it needs, and may be
/// null; so may the buffer be, if `buffer_bytes` is 0.
///
/// # Safety
/// A pool; null is an error. A buffer of so many bytes, or null. Memory for the answer, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_stats_text(
    pool: *mut millpond_pool,
    buffer: *mut c_char,
    buffer_bytes: usize,
    needed_bytes: *mut usize,
) -> c_int {
    let write = |open: &crate::open::Open| {
        let text = open.pool()?.stats().to_string();
        if buffer.is_null() && buffer_bytes > 0 {
            return Err(Failure::invalid("buffer is null: give one, or 0 as its size"));
        }
        if let Some(room) = buffer_bytes.checked_sub(1) {
            let fits = text.len().min(room);
            // SAFETY: the caller's promise: the buffer has `fits` + 1 bytes or more.
            unsafe {
                buffer.copy_from_nonoverlapping(text.as_ptr().cast(), fits);
                buffer.add(fits).write(0);
            }
        }
        // SAFETY: the caller's promise.
        unsafe { tell(needed_bytes, text.len() + 1) };
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { with_pool(pool, write) }
}

/// What is held, of any stack.
///
/// # Safety
/// As [`millpond_get_stats`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_get_usage(
    pool: *mut millpond_pool,
    out: *mut millpond_usage,
) -> c_int {
    answer(|| {
        // SAFETY: the caller's promise.
        let (_, open) = unsafe { opened(pool) }?;
        let usage = open.resource().usage();
        let usage = millpond_usage {
            struct_bytes: size_of::<millpond_usage>(),
            live_bytes: usage.live_bytes,
            live_blocks: usage.live_blocks,
            reserved_bytes: usage.reserved_bytes,
            peak_live_bytes: usage.peak_live_bytes,
            peak_reserved_bytes: usage.peak_reserved_bytes,
            largest_free_bytes: usage.largest_free_bytes,
        };
        // SAFETY: the caller's promise.
        unsafe { write_grown(out, usage) }
    })
}
