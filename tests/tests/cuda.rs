//! Millpond's driver for real CUDA, through every suite: over the stand-in libcuda, and on a real device if asked to.

use std::process::{Command, Output};

use millpond_tests::driver_suite;
use millpond_tests::driver_suite::Check;
use millpond_tests::simcuda;

/// The number of the real device to try; 0 without it.
const REAL: &str = "MILLPOND_TEST_GPU";

fn over(simulated: &str) -> Command {
    let mut program = simcuda::program(env!("CARGO_BIN_EXE_on_cuda"), simulated);
    program.env("MILLPOND_LIBCUDA", simcuda::directory().join("libcuda.so.1"));
    program
}

/// That the program ran to its end.
fn passes(mut program: Command, arguments: &[&str]) -> String {
    let output: Output = program.args(arguments).output().expect("the program starts");
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program:?}: {}\n{out}{err}", output.status);
    out.into_owned()
}

fn in_time(name: &str, _: Check) {
    passes(over("profile=rtx4090-24g"), &["driver", name]);
}

fn out_of_order(name: &str, _: Check) {
    passes(over("profile=rtx4090-24g,order=adversarial,seed=7"), &["driver", name]);
}

driver_suite!(timed, in_time);
driver_suite!(adversarial, out_of_order);

/// Drivers from the oldest that will do to the newest, each of which has other versions of functions, or none.
#[test]
fn every_driver_version_passes_the_suite() {
    for version in ["11040", "12000", "12020", "13000"] {
        for (name, _) in driver_suite::CHECKS {
            passes(over(&format!("profile=rtx4090-24g,driver={version}")), &["driver", name]);
        }
    }
}

#[test]
fn resources_keep_bytes_in_order() {
    for stack in ["pool", "direct", "async", "bestfit", "torch", "arena", "limit:8GiB/stats/pool"] {
        passes(over("profile=rtx4090-24g,order=adversarial,seed=1"), &["resource", stack]);
    }
}

#[test]
fn what_a_driver_lacks_is_not_offered() {
    let described = passes(over("without=vmm+pools"), &["describe"]);
    assert!(described.contains("virtual_memory: false"), "{described}");
    assert!(described.contains("memory_pools: false"), "{described}");
    for stack in ["pool", "direct", "torch"] {
        passes(over("profile=rtx4090-24g,without=vmm+pools"), &["resource", stack]);
    }
    let refused = over("without=pools").args(["resource", "async"]).output().unwrap();
    assert!(!refused.status.success());
    passes(over("without=pools"), &["resource", "pool", "--seeds", "1"]);
}

#[test]
fn cudarc_uses_memory_of_a_resource() {
    passes(over("profile=rtx4090-24g"), &["cudarc"]);
    passes(over("profile=rtx4090-24g,order=adversarial,seed=3"), &["cudarc"]);
}

#[test]
fn devices_are_used_beside_each_other() {
    passes(over("profile=rtx4090-24g,devices=2"), &["two-devices"]);
}

#[test]
fn what_is_left_behind_is_given_back() {
    passes(over("profile=rtx4090-24g"), &["left-behind"]);
}

#[test]
fn handles_that_are_gone_never_reach_cuda() {
    passes(over("profile=rtx4090-24g"), &["racing-handles"]);
}

#[test]
fn no_driver_is_one_line_that_says_what_to_do() {
    let said = |mut program: Command| {
        let output = program.arg("describe").output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    let mut nowhere = Command::new(env!("CARGO_BIN_EXE_on_cuda"));
    nowhere.env("MILLPOND_LIBCUDA", "/nowhere/libcuda.so.1");
    let text = said(nowhere);
    assert!(text.contains("/nowhere/libcuda.so.1") && text.contains("sim:a100-80g"), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    // A library that is no driver.
    let mut other = Command::new(env!("CARGO_BIN_EXE_on_cuda"));
    other.env("MILLPOND_LIBCUDA", "libc.so.6");
    let text = said(other);
    assert!(text.contains("libc.so.6 is no CUDA driver"), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[test]
#[ignore = "needs a real device: cargo xtask test --gpu"]
fn the_real_device_passes_the_suites() {
    let number = std::env::var(REAL).unwrap_or_else(|_| "0".to_owned());
    let real = || {
        let mut program = Command::new(env!("CARGO_BIN_EXE_on_cuda"));
        program.args(["--device", &number]);
        program
    };
    for (name, _) in driver_suite::CHECKS {
        passes(real(), &["driver", name]);
    }
    for stack in ["pool", "direct", "async", "bestfit", "torch"] {
        passes(real(), &["resource", stack]);
    }
    passes(real(), &["cudarc"]);
    passes(real(), &["racing-handles"]);
}
