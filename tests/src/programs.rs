//! Programs that tests run.

use std::process::Command;

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
