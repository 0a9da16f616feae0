//! C programs, compiled against NVIDIA's headers.

use std::path::{Path, PathBuf};
use std::process::Command;

use millpond_tests::programs::succeeds;
use millpond_tests::simcuda;

use crate::venv;

/// Compiles a program of `tests/clients`; `None` if there are no headers.
pub(crate) fn compile(source: &str, name: &str, flags: &[&str]) -> Option<PathBuf> {
    let headers = venv::headers()?;
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut compiler = Command::new("cc");
    compiler.args(["-Wall", "-Wextra", "-Werror", "-O1", "-o"]).arg(&program);
    for directory in headers {
        compiler.arg("-I").arg(directory);
    }
    compiler.arg(simcuda::root().join("tests/clients").join(source));
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

/// On a device of its own, and on a shared one, whose name is another one each time.
#[test]
fn careless() {
    let Some(program) = compile("careless.c", "careless", &["-lcuda"]) else { return };
    let shared = format!("shared=careless-{},clock=100", std::process::id());
    for simulated in ["", &shared] {
        assert!(succeeds(&mut simcuda::program(&program, simulated)).ends_with("all is well\n"));
    }
}
