//! What processes that share a simulated GPU ask of its broker.

#![no_main]

#[cfg(fuzzing)]
use millpond_sim::broker::serve_fuzzed;

/// The way into the broker is there only for fuzzing.
#[cfg(not(fuzzing))]
fn serve_fuzzed(_bytes: &[u8]) {}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| serve_fuzzed(bytes));
