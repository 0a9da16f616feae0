//! C programs, compiled against NVIDIA's headers.

use std::path::{Path, PathBuf};
use std::process::Command;

use millpond_tests::programs::succeeds;
use millpond_tests::simcuda;

use crate::venv;

/// Compiles a program of `tests/clients`; `None` if there are no headers.
pub(crate) fn compile(source: &str, name: &str, flags: &[&str]) -> Option<PathBuf> {
    compile_file(&simcuda::root().join("tests/clients").join(source), name, flags)
}

/// Compiles a program that lies anywhere.
pub(crate) fn compile_file(source: &Path, name: &str, flags: &[&str]) -> Option<PathBuf> {
    let headers = venv::headers()?;
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut compiler = Command::new("cc");
    compiler.args(["-Wall", "-Wextra", "-Werror", "-O1", "-o"]).arg(&program);
    for directory in headers {
        compiler.arg("-I").arg(directory);
    }
    compiler.arg(source);
    compiler.arg("-L").arg(simcuda::directory()).args(flags).arg("-lpthread");
    succeeds(&mut compiler);
    Some(program)
}

#[test]
fn linked_to_libcuda() {
    let Some(program) = compile("driver.c", "driver_linked", &["-lcuda"]) else { return };
    assert!(succeeds(&mut simcuda::program(program, "")).ends_with("all is well\n"));
}

#[test]
fn finding_every_function_by_name_and_version() {
    let flags = ["-DBY_NAME", "-ldl"];
    let Some(program) = compile("driver.c", "driver_by_name", &flags) else { return };
    assert!(succeeds(&mut simcuda::program(program, "")).ends_with("all is well\n"));
}

/// Streams may overtake each other as far as the rules allow, on any device.
#[test]
fn on_other_devices_and_in_adverse_order() {
    let Some(program) = compile("driver.c", "driver_elsewhere", &["-lcuda"]) else { return };
    for simulated in ["profile=v100-16g", "profile=h100-80g,order=adversarial,seed=3"] {
        assert!(succeeds(&mut simcuda::program(&program, simulated)).ends_with("all is well\n"));
    }
}

/// What NVIDIA's own tests do with captures and graphs.
#[test]
fn captures_and_graphs() {
    let Some(program) = compile("captures.c", "captures", &["-lcuda"]) else { return };
    for simulated in ["", "profile=h100-80g,order=adversarial,seed=11"] {
        assert!(succeeds(&mut simcuda::program(&program, simulated)).ends_with("all is well\n"));
    }
}

/// What a program is told of kernels, ranges of managed memory and pools, and what it is refused.
#[test]
fn launches_advice_and_pools() {
    let Some(program) = compile("launches.c", "launches", &["-lcuda"]) else { return };
    assert!(succeeds(&mut simcuda::program(program, "")).ends_with("all is well\n"));
}

/// What a kernel touches is guessed from its parameters. A guess is never an error: it is said, and written down.
#[test]
fn what_a_kernel_may_touch_is_no_error() {
    let Some(program) = compile("guessed.c", "guessed", &["-lcuda"]) else { return };
    for order in ["timed", "adversarial"] {
        let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("guessed-{order}.log"));
        let _ = std::fs::remove_file(&log);
        let simulated = format!("kernel=1s,order={order},seed=11,log={}", log.display());
        let output = simcuda::program(&program, &simulated).output().unwrap();
        let (said, complained) =
            [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).into();
        assert!(said.ends_with("all is well\n"), "{order}: {said}{complained}");
        let [only] = complained.lines().collect::<Vec<_>>()[..] else { panic!("{complained}") };
        assert!(only.starts_with("millpond: perhaps wrong: two_ends on stream "), "{only}");
        assert!(only.contains("(a parameter of its own): unmapped"), "{only}");
        let log = std::fs::read_to_string(log).unwrap();
        let suspicions = |what: &str| {
            log.lines().filter(|line| line.contains("suspicion: ") && line.contains(what)).count()
        };
        assert_eq!(suspicions("many_tensors on stream "), 4, "{log}");
        assert_eq!(suspicions("(byte 16 of a parameter of 32): unmapped"), 4, "{log}");
        assert_eq!(suspicions("two_ends on stream "), 3, "{log}");
        assert!(!log.contains("finding: "), "{log}");
    }
}

/// What is executed is known, and an error number is not all that is said of it.
#[test]
fn what_is_sure_to_be_touched_is_an_error_with_its_finding() {
    let Some(program) = compile("guessed.c", "certain", &["-lcuda"]) else { return };
    for work in ["memset", "copy", "fill"] {
        let mut client = simcuda::program(&program, "kernel=1s");
        let output = client.arg(work).output().unwrap();
        let complained = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{work}: {complained}");
        let [only] = complained.lines().collect::<Vec<_>>()[..] else { panic!("{complained}") };
        assert!(
            only.starts_with("millpond: the simulated device is lost: illegal address"),
            "{only}"
        );
        assert!(only.contains(&format!(" by {work} on stream ")), "{only}");
        assert!(only.contains("unmapped before; it was in the 2097152 bytes at "), "{only}");
    }
}

/// `CUDA_VISIBLE_DEVICES` says which devices a program sees, and in what order.
#[test]
fn visible_devices() {
    let flags = ["-lcuda", "-l:libcudart.so.12"];
    let Some(program) = compile("visible.c", "visible", &flags) else { return };
    let none = "100: 0; 100: 0\n";
    let name = |number: usize| format!("GPU-6d696c6c-706f-6e64-2d73-696d0000000{number}");
    for (list, expected) in [
        ("2,0", "0: 2 2@0000:03:00.0/3 0@0000:01:00.0/1; 0: 2\n"),
        ("1,9,0", "0: 1 1@0000:02:00.0/2; 0: 1\n"),
        (&name(2), "0: 1 2@0000:03:00.0/3; 0: 1\n"),
        (&format!("{},{}", name(1), name(0)), "0: 2 1@0000:02:00.0/2 0@0000:01:00.0/1; 0: 2\n"),
        ("0,0", none),
        ("-1", none),
        ("", none),
    ] {
        let mut client = simcuda::program(&program, "devices=3");
        let output = client.env("CUDA_VISIBLE_DEVICES", list).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{list}");
        assert!(output.stderr.is_empty(), "{list}: no device is not worth a word");
    }
    let all = succeeds(&mut simcuda::program(&program, "devices=3"));
    assert!(all.starts_with("0: 3 0@") && all.ends_with("; 0: 3\n"), "{all}");
}

/// Also of one byte each on a device that has not so many pages, and of whole pages on one that has.
#[test]
fn a_hundred_thousand_allocations_of_every_kind() {
    let Some(program) = compile("many_allocations.c", "many_allocations", &["-lcuda"]) else {
        return;
    };
    let small = succeeds(&mut simcuda::program(&program, "capacity=512MiB"));
    assert!(small.ends_with("all is well\n"), "{small}");
    let large = succeeds(simcuda::program(&program, "capacity=256GiB").arg("mapped"));
    assert!(large.ends_with("all is well\n"), "{large}");
}

/// On a device of its own, and on a shared one, whose name is another one each time.
#[test]
fn careless() {
    let Some(program) = compile("careless.c", "careless", &["-lcuda"]) else { return };
    let shared = format!("shared=careless-{},clock=100", std::process::id());
    for simulated in ["", &shared] {
        assert!(succeeds(&mut simcuda::program(&program, simulated)).ends_with("all is well\n"));
    }
}
