//! SIGTERM ends any command at once: there is nothing to wait for, and nothing is left that could be mistaken for a result.

use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};

use crate::run::{command, wait_until_it_listens};

const SIGTERM: i32 = 15;

/// It is ended by the signal and not by itself: what it does would take it long, or for ever.
fn is_ended_by_sigterm(child: Child) {
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.signal(), Some(SIGTERM), "{output:?}");
    assert_eq!(output.stdout, b"");
}

fn start(arguments: &[&str]) -> Child {
    let mut command = command(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

#[cfg(target_os = "linux")]
#[test]
fn sigterm_ends_a_command_that_computes() {
    // All scenarios with all allocators.
    let mut child = start(&["compare"]);
    wait_until_it_listens(&mut child);
    is_ended_by_sigterm(child);
}

#[test]
fn sigterm_ends_a_command_that_waits_for_its_input() {
    let mut child = start(&["replay", "-"]);
    let mut input = child.stdin.take().unwrap();
    let header = "Thread,Time,Action,Pointer,Size,Stream\n";
    let events = "1,0:0:0.1,allocate,0x10,5,0x0\n1,0:0:0.2,free,0x10,5,0x0\n";
    input.write_all(header.as_bytes()).unwrap();
    // More than a pipe holds: the command has read some of it when all is written.
    input.write_all(events.repeat(20_000).as_bytes()).unwrap();
    is_ended_by_sigterm(child);
    drop(input);
}
