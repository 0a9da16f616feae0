//! Programs on several devices.

use crate::job::Job;
use crate::scripted_daemon::{Daemon, MEMORY, MIB, Peer};

const BYTES: u64 = 16 * MIB;

/// A program that has used both of its devices, now at the second, with a turn on each.
fn on_two_devices(test: &str) -> (Daemon, Job, Peer, Peer) {
    let daemon = Daemon::named(test);
    let mut job = Job::linked(&daemon.directory, "capacity=1GiB,devices=2");
    job.tell("start");
    let mut first = daemon.client();
    assert_eq!(job.answer().0, 0);
    job.tell(&format!("v a {BYTES}"));
    first.turn(MEMORY);
    assert_eq!(job.answer().0, 0);
    job.ask("write a 1");
    job.tell("device other 1");
    let mut second = daemon.client();
    assert_eq!(job.answer().0, 0);
    job.tell(&format!("v b {BYTES}"));
    second.turn(MEMORY);
    assert_eq!(job.answer().0, 0);
    job.ask("write b 2");
    (daemon, job, first, second)
}

/// A process on two devices is two clients, each with turns of its own.
#[test]
fn devices_have_turns_of_their_own() {
    let daemon = Daemon::named("devices");
    let mut job = Job::linked(&daemon.directory, "capacity=1GiB,devices=2");
    job.tell("start");
    let mut first = daemon.client();
    assert_eq!(job.answer().0, 0);
    job.ask(&format!("p a {}", 8 * MIB));
    job.tell("fill a 1");
    first.turn(MEMORY);
    assert_eq!(job.answer().0, 0);
    job.ask("sync");
    job.tell("device other 1");
    let mut second = daemon.client();
    assert_eq!(job.answer().0, 0);
    assert_ne!(first.hello.device, second.hello.device);
    job.ask(&format!("p b {}", 8 * MIB));
    assert!(second.seen().claimed >= 8 * MIB);
    // The first device is nobody's any more, and that is not the second's business.
    first.drop_turn();
    job.tell("fill b 2");
    second.turn(MEMORY);
    assert_eq!(job.answer().0, 0);
    assert_eq!(job.ask("sum b"), [4 * MIB]);
}

/// Physical memory of one device is not taken for the other's.
#[test]
fn each_devices_virtual_memory_is_its_own() {
    let (_daemon, mut job, mut first, mut second) = on_two_devices("handles");
    assert_eq!(job.ask("retain b"), [1]);
    assert_eq!(second.drop_turn().resident_bytes, BYTES + 4096);
    second.make_room(0);
    // The first device's has not moved.
    assert_eq!(job.ask("retain a"), [1]);
    job.tell("check b 2");
    second.turn(MEMORY);
    assert_eq!(job.answer(), (0, vec![0]));
    job.ask("free b");
    assert_eq!(second.drop_turn().resident_bytes, 4096);
    assert_eq!(first.drop_turn().resident_bytes, BYTES + 4096);
    job.tell("free a");
    first.turn(MEMORY);
    assert_eq!(job.answer().0, 0);
    assert!(job.ends());
}

/// A copy waits for the device of every address that it names, and keeps none of them from others while it waits.
#[test]
fn a_copy_between_devices_passes_both_gates() {
    for verb in ["peer", "copy"] {
        let (_daemon, mut job, mut first, mut second) = on_two_devices(&format!("between-{verb}"));
        job.ask("device first 0");
        second.drop_turn();
        second.make_room(0);
        job.tell(&format!("{verb} b {BYTES} a"));
        second.wants();
        assert!(!job.has_answered(), "{verb}: passed without a grant");
        first.drop_turn();
        second.grant(MEMORY);
        second.resumes();
        first.wants();
        assert!(!job.has_answered(), "{verb}: passed without a grant");
        first.grant(MEMORY);
        first.resumes();
        assert_eq!(job.answer().0, 0, "{verb}");
        job.ask("sync");
        assert_eq!(job.ask("check a 2"), [0], "{verb}");
    }
}

/// Nothing of another device is waited for by a call that does not name it.
#[test]
fn a_call_for_one_device_does_not_wait_for_the_other() {
    let (_daemon, mut job, mut first, mut second) = on_two_devices("apart");
    first.drop_turn();
    first.make_room(0);
    job.ask("fill b 5");
    assert_eq!(job.ask("sum b"), [5 * BYTES / 4]);
    second.drop_turn();
    assert!(first.says_nothing());
}
