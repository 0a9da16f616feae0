//! Python packages from NVIDIA and the numba project.

use millpond_tests::simcuda;

use crate::{succeeds, venv};

fn runs(script: &str, arguments: &[&str]) {
    let Some(python) = venv::python() else { return };
    let script = simcuda::root().join("tests/clients").join(script);
    let mut client = simcuda::program(python, "profile=a100-80g");
    assert!(succeeds(client.arg(script).args(arguments)).ends_with("all is well\n"));
}

#[test]
fn cuda_bindings() {
    runs("bindings.py", &[]);
}

#[test]
fn numba() {
    runs("numba_client.py", &[]);
}

#[test]
fn numba_with_an_allocator_plugged_in() {
    runs("numba_client.py", &["--plugin"]);
}
