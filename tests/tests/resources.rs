//! Every resource, through the conformance suite, with what it promises.

use millpond::driver::{Call, DriverError, DriverErrorKind, DriverResult};
use millpond::resource::{AllocError, Async, BestFit, Bfc, Direct, MakeError};
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

conformance!(direct, |driver| Ok(Direct::new(driver)), DIRECT, 10_000);
conformance!(async_pool, |driver| made(Async::new(driver)), ASYNC);
conformance!(best_fit, |driver| made(BestFit::new(driver)), DIRECT);
conformance!(bfc, |driver| made(Bfc::new(driver)), DIRECT);
