//! The stand-ins for NVIDIA's libraries, and programs that run over them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Where somebody has built them already: `cargo xtask test` says so.
const VARIABLE: &str = "MILLPOND_SIMCUDA";

/// The directory of `libcuda.so.1` and its like, built from the sources as they are now.
///
/// # Panics
/// If they cannot be built.
pub fn directory() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| laid_out("simcuda", VARIABLE))
}

/// What `cargo xtask TASK` lays out, from the sources as they are now: where `variable` says, if somebody has done it already.
pub(crate) fn laid_out(task: &str, variable: &str) -> PathBuf {
    if let Some(built) = std::env::var_os(variable) {
        return built.into();
    }
    let mut xtask = Command::new(env!("CARGO"));
    let output = xtask.args(["xtask", task]).current_dir(root()).output().expect("cargo runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let said = text.lines().find_map(|line| line.strip_prefix(&format!("{task}: ")));
    match said.filter(|_| output.status.success()) {
        Some(directory) => directory.into(),
        None => panic!("cargo xtask {task}: {}", String::from_utf8_lossy(&output.stderr)),
    }
}

/// A program that finds the stand-ins where it looks for NVIDIA's libraries. `simulated` is its `MILLPOND_SIM`.
pub fn program(path: impl AsRef<std::ffi::OsStr>, simulated: &str) -> Command {
    let mut command = Command::new(path);
    command.env("LD_LIBRARY_PATH", directory()).env("MILLPOND_SIM", simulated);
    command
}

/// The project's root.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests is in the root")
}
