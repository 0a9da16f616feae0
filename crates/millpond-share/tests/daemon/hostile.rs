//! Peers that send nonsense, too much, too slowly or nothing. Whatever they do, one that behaves is served.

use std::io::Write;
use std::time::Duration;

use millpond_share::daemon::ONE_CLIENT;
use millpond_share::protocol::{DeviceId, Hello, ToClient, ToDaemon, Traffic};

use crate::program::{CAPACITY, DEVICE, Program, hello};
use crate::stand::{Stand, settings};

fn assert_serves(stand: &Stand) {
    let mut program = stand.program().with_memory(100);
    program.want(100);
    program.expect_grant();
}

#[test]
fn garbage_ends_its_own_connection_only() {
    let stand = Stand::new(settings());
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    for round in 0..200 {
        let mut program = stand.program();
        if round % 2 == 0 {
            program = program.joined(&hello());
        }
        let bytes: Vec<u8> = (0..rng.usize(1..200)).map(|_| rng.u8(..)).collect();
        let _ = program.socket.write_all(&bytes);
        if round % 3 == 0 {
            let _ = program.socket.write_all(&u32::MAX.to_le_bytes());
        }
    }
    assert_serves(&stand);
}

#[test]
fn a_message_longer_than_any_is_not_waited_for() {
    let stand = Stand::new(settings());
    let mut program = stand.program().joined(&hello());
    // What each connection can make the daemon keep.
    let most = u32::try_from(millpond_share::framing::MOST_BYTES).unwrap();
    assert!(most <= 8 << 10);
    program.socket.write_all(&(most + 1).to_le_bytes()).unwrap();
    while program.hear_or_end().is_some() {}
    assert_serves(&stand);
}

#[test]
fn half_a_message_is_not_waited_for_for_ever() {
    let stand = Stand::new(settings());
    let mut silent = stand.program().joined(&hello());
    let mut halfway = stand.program().joined(&hello());
    halfway.socket.write_all(&[40, 0, 0, 0, 1]).unwrap();
    while halfway.hear_or_end().is_some() {}
    // Nothing at all is no half of a message.
    silent.want(0);
    silent.expect_grant();
}

#[test]
fn half_a_message_holds_up_nobody() {
    let stand = Stand::new(settings());
    let mut slow = stand.program();
    slow.socket.write_all(&[40, 0]).unwrap();
    let mut halfway = stand.program().joined(&hello());
    halfway.socket.write_all(&[40, 0, 0, 0, 1]).unwrap();
    assert_serves(&stand);
}

#[test]
fn who_floods_is_served_in_turn_and_who_does_not_read_is_cut_off() {
    let stand = Stand::new(settings());
    let mut flood = stand.program().joined(&hello());
    flood.socket.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    let mut bytes = Vec::new();
    for _ in 0..20_000 {
        // Each is answered, and the answers are never read.
        let claim = ToDaemon::Claim { claim: 0, bytes: u64::MAX, cgroup_room: None };
        millpond_share::framing::append(&claim, &mut bytes);
    }
    let flooding = std::thread::spawn(move || {
        // Until the daemon has had enough of it.
        while flood.socket.write_all(&bytes).is_ok() {}
    });
    for _ in 0..20 {
        assert_serves(&stand);
    }
    flooding.join().unwrap();
    assert_serves(&stand);
}

#[test]
fn lies_are_no_harm() {
    let stand = Stand::new(settings());
    let mut liar = stand.program().joined(&hello());
    let nonsense = Traffic {
        resident_bytes: u64::MAX,
        moved_in_bytes: u64::MAX,
        moved_out_bytes: u64::MAX,
        fixed_bytes: u64::MAX,
        pinned_bytes: u64::MAX,
        used_bytes: u64::MAX,
    };
    liar.say(ToDaemon::Released { turn: 99, traffic: nonsense, idle: true });
    liar.say(ToDaemon::Resumed { moving_ns: u64::MAX });
    liar.say(ToDaemon::Moved(nonsense));
    liar.say(ToDaemon::Want { bytes: u64::MAX });
    liar.say(ToDaemon::Claim { claim: 0, bytes: u64::MAX, cgroup_room: Some(0) });
    liar.expect(|message| matches!(message, ToClient::Refused { .. }).then_some(()));
    assert_eq!(stand.device().clients.len(), 1);
    drop(liar);
    assert_serves(&stand);
}

#[test]
fn hellos_that_cannot_be_are_told_why() {
    let stand = Stand::new(settings());
    let _first = stand.program().joined(&hello());
    let wrong = [
        (Hello { protocol: 99, ..hello() }, "version 99"),
        (Hello { capacity_bytes: 0, ..hello() }, "without memory"),
        (Hello { name: "x".repeat(65), ..hello() }, "64 bytes"),
        (Hello { weight: 0, ..hello() }, "from 1 to 100"),
        (Hello { priority: i32::MIN, ..hello() }, "from -10 to 10"),
    ];
    for (wrong, word) in wrong {
        let mut program: Program = stand.program();
        program.send(&wrong);
        match program.hear() {
            ToClient::Unfit { reason } => assert!(reason.contains(word), "{reason}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(program.hear_or_end(), None);
    }
    assert_eq!(stand.device().device, DEVICE.to_string());
}

#[test]
fn many_connections_of_one_process_cost_it_its_own() {
    let stand = Stand::new(settings());
    let mut first = stand.program().joined(&hello());
    let idle: Vec<Program> = (0..300).map(|_| stand.program()).collect();
    assert_serves(&stand);
    while first.hear_or_end().is_some() {}
    drop(idle);
    assert_serves(&stand);
}

#[test]
fn a_process_that_comes_again_takes_the_place_of_its_lost_connection() {
    let stand = Stand::new(settings());
    let hello = hello();
    let _old = stand.program().joined(&hello);
    let _new = stand.program().joined(&hello);
    assert_eq!(stand.device().clients.len(), 1);
}

#[test]
fn who_lies_about_the_devices_size_locks_nobody_out() {
    let stand = Stand::new(settings());
    let _liar = stand.program().joined(&Hello { capacity_bytes: 5, ..hello() });
    assert_serves(&stand);
    let _another = stand.program().joined(&Hello { capacity_bytes: u64::MAX, ..hello() });
    let mut honest = stand.program().joined(&hello());
    honest.say(ToDaemon::Claim { claim: 0, bytes: CAPACITY + 1, cgroup_room: None });
    honest.expect(|message| matches!(message, ToClient::Refused { .. }).then_some(()));
    assert_serves(&stand);
}

#[test]
fn a_process_can_bring_only_so_many_devices() {
    let stand = Stand::new(settings());
    let device = |number: u8| Hello { device: DeviceId([number; 16]), ..hello() };
    let mut liars = Vec::new();
    for number in 100..132 {
        liars.push(stand.program().joined(&device(number)));
    }
    let mut one_more = stand.program();
    one_more.send(&device(200));
    match one_more.hear() {
        ToClient::Unfit { reason } => assert!(reason.contains("at most 32"), "{reason}"),
        other => panic!("{other:?}"),
    }
    // What there is already is open to it.
    liars.push(stand.program().joined(&device(100)));
    drop(liars);
    assert_serves(&stand);
}

#[test]
fn a_process_is_one_client_of_a_device_however_often_it_connects() {
    let mut stand = Stand::new(settings());
    stand.stop();
    stand.clients_per_process = ONE_CLIENT;
    stand.start();
    let mut old = stand.program().joined(&hello());
    let _other_device = stand.program().joined(&Hello { device: DeviceId([9; 16]), ..hello() });
    let _new = stand.program().joined(&hello());
    assert_eq!(old.hear_or_end(), None);
    let status = stand.status();
    assert!(status.devices.iter().all(|device| device.clients.len() == 1), "{status:?}");
}
