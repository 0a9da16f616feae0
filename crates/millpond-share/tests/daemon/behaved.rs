//! Clients that behave, come back and die.

use std::time::Duration;

use millpond_share::control::{Mode, State};
use millpond_share::policy::Settings;
use millpond_share::protocol::{Hello, Standing, ToClient, ToDaemon, Traffic};

use crate::program::{CAPACITY, Program, hello};
use crate::stand::{Stand, settings};

/// Has so many turns. It gives up each when it is told to, but for the last, which nobody may wait for the end of.
fn take_turns(program: &mut Program, turns: usize) {
    let mut resident = 0;
    for left in (0..turns).rev() {
        program.want(700);
        let mut turn = None;
        loop {
            match program.hear() {
                ToClient::Grant { turn: granted, room } => {
                    turn = Some(granted);
                    resident = room.min(700);
                    program.moved(resident);
                    if left == 0 {
                        program.release(granted, resident);
                        break;
                    }
                }
                ToClient::Room { room } if turn.is_some() => {
                    resident = room.min(700);
                    program.moved(resident);
                    if resident == 700 {
                        program.say(ToDaemon::Resumed { moving_ns: 1000 });
                    }
                }
                ToClient::MakeRoom { resident_at_most } => {
                    resident = resident.min(resident_at_most);
                    program.moved(resident);
                }
                ToClient::Drop { turn } => {
                    program.release(turn, resident);
                    break;
                }
                _ => {}
            }
        }
    }
}

#[test]
fn two_that_do_not_fit_take_turns_and_one_makes_room_for_the_other() {
    let stand = Stand::new(settings());
    let programs = [stand.program().with_memory(700), stand.program().with_memory(700)];
    let threads = programs.map(|mut program| {
        std::thread::spawn(move || {
            take_turns(&mut program, 5);
            program
        })
    });
    let programs = threads.map(|thread| thread.join().unwrap());
    let device = stand.device();
    assert_eq!(device.clients.len(), 2);
    assert!(device.switches >= 10, "{device:?}");
    assert!(device.clients.iter().map(|client| client.resident_bytes).sum::<u64>() <= CAPACITY);
    drop(programs);
}

#[test]
fn two_that_fit_run_together() {
    let stand = Stand::new(settings());
    let mut programs = [stand.program().with_memory(400), stand.program().with_memory(400)];
    for program in &mut programs {
        program.want(400);
        program.expect_grant();
    }
    // Longer than a few quanta: nobody is dropped.
    std::thread::sleep(Duration::from_millis(200));
    let device = stand.device();
    assert_eq!(device.mode, Mode::Together);
    assert!(device.clients.iter().all(|client| client.state != State::Dropping), "{device:?}");
}

#[test]
fn a_holder_that_dies_leaves_the_device_to_the_next() {
    let stand = Stand::new(Settings { quantum: Duration::from_secs(3600), ..settings() });
    let mut holder = stand.program().with_memory(700);
    holder.want(700);
    holder.expect_grant();
    let mut next = stand.program().with_memory(700);
    next.want(700);
    drop(holder);
    next.expect_grant();
}

#[test]
fn a_holder_that_does_not_give_up_loses_the_device() {
    let stand = Stand::new(settings());
    let mut holder = stand.program().with_memory(700);
    holder.want(700);
    let turn = holder.expect_grant();
    let mut next = stand.program().with_memory(700);
    next.want(700);
    assert_eq!(holder.expect_drop(), turn);
    next.expect_grant();
    holder.expect(|message| matches!(message, ToClient::Revoked { .. }).then_some(()));
    // It may ask again.
    holder.want(700);
    let turn = next.expect_drop();
    next.release(turn, 0);
    holder.expect_grant();
}

#[test]
fn after_a_restart_clients_go_on_where_they_were() {
    let mut stand = Stand::new(Settings { quantum: Duration::from_secs(3600), ..settings() });
    let mut holder = stand.program().with_memory(700);
    holder.want(700);
    holder.expect_grant();
    let mut waiter = stand.program().with_memory(700);
    waiter.want(700);
    stand.stop();
    holder.hear_until_end();
    waiter.hear_until_end();
    stand.start();
    let standing = |holds: bool| Hello {
        standing: Standing {
            claimed_bytes: 700,
            holds: holds.then_some(1),
            traffic: Traffic { resident_bytes: if holds { 700 } else { 0 }, ..Traffic::default() },
        },
        ..hello()
    };
    // The one that waits is first, and waits all the same.
    let mut waiter = stand.program().joined(&standing(false));
    waiter.want(700);
    let holder = stand.program().joined(&standing(true));
    let device = stand.device();
    assert_eq!(device.clients.len(), 2, "{device:?}");
    std::thread::sleep(Duration::from_millis(1500));
    let device = stand.device();
    let states: Vec<State> = device.clients.iter().map(|client| client.state).collect();
    assert!(states.contains(&State::Waiting), "{device:?}");
    drop(holder);
    waiter.expect_grant();
}

impl Program {
    /// Hears whatever is said until the connection ends.
    fn hear_until_end(&mut self) {
        while self.hear_or_end().is_some() {}
    }
}
