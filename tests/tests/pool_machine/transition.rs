//! What can happen to a pool.

use millpond::driver::CaptureMode;
use millpond::pool::PoolConfig;
use millpond_tests::conformance::{CAPACITY_BYTES, STREAMS};
use proptest::prelude::*;

use crate::turns::THREADS;

/// Regions at a time.
pub(crate) const MOST_REGIONS: usize = 2;
/// Captures at a time that were not released.
pub(crate) const MOST_CAPTURES: usize = 3;

/// One transition. Numbers stand for whatever block, freed block, stream or thread there is.
#[derive(Clone, Debug)]
pub(crate) enum Transition {
    Allocate {
        bytes: usize,
        by: Caller,
        of: Tiers,
        patience: Patience,
        name: Name,
    },
    Free {
        block: usize,
        with_size: bool,
        /// To the region that it came from, if that is still there.
        to_region: bool,
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
    /// A block is read on another stream, which the pool is told of and the block's user does not wait for.
    RecordStream {
        block: usize,
        by: Caller,
    },
    Preallocate {
        bytes: usize,
        count: usize,
    },
    OpenRegion {
        dedicated_bytes: usize,
        exportable: bool,
    },
    CloseRegion {
        region: usize,
    },
    BeginCapture {
        stream: usize,
        mode: CaptureMode,
    },
    /// Allocates on a stream that is captured, and captures the filling of the block.
    AllocateCaptured {
        capture: usize,
        bytes: usize,
        thread: usize,
        of: Tiers,
        name: Name,
    },
    /// Frees a block of a capture: in it, or after it while its graph can still be launched.
    FreeCaptured {
        capture: usize,
        block: usize,
        thread: usize,
    },
    EndCapture {
        capture: usize,
    },
    LaunchGraph {
        capture: usize,
    },
    /// Destroys a graph and gives its memory up, but for the blocks that are held.
    ReleaseCapture {
        capture: usize,
        /// The stream that gives it up, after the graph's.
        stream: usize,
    },
    Trim,
    TrimCache,
    Defragment,
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
            | Transition::BadFree { by, .. }
            | Transition::RecordStream { by, .. } => by.thread,
            Transition::AllocateCaptured { thread, .. }
            | Transition::FreeCaptured { thread, .. } => *thread,
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

/// Where a block is allocated.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tiers {
    Pool,
    /// By its number, if there are any regions.
    Region(usize),
}

/// Whether an allocation may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    Some,
    None,
}

/// The scopes that an allocation happens in, from the outermost.
pub(crate) type Name = &'static [&'static str];

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
    /// Of a live block, to a region that it is not of.
    ToRegion(usize),
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
        1 => (0..MOST_REGIONS).prop_map(BadFree::ToRegion),
    ]
}

prop_compose! {
    fn configs()(
        thread_cache_max_blocks in prop::sample::select(&[0, 1, 2, 16, 64, 1 << 20][..]),
        thread_cache_max_bytes in prop::sample::select(&[0, 1000, 100 << 10, 32 << 20, usize::MAX][..]),
        global_cache_max_blocks in prop::sample::select(&[0, 1, 10, 1024][..]),
        global_cache_max_bytes in prop::sample::select(&[0, 5000, 64 << 20, 64 << 20][..]),
        counts in 0..8_u8,
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
            global_cache_max_bytes,
            enable_stats: counts > 0,
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

fn tiers() -> impl Strategy<Value = Tiers> {
    prop_oneof![3 => Just(Tiers::Pool), 1 => (0..MOST_REGIONS).prop_map(Tiers::Region)]
}

fn names() -> impl Strategy<Value = Name> {
    const NAMES: [Name; 3] = [&["model"], &["model", "layer"], &["optimizer"]];
    prop_oneof![4 => Just(&[] as Name), 1 => prop::sample::select(&NAMES[..])]
}

fn allocations() -> impl Strategy<Value = Transition> {
    let patience = prop_oneof![5 => Just(Patience::Some), 1 => Just(Patience::None)];
    (sizes(), callers(), tiers(), patience, names()).prop_map(|(bytes, by, of, patience, name)| {
        Transition::Allocate { bytes, by, of, patience, name }
    })
}

/// What goes on in and around captures.
fn captures() -> impl Strategy<Value = Transition> {
    const MODES: [CaptureMode; 3] =
        [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed];
    let (capture, stream) = (0..MOST_CAPTURES, 0..STREAMS);
    prop_oneof![
        3 => (stream.clone(), prop::sample::select(&MODES[..]))
            .prop_map(|(stream, mode)| Transition::BeginCapture { stream, mode }),
        8 => (capture.clone(), sizes(), 0..THREADS, tiers(), names()).prop_map(
            |(capture, bytes, thread, of, name)| {
                Transition::AllocateCaptured { capture, bytes, thread, of, name }
            }
        ),
        4 => (capture.clone(), 0..64_usize, 0..THREADS).prop_map(
            |(capture, block, thread)| Transition::FreeCaptured { capture, block, thread }
        ),
        2 => capture.clone().prop_map(|capture| Transition::EndCapture { capture }),
        2 => capture.clone().prop_map(|capture| Transition::LaunchGraph { capture }),
        2 => (capture, stream)
            .prop_map(|(capture, stream)| Transition::ReleaseCapture { capture, stream }),
    ]
}

/// What opens and closes regions.
fn regions() -> impl Strategy<Value = Transition> {
    let dedicated = prop_oneof![Just(0), 1..=(20_usize << 20), Just(CAPACITY_BYTES * 2)];
    prop_oneof![
        3 => (dedicated, any::<bool>()).prop_map(|(dedicated_bytes, exportable)| {
            Transition::OpenRegion { dedicated_bytes, exportable }
        }),
        2 => (0..MOST_REGIONS).prop_map(|region| Transition::CloseRegion { region }),
    ]
}

pub(crate) fn transitions() -> impl Strategy<Value = Vec<Transition>> {
    let block = 0..64_usize;
    let stream = 0..STREAMS;
    let frees = (block.clone(), any::<bool>(), any::<bool>(), callers()).prop_map(
        |(block, with_size, to_region, by)| Transition::Free { block, with_size, to_region, by },
    );
    let bad_frees = (bad_frees(), block.clone(), any::<bool>(), callers())
        .prop_map(|(bad, block, with_size, by)| Transition::BadFree { bad, block, with_size, by });
    let one = prop_oneof![
        26 => allocations(),
        20 => frees,
        8 => bad_frees,
        3 => (block.clone(), stream.clone())
            .prop_map(|(block, stream)| Transition::Read { block, stream }),
        4 => (block, callers()).prop_map(|(block, by)| Transition::RecordStream { block, by }),
        2 => (sizes(), prop::sample::select(&[0, 1, 3, 20, usize::MAX][..]))
            .prop_map(|(bytes, count)| Transition::Preallocate { bytes, count }),
        3 => regions(),
        12 => captures(),
        2 => Just(Transition::Trim),
        2 => Just(Transition::TrimCache),
        2 => Just(Transition::Defragment),
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
