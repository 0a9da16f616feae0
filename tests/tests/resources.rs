//! Every resource, through the conformance suite, with what it promises.

use millpond::resource::Direct;
use millpond_tests::conformance;
use millpond_tests::conformance::Promises;

const DIRECT: Promises = Promises {
    coalesces: true,
    returns_upstream: true,
    reuses_across_streams: true,
    oom_complete: false,
    withstands_troubles: true,
};

conformance!(direct, |driver| Ok(Direct::new(driver)), DIRECT, 10_000);
