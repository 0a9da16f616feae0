//! The name of a stack of allocators, the settings of a pool, and the name of a device.

#![no_main]

use std::sync::{Arc, LazyLock};

use millpond::Stack;
use millpond::device::DeviceName;
use millpond::driver::{Driver, Stream};
use millpond::pool::PoolConfig;
use millpond_sim::{Profile, SimGpu};

static GPU: LazyLock<Arc<dyn Driver>> = LazyLock::new(|| {
    let profile = Profile::named("v100-16g").and_then(|profile| profile.with_capacity(1 << 30));
    Arc::new(SimGpu::new(profile.expect("it is built in")))
});

/// Options whose values are names of files: those are parsed and never opened.
const FILES: [&str; 2] = ["trace", "oom_snapshot"];

libfuzzer_sys::fuzz_target!(|text: &str| {
    let _ = text.parse::<DeviceName>();
    let _ = text.parse::<PoolConfig>();
    let stack = match text.parse::<Stack>() {
        Ok(stack) => stack,
        Err(error) => {
            assert!(text.contains('\n') || !error.to_string().contains('\n'), "{error}");
            return;
        }
    };
    let name = stack.to_string();
    let again = name.parse::<Stack>().unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(again.to_string(), name);
    if FILES.iter().any(|option| name.contains(option)) {
        return;
    }
    let Ok(built) = stack.without_background().build(GPU.clone()) else { return };
    if let Ok(block) = built.resource.allocate(5000, Stream::LEGACY) {
        built.resource.deallocate(block, 5000, Stream::LEGACY).expect("it was allocated so");
    }
});
