//! Running the program and looking at what it says.

use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

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

/// Runs the program and presses Ctrl-C as soon as it listens for it.
#[cfg(target_os = "linux")]
pub(crate) fn interrupted(arguments: &[&str]) -> Output {
    let mut command = command(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    wait_until_it_listens(&mut child);
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    child.wait_with_output().unwrap()
}

/// Waits until a command has a handler for Ctrl-C, which it has as soon as its arguments are understood and its work begins.
#[cfg(target_os = "linux")]
pub(crate) fn wait_until_it_listens(child: &mut Child) {
    let id = child.id();
    // The kernel says which signals a process has a handler for: the second lowest bit is that of SIGINT.
    let listens = || {
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        caught.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).is_ok_and(|m| m & 2 > 0))
    };
    while !listens() {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it listened");
        std::thread::sleep(Duration::from_millis(1));
    }
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

/// The traces that are here: that of the project, and those of `MILLPOND_TRACES`, or beside it.
pub(crate) fn traces() -> Vec<String> {
    let project = concat!(env!("CARGO_MANIFEST_DIR"), "/../millpond/tests/data/gpt_tiny.pickle.gz");
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/traces");
    let folder = std::env::var("MILLPOND_TRACES").unwrap_or_else(|_| beside.to_owned());
    let Ok(files) = std::fs::read_dir(&folder) else {
        println!(
            "only that of the project: there is no {folder}; MILLPOND_TRACES says where to look"
        );
        return vec![project.to_owned()];
    };
    let paths = files.map(|file| file.unwrap().path().to_str().unwrap().to_owned());
    paths.filter(|path| path.ends_with(".pickle.gz")).collect()
}
