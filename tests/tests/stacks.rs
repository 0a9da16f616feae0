//! Every adaptor alone, and every adaptor on every other, over `direct` and over `pool`, built by name, through the conformance suite.
//!
//! A stack promises what its resource does. Two adaptors take one promise away: a limit says that memory is out while the device
//! has some, which is what it is for, and alignment loses what lies between blocks, so neither is OOM-complete. That an error is
//! explained, harms nothing and ends when a block is freed is checked of all. And the pool reuses blocks of the suite's sizes across
//! streams, but of the sizes that alignment makes of them (5840 bytes) it takes fresh memory while its caches hold some.

use std::sync::Arc;

use millpond::driver::{Driver, DriverResult};
use millpond::{Resource, StackError, stack};
use millpond_tests::conformance;
use millpond_tests::conformance::Promises;

const PROGRAMS_OF_ONE: u64 = 1_000;
const PROGRAMS_OF_TWO: u64 = 100;

const fn promises(oom_complete: bool, reuses_across_streams: bool) -> Promises {
    Promises {
        coalesces: true,
        returns_upstream: true,
        reuses_across_streams,
        oom_complete,
        withstands_troubles: true,
    }
}

fn made(text: &str, driver: Arc<dyn Driver>) -> DriverResult<Arc<dyn Resource>> {
    stack::build(text, driver).map_err(|error| match error {
        StackError::Driver { error, .. } => error,
        error => panic!("a right stack: {error}"),
    })
}

/// How a name is written here. A limit is below what the device has, so that it is reached.
macro_rules! text_of {
    (limit) => {
        "limit:200MiB/"
    };
    (trace) => {
        "trace:/dev/null/"
    };
    // With the callers it is tried below.
    (track) => {
        "track:backtraces=false,report=none/"
    };
    (pool) => {
        // The background does what it does when it likes.
        "pool:enable_defrag=false"
    };
    (direct) => {
        "direct"
    };
    ($adaptor:ident) => {
        concat!(stringify!($adaptor), "/")
    };
}

/// Whether a stack of these is OOM-complete.
macro_rules! is_oom_complete {
    (limit) => {
        false
    };
    (aligned) => {
        false
    };
    (direct) => {
        false
    };
    ($other:ident) => {
        true
    };
}

/// Whether a stack of these reuses across streams what it reserved.
macro_rules! reuses {
    (aligned pool) => {
        false
    };
    ($adaptor:ident $resource:ident) => {
        true
    };
}

/// `resource::adaptor::alone` and `resource::adaptor::on::other`.
macro_rules! stacks {
    ($($resource:ident)*; $adaptors:tt) => {
        $(stacks!(@over $resource $adaptors $adaptors);)*
    };
    (@over $resource:ident [$($outer:ident)*] $inners:tt) => {
        mod $resource {
            use super::*;
            $(stacks!(@from $resource $outer $inners);)*
        }
    };
    (@from $resource:ident $outer:ident [$($inner:ident)*]) => {
        mod $outer {
            use super::*;
            conformance!(
                @as concat!(stringify!($resource), "::", stringify!($outer), "::alone"),
                alone,
                |driver| made(concat!(text_of!($outer), text_of!($resource)), driver),
                promises(
                    is_oom_complete!($outer) && is_oom_complete!($resource),
                    reuses!($outer $resource)
                ),
                PROGRAMS_OF_ONE,
                suite::Device::Whole
            );
            mod on {
                use super::*;
                $(conformance!(
                    @as concat!(stringify!($resource), "::", stringify!($outer), "::on::", stringify!($inner)),
                    $inner,
                    |driver| made(concat!(text_of!($outer), text_of!($inner), text_of!($resource)), driver),
                    promises(
                        is_oom_complete!($outer) && is_oom_complete!($inner) && is_oom_complete!($resource),
                        reuses!($outer $resource) && reuses!($inner $resource)
                    ),
                    PROGRAMS_OF_TWO,
                    suite::Device::Whole
                );)*
            }
        }
    };
}

stacks!(direct pool; [stats limit trace track onfailure prefetch aligned]);

conformance!(
    track_with_callers,
    |driver| made("track:report=none/direct", driver),
    promises(false, true),
    100
);
// A limit that is never reached takes nothing away.
conformance!(
    limit_of_all,
    |driver| made("limit:256MiB/pool:enable_defrag=false", driver),
    promises(true, true),
    100
);
conformance!(
    aligned_large,
    |driver| made("aligned:alignment=1MiB,threshold=64KiB/direct", driver),
    promises(false, true),
    100
);
