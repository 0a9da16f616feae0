//! The headers for C++, by programs in C++: compiled by gcc and clang, found by pkg-config and CMake, together with RMM and libcu++.

mod packages;
mod page;
mod programs;
mod rmm;

use std::path::{Path, PathBuf};
use std::process::Command;

use millpond_tests::programs::{is_there, succeeds};
use millpond_tests::{dist, simcuda};

fn client(name: &str) -> PathBuf {
    simcuda::root().join("tests/clients").join(name)
}

/// Where a program goes.
fn built(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Compiles a program of `tests/clients`; `None` without the compiler.
fn compile(compiler: &str, source: &str, name: &str, flags: &[&str]) -> Option<PathBuf> {
    let program = built(name);
    is_there(compiler).then(|| {
        succeeds(&mut dist::compilation(compiler, &[client(source)], flags, &program));
        program
    })
}

/// Runs a program on simulated devices, whatever the machine has and is told, with a directory to write in.
fn run(program: &Path) -> String {
    let scratch = program.with_extension("scratch");
    std::fs::create_dir_all(&scratch).unwrap();
    let mut command = Command::new(program);
    succeeds(command.env_remove("MILLPOND_DEVICE").env_remove("MILLPOND_CONF").arg(scratch))
}
