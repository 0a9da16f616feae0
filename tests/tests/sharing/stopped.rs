//! A program that is stopped while the device is its: it can give up nothing.

use std::process::Command;

use millpond_tests::sharing::Ground;

use crate::together::{LARGE_MIB, process_in, start, wait_for};

fn signal(pid: u32, signal: &str) {
    let status = Command::new("kill").args([signal, &pid.to_string()]).status();
    assert!(status.is_ok_and(|status| status.success()));
}

fn play(name: &str, when_stuck: &str) {
    let options = ["--quantum", "100ms", "--grace", "300ms", "--when-stuck", when_stuck];
    let ground = Ground::new(name, 128, &options);
    let mut jobs =
        vec![start(&ground, &[], LARGE_MIB, "150"), start(&ground, &[], LARGE_MIB, "150")];
    // One runs and the other waits.
    wait_for(&ground, |status| process_in(status, "waiting"));
    let holder = wait_for(&ground, |status| process_in(status, "running"));
    signal(holder, "-STOP");
    let at = jobs.iter().position(|job| job.pid() == holder).unwrap();
    let stopped = jobs.remove(at);
    // Its data is checked by the job itself.
    jobs.remove(0).number();
    if when_stuck == "revoke" {
        signal(holder, "-CONT");
        stopped.number();
    } else {
        assert!(!stopped.finish().status.success(), "it is ended");
    }
}

#[test]
fn it_loses_the_device_and_finishes_once_it_goes_on() {
    play("stopped", "revoke");
}

#[test]
fn it_is_ended_if_that_is_wanted() {
    play("ended", "end");
}
