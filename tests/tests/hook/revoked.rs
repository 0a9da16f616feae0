//! Turns that are taken from a program: because it came back too late, or did not give up in time.

use millpond_share::protocol::ToClient;

use crate::job::Job;
use crate::scripted_daemon::{Daemon, MEMORY, MIB, Peer};

const BYTES: u64 = 32 * MIB;
/// Of the device, at its own speed.
const LONG_WORK_NS: u64 = 1_500_000_000;

/// A program with memory that cannot fault, which has the device.
fn with_a_turn(test: &str) -> (Daemon, Job, Peer) {
    let daemon = Daemon::named(test);
    let mut job = Job::linked(&daemon.directory, "capacity=1GiB,clock=1");
    job.tell("start");
    let mut peer = daemon.client();
    assert_eq!(job.answer().0, 0);
    job.tell(&format!("v a {BYTES}"));
    peer.turn(MEMORY);
    assert_eq!(job.answer().0, 0);
    job.ask("write a 1");
    job.ask(&format!("p other {}", 4 * MIB));
    (daemon, job, peer)
}

/// The daemon's number for the turn that is lost is one that the program never heard of.
#[test]
fn who_comes_back_too_late_gives_the_device_up() {
    let (daemon, mut job, peer) = with_a_turn("late");
    peer.hang_up();
    let mut peer = daemon.client();
    assert!(peer.hello.standing.holds.is_some());
    peer.revoke();
    peer.released(false);
    job.tell("check a 1");
    peer.wants();
    assert!(!job.has_answered(), "a copy passed without a grant");
    peer.grant(MEMORY);
    peer.resumes();
    assert_eq!(job.answer(), (0, vec![0]));
}

/// What the device is doing cannot be stopped, and while a stream captures it cannot be waited for: so long no memory leaves that
/// kernels would miss.
#[test]
fn a_turn_lost_while_a_stream_captures_is_given_up_when_the_work_is_done() {
    let (_daemon, mut job, mut peer) = with_a_turn("spoilt");
    job.ask(&format!("work a {LONG_WORK_NS}"));
    job.ask("capture");
    peer.say(&ToClient::Drop { turn: 1 });
    assert!(peer.says_nothing());
    peer.revoke();
    assert!(peer.says_nothing());
    peer.say(&ToClient::MakeRoom { resident_at_most: 0 });
    assert!(peer.says_nothing());
    let there = peer.seen().traffic.resident_bytes;
    assert!(there >= BYTES, "only {there} bytes are there, and a kernel uses more");
    // Nothing new gets to the device meanwhile.
    job.ask("memset other 7");
    job.ask("captured g 0");
    peer.released(false);
    assert_eq!(job.code("query"), 0, "the device was given back while it was at work");
    // What was asked for before is done now.
    while peer.seen().traffic.resident_bytes > 0 {
        peer.moved();
    }
    job.tell("graph g 0");
    peer.turn(MEMORY);
    assert_eq!(job.answer().0, 0);
    assert_eq!(job.ask("sum other"), [0x0707_0707 * MIB]);
}

/// What a capture needs in order to end may wait at the gate.
#[test]
fn a_capture_that_waits_for_a_turn_gets_one() {
    let (_daemon, mut job, mut peer) = with_a_turn("waiting");
    job.ask("capture own 2");
    peer.revoke();
    job.tell(&format!("v b {BYTES}"));
    peer.turn(MEMORY);
    assert_eq!(job.answer().0, 0);
    job.ask("captured g 0");
    job.ask("write b 2");
    peer.drop_turn();
    peer.make_room(0);
    job.tell("check b 2");
    peer.turn(MEMORY);
    assert_eq!(job.answer(), (0, vec![0]));
    assert_eq!(job.ask("check a 1"), [0]);
}
