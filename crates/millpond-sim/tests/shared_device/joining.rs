//! How processes find each other.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use crate::meeting::{Meeting, kill, wait_until};

const CAPACITY: &str = "capacity=67108864";

#[test]
fn twenty_processes_that_start_at_once_have_one_broker() {
    let meeting = Meeting::new(CAPACITY);
    let mut players: Vec<_> = (0..20).map(|_| meeting.start("")).collect();
    for player in &mut players {
        assert_eq!(player.answer().as_deref(), Some("joined"));
    }
    let brokers: Vec<u64> = players.iter_mut().map(|p| p.ask_number("broker")).collect();
    assert!(brokers.iter().all(|broker| *broker == brokers[0]), "{brokers:?}");
    assert_eq!(meeting.brokers(), 1);
    drop(players);
    meeting.end();
}

#[test]
fn a_device_of_another_kind_is_refused_by_the_name_of_what_differs() {
    let meeting = Meeting::new(CAPACITY);
    let mut first = meeting.join();
    for (different, field) in [
        ("profile=p100-16g", "another profile: v100-16g, and not p100-16g"),
        ("capacity=33554432", "another capacity_bytes: 67108864, and not 33554432"),
        ("speed=2000", "another clock: 1000, and not 2"),
        ("device=1000", "another device"),
    ] {
        let answer = meeting.start(different).answer().unwrap();
        assert!(answer.starts_with("not joined: ") && answer.contains(field), "{answer}");
    }
    // A second device of the name may be of another kind.
    let mut other = meeting.start("device=1,capacity=33554432");
    assert_eq!(other.answer().as_deref(), Some("joined"));
    assert_eq!(other.ask_number("free-bytes"), 32 << 20);
    assert_eq!(first.ask_number("free-bytes"), 64 << 20);
    drop((first, other));
    meeting.end();
}

#[test]
fn a_missing_broker_is_named() {
    let meeting = Meeting::new(CAPACITY);
    let answer = meeting.start("broker=/nowhere/broker").answer().unwrap();
    assert!(answer.starts_with("not joined: cannot start the broker /nowhere/broker"), "{answer}");
    meeting.end();
}

#[test]
fn a_directory_that_others_can_use_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let meeting = Meeting::new(CAPACITY);
    let directory = meeting.file("socket").parent().unwrap().to_owned();
    std::fs::create_dir(&directory).unwrap();
    std::fs::set_permissions(&directory, PermissionsExt::from_mode(0o755)).unwrap();
    let answer = meeting.start("").answer().unwrap();
    assert!(answer.contains("nobody else can use"), "{answer}");
    meeting.end();
}

#[test]
fn garbage_on_the_socket_harms_nobody() {
    let meeting = Meeting::new(CAPACITY);
    let mut player = meeting.join();
    let block = player.ask_number("alloc 4194304");
    player.ask(&format!("write {block} 7 4194304"));
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut kept = Vec::new();
    for round in 0..200 {
        let mut socket = UnixStream::connect(meeting.file("socket")).unwrap();
        let mut bytes: Vec<u8> = (0..rng.usize(0..300)).map(|_| rng.u8(..)).collect();
        match round % 4 {
            // A message of four gigabytes, announced.
            0 => bytes.splice(0..0, [0xFF; 4]).for_each(drop),
            // A message whose length is right, of the right protocol.
            1 => {
                let length = bytes.len() as u32 + 1;
                bytes.splice(0..0, length.to_le_bytes().into_iter().chain([1])).for_each(drop);
            }
            // A message that never ends.
            2 => bytes.splice(0..0, [0, 0, 1, 0]).for_each(drop),
            _ => {}
        }
        // It may be closed on us before all is written.
        let _ = socket.write_all(&bytes);
        if round % 4 < 2 && bytes.len() > 5 {
            let mut rest = Vec::new();
            let _ = socket.read_to_end(&mut rest);
        } else {
            kept.push(socket);
        }
    }
    assert_eq!(player.ask(&format!("check {block} 7 4194304")), "same");
    assert_eq!(player.ask_number("free-bytes"), (64 << 20) - (4 << 20));
    drop(kept);
    assert_eq!(meeting.join().ask_number("broker"), player.ask_number("broker"));
    drop(player);
    meeting.end();
}

#[test]
fn another_protocol_is_refused_by_its_number() {
    let meeting = Meeting::new(CAPACITY);
    let player = meeting.join();
    let mut socket = UnixStream::connect(meeting.file("socket")).unwrap();
    socket.write_all(&[3, 0, 0, 0, 99, 1, 2]).unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.contains("protocol") && answer.contains("99"), "{answer:?}");
    drop(player);
    meeting.end();
}

#[test]
fn a_device_that_nobody_has_any_more_may_become_another_one() {
    let meeting = Meeting::new(CAPACITY);
    let mut small = meeting.join();
    let broker = small.ask_number("broker");
    drop(small);
    wait_until("the device is gone, and the broker is not", || {
        let mut large = meeting.start("capacity=134217728,profile=p100-16g");
        large.answer().as_deref() == Some("joined") && large.ask_number("broker") == broker
    });
    meeting.end();
}

#[test]
fn a_broker_leaves_when_nobody_is_left_and_another_one_comes() {
    let meeting = Meeting::new(&format!("{CAPACITY},idle_ms=50"));
    let mut brokers = std::collections::BTreeSet::new();
    for _ in 0..3 {
        let mut player = meeting.join();
        assert_eq!(player.ask_number("free-bytes"), 64 << 20);
        assert!(brokers.insert(player.ask_number("broker")), "a broker came back");
        drop(player);
        // The lock goes last.
        wait_until("the broker has left", || !meeting.file("lock").exists());
        assert!(!meeting.file("socket").exists() && !meeting.file("log").exists());
    }
    meeting.end();
}

#[test]
fn a_killed_broker_is_an_error_to_its_clients_and_is_replaced() {
    let meeting = Meeting::new(CAPACITY);
    let (mut a, mut b) = (meeting.join(), meeting.join());
    let block = a.ask_number("alloc 4194304");
    let managed = a.ask_number("managed 4194304");
    // One that is in the middle of a call.
    let mut storming = meeting.join();
    assert_eq!(storming.ask("storm 1"), "storm begins");
    kill(a.ask_number("broker") as u32);
    for line in [
        "alloc 4194304".to_owned(),
        "free-bytes".to_owned(),
        "create 2097152".to_owned(),
        format!("touch {managed} 4194304"),
        format!("write {block} 1 4096"),
        format!("check {block} 1 4096"),
        format!("free {block}"),
    ] {
        let answer = a.ask(&line);
        assert!(
            answer.contains("driver error 46") && answer.contains("broker"),
            "{line}: {answer}"
        );
    }
    assert!(b.ask("alloc 4194304").contains("broker"));
    let mut next = meeting.join();
    assert_eq!(next.ask_number("free-bytes"), 64 << 20);
    assert_eq!(meeting.brokers(), 2);
    drop((a, b, storming, next));
    meeting.end();
}
