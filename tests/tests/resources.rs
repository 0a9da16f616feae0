//! Every resource, by its name, through the conformance suite, with what it promises: 1,000 seeded programs, as many in the middle of
//! which the device goes wrong, and a few in which each driver call fails in turn. The pool has a file of its own.

use millpond_tests::conformance;
use millpond_tests::conformance::Promises;
use millpond_tests::named::named;

const DIRECT: Promises = Promises {
    coalesces: true,
    returns_upstream: true,
    reuses_across_streams: true,
    oom_complete: false,
    withstands_troubles: true,
    block_bytes: None,
};

/// The driver prefers new memory to waiting for another stream.
const ASYNC: Promises = Promises { reuses_across_streams: false, ..DIRECT };

/// What it has it keeps.
const ARENA: Promises = Promises { returns_upstream: false, ..DIRECT };

/// What served one size serves no other.
const BINS: Promises = Promises { coalesces: false, ..DIRECT };

/// PyTorch's blocks belong to their stream for ever, and a segment with one live block is stuck.
const TORCH: Promises = Promises { reuses_across_streams: false, ..DIRECT };

conformance!(direct, |driver| named("direct", driver), DIRECT, 10_000);
// The memory of these two is the host's, so they are told what to think of as all.
conformance!(managed, |driver| named("managed:maximum_bytes=256MiB", driver), DIRECT);
conformance!(pinned, |driver| named("pinned:maximum_bytes=256MiB", driver), DIRECT);

conformance!(async_pool, |driver| named("async", driver), ASYNC);
conformance!(
    async_pool_without_reuse,
    |driver| named(
        "async:release_threshold_bytes=0,initial_bytes=32MiB,follow_event_dependencies=false,\
            allow_opportunistic=false,allow_internal_dependencies=false",
        driver
    ),
    ASYNC
);

conformance!(bestfit, |driver| named("bestfit", driver), DIRECT);
// Half of what is left to the maximum at a time, so that no two halves are ever one.
conformance!(
    bestfit_with_maximum,
    |driver| named("bestfit:initial_bytes=32MiB,maximum_bytes=240MiB", driver),
    Promises { coalesces: false, ..DIRECT }
);

conformance!(bfc, |driver| named("bfc", driver), DIRECT);
conformance!(
    bfc_that_keeps_regions,
    |driver| named("bfc:releases_regions=false,first_region_bytes=256MiB", driver),
    DIRECT
);

// Most of the device, so that coalescing can be seen; and half of it, which is what it takes unless told otherwise.
conformance!(arena, |driver| named("arena:arena_bytes=240MiB", driver), ARENA);
conformance!(
    arena_of_half,
    |driver| named("arena", driver),
    Promises { coalesces: false, ..ARENA }
);

conformance!(buddy, |driver| named("buddy", driver), DIRECT);
conformance!(buddy_of_odd_regions, |driver| named("buddy:region_bytes=100000000", driver), DIRECT);

conformance!(slab, |driver| named("slab", driver), BINS);
conformance!(
    slab_of_many_sizes,
    |driver| named("slab:slab_bytes=4MiB,largest_object_bytes=4MiB,empty_slabs_kept=0", driver),
    BINS
);

// Bins and chunks that are small enough for a small device.
conformance!(
    binning,
    |driver| named("binning:least_exponent=16,most_exponent=20,blocks_per_chunk=16", driver),
    BINS
);
conformance!(
    fixed,
    |driver| named("fixed:block_bytes=512KiB,blocks_per_chunk=8", driver),
    Promises { block_bytes: Some(512 << 10), ..BINS }
);

conformance!(torch, |driver| named("torch", driver), TORCH);
conformance!(torch_expandable, |driver| named("torch:expandable_segments=true", driver), TORCH);
conformance!(
    torch_every_setting,
    |driver| named(
        "torch:max_split_size=20MiB,roundup_power2_divisions=4,\
            garbage_collection_threshold=0.5,per_process_memory_fraction=0.99",
        driver
    ),
    TORCH
);
