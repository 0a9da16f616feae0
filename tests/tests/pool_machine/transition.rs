//! What can happen to a pool.

use millpond::pool::PoolConfig;
use millpond_tests::conformance::{CAPACITY_BYTES, STREAMS};
use proptest::prelude::*;

use crate::turns::THREADS;

/// One transition. Numbers stand for whatever block, freed block, stream or thread there is.
#[derive(Clone, Debug)]
pub(crate) enum Transition {
    Allocate {
        bytes: usize,
        by: Caller,
    },
    Free {
        block: usize,
        with_size: bool,
        by: Caller,
    },
    BadFree {
        bad: BadFree,
        block: usize,
        with_size: bool,
        by: Caller,
    },
    Read {
        block: usize,
        stream: usize,
    },
    Trim,
    TrimCache,
    ReleaseAll,
    Configure(PoolConfig),
    /// A configuration that must be refused.
    Misconfigure(PoolConfig),
    Synchronize {
        stream: usize,
    },
    PassTime {
        micros: u64,
    },
    RecycleStream {
        stream: usize,
    },
    /// A thread ends; the next that is called by its number is a new one.
    EndThread {
        thread: usize,
    },
}

impl Transition {
    /// The thread that calls the pool.
    pub(crate) fn thread(&self) -> usize {
        match self {
            Transition::Allocate { by, .. }
            | Transition::Free { by, .. }
            | Transition::BadFree { by, .. } => by.thread,
            _ => 0,
        }
    }
}

/// On which stream, and by which thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub(crate) thread: usize,
    pub(crate) stream: usize,
}

/// What is wrong with a free.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BadFree {
    /// Of a block that was freed before.
    Again,
    /// Of an address inside a live block, this far of 65,536 parts.
    Interior(u16),
    /// Of an address that the pool never gave.
    Foreign(u64),
    /// Of a live block, with another size.
    WrongSize(usize),
}

/// Nothing, small, page-sized, large, around every border between the pool's ways of serving, and too much.
fn sizes() -> impl Strategy<Value = usize> {
    const BORDERS: [usize; 8] =
        [256, 4 << 10, 32 << 10, 64 << 10, 256 << 10, 1 << 20, 2 << 20, 4 << 20];
    const LIMITS: [usize; 6] = [
        CAPACITY_BYTES / 2,
        CAPACITY_BYTES,
        CAPACITY_BYTES * 8,
        1 << 50,
        isize::MAX as usize,
        usize::MAX,
    ];
    let near = |borders: &'static [usize], by: i64| {
        (prop::sample::select(borders), -by..=by)
            .prop_map(|(border, off)| border.saturating_add_signed(off as isize))
    };
    prop_oneof![
        1 => Just(0),
        8 => 1..=4096_usize,
        6 => 1..=(40_usize << 10),
        4 => near(&BORDERS, 1),
        2 => near(&BORDERS, 600),
        3 => (1..=9_usize).prop_map(|pages| pages << 21),
        4 => (32_usize << 10)..=(2_usize << 20),
        2 => (2_usize << 20)..=(40_usize << 20),
        1 => near(&LIMITS, 4096),
    ]
}

fn callers() -> impl Strategy<Value = Caller> {
    let thread = prop_oneof![3 => Just(0), 2 => 1..THREADS];
    (thread, 0..STREAMS).prop_map(|(thread, stream)| Caller { thread, stream })
}

fn bad_frees() -> impl Strategy<Value = BadFree> {
    let wrong_sizes = prop_oneof![Just(0), Just(usize::MAX), 1..=4096_usize, 1..=(8_usize << 20)];
    prop_oneof![
        3 => Just(BadFree::Again),
        2 => any::<u16>().prop_map(BadFree::Interior),
        1 => any::<u64>().prop_map(BadFree::Foreign),
        2 => wrong_sizes.prop_map(BadFree::WrongSize),
    ]
}

prop_compose! {
    fn configs()(
        thread_cache_max_blocks in prop::sample::select(&[0, 1, 2, 16, 64, 1 << 20][..]),
        thread_cache_max_bytes in prop::sample::select(&[0, 1000, 100 << 10, 32 << 20, usize::MAX][..]),
        global_cache_max_blocks in prop::sample::select(&[0, 1, 10, 1024][..]),
        batch_alloc_count in prop::sample::select(&[1, 2, 16, 64][..]),
        slack in prop::sample::select(&[0.0, 0.05, 0.1, 0.5, 100.0][..]),
        alignment in prop::sample::select(&[256, 256, 256, 1024, 64 << 10, 2 << 20][..]),
        direct_above_bytes in prop::sample::select(&[None, None, None, Some(3 << 20), Some(0)][..]),
    ) -> PoolConfig {
        // A batch goes into a thread's cache, if there is one.
        let most = if thread_cache_max_blocks == 0 { usize::MAX } else { thread_cache_max_blocks };
        PoolConfig {
            thread_cache_max_blocks,
            thread_cache_max_bytes,
            global_cache_max_blocks,
            batch_alloc_count: batch_alloc_count.min(most),
            slack,
            alignment,
            direct_above_bytes,
            // What the background does when it likes, no model knows.
            enable_defrag: false,
            ..PoolConfig::default()
        }
    }
}

fn bad_configs() -> impl Strategy<Value = PoolConfig> {
    let too_many = ((1 << 20) + 1..=usize::MAX).boxed();
    let slacks =
        prop::sample::select(&[-0.01, 100.1, f64::NAN, f64::INFINITY, f64::NEG_INFINITY][..]);
    let with = |change: fn(&mut PoolConfig, usize)| {
        (configs(), too_many.clone()).prop_map(move |(mut config, value)| {
            change(&mut config, value);
            config
        })
    };
    prop_oneof![
        with(|config, value| config.thread_cache_max_blocks = value),
        with(|config, value| config.global_cache_max_blocks = value),
        with(|config, value| config.batch_alloc_count = value),
        with(|config, _| config.batch_alloc_count = 0),
        with(|config, value| config.alignment = value.max(3) | 1),
        with(|config, _| config.defrag_interval_ms = 0),
        with(|config, _| config.defrag_threshold = 1.01),
        with(|config, _| {
            config.thread_cache_max_blocks = 8;
            config.batch_alloc_count = 9;
        }),
        (configs(), slacks).prop_map(|(config, slack)| PoolConfig { slack, ..config }),
    ]
}

pub(crate) fn transitions() -> impl Strategy<Value = Vec<Transition>> {
    let block = 0..64_usize;
    let stream = 0..STREAMS;
    let one = prop_oneof![
        24 => (sizes(), callers()).prop_map(|(bytes, by)| Transition::Allocate { bytes, by }),
        20 => (block.clone(), any::<bool>(), callers())
            .prop_map(|(block, with_size, by)| Transition::Free { block, with_size, by }),
        8 => (bad_frees(), block.clone(), any::<bool>(), callers()).prop_map(
            |(bad, block, with_size, by)| Transition::BadFree { bad, block, with_size, by }
        ),
        3 => (block, stream.clone()).prop_map(|(block, stream)| Transition::Read { block, stream }),
        2 => Just(Transition::Trim),
        2 => Just(Transition::TrimCache),
        1 => Just(Transition::ReleaseAll),
        3 => configs().prop_map(Transition::Configure),
        1 => bad_configs().prop_map(Transition::Misconfigure),
        2 => stream.clone().prop_map(|stream| Transition::Synchronize { stream }),
        2 => (1..20_000_u64).prop_map(|micros| Transition::PassTime { micros }),
        2 => stream.prop_map(|stream| Transition::RecycleStream { stream }),
        1 => (1..THREADS).prop_map(|thread| Transition::EndThread { thread }),
    ];
    prop::collection::vec(one, 1..120)
}
