//! Users of one machine that share a daemon. Only root can be several users, so elsewhere these tests say that they were skipped.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use millpond_share::control::{Answer, Setting, Target};
use millpond_share::daemon::Audience;
use millpond_share::policy::{Allowance, Settings};
use millpond_share::protocol::{Hello, ToClient, ToDaemon};

use crate::program::{CAPACITY, PATIENCE, Program, hello};
use crate::stand::{Stand, settings};

const ALICE: u32 = 61_001;
const MALLORY: u32 = 61_002;

/// A daemon for every user, if we can be several.
fn for_everyone(settings: Settings, allowance: Allowance) -> Option<Stand> {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can be several users");
        return None;
    }
    let mut stand = Stand::new(settings);
    stand.stop();
    // It was its owner's.
    std::fs::remove_dir_all(stand.socket_directory()).unwrap();
    set_permissions(stand.path(), Permissions::from_mode(0o755)).unwrap();
    (stand.audience, stand.allowance) = (Audience::Everyone, allowance);
    stand.start();
    Some(stand)
}

fn greedy() -> Hello {
    Hello { weight: 100, priority: 10, ..hello() }
}

#[test]
fn other_users_get_the_weight_and_priority_that_they_are_allowed_and_are_told_so() {
    let some = Allowance { most_weight: 3, most_priority: 2 };
    for (allowance, expected) in [(Allowance::default(), (1, 0)), (some, (3, 2))] {
        let Some(stand) = for_everyone(settings(), allowance) else { return };
        let mut mallory = stand.program_of(MALLORY).joined(&greedy());
        let line = mallory.expect(|message| match message {
            ToClient::Notice { line } => Some(line.clone()),
            _ => None,
        });
        assert!(line.contains("weight 100") && line.contains("millpond share set"), "{line}");
        let client = stand.device().clients[0].clone();
        assert_eq!((client.weight, client.priority), expected);
        assert_eq!(client.principal, format!("user:{MALLORY}"));
        // The administrator may give it more.
        assert_eq!(stand.set(Setting::Weight(Target::Everyone, 50)), Answer::Done);
        assert_eq!(stand.device().clients[0].weight, 50);
    }
}

/// A program that has as much work as it can get, until the daemon ends.
fn works(mut program: Program) {
    program.say(ToDaemon::Claim { claim: 0, bytes: 700, cgroup_room: None });
    program.want(700);
    let mut resident = 0;
    while let Some(message) = program.hear_or_end() {
        match message {
            ToClient::Grant { room, .. } | ToClient::Room { room } => {
                let before = resident;
                resident = room.min(700);
                program.moved(resident);
                if before < 700 && resident == 700 {
                    program.say(ToDaemon::Resumed { moving_ns: 1 });
                }
            }
            ToClient::MakeRoom { resident_at_most } => {
                resident = resident.min(resident_at_most);
                program.moved(resident);
            }
            ToClient::Drop { turn } => {
                program.release(turn, resident);
                program.want(700);
            }
            _ => {}
        }
    }
}

/// Whatever the machine is busy with, what one had too little of it gets later; so the part is waited for. It never comes where a
/// greedy user has a hundred times as much, or goes first each time.
#[test]
fn a_user_that_asks_for_all_with_ten_programs_leaves_another_half_of_the_time() {
    let Some(mut stand) = for_everyone(settings(), Allowance::default()) else { return };
    let mut programs: Vec<Program> =
        (0..10).map(|_| stand.program_of(MALLORY).joined(&greedy())).collect();
    programs.push(stand.program_of(ALICE).joined(&hello()));
    let at_work: Vec<_> =
        programs.into_iter().map(|program| std::thread::spawn(|| works(program))).collect();
    let since = Instant::now();
    loop {
        let device = stand.device();
        let held_ms = |uid: u32| -> u64 {
            let own =
                device.clients.iter().filter(|client| client.principal == format!("user:{uid}"));
            own.map(|client| client.held_ms).sum()
        };
        let (honest, greedy) = (held_ms(ALICE), held_ms(MALLORY));
        // Of a quantum of 50 ms that is some ten turns of each.
        if honest >= 500 && greedy >= 300 && honest * 100 >= (honest + greedy) * 45 {
            break;
        }
        assert!(since.elapsed() < PATIENCE, "{honest} ms beside {greedy} ms: {device:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    stand.stop();
    at_work.into_iter().for_each(|thread| thread.join().unwrap());
    stand.start();
}

#[test]
fn the_daemons_own_user_may_ask_for_any() {
    let stand = Stand::new(settings());
    let _own = stand.program().joined(&greedy());
    let client = stand.device().clients[0].clone();
    assert_eq!((client.weight, client.priority), (100, 10));
}

#[test]
fn what_was_set_for_a_process_is_kept_beyond_what_its_user_may_ask_for() {
    let Some(mut stand) = for_everyone(settings(), Allowance::default()) else { return };
    let hello = hello();
    let _first = stand.program_of(ALICE).joined(&hello);
    assert_eq!(stand.set(Setting::Weight(Target::Everyone, 7)), Answer::Done);
    stand.stop();
    stand.start();
    let _again = stand.program_of(ALICE).joined(&hello);
    assert_eq!(stand.device().clients[0].weight, 7);
    // The same process with the same number takes its own place, but as another user.
    let _other = stand.program_of(MALLORY).joined(&hello);
    assert_eq!(stand.device().clients[0].weight, 1, "the number alone proves nothing");
}

#[test]
fn users_that_agree_on_a_small_device_shrink_it_for_themselves() {
    let Some(stand) = for_everyone(settings(), Allowance::default()) else { return };
    let small = |uid| {
        stand.program_of(uid).joined(&Hello {
            capacity_bytes: 10,
            taken_bytes: Some(10),
            ..hello()
        })
    };
    let _liars = [small(MALLORY), small(MALLORY), small(MALLORY + 1), small(MALLORY + 2)];
    let mut alice = stand.program_of(ALICE);
    alice.send(&hello());
    match alice.hear() {
        ToClient::Welcome { memory_bytes, .. } => assert_eq!(memory_bytes, CAPACITY),
        other => panic!("{other:?}"),
    }
}
