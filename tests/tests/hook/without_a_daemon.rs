//! Without a daemon, and when it goes.

use std::process::Stdio;

use millpond_tests::programs::succeeds;

use crate::job::{Job, compile, hooked};
use crate::scripted_daemon::{Daemon, MEMORY, MIB};

/// As if the hook were not there, but for one line.
#[test]
fn a_program_runs_as_if_the_hook_were_not_there() {
    let program = compile("shared_job.c", "shared_job_Linked", &["-lcuda"]);
    let run = |preloaded: bool| {
        let nowhere = std::path::Path::new("/nonexistent");
        let mut command = hooked(&program, "capacity=1GiB,devices=2", nowhere);
        if !preloaded {
            command.env_remove("LD_PRELOAD");
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let orders = "start\np a 33554432\nattribute a 8\nattribute a 4\na b 1048576\nv c 2097152\nwrite a 3\ncheck a 3\n\
                      fill a 9\nsum a\ninfo\nlaunch0\nfree b\nfree a\nfree c\ninfo\n\
                      device other 1\np e 4096\nfill e 1\nsum e\ninfo\n";
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), orders.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (text(output.stdout), text(output.stderr))
    };
    let (alone, hooked) = (run(false), run(true));
    assert_eq!(hooked.0, alone.0);
    assert_eq!(alone.1, "");
    assert_eq!(hooked.1.lines().count(), 1, "{}", hooked.1);
    assert!(hooked.1.starts_with("millpond: this program runs without sharing its GPU: no daemon"));
}

/// A program that has nothing to do with GPUs does not notice either.
#[test]
fn other_programs_do_not_notice() {
    let mut command = hooked("/bin/sh".as_ref(), "", "/nonexistent".as_ref());
    let output = command.args(["-c", "ls / | head -1; echo done"]).output().unwrap();
    assert!(output.status.success());
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut command = hooked("python3".as_ref(), "", "/nonexistent".as_ref());
    let said =
        succeeds(command.args(["-c", "import ctypes; print(ctypes.CDLL(None).strlen(b'four'))"]));
    assert_eq!(said, "4\n");
}

/// Who uses the device goes on when the daemon goes, and says so to the next one; who waits is let in by the next one.
#[test]
fn a_program_finds_the_next_daemon() {
    let daemon = Daemon::named("next");
    let mut job = Job::linked(&daemon.directory, "capacity=1GiB");
    job.tell("start");
    let mut peer = daemon.client();
    assert_eq!(job.answer().0, 0);
    job.ask(&format!("p a {}", 32 * MIB));
    job.tell("fill a 1");
    peer.turn(MEMORY);
    assert_eq!(job.answer().0, 0);
    peer.hang_up();
    job.ask("fill a 2");
    job.ask(&format!("p b {}", 32 * MIB));
    let mut peer = daemon.client();
    let standing = peer.hello.standing;
    assert!(standing.holds.is_some() && standing.claimed_bytes > 32 * MIB, "{standing:?}");
    assert!(standing.traffic.resident_bytes >= 32 * MIB);
    // The next daemon has another number for the turn.
    peer.grant(MEMORY);
    peer.drop_turn();
    job.tell("fill b 3");
    peer.wants();
    peer.hang_up();
    let mut peer = daemon.client();
    assert_eq!(peer.hello.standing.holds, None);
    assert!(peer.hello.standing.claimed_bytes > 64 * MIB);
    peer.turn(MEMORY);
    assert_eq!(job.answer().0, 0);
    assert_eq!(job.ask("sum a"), [16 * MIB]);
    assert_eq!(job.ask("sum b"), [24 * MIB]);
    assert!(job.ends());
}

/// When no daemon comes back, whoever waits goes on all the same, with all its memory.
#[test]
fn when_no_daemon_comes_back_the_work_goes_on() {
    let daemon = Daemon::named("gone");
    let mut job = Job::linked(&daemon.directory, "capacity=1GiB");
    job.tell("start");
    let mut peer = daemon.client();
    assert_eq!(job.answer().0, 0);
    job.tell(&format!("v a {}", 32 * MIB));
    peer.turn(MEMORY);
    assert_eq!(job.answer().0, 0);
    job.ask("write a 5");
    peer.drop_turn();
    peer.make_room(0);
    job.tell("check a 5");
    peer.wants();
    drop(daemon);
    peer.hang_up();
    assert_eq!(job.answer(), (0, vec![0]));
    assert!(job.ends());
}

/// Nothing to do while others wait: the device is given back without being asked for.
#[test]
fn an_idle_program_gives_the_device_back() {
    let daemon = Daemon::named("idle");
    let mut job = Job::linked(&daemon.directory, "capacity=1GiB,clock=1");
    job.tell("start");
    let mut peer = daemon.client();
    assert_eq!(job.answer().0, 0);
    job.ask(&format!("p a {}", 4 * MIB));
    // The device is at work for longer than what is idle.
    job.tell(&format!("work a {}", 300_000_000));
    peer.turn(MEMORY);
    assert_eq!(job.answer().0, 0);
    peer.say(&millpond_share::protocol::ToClient::Contended(true));
    peer.released(true);
    assert_eq!(job.code("query"), 0, "the device was given back while it was at work");
    job.tell("sum a");
    peer.turn(MEMORY);
    assert_eq!(job.answer().0, 0);
}
