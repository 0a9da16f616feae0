//! Programs that tests run.

use std::path::PathBuf;
use std::process::Command;

use crate::simcuda::root;

/// Runs a program, and returns what it said.
///
/// # Panics
/// If it does not succeed; says what it said.
pub fn succeeds(program: &mut Command) -> String {
    let output = program.output().unwrap_or_else(|error| panic!("{program:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{program:?}: {}\n{said}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    said.into_owned()
}

/// Whether a program is there, with a word on what is skipped.
pub fn is_there(program: &str) -> bool {
    let is_there =
        Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !is_there {
        println!("skipped: there is no {program}; cargo xtask setup installs it");
    }
    is_there
}

/// What `cargo xtask TASK` lays out, from the sources as they are now: where `variable` says, if somebody has done it already.
///
/// # Panics
/// If it cannot be built.
pub(crate) fn laid_out(task: &str, variable: &str) -> PathBuf {
    if let Some(built) = std::env::var_os(variable) {
        return built.into();
    }
    let mut xtask = Command::new(env!("CARGO"));
    let said = succeeds(xtask.args(["xtask", task]).current_dir(root()));
    let directory = said.lines().find_map(|line| line.strip_prefix(&format!("{task}: ")));
    directory.unwrap_or_else(|| panic!("cargo xtask {task} says {said}")).into()
}
