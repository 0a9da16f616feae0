//! What threads draw at random besides their actions.

use millpond::pool::PoolConfig;

/// Mostly small, sometimes large, often one of a few sizes.
pub(super) fn any_size(rng: &mut fastrand::Rng) -> usize {
    match rng.u32(0..100) {
        0..45 => rng.usize(1..=4096),
        45..70 => 1 << rng.u32(4..20),
        70..90 => rng.usize(1..=256 << 10),
        90..97 => rng.usize(1..=2 << 20),
        _ => rng.usize(1..=24 << 20),
    }
}

pub(super) fn any_config(rng: &mut fastrand::Rng) -> PoolConfig {
    let any = |rng: &mut fastrand::Rng, of: &[usize]| *rng.choice(of).expect("some");
    let thread_cache_max_blocks = any(rng, &[0, 8, 64, 64, 64, 256]);
    let batch = any(rng, &[1, 8, 16]);
    PoolConfig {
        thread_cache_max_blocks,
        thread_cache_max_bytes: any(rng, &[64 << 10, 8 << 20, 32 << 20, 32 << 20]),
        global_cache_max_blocks: any(rng, &[0, 64, 1024, 1024]),
        batch_alloc_count: if thread_cache_max_blocks == 0 {
            batch
        } else {
            batch.min(thread_cache_max_blocks)
        },
        slack: *rng.choice(&[0.0, 0.05, 0.1, 0.1, 0.5]).expect("some"),
        alignment: any(rng, &[256, 256, 256, 512, 64 << 10]),
        defrag_interval_ms: *rng.choice(&[1, 20, 500]).expect("some"),
        defrag_threshold: *rng.choice(&[0.0, 0.3]).expect("some"),
        enable_defrag: rng.bool(),
        ..PoolConfig::default()
    }
}
