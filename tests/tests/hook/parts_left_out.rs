//! The gate, the prefetch and the wait for the device are each there for something: what is seen to here, without one, is not so.

use std::time::Duration;

use millpond_share::protocol::ToDaemon;

use crate::job::{Job, NEVER, Route};
use crate::scripted_daemon::{Daemon, MEMORY, MIB, Peer};

const BYTES: u64 = 64 * MIB;
/// Of the device, at its own speed.
const LONG_WORK_NS: u64 = 1_500_000_000;

/// A program that has had a turn and given it back, without something.
fn after_a_turn(test: &str, without: Option<&str>) -> (Daemon, Job, Peer) {
    let daemon = Daemon::named(&format!("{test}-{}", without.unwrap_or("nothing")));
    let environment = without.map(|part| ("MILLPOND_SHARE_WITHOUT", part));
    let environment: Vec<_> = environment.into_iter().collect();
    let simulated = "capacity=1GiB,clock=1";
    let mut job = Job::by(Route::Linked, &daemon.directory, simulated, &environment);
    job.tell("start");
    let mut peer = daemon.client();
    assert_eq!(job.answer().0, 0);
    job.ask(&format!("p a {BYTES}"));
    job.tell("fill a 1");
    peer.turn(MEMORY);
    assert_eq!(job.answer().0, 0);
    job.ask("sync");
    peer.drop_turn();
    (daemon, job, peer)
}

/// Nothing is launched without a grant.
fn gate_holds(without: Option<&str>) -> Result<(), String> {
    let (_daemon, mut job, peer) = after_a_turn("gate", without);
    job.tell("fill a 2");
    peer.wants();
    let patience = if without.is_some() { NEVER } else { Duration::from_millis(300) };
    if job.answers_within(patience) { Err("launched without a grant".into()) } else { Ok(()) }
}

/// When the work goes on, its memory is there.
fn prefetch_brings_in(without: Option<&str>) -> Result<(), String> {
    let (_daemon, mut job, mut peer) = after_a_turn("prefetch", without);
    let out = peer.make_room(0);
    assert_eq!(out.resident_bytes, 0);
    job.tell("fill a 2");
    peer.wants();
    peer.grant(MEMORY);
    match peer.next() {
        ToDaemon::Resumed { .. } => {}
        other => panic!("{other:?} and not Resumed"),
    }
    let came = peer.seen().traffic.moved_in_bytes;
    if came >= BYTES { Ok(()) } else { Err(format!("only {came} bytes had come in")) }
}

/// Who has given the device back has nothing left to do on it.
fn sync_comes_first(without: Option<&str>) -> Result<(), String> {
    let (_daemon, mut job, mut peer) = after_a_turn("sync", without);
    job.tell(&format!("work a {LONG_WORK_NS}"));
    peer.turn(MEMORY);
    assert_eq!(job.answer().0, 0);
    peer.drop_turn();
    match job.code("query") {
        0 => Ok(()),
        code => Err(format!("the work was not done, {code}")),
    }
}

#[test]
fn nothing_is_launched_without_a_grant() {
    gate_holds(None).unwrap();
    gate_holds(Some("gate")).expect_err("this holds without the gate too");
}

#[test]
fn memory_is_there_when_the_work_goes_on() {
    prefetch_brings_in(None).unwrap();
    prefetch_brings_in(Some("prefetch")).expect_err("this holds without the prefetch too");
}

#[test]
fn work_is_done_when_the_device_is_given_back() {
    sync_comes_first(None).unwrap();
    sync_comes_first(Some("sync")).expect_err("this holds without the sync too");
}
