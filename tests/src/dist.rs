//! The library for C and C++, as it is laid out for programs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::simcuda::laid_out;

/// Where somebody has laid it out already: `cargo xtask test` says so.
const VARIABLE: &str = "MILLPOND_DIST";

/// The directory with `include` and `lib`, built from the sources as they are now.
///
/// # Panics
/// If it cannot be built.
pub fn directory() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| laid_out("dist", VARIABLE))
}

/// A program of C, to be compiled by `compiler` and linked to the library: its sources, flags of its own, and what it is to be called.
pub fn compilation(compiler: &str, sources: &[PathBuf], flags: &[&str], program: &Path) -> Command {
    let (include, lib) = (directory().join("include"), directory().join("lib"));
    let mut command = Command::new(compiler);
    command.args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-O1", "-g", "-o"]).arg(program);
    command.arg("-I").arg(include).args(sources).arg("-L").arg(&lib).args(flags);
    command.arg("-lmillpond").arg(format!("-Wl,-rpath,{}", lib.display())).arg("-lpthread");
    command
}
