//! Resources on resources other than the driver's plain memory: what upstream gives may only be used in the order of a stream.

use std::sync::Arc;

use millpond::driver::{Call, Driver, DriverError, DriverErrorKind, DriverResult};
use millpond::resource::{
    Arena, ArenaConfig, Async, BestFit, BestFitConfig, Bfc, BfcConfig, Binning, BinningConfig,
    Buddy, BuddyConfig, MakeError, Slab, SlabConfig,
};
use millpond::{AllocError, Resource};
use millpond_tests::conformance;
use millpond_tests::conformance::Promises;

fn made<R>(made: Result<R, MakeError>) -> DriverResult<R> {
    made.map_err(|error| match error {
        MakeError::Driver(error) | MakeError::Memory(AllocError::Driver(error)) => error,
        _ => DriverError::with_detail(Call::Alloc, DriverErrorKind::OutOfMemory, error.to_string()),
    })
}

fn on_async<R>(
    driver: Arc<dyn Driver>,
    make: impl FnOnce(Arc<dyn Resource>) -> Result<R, MakeError>,
) -> DriverResult<R> {
    made(Async::new(driver).and_then(|upstream| make(Arc::new(upstream))))
}

/// What the driver's pool does not promise, nothing on it can.
const ON_ASYNC: Promises = Promises {
    coalesces: false,
    returns_upstream: true,
    reuses_across_streams: false,
    oom_complete: false,
    withstands_troubles: true,
    block_bytes: None,
};

conformance!(
    best_fit_on_async,
    |driver| super::on_async(driver, |below| {
        BestFit::with_config(below, BestFitConfig { initial_bytes: 4 << 20, maximum_bytes: None })
    }),
    ON_ASYNC,
    500
);
conformance!(
    bfc_on_async,
    |driver| super::on_async(driver, |below| Bfc::with_config(below, BfcConfig::default())),
    ON_ASYNC,
    500
);
conformance!(
    arena_on_async,
    |driver| super::on_async(driver, |below| {
        Arena::with_config(below, ArenaConfig { arena_bytes: Some(200 << 20) })
    }),
    Promises { returns_upstream: false, ..ON_ASYNC },
    500
);
conformance!(
    buddy_on_async,
    |driver| super::on_async(driver, |below| {
        Buddy::with_config(below, BuddyConfig { region_bytes: 24 << 20, maximum_bytes: None })
    }),
    ON_ASYNC,
    500
);
conformance!(
    slab_on_async,
    |driver| super::on_async(driver, |below| Slab::with_config(below, SlabConfig::default())),
    ON_ASYNC,
    500
);
conformance!(
    binning_on_best_fit,
    |driver| made(BestFit::new(driver).and_then(|below| {
        let config = BinningConfig { least_exponent: 16, most_exponent: 20, blocks_per_chunk: 4 };
        Binning::with_config(Arc::new(below), config)
    })),
    Promises { reuses_across_streams: true, ..ON_ASYNC },
    500
);
