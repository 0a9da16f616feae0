//! Every resource, through the conformance suite, with what it promises.

use std::sync::Arc;

use millpond::Driver;
use millpond::driver::{Call, DriverError, DriverErrorKind, DriverResult};
use millpond::resource::{
    AllocError, Arena, ArenaConfig, Async, BestFit, Bfc, Binning, BinningConfig, Buddy, Direct,
    MakeError, Managed, ManagedConfig, Pinned, PinnedConfig, PyTorchCaching, Slab, TorchConfig,
};
use millpond_tests::conformance;
use millpond_tests::conformance::Promises;

/// What the suite wants to know of a resource that could not be made.
fn made<R>(made: Result<R, MakeError>) -> DriverResult<R> {
    made.map_err(|error| match error {
        MakeError::Driver(error) | MakeError::Memory(AllocError::Driver(error)) => error,
        _ => DriverError::with_detail(Call::Alloc, DriverErrorKind::OutOfMemory, error.to_string()),
    })
}

const DIRECT: Promises = Promises {
    coalesces: true,
    returns_upstream: true,
    reuses_across_streams: true,
    oom_complete: false,
    withstands_troubles: true,
};

/// The driver prefers new memory to waiting for another stream.
const ASYNC: Promises = Promises { reuses_across_streams: false, ..DIRECT };

/// What it has it keeps.
const ARENA: Promises = Promises { returns_upstream: false, ..DIRECT };

fn arena_of(driver: Arc<dyn Driver>, bytes: usize) -> Result<Arena, MakeError> {
    let upstream = Arc::new(Direct::new(driver));
    Arena::with_config(upstream, ArenaConfig { arena_bytes: Some(bytes) })
}

/// Bins of 64 KiB to 1 MiB, small enough for a small device. A bin serves no other size.
fn binning(driver: Arc<dyn Driver>) -> Result<Binning, MakeError> {
    let config = BinningConfig { least_exponent: 16, most_exponent: 20, blocks_per_chunk: 16 };
    Binning::with_config(Arc::new(Direct::new(driver)), config)
}

/// All sizes up to 1 MiB in blocks of it: little else than a `FixedSize`.
fn fixed_size(driver: Arc<dyn Driver>) -> Result<Binning, MakeError> {
    let config = BinningConfig { least_exponent: 20, most_exponent: 20, blocks_per_chunk: 8 };
    Binning::with_config(Arc::new(Direct::new(driver)), config)
}

const BINS: Promises = Promises { coalesces: false, ..DIRECT };

conformance!(direct, |driver| Ok(Direct::new(driver)), DIRECT, 10_000);

/// PyTorch's blocks belong to their stream for ever, and a segment with one live block is stuck.
const TORCH: Promises = Promises {
    coalesces: true,
    returns_upstream: true,
    reuses_across_streams: false,
    oom_complete: false,
    withstands_troubles: true,
};

conformance!(torch, |driver| Ok(PyTorchCaching::new(driver)), TORCH);
conformance!(
    torch_expandable,
    |driver| {
        let config = TorchConfig { expandable_segments: true, ..TorchConfig::default() };
        Ok(PyTorchCaching::with_config(driver, config).expect("a right setting"))
    },
    TORCH
);
conformance!(
    torch_every_setting,
    |driver| {
        let settings = "max_split_size_mb:20,roundup_power2_divisions:4,\
            garbage_collection_threshold:0.5,per_process_memory_fraction:0.99";
        let config = settings.parse().expect("right settings");
        Ok(PyTorchCaching::with_config(driver, config).expect("right settings"))
    },
    TORCH
);

conformance!(async_pool, |driver| made(Async::new(driver)), ASYNC);
conformance!(best_fit, |driver| made(BestFit::new(driver)), DIRECT);
conformance!(bfc, |driver| made(Bfc::new(driver)), DIRECT);
// Most of the device, so that coalescing can be seen; and half of it, which is what it takes unless told otherwise.
conformance!(arena, |driver| made(arena_of(driver, 240 << 20)), ARENA);
conformance!(
    arena_of_half,
    |driver| made(Arena::new(driver)),
    Promises { coalesces: false, ..ARENA }
);
conformance!(buddy, |driver| made(Buddy::new(driver)), DIRECT);
conformance!(slab, |driver| made(Slab::new(driver)), Promises { coalesces: false, ..DIRECT });
conformance!(fixed_size, |driver| made(super::fixed_size(driver)), BINS);
conformance!(binning, |driver| made(super::binning(driver)), BINS);

// Their memory is the host's, so they are told what to think of as all.
const ALL_BYTES: Option<usize> = Some(millpond_tests::conformance::CAPACITY_BYTES);
conformance!(
    managed,
    |driver| Ok(Managed::with_config(driver, ManagedConfig { maximum_bytes: ALL_BYTES })),
    DIRECT
);
conformance!(
    pinned,
    |driver| Ok(Pinned::with_config(driver, PinnedConfig { maximum_bytes: ALL_BYTES })),
    DIRECT
);
