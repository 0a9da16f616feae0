//! A pool's settings, read and changed while it runs.

use std::ffi::{c_char, c_int};

use millpond::pool::PoolConfig;

use crate::boundary_ffi::{answer, read_grown, text, write_grown};
use crate::pool_ffi::{millpond_pool, opened, with_pool};

/// How a pool behaves. Set `struct_bytes` to `sizeof(millpond_config)` before any call; fields may be added at the end.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct millpond_config {
    /// The size of this struct as the program knows it.
    pub struct_bytes: usize,
    /// Every block's address is a multiple of this: a power of two, 256 at least.
    pub alignment: usize,
    /// Blocks of one size that a thread keeps for one stream. 0 switches thread caches off.
    pub thread_cache_max_blocks: usize,
    /// Bytes that a thread keeps for one stream.
    pub thread_cache_max_bytes: usize,
    /// Blocks of one size, up to 1 MiB, that the global cache keeps for one stream. 0 switches the global cache off.
    pub global_cache_max_blocks: usize,
    /// Bytes that the global cache keeps for one stream.
    pub global_cache_max_bytes: usize,
    /// Blocks that go to a thread cache at a time. A new `thread_cache_max_blocks` that is less, and not 0, lowers it.
    pub batch_alloc_count: usize,
    /// How much more than the most that was live may be reserved before memory is used at other addresses: 0.08 is eight percent.
    pub slack: f64,
    /// Blocks larger than this are the driver's own allocations. SIZE_MAX: all blocks are the pool's.
    pub direct_above_bytes: usize,
    /// The share of what is reserved and not live above which the background empties caches.
    pub defrag_threshold: f64,
    /// How often the background looks, in milliseconds.
    pub defrag_interval_ms: u64,
    /// Whether the pool counts what it does: 0 or not.
    pub enable_stats: c_int,
    /// Whether the background looks at all: 0 or not.
    pub enable_defrag: c_int,
}

impl millpond_config {
    fn of(config: &PoolConfig) -> millpond_config {
        millpond_config {
            struct_bytes: size_of::<millpond_config>(),
            alignment: config.alignment,
            thread_cache_max_blocks: config.thread_cache_max_blocks,
            thread_cache_max_bytes: config.thread_cache_max_bytes,
            global_cache_max_blocks: config.global_cache_max_blocks,
            global_cache_max_bytes: config.global_cache_max_bytes,
            batch_alloc_count: config.batch_alloc_count,
            slack: config.slack,
            direct_above_bytes: config.direct_above_bytes.unwrap_or(usize::MAX),
            defrag_threshold: config.defrag_threshold,
            defrag_interval_ms: config.defrag_interval_ms,
            enable_stats: c_int::from(config.enable_stats),
            enable_defrag: c_int::from(config.enable_defrag),
        }
    }

    /// What is not here, such as paths, stays as it was.
    fn apply_to(&self, config: PoolConfig) -> PoolConfig {
        PoolConfig {
            alignment: self.alignment,
            thread_cache_max_blocks: self.thread_cache_max_blocks,
            thread_cache_max_bytes: self.thread_cache_max_bytes,
            global_cache_max_blocks: self.global_cache_max_blocks,
            global_cache_max_bytes: self.global_cache_max_bytes,
            batch_alloc_count: self.batch_alloc_count,
            slack: self.slack,
            direct_above_bytes: Some(self.direct_above_bytes).filter(|bytes| *bytes != usize::MAX),
            defrag_threshold: self.defrag_threshold,
            defrag_interval_ms: self.defrag_interval_ms,
            enable_stats: self.enable_stats != 0,
            enable_defrag: self.enable_defrag != 0,
            ..config
        }
    }
}

/// The pool's settings.
///
/// # Safety
/// A pool, and a struct whose `struct_bytes` is set; either may be null, which is an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_get_config(
    pool: *mut millpond_pool,
    out: *mut millpond_config,
) -> c_int {
    answer(|| {
        // SAFETY: the caller's promise.
        let (_, open) = unsafe { opened(pool) }?;
        // SAFETY: the caller's promise.
        unsafe { write_grown(out, millpond_config::of(&open.pool()?.config())) }
    })
}

/// Changes the pool's settings, from now on. If one makes no sense it is named, and nothing has changed.
///
/// # Safety
/// As [`millpond_get_config`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_set_config(
    pool: *mut millpond_pool,
    config: *const millpond_config,
) -> c_int {
    answer(|| {
        // SAFETY: the caller's promise.
        let pool = unsafe { opened(pool) }?.1.pool()?;
        let before = pool.config();
        let mut wanted = millpond_config::of(&before);
        // SAFETY: the caller's promise.
        unsafe { read_grown(config, &mut wanted) }?;
        Ok(pool.set_config(wanted.apply_to(before))?)
    })
}

/// Changes the settings that a text names, in the style of `MILLPOND_CONF`: `"slack:0.05,enable_stats:false"`.
///
/// # Safety
/// A pool, and a string that ends with a zero; either may be null, which is an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_configure(
    pool: *mut millpond_pool,
    settings: *const c_char,
) -> c_int {
    let configure = |open: &crate::open::Open| {
        let pool = open.pool()?;
        let mut config = pool.config();
        // SAFETY: the caller's promise.
        config.update(unsafe { text(settings, "settings") }?)?;
        Ok(pool.set_config(config)?)
    };
    // SAFETY: the caller's promise.
    unsafe { with_pool(pool, configure) }
}
