//! Every resource, through the conformance suite, with what it promises.

use millpond::resource::{Direct, PyTorchCaching, TorchConfig};
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
