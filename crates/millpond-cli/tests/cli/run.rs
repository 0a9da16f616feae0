//! Running the program and looking at what it says.

use std::process::{Command, Output};

/// The program, to be run.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millpond"));
    // Whether there is a GPU must not matter.
    command
        .args(arguments)
        .env_remove("MILLPOND_DEVICE")
        .env("MILLPOND_LIBCUDA", "/nowhere/libcuda.so.1");
    command
}

/// Runs the program.
pub(crate) fn millpond(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

/// What a run that succeeded printed; it complained of nothing.
pub(crate) fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// What is refused is refused in one line, with exit code 2.
pub(crate) fn complaint(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(text.trim_end().lines().count(), 1, "{text}");
    text
}
