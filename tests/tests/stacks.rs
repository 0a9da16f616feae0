//! Every adaptor alone, and every adaptor on every other, over every resource, built by name, through the conformance suite.
//!
//! Over `direct` every pair of adaptors runs 1,000 seeded programs, and 1,000 in the middle of which the device goes wrong, and over `pool`
//! 100 of each. Over every other resource a pair runs 4 of each, with shorter versions of the dear checks: that these two over this
//! resource work together at all. `MILLPOND_SEEDS` has all of them run as many as one likes.
//!
//! A stack promises what its resource does. Two adaptors take one promise away: a limit says that memory is out while the device
//! has some, which is what it is for, and alignment loses what lies between blocks, so neither is OOM-complete. That an error is
//! explained, harms nothing and ends when a block is freed is checked of all. And the pool reuses blocks of the suite's sizes across
//! streams, but of the sizes that alignment makes of them (5840 bytes) it takes fresh memory while its caches hold some.

use millpond::stack::{ADAPTORS, RESOURCES};
use millpond_tests::conformance;
use millpond_tests::conformance::{Device, Promises, Subject};
use millpond_tests::named::named;

const PROGRAMS_OF_ONE: u64 = 1_000;
const PROGRAMS_OVER_OTHERS: u64 = 4;

const fn promises(oom_complete: bool, reuses_across_streams: bool) -> Promises {
    Promises {
        coalesces: true,
        returns_upstream: true,
        reuses_across_streams,
        oom_complete,
        withstands_troubles: true,
        block_bytes: None,
    }
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

/// How many programs two adaptors run over a resource.
macro_rules! programs_of_two {
    (direct) => {
        1_000
    };
    (pool) => {
        100
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
                |driver| named(concat!(text_of!($outer), text_of!($resource)), driver),
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
                    |driver| named(concat!(text_of!($outer), text_of!($inner), text_of!($resource)), driver),
                    promises(
                        is_oom_complete!($outer) && is_oom_complete!($inner) && is_oom_complete!($resource),
                        reuses!($outer $resource) && reuses!($inner $resource)
                    ),
                    programs_of_two!($resource),
                    suite::Device::Whole
                );)*
            }
        }
    };
}

stacks!(direct pool; [stats limit trace track onfailure prefetch aligned]);

/// A stack of each adaptor below `outer`, over a resource. The name is the module's.
fn below(
    name: &'static str,
    outer: &'static str,
    resource: &'static str,
    promises: Promises,
) -> Vec<Subject> {
    let subject = |inner: &&'static str| {
        let text: &'static str = format!("{outer}{inner}{resource}").leak();
        Subject {
            name,
            stack: text,
            make: Box::leak(Box::new(move |driver| Ok(Box::new(named(text, driver)?) as _))),
            promises: promises_below(&[outer, inner], resource, promises),
            device: Device::Whole,
        }
    };
    ADAPTOR_TEXTS.iter().map(subject).collect()
}

/// What is left of a resource's promises below adaptors. Alignment asks for more than its user does: of equal blocks less is left, and
/// where sizes are rounded, a little more than 8 MiB becomes 16 (`buddy`) or 10 (`async`, whose memory has pages), which the suite does not
/// call coalescing.
fn promises_below(adaptors: &[&str], resource: &str, promises: Promises) -> Promises {
    const ADDED_BYTES: usize = 4 << 10;
    let times = adaptors.iter().filter(|text| **text == text_of!(aligned)).count();
    let rounds = ["buddy", "async"].contains(&resource);
    Promises {
        coalesces: promises.coalesces && !(times > 0 && rounds),
        block_bytes: promises.block_bytes.map(|bytes| bytes - times * ADDED_BYTES),
        ..promises
    }
}

/// `resource::adaptor` for every resource and adaptor, each over all adaptors.
macro_rules! every_pair {
    ($($resource:ident: $text:literal, $promises:expr;)*; $adaptors:tt) => {
        const OTHERS: &[&str] = &[$($text),*];
        every_pair!(@texts $adaptors);
        $(every_pair!(@over $resource, $text, $promises, $adaptors);)*
    };
    (@texts [$($adaptor:ident)*]) => {
        const ADAPTOR_TEXTS: &[&str] = &[$(text_of!($adaptor)),*];
    };
    (@over $resource:ident, $text:literal, $promises:expr, [$($outer:ident)*]) => {
        mod $resource {
            use super::*;
            $(conformance!(
                @each $outer,
                below(
                    concat!(stringify!($resource), "::", stringify!($outer)),
                    text_of!($outer),
                    $text,
                    $promises
                ),
                PROGRAMS_OVER_OTHERS
            );)*
        }
    };
}

/// What resources promise, as in `resources.rs`.
const OTHER: Promises = promises(false, true);
const STREAMS_APART: Promises = promises(false, false);
const NO_COALESCING: Promises = Promises { coalesces: false, ..OTHER };

every_pair!(
    async_pool: "async", STREAMS_APART;
    managed: "managed:maximum_bytes=256MiB", OTHER;
    pinned: "pinned:maximum_bytes=256MiB", OTHER;
    bestfit: "bestfit", OTHER;
    arena: "arena:arena_bytes=240MiB", Promises { returns_upstream: false, ..OTHER };
    bfc: "bfc", OTHER;
    buddy: "buddy", OTHER;
    slab: "slab", NO_COALESCING;
    binning: "binning:least_exponent=16,most_exponent=20,blocks_per_chunk=16", NO_COALESCING;
    fixed: "fixed:block_bytes=512KiB,blocks_per_chunk=8",
        Promises { block_bytes: Some(512 << 10), ..NO_COALESCING };
    torch: "torch", STREAMS_APART;
; [stats limit trace track onfailure prefetch aligned]);

#[test]
fn no_resource_and_no_adaptor_is_left_out() {
    let name = |text: &&'static str| text.split([':', '/']).next().unwrap_or(text);
    let tried: Vec<&str> = ["pool", "direct"].into_iter().chain(OTHERS.iter().map(name)).collect();
    let known: Vec<&str> = RESOURCES.iter().map(|entry| entry.name).collect();
    assert_eq!(tried, known);
    let tried: Vec<&str> = ADAPTOR_TEXTS.iter().map(name).collect();
    let known: Vec<&str> = ADAPTORS.iter().map(|entry| entry.name).collect();
    assert_eq!(tried, known);
}

conformance!(
    track_with_callers,
    |driver| named("track:report=none/direct", driver),
    promises(false, true),
    100
);
// A limit that is never reached takes nothing away.
conformance!(
    limit_of_all,
    |driver| named("limit:256MiB/pool:enable_defrag=false", driver),
    promises(true, true),
    100
);
conformance!(
    aligned_large,
    |driver| named("aligned:alignment=1MiB,threshold=64KiB/direct", driver),
    promises(false, true),
    100
);
