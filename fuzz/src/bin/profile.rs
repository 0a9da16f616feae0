//! The profile of a device.

#![no_main]

use millpond_sim::Profile;

libfuzzer_sys::fuzz_target!(|text: &str| {
    match Profile::parse("fuzzed.toml", text) {
        Ok(profile) => {
            std::hint::black_box(profile.figures());
        }
        Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
    }
});
