//! What `MILLPOND_SIM` changes, as a program sees it.

use std::path::Path;

use millpond_tests::programs::succeeds;
use millpond_tests::simcuda;

fn probe(simulated: &str, what: &str) -> String {
    succeeds(simcuda::program(env!("CARGO_BIN_EXE_abi_probe"), simulated).arg(what))
}

#[test]
fn devices_capacity_and_version_are_what_was_asked_for() {
    let said = probe("profile=v100-16g,devices=3,capacity=4GiB,driver=11080", "devices");
    assert_eq!(said, "driver 11080\n".to_owned() + &"4294967296 bytes, capability 7.0\n".repeat(3));
}

/// An older driver has no newer functions, and one without virtual memory management says so.
#[test]
fn an_older_driver_lacks_what_came_later() {
    let said = probe("driver=11040", "names");
    assert!(said.contains("cuMemAllocAsync@11020 found"), "{said}");
    assert!(said.contains("cuStreamGetId@12000 refused"), "{said}");
    assert!(probe("without=vmm+pools", "devices").contains("without virtual memory, pools"));
}

#[test]
fn a_wrong_variable_is_an_error_code_and_one_line() {
    for (wrong, line) in [
        (
            "profil=v100-16g",
            "millpond: MILLPOND_SIM: unknown key 'profil', did you mean 'profile'?",
        ),
        ("devices=0", "millpond: MILLPOND_SIM: devices=0: a number from 1 to 64 is wanted"),
        ("log=/no/such/place", "millpond: MILLPOND_SIM: log=/no/such/place: No such file"),
        ("a\nb\u{1b}[2J=1", r"millpond: MILLPOND_SIM: unknown key 'a\nb\u{1b}[2J'"),
    ] {
        let mut client = simcuda::program(env!("CARGO_BIN_EXE_abi_probe"), wrong);
        let output = client.arg("initialize").output().unwrap();
        assert!(output.status.success(), "{wrong}");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said == "cuInit: 1\n" || said == "cuInit: 304\n", "{wrong}: {said}");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.starts_with(line) && error.lines().count() == 1, "{wrong}: {error}");
    }
}

#[test]
fn calls_fail_when_told_to_and_are_written_down() {
    let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join("calls.log");
    let _ = std::fs::remove_file(&log);
    let simulated = format!("fail=alloc@1,log={}", log.display());
    assert_eq!(probe(&simulated, "allocations"), "0 2 0\n");
    let calls = std::fs::read_to_string(&log).unwrap();
    let allocations: Vec<&str> = calls
        .lines()
        .filter(|line| line.contains(" cuMemAlloc_v2 "))
        .filter_map(|line| line.rsplit(' ').next())
        .collect();
    assert_eq!(allocations, ["0", "2", "0"], "{calls}");
}

/// In the device's own time, which is not the host's.
#[test]
fn kernels_of_others_take_as_long_as_they_are_told_to() {
    assert_eq!(probe("", "kernel"), "0 ms\n");
    assert_eq!(probe("kernel=20ms", "kernel"), "20 ms\n");
}

/// The child of a process that has initialised the driver is told that it has none.
#[test]
fn a_forked_child_has_no_driver() {
    assert_eq!(probe("", "fork"), "child: 3\nparent: 0\n");
}
