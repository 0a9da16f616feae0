//! Status and settings.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use millpond_share::control::{Answer, AskError, DeviceStatus, Line, Mode, Setting, State, Target};
use millpond_share::daemon::Given;
use millpond_share::policy::Settings;
use millpond_share::protocol::{DeviceId, Hello, Prefetch, ToClient, ToDaemon};

use crate::program::hello;
use crate::stand::{Stand, settings};

#[test]
fn a_shorter_quantum_holds_for_the_turn_that_goes_on() {
    let stand = Stand::new(Settings { quantum: Duration::from_secs(3600), ..settings() });
    let mut holder = stand.program().with_memory(700);
    holder.want(700);
    holder.expect_grant();
    let mut other = stand.program().with_memory(700);
    other.want(700);
    assert_eq!(stand.set(Setting::Quantum { device: None, quantum_ms: 20 }), Answer::Done);
    holder.expect_drop();
    assert_eq!(stand.device().quantum_ms, 20);
}

#[test]
fn each_device_has_a_quantum_of_its_own() {
    let stand = Stand::new(Settings { quantum: Duration::from_secs(3600), ..settings() });
    let on = |device| {
        let mut program = stand.program().joined(&Hello { device, ..hello() });
        program.say(ToDaemon::Claim { claim: 0, bytes: 700, cgroup_room: None });
        program.want(700);
        program
    };
    let (quick, slow) = (DeviceId([1; 16]), DeviceId([2; 16]));
    let mut holders = [on(quick), on(slow)];
    for holder in &mut holders {
        holder.expect_grant();
    }
    let mut waiters = [on(quick), on(slow)];
    assert_eq!(stand.set(Setting::Quantum { device: Some(0), quantum_ms: 20 }), Answer::Done);
    let turn = holders[0].expect_drop();
    holders[0].release(turn, 0);
    waiters[0].expect_grant();
    let status = stand.status();
    let quanta: Vec<u64> = status.devices.iter().map(|device| device.quantum_ms).collect();
    assert_eq!(quanta, [20, 3_600_000]);
    let holds = |device: &DeviceStatus| device.clients.iter().any(|c| c.state == State::Waiting);
    assert!(holds(&status.devices[1]), "the other device's turn goes on: {status:?}");
}

#[test]
fn off_lets_everybody_in_and_on_takes_turns_again() {
    let stand = Stand::new(Settings { quantum: Duration::from_secs(3600), ..settings() });
    let mut first = stand.program().with_memory(700);
    first.want(700);
    first.expect_grant();
    assert_eq!(stand.set(Setting::Turns(false)), Answer::Done);
    assert_eq!(stand.device().mode, Mode::Off);
    assert_eq!(stand.set(Setting::Turns(true)), Answer::Done);
    assert_ne!(stand.device().mode, Mode::Off);
}

#[test]
fn limits_and_prefetch_reach_the_client() {
    let stand = Stand::new(settings());
    let mut program = stand.program().with_memory(100);
    let target = Target::Process(std::process::id());
    assert_eq!(stand.set(Setting::MemoryLimit(target, Some(150))), Answer::Done);
    assert_eq!(stand.set(Setting::Prefetch(Prefetch::All)), Answer::Done);
    program.expect(|message| match message {
        ToClient::Settings { prefetch: Prefetch::All, memory_bytes: 150, .. } => Some(()),
        _ => None,
    });
    program.say(ToDaemon::Claim { claim: 0, bytes: 151, cgroup_room: None });
    program.expect(|message| matches!(message, ToClient::Refused { .. }).then_some(()));
    assert_eq!(stand.set(Setting::Weight(target, 3)), Answer::Done);
    assert_eq!(stand.device().clients[0].weight, 3);
    assert_eq!(stand.device().clients[0].memory_limit_bytes, Some(150));
}

#[test]
fn what_was_set_outlasts_the_daemon() {
    let mut stand = Stand::new(settings());
    let device = DeviceId([9; 16]);
    let others = Hello { device, ..hello() };
    let whose = hello();
    let come = |stand: &Stand| [stand.program().joined(&whose), stand.program().joined(&others)];
    let programs = come(&stand);
    for setting in [
        Setting::Quantum { device: None, quantum_ms: 1234 },
        Setting::Quantum { device: Some(1), quantum_ms: 77 },
        Setting::Prefetch(Prefetch::All),
        Setting::Turns(false),
        Setting::Weight(Target::Everyone, 4),
        Setting::Priority(Target::Process(std::process::id()), -3),
        Setting::MemoryLimit(Target::Everyone, Some(300)),
    ] {
        assert_eq!(stand.set(setting), Answer::Done);
    }
    let look = |stand: &Stand| {
        let devices = stand.status().devices;
        let of = |device: &DeviceStatus| {
            let client = &device.clients[0];
            let set = (client.weight, client.priority, client.memory_limit_bytes);
            (device.quantum_ms, device.mode, set)
        };
        devices.iter().map(of).collect::<Vec<_>>()
    };
    let before = look(&stand);
    let set = (4, -3, Some(300));
    assert_eq!(before, [(1234, Mode::Off, set), (77, Mode::Off, set)]);
    for _ in 0..2 {
        stand.stop();
        stand.start();
        let mut again = come(&stand);
        assert_eq!(look(&stand), before);
        again[0].say(ToDaemon::Claim { claim: 0, bytes: 301, cgroup_room: None });
        again[0].expect(|message| matches!(message, ToClient::Refused { .. }).then_some(()));
    }
    drop(programs);
    // What the next one is given counts more; and another program is another.
    stand.stop();
    stand.given = Given { quantum: true, prefetch: false };
    stand.start();
    let mut program = stand.program();
    program.send(&hello());
    match program.hear() {
        ToClient::Welcome { prefetch: Prefetch::All, .. } => {}
        other => panic!("{other:?}"),
    }
    let device = stand.device();
    assert_eq!((device.quantum_ms, device.clients[0].weight), (50, 1));
    // What cannot be read is no reason not to serve.
    stand.stop();
    std::fs::write(stand.socket_directory().join("settings"), "nonsense").unwrap();
    stand.start();
    let _program = stand.program().joined(&hello());
    assert_eq!(stand.device().mode, Mode::Together);
}

#[test]
fn orders_that_cannot_be_are_refused_with_a_reason() {
    let stand = Stand::new(settings());
    let _program = stand.program().joined(&hello());
    for (setting, word) in [
        (Setting::Quantum { device: None, quantum_ms: 0 }, "from 10ms"),
        (Setting::Quantum { device: Some(4), quantum_ms: 100 }, "no device 4"),
        (Setting::Weight(Target::Process(1), 2), "no client"),
        (Setting::Weight(Target::Everyone, 0), "at least 1"),
    ] {
        match stand.set(setting) {
            Answer::Refused(reason) => assert!(reason.contains(word), "{reason}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn garbage_at_the_desk_ends_its_own_connection_only() {
    let stand = Stand::new(settings());
    let control = millpond_share::rendezvous::control_socket(&stand.options().directory);
    for bytes in [&[0xff; 64][..], &[1, 0, 0, 0, 99], &[2, 0, 0, 0, 1]] {
        UnixStream::connect(&control).unwrap().write_all(bytes).unwrap();
    }
    assert_eq!(stand.status().devices.len(), 0);
}

#[test]
fn without_a_daemon_the_error_says_how_to_start_one() {
    let nowhere = std::path::Path::new("/nonexistent/millpond");
    let error = Line::open(nowhere).unwrap_err();
    assert!(matches!(error, AskError::NoDaemon(_)));
    assert!(error.to_string().contains("millpond share serve"));
}
