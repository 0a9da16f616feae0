//! Whole programs, written without a thought of sharing, while the device is taken from them again and again.

use std::process::Stdio;

use millpond_tests::simcuda;

use crate::job::{compile, hooked};
use crate::scripted_daemon::Daemon;
use crate::venv;

/// Runs a program of `tests/clients` that says at its end that all is well.
fn goes_well(source: &str, name: &str, flags: &[&str], arguments: &[&str]) {
    let Some(headers) = venv::headers() else { return };
    let includes = headers.map(|directory| format!("-I{}", directory.display()));
    let includes = includes.iter().map(String::as_str);
    let flags: Vec<&str> = includes.chain(["-DSHARED"]).chain(flags.iter().copied()).collect();
    let program = compile(source, name, &flags);
    let daemon = Daemon::named(name);
    let mut command = hooked(&program, "", &daemon.directory);
    command.args(arguments).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let _peer = daemon.client().juggle(7, || child.try_wait().unwrap().is_some());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.ends_with("all is well\n"),
        "{}: {said}",
        output.status
    );
}

#[test]
fn the_driver_api_linked() {
    goes_well("driver.c", "shared_driver", &["-lcuda"], &[]);
}

#[test]
fn the_driver_api_by_name() {
    goes_well("driver.c", "shared_driver_by_name", &["-DBY_NAME"], &[]);
}

#[test]
fn the_runtime_api() {
    let code = simcuda::root().join("crates/millpond-simcuda/testdata/kernels.lz4.fatbin");
    let code = code.to_str().unwrap();
    goes_well("runtime.c", "shared_runtime_api", &["-l:libcudart.so.12"], &[code]);
}
