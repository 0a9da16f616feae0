//! How a pool behaves, read and changed while it runs.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::thread_cache::Bounds;

/// How a pool behaves. Every field can be changed while the pool runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PoolConfig {
    /// Blocks of one size that a thread keeps for one stream. 0 switches thread caches off.
    pub thread_cache_max_blocks: usize,
    /// Bytes that a thread keeps for one stream.
    pub thread_cache_max_bytes: usize,
    /// Blocks of one class that the global cache keeps for one stream. 0 switches the global cache off.
    pub global_cache_max_blocks: usize,
    /// Blocks that go from a slab or the global cache to a thread cache at a time.
    pub batch_alloc_count: usize,
    /// How much more than the peak of what was in use may be reserved before pages are moved instead: 0.1 is ten percent.
    pub slack: f64,
}

impl Default for PoolConfig {
    fn default() -> PoolConfig {
        PoolConfig {
            thread_cache_max_blocks: 64,
            thread_cache_max_bytes: 64 << 20,
            global_cache_max_blocks: 1024,
            batch_alloc_count: 16,
            slack: 0.1,
        }
    }
}

/// A setting that makes no sense. Nothing was changed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{field} = {value}: {remedy}")]
pub struct ConfigError {
    /// Which setting.
    pub field: &'static str,
    /// What it was to be.
    pub value: String,
    /// What it may be.
    pub remedy: &'static str,
}

impl PoolConfig {
    /// Refuses settings that make no sense, alone or together.
    ///
    /// # Errors
    /// The first setting that is wrong, and what it may be.
    pub fn check(&self) -> Result<(), ConfigError> {
        const MOST_BLOCKS: usize = 1 << 20;
        let wrong = |field, value: &dyn std::fmt::Display, remedy| {
            Err(ConfigError { field, value: value.to_string(), remedy })
        };
        if self.thread_cache_max_blocks > MOST_BLOCKS {
            let remedy = "must be 0 to 1048576";
            return wrong("thread_cache_max_blocks", &self.thread_cache_max_blocks, remedy);
        }
        if self.global_cache_max_blocks > MOST_BLOCKS {
            let remedy = "must be 0 to 1048576";
            return wrong("global_cache_max_blocks", &self.global_cache_max_blocks, remedy);
        }
        if self.batch_alloc_count == 0 || self.batch_alloc_count > MOST_BLOCKS {
            return wrong("batch_alloc_count", &self.batch_alloc_count, "must be 1 to 1048576");
        }
        let cached = self.thread_cache_max_blocks > 0;
        if cached && self.batch_alloc_count > self.thread_cache_max_blocks {
            let remedy = "must not exceed thread_cache_max_blocks, into which a batch goes";
            return wrong("batch_alloc_count", &self.batch_alloc_count, remedy);
        }
        if !(0.0..=100.0).contains(&self.slack) {
            return wrong("slack", &self.slack, "must be a fraction from 0 to 100, such as 0.1");
        }
        Ok(())
    }
}

/// The settings that hot paths read. The slack is with what it limits, in the back.
#[derive(Debug)]
pub(super) struct Settings {
    thread_blocks: AtomicUsize,
    thread_bytes: AtomicU64,
    global_blocks: AtomicUsize,
    batch: AtomicUsize,
}

impl Settings {
    pub(super) fn new(config: &PoolConfig) -> Settings {
        Settings {
            thread_blocks: AtomicUsize::new(config.thread_cache_max_blocks),
            thread_bytes: AtomicU64::new(config.thread_cache_max_bytes as u64),
            global_blocks: AtomicUsize::new(config.global_cache_max_blocks),
            batch: AtomicUsize::new(config.batch_alloc_count),
        }
    }

    // Relaxed: a bound that is seen a little later bounds a little later.

    pub(super) fn set(&self, config: &PoolConfig) {
        self.thread_blocks.store(config.thread_cache_max_blocks, Ordering::Relaxed);
        self.thread_bytes.store(config.thread_cache_max_bytes as u64, Ordering::Relaxed);
        self.global_blocks.store(config.global_cache_max_blocks, Ordering::Relaxed);
        self.batch.store(config.batch_alloc_count, Ordering::Relaxed);
    }

    pub(super) fn get(&self, slack: f64) -> PoolConfig {
        let Bounds { blocks, bytes } = self.bounds();
        PoolConfig {
            thread_cache_max_blocks: blocks,
            thread_cache_max_bytes: bytes as usize,
            global_cache_max_blocks: self.global_blocks(),
            batch_alloc_count: self.batch(),
            slack,
        }
    }

    /// What one thread may keep for one stream.
    #[inline]
    pub(super) fn bounds(&self) -> Bounds {
        Bounds {
            blocks: self.thread_blocks.load(Ordering::Relaxed),
            bytes: self.thread_bytes.load(Ordering::Relaxed),
        }
    }

    pub(super) fn global_blocks(&self) -> usize {
        self.global_blocks.load(Ordering::Relaxed)
    }

    pub(super) fn batch(&self) -> usize {
        self.batch.load(Ordering::Relaxed)
    }
}
