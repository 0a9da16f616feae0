//! Python packages from NVIDIA and the numba project.

use millpond_tests::programs::succeeds;
use millpond_tests::simcuda;

use crate::venv;

fn runs(script: &str, arguments: &[&str]) {
    runs_on("profile=a100-80g", script, arguments);
}

fn runs_on(simulated: &str, script: &str, arguments: &[&str]) {
    let Some(python) = venv::python() else { return };
    let script = simcuda::root().join("tests/clients").join(script);
    let mut client = simcuda::program(python, simulated);
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

#[test]
fn cuda_bindings_in_real_time() {
    runs_on("profile=h100-80g,clock=10", "bindings.py", &[]);
}

/// Another name each time, for a broker of an earlier run may still be there.
#[test]
fn two_processes_on_one_device() {
    let name = format!("test-{}", std::process::id());
    runs_on(&format!("profile=v100-16g,capacity=1GiB,shared={name}"), "shared.py", &[]);
}

/// Everything that is good on a device of one's own is good on a shared one.
#[test]
fn cuda_bindings_on_a_shared_device() {
    let name = format!("test-bindings-{}", std::process::id());
    runs_on(&format!("shared={name},clock=10"), "bindings.py", &[]);
}
