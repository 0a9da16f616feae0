//! Memory leaves the device and comes back with the same bytes at the same addresses.

use std::time::Duration;

use millpond_share::protocol::{Prefetch, ToClient};
use millpond_sim::{Profile, SharedName, Sharing, SimClock, SimGpu, SimOptions};
use millpond_tests::simcuda;

use crate::job::{Job, Route};
use crate::scripted_daemon::{Daemon, MEMORY, MIB, Peer};

/// Plain, with a pitch, managed, stream-ordered, from a pool, virtual.
const KINDS: [&str; 6] = ["p", "r", "m", "a", "f", "v"];
const BYTES: u64 = 20 * MIB;

fn started(test: &str, prefetch: Prefetch) -> (Daemon, Job, Peer) {
    let daemon = Daemon::named(test);
    let mut job = Job::by(Route::Linked, &daemon.directory, "capacity=1GiB", &[]);
    job.tell("start");
    let peer = daemon.welcome(prefetch);
    assert_eq!(job.answer().0, 0);
    (daemon, job, peer)
}

/// Gives the order, grants the turn that it needs, and expects success.
fn first_in_turn(job: &mut Job, peer: &mut Peer, order: &str) -> Vec<u64> {
    job.tell(order);
    peer.turn(MEMORY);
    let (code, numbers) = job.answer();
    assert_eq!(code, 0, "{order}");
    numbers
}

#[test]
fn every_kind_of_memory_goes_and_comes_back() {
    for prefetch in [Prefetch::WorkingSet, Prefetch::All, Prefetch::Off] {
        let (_daemon, mut job, mut peer) = started(&format!("kinds-{prefetch:?}"), prefetch);
        first_in_turn(&mut job, &mut peer, &format!("v first {BYTES}"));
        job.ask("write first 99");
        for (seed, kind) in KINDS.iter().enumerate() {
            job.ask(&format!("{kind} {kind} {BYTES}"));
            job.ask(&format!("write {kind} {seed}"));
        }
        for round in 0..3 {
            let there = peer.drop_turn().resident_bytes;
            assert!(there >= 7 * BYTES, "{there} bytes");
            let gone = peer.make_room(0);
            assert_eq!(gone.resident_bytes, 0);
            first_in_turn(&mut job, &mut peer, "check first 99");
            for (seed, kind) in KINDS.iter().enumerate() {
                let order = format!("check {kind} {seed}");
                assert_eq!(job.ask(&order), [0], "{prefetch:?}, round {round}: {order}");
            }
            let moved = peer.seen().traffic;
            let at_least = if prefetch == Prefetch::Off { 2 * BYTES } else { 7 * BYTES };
            assert!(moved.moved_in_bytes >= (round + 1) * at_least, "{moved:?}");
        }
        for kind in KINDS {
            job.ask(&format!("free {kind}"));
        }
        assert!(job.ends());
    }
}

/// Only as much leaves as is asked for, and what was used longest ago goes first.
#[test]
fn what_was_used_longest_ago_leaves_first_and_alone() {
    let (_daemon, mut job, mut peer) = started("oldest", Prefetch::WorkingSet);
    for name in ["old", "new"] {
        job.ask(&format!("p {name} {}", 64 * MIB));
    }
    first_in_turn(&mut job, &mut peer, "fill old 1");
    job.ask("fill new 1");
    peer.drop_turn();
    // Turns in which only the new one is used.
    for _ in 0..2 {
        first_in_turn(&mut job, &mut peer, "fill new 2");
        peer.drop_turn();
    }
    let there = peer.seen().traffic.resident_bytes;
    let left = peer.make_room(there - 10 * MIB).resident_bytes;
    assert_eq!(there - left, 64 * MIB, "a part is moved as one");
    // The new one is there: nothing has to come.
    first_in_turn(&mut job, &mut peer, "fill new 3");
    assert_eq!(peer.seen().traffic.moved_in_bytes, 0);
    assert_eq!(job.ask("sum old"), [16 * MIB]);
}

/// What the last turns did not use is left behind, and still there for whoever finds it by a table in device memory.
#[test]
fn memory_that_only_a_table_names_is_left_behind_and_found() {
    let (_daemon, mut job, mut peer) = started("chase", Prefetch::WorkingSet);
    for target in 0..3 {
        job.ask(&format!("p target{target} {}", 16 * MIB));
    }
    job.ask(&format!("p table {}", 4 * MIB));
    first_in_turn(&mut job, &mut peer, "table table 3");
    for target in 0..3 {
        job.ask(&format!("fill target{target} {}", target + 1));
    }
    // Two turns that use the table only, as far as anybody can see.
    let chased = job.ask("chase table 3");
    for _ in 0..2 {
        peer.drop_turn();
        assert_eq!(first_in_turn(&mut job, &mut peer, "chase table 3"), chased);
    }
    peer.drop_turn();
    peer.make_room(0);
    let before = peer.seen().traffic.moved_in_bytes;
    job.tell("chase table 3");
    peer.wants();
    peer.grant(MEMORY);
    peer.resumes();
    assert_eq!(job.answer(), (0, chased));
    let came = peer.seen().traffic.moved_in_bytes - before;
    assert!((4 * MIB..16 * MIB).contains(&came), "{came} bytes came in");
}

/// Room that grows step by step is used step by step, and the work begins when everything is there.
#[test]
fn memory_comes_in_as_room_grows() {
    let (_daemon, mut job, mut peer) = started("room", Prefetch::WorkingSet);
    for name in ["a", "b", "c"] {
        job.ask(&format!("p {name} {}", 64 * MIB));
    }
    first_in_turn(&mut job, &mut peer, "fill a 1");
    job.ask("fill b 2");
    job.ask("fill c 3");
    peer.drop_turn();
    peer.make_room(0);
    job.tell("fill a 4");
    assert!(peer.wants() >= 192 * MIB);
    peer.grant(70 * MIB);
    for room in [140 * MIB, 220 * MIB, MEMORY] {
        let there = peer.moved().resident_bytes;
        assert!(there <= room - 70 * MIB, "{there} bytes are more than the room");
        // In 220 MiB all of it is there, and the work may have begun.
        assert!(room == MEMORY || !job.has_answered());
        peer.say(&ToClient::Room { room });
    }
    peer.resumes();
    assert_eq!(job.answer().0, 0);
    assert_eq!(job.ask("sum c"), [48 * MIB]);
}

/// What another process has too cannot leave. The rest does, and the program's handles stay what they are.
#[test]
fn exported_memory_stays_and_handles_are_the_programs() {
    let (_daemon, mut job, mut peer) = started("exported", Prefetch::WorkingSet);
    first_in_turn(&mut job, &mut peer, &format!("v kept {BYTES}"));
    job.ask(&format!("v shared {BYTES}"));
    job.ask("write kept 1");
    job.ask("write shared 2");
    assert_eq!(job.ask("retain kept"), [1]);
    job.ask("export shared");
    peer.drop_turn();
    peer.say(&ToClient::MakeRoom { resident_at_most: 0 });
    // All but the shared one, and the page with the results.
    let left = loop {
        let left = peer.moved().resident_bytes;
        if left <= BYTES {
            break left;
        }
    };
    assert_eq!(left, BYTES);
    assert_eq!(first_in_turn(&mut job, &mut peer, "check shared 2"), [0]);
    assert_eq!(job.ask("check kept 1"), [0]);
    assert_eq!(job.ask("retain kept"), [1]);
    job.ask("free kept");
    job.ask("free shared");
    assert!(job.ends());
}

#[test]
fn threads_contexts_and_streams_of_a_program_all_stop_and_go_on() {
    let (_daemon, mut job, peer) = started("threads", Prefetch::WorkingSet);
    for number in 0..8 {
        job.ask(&format!("p t{number} {}", 4 * MIB));
    }
    job.ask(&format!("p own {}", 4 * MIB));
    job.tell("threads t 200");
    let mut peer = peer.juggle(1, || job.has_answered());
    for number in 0..8 {
        assert_eq!(peer.in_turn(&mut job, &format!("sum t{number}")), [199 * MIB]);
    }
    // Another context, whose work has to be waited for too.
    job.ask("context");
    peer.in_turn(&mut job, "fill own 3");
    peer.drop_turn();
    assert_eq!(first_in_turn(&mut job, &mut peer, "sum own"), [3 * MIB]);
}

/// Two programs on one device of 64 MiB.
fn two_on_a_small_device(test: &str) -> (Daemon, [(Job, Peer); 2]) {
    let daemon = Daemon::named(test);
    let process = std::process::id();
    let simulated = format!("capacity=64MiB,clock=100,shared=hook-{test}-{process}");
    let start = || {
        let mut job = Job::linked(&daemon.directory, &simulated);
        job.tell("start");
        let peer = daemon.client();
        assert_eq!(job.answer().0, 0);
        (job, peer)
    };
    let both = [start(), start()];
    (daemon, both)
}

/// New memory that cannot be faulted in waits until others have made room for it.
#[test]
fn new_virtual_memory_waits_for_room() {
    let (_daemon, [(mut one, mut first), (mut other, mut second)]) = two_on_a_small_device("full");
    first_in_turn(&mut one, &mut first, &format!("v a {}", 40 * MIB));
    one.ask("write a 1");
    first.drop_turn();
    other.tell(&format!("v b {}", 40 * MIB));
    assert!(second.wants() >= 40 * MIB);
    second.grant(64 * MIB);
    second.resumes();
    // It has the device, finds it full, and says again what it wants.
    assert!(second.wants() >= 40 * MIB);
    first.make_room(0);
    assert_eq!(other.answer().0, 0);
    other.ask("write b 2");
    second.drop_turn();
    second.make_room(0);
    assert_eq!(first_in_turn(&mut one, &mut first, "check a 1"), [0]);
    first.drop_turn();
    first.make_room(0);
    assert_eq!(first_in_turn(&mut other, &mut second, "check b 2"), [0]);
}

/// Memory that cannot be faulted in, on a device that is full though the daemon says that it is not, is waited for. But not for ever:
/// then calls get the driver's answer, until there is room.
#[test]
fn where_nobody_makes_room_calls_fail_and_go_on_when_somebody_does() {
    const OUT_OF_MEMORY: u64 = 2;
    let (_daemon, [(mut one, mut first), (mut other, mut second)]) = two_on_a_small_device("stuck");
    first_in_turn(&mut one, &mut first, &format!("v a {}", 40 * MIB));
    one.ask("write a 1");
    first.drop_turn();
    first.make_room(0);
    first_in_turn(&mut other, &mut second, &format!("v b {}", 40 * MIB));
    one.tell("check a 1");
    first.wants();
    first.grant(64 * MIB);
    assert!(!one.answers_within(Duration::from_secs(5)));
    assert_eq!(one.answer().0, OUT_OF_MEMORY);
    assert_eq!(one.code("check a 1"), OUT_OF_MEMORY);
    other.ask("free b");
    first.resumes();
    assert_eq!(one.ask("check a 1"), [0]);
}

/// What the hook says that it moved is what the device counts, for memory that is used as a whole.
#[test]
fn moved_bytes_are_those_that_the_device_counts() {
    const CAPACITY: u64 = 256 * MIB;
    let name = format!("hook-counted-{}", std::process::id());
    let daemon = Daemon::named("counted");
    let simulated = format!("capacity=256MiB,clock=100,shared={name}");
    let mut job = Job::linked(&daemon.directory, &simulated);
    job.tell("start");
    let mut peer = daemon.client();
    assert_eq!(job.answer().0, 0);
    let broker = simcuda::directory().join("millpond-sim-broker");
    let sharing = Sharing::new(SharedName::new(&name).unwrap(), broker);
    let profile = Profile::named("a100-80g").unwrap().with_capacity(CAPACITY).unwrap();
    let options = SimOptions { clock: SimClock::real(100.0).unwrap(), ..SimOptions::default() };
    let device = SimGpu::join(profile, options, &sharing).unwrap();
    for kind in ["p", "m", "a"] {
        job.ask(&format!("{kind} {kind} {}", 48 * MIB));
    }
    let mut begun = None;
    for turn in 0..4 {
        let orders = ["p", "m", "a"].map(|kind| format!("fill {kind} {turn}"));
        peer.in_turn(&mut job, &orders[0]);
        orders[1..].iter().for_each(|order| assert!(job.ask(order).is_empty()));
        job.ask("sync");
        peer.drop_turn();
        // A part stays now and then.
        let said = peer.make_room(if turn % 2 == 0 { 0 } else { 50 * MIB });
        let counted = device.managed_traffic();
        let counted = [counted.moved_in_bytes, counted.moved_out_bytes];
        let said = [said.moved_in_bytes, said.moved_out_bytes];
        // In the first turn the device itself has found a place for what is new.
        let first = *begun.get_or_insert([counted[0] - said[0], counted[1] - said[1]]);
        for way in 0..2 {
            let differ = said[way].abs_diff(counted[way] - first[way]);
            assert!(differ <= 64 << 10, "turn {turn}: {said:?}, {counted:?}, {first:?}");
        }
    }
    assert!(peer.seen().traffic.moved_in_bytes >= 3 * 96 * MIB);
}

/// What the device faults in by itself is not said to have been moved: nobody knows how much of it was.
#[test]
fn what_faults_in_is_not_counted() {
    let (_daemon, mut job, mut peer) = started("faulted", Prefetch::Off);
    job.ask(&format!("p a {}", 64 * MIB));
    for turn in 0..3 {
        first_in_turn(&mut job, &mut peer, &format!("fill a {turn}"));
        job.ask("sync");
        assert!(peer.drop_turn().resident_bytes >= 64 * MIB);
        let said = peer.make_room(0);
        assert_eq!((said.moved_in_bytes, said.moved_out_bytes), (0, 0), "{said:?}");
    }
    assert_eq!(first_in_turn(&mut job, &mut peer, "sum a"), [2 * 16 * MIB]);
}
