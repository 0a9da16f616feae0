//! The cudarc crate: Rust's way to CUDA.

use millpond_tests::programs::succeeds;
use millpond_tests::simcuda;

#[test]
fn cudarc() {
    let client = env!("CARGO_BIN_EXE_cudarc_client");
    assert!(succeeds(&mut simcuda::program(client, "")).ends_with("all is well\n"));
}
