//! Who gets the device, and for how long.

use std::time::Duration;

use millpond_share::control::{Mode, Setting, State, Target};
use millpond_share::policy::{Action, ClientId, Event, Settings};
use millpond_share::protocol::{Prefetch, ToClient, Traffic};

use crate::desk::{Desk, GB, Newcomer, PLAIN, dropped, granted, resident, seconds, told};

#[test]
fn who_comes_first_is_granted_at_once_and_never_dropped_while_nobody_waits() {
    let mut desk = Desk::new();
    assert_eq!(granted(&desk.comes(1, 12 * GB), 1), Some((1, 16 * GB)));
    assert_eq!(desk.policy.next_moment(), None);
    assert_eq!(desk.at(seconds(100_000)), []);
    assert_eq!(desk.status().holder, Some(1));
}

#[test]
fn who_does_not_fit_beside_waits_for_the_end_of_the_quantum_and_for_the_release() {
    let mut desk = Desk::new();
    let (turn, _) = granted(&desk.comes(1, 12 * GB), 1).unwrap();
    desk.at(seconds(10));
    let actions = desk.comes(2, 12 * GB);
    assert_eq!(granted(&actions, 2), None);
    assert_eq!(told(&actions, 1), [&ToClient::Contended(true)]);
    assert_eq!(desk.at(seconds(30) - Duration::from_nanos(1)), []);
    assert_eq!(dropped(&desk.at(seconds(30)), 1), Some(turn));
    assert_eq!(desk.at(seconds(35)), []);
    let actions = desk.released(1, turn, 12 * GB);
    assert_eq!(granted(&actions, 2), Some((2, 4 * GB)));
    assert_eq!(desk.status().switches, 2);
}

#[test]
fn the_quantum_counts_from_the_grant_so_who_held_for_long_goes_at_once() {
    let mut desk = Desk::new();
    desk.comes(1, 12 * GB);
    desk.at(seconds(31));
    assert_eq!(dropped(&desk.comes(2, 12 * GB), 1), Some(1));
}

#[test]
fn those_that_fit_together_run_together_without_turns() {
    let mut desk = Desk::new();
    desk.comes(1, 8 * GB);
    assert!(granted(&desk.comes(2, 8 * GB), 2).is_some());
    assert_eq!(desk.at(seconds(1000)), []);
    assert_eq!(desk.status().mode, Mode::Together);
    assert_eq!(desk.status().holder, None);
}

#[test]
fn who_fits_beside_the_next_keeps_the_device_when_the_turn_ends() {
    let mut desk = Desk::new();
    desk.comes(1, 10 * GB);
    desk.comes(2, 4 * GB);
    desk.comes(3, 11 * GB);
    let actions = desk.at(seconds(30));
    assert_eq!(dropped(&actions, 1), Some(1));
    assert_eq!(dropped(&actions, 2), None);
    assert!(granted(&desk.released(1, 1, 0), 3).is_some());
    assert_eq!(desk.client(2).state, State::Arriving);
}

#[test]
fn nobody_small_slips_in_before_the_first_while_a_turn_ends() {
    let mut desk = Desk::new();
    desk.comes(1, 10 * GB);
    desk.comes(2, 12 * GB);
    desk.at(seconds(30));
    // It would fit beside the one that goes, but not beside the one that comes.
    assert_eq!(granted(&desk.comes(3, 5 * GB), 3), None);
    let actions = desk.released(1, 1, 0);
    assert!(granted(&actions, 2).is_some());
    assert_eq!(granted(&actions, 3), None);
}

#[test]
fn the_queue_is_served_in_order() {
    let mut desk = Desk::new();
    for client in 1..=3 {
        desk.comes(client, 12 * GB);
    }
    desk.at(seconds(30));
    assert!(granted(&desk.released(1, 1, 0), 2).is_some());
    desk.wants(1, 12 * GB);
    assert_eq!(dropped(&desk.at(seconds(60)), 2), Some(2));
    assert!(granted(&desk.released(2, 2, 0), 3).is_some());
    desk.at(seconds(90));
    assert!(granted(&desk.released(3, 3, 0), 1).is_some());
}

#[test]
fn an_idle_release_lets_the_next_in_at_once() {
    let mut desk = Desk::new();
    desk.comes(1, 12 * GB);
    desk.comes(2, 12 * GB);
    desk.at(seconds(3));
    let traffic = Traffic { resident_bytes: 12 * GB, ..Traffic::default() };
    let client = ClientId(1);
    let actions = desk.event(Event::Released { client, turn: 1, traffic, idle: true });
    assert!(granted(&actions, 2).is_some());
    assert_eq!(desk.client(1).state, State::Idle);
    desk.moved(1, 4 * GB);
    assert_eq!(desk.at(seconds(1000)), []);
}

#[test]
fn holders_hear_when_somebody_waits_and_when_nobody_does_any_more() {
    let mut desk = Desk::new();
    desk.comes(1, 12 * GB);
    assert_eq!(told(&desk.comes(2, 12 * GB), 1), [&ToClient::Contended(true)]);
    assert_eq!(told(&desk.left(2), 1), [&ToClient::Contended(false)]);
    desk.comes(3, 12 * GB);
    desk.comes(4, 12 * GB);
    desk.at(seconds(30));
    assert!(told(&desk.released(1, 1, 0), 3).contains(&&ToClient::Contended(true)));
}

#[test]
fn a_weight_is_a_number_of_quanta() {
    let mut desk = Desk::new();
    desk.comes_as(1, 12 * GB, Newcomer { weight: 3, ..PLAIN });
    desk.comes(2, 12 * GB);
    assert_eq!(desk.at(seconds(90) - Duration::from_nanos(1)), []);
    assert_eq!(dropped(&desk.at(seconds(90)), 1), Some(1));
}

#[test]
fn a_higher_priority_goes_first_and_cuts_the_turn_to_a_tenth() {
    let mut desk = Desk::new();
    desk.comes(1, 12 * GB);
    desk.comes(2, 12 * GB);
    desk.at(seconds(1));
    desk.comes_as(3, 12 * GB, Newcomer { priority: 1, ..PLAIN });
    assert_eq!(dropped(&desk.at(seconds(3)), 1), Some(1));
    let actions = desk.released(1, 1, 0);
    assert!(granted(&actions, 3).is_some());
    assert_eq!(granted(&actions, 2), None);
}

#[test]
fn each_turn_that_passes_a_client_by_raises_it_by_one() {
    let mut desk = Desk::new();
    desk.comes_as(1, 12 * GB, Newcomer { priority: 3, ..PLAIN });
    desk.comes_as(2, 12 * GB, Newcomer { priority: 3, ..PLAIN });
    desk.comes(3, 12 * GB);
    let mut holder = 1;
    let mut turns = 1;
    while holder != 3 {
        let actions = desk.at(desk.now + seconds(30));
        let turn = dropped(&actions, holder).expect("somebody waits");
        let actions = desk.released(holder, turn, 0);
        desk.wants(holder, 12 * GB);
        holder = (1..=3).find(|&next| granted(&actions, next).is_some()).expect("the next");
        turns += 1;
        assert!(turns < 7, "it starves");
    }
    assert_eq!(turns, 5, "three turns to make up for the priority, and its place in the queue");
}

#[test]
fn a_want_while_dropping_is_not_forgotten() {
    let mut desk = Desk::new();
    desk.comes(1, 12 * GB);
    desk.comes(2, 12 * GB);
    desk.at(seconds(30));
    desk.wants(1, 12 * GB);
    desk.released(1, 1, 0);
    assert_eq!(desk.client(1).state, State::Waiting);
}

#[test]
fn who_waits_is_granted_when_the_holder_dies() {
    let mut desk = Desk::new();
    desk.comes(1, 12 * GB);
    desk.comes(2, 12 * GB);
    assert!(granted(&desk.left(1), 2).is_some());
}

#[test]
fn a_turn_is_not_over_once_nobody_waits_any_more() {
    let mut desk = Desk::new();
    desk.comes(1, 10 * GB);
    desk.comes(2, 4 * GB);
    desk.comes(3, 11 * GB);
    desk.at(seconds(30));
    desk.left(3);
    desk.released(1, 1, 0);
    assert!(granted(&desk.wants(1, 10 * GB), 1).is_some());
}

#[test]
fn without_turns_everybody_is_granted_at_once() {
    let mut desk = Desk::with(Settings { turns: false, ..Settings::default() });
    for client in 1..=3 {
        assert!(granted(&desk.comes(client, 12 * GB), client).is_some());
    }
    assert_eq!(desk.at(seconds(1000)), []);
    assert_eq!(desk.status().mode, Mode::Off);
}

#[test]
fn turns_can_be_switched_off_and_on() {
    let mut desk = Desk::new();
    desk.comes(1, 12 * GB);
    desk.comes(2, 12 * GB);
    assert!(granted(&desk.set(Setting::Turns(false)), 2).is_some());
    let actions = desk.set(Setting::Turns(true));
    assert_eq!((dropped(&actions, 1), dropped(&actions, 2)), (None, Some(2)));
}

#[test]
fn settings_take_effect_in_the_turn_that_runs() {
    let mut desk = Desk::new();
    desk.comes(1, 12 * GB);
    desk.comes(2, 12 * GB);
    desk.at(seconds(5));
    let actions = desk.set(Setting::Quantum { device: None, quantum_ms: 4000 });
    assert_eq!(dropped(&actions, 1), Some(1));
    desk.released(1, 1, 0);
    desk.set(Setting::Weight(Target::Process(1), 7));
    desk.set(Setting::Priority(Target::Everyone, 4));
    assert_eq!((desk.client(1).weight, desk.client(2).weight), (7, 1));
    assert_eq!((desk.client(1).priority, desk.client(2).priority), (4, 4));
}

/// Two clients by turns, of which moving takes one part in so many.
fn turns_with_moving(desk: &mut Desk, turns: u64, parts: u32) {
    for _ in 0..turns {
        let holder = u64::from(desk.status().holder.expect("one of them"));
        let end = desk.policy.next_moment().expect("the other one waits");
        let moving = (end - desk.now) / parts;
        desk.now += moving;
        desk.resumed(holder, moving);
        let turn = dropped(&desk.at(end), holder).expect("its time is over");
        desk.released(holder, turn, 0);
        desk.wants(holder, 12 * GB);
    }
}

#[test]
fn turns_grow_when_moving_takes_too_much_of_them_and_shrink_again() {
    let mut desk = Desk::new();
    desk.comes(1, 12 * GB);
    desk.comes(2, 12 * GB);
    turns_with_moving(&mut desk, 3, 3);
    assert!(!desk.status().thrashing);
    turns_with_moving(&mut desk, 1, 3);
    assert_eq!(desk.status().effective_quantum_ms, 60_000);
    assert!(desk.status().thrashing);
    turns_with_moving(&mut desk, 8, 5);
    assert_eq!(desk.status().effective_quantum_ms, 60_000, "between the bounds it stays");
    turns_with_moving(&mut desk, 40, 3);
    assert_eq!(desk.status().effective_quantum_ms, 480_000, "and no further");
    turns_with_moving(&mut desk, 20, 20);
    assert_eq!(desk.status().effective_quantum_ms, 30_000);
    assert!(!desk.status().thrashing);
}

/// Two clients by turns where the driver brings in what they touch, and how much each touches.
fn turns_with_faults(desk: &mut Desk, turns: u64, used_bytes: u64) {
    for _ in 0..turns {
        let holder = u64::from(desk.status().holder.expect("one of them"));
        let end = desk.policy.next_moment().expect("the other one waits");
        desk.resumed(holder, Duration::ZERO);
        let turn = dropped(&desk.at(end), holder).expect("its time is over");
        let traffic = Traffic { used_bytes, ..resident(12 * GB) };
        let client = ClientId(holder);
        desk.event(Event::Released { client, turn, traffic, idle: false });
        desk.wants(holder, 0);
    }
}

#[test]
fn turns_grow_when_the_driver_has_to_bring_in_too_much_in_them() {
    let settings = Settings { quantum: seconds(5), prefetch: Prefetch::Off, ..Settings::default() };
    let mut desk = Desk::with(settings.clone());
    desk.comes(1, 12 * GB);
    desk.comes(2, 12 * GB);
    // 8 GB of 16 come in anew in each turn: 2.9 s.
    turns_with_faults(&mut desk, 5, 12 * GB);
    assert_eq!(desk.status().effective_quantum_ms, 10_000);
    assert!(desk.status().thrashing);
    turns_with_faults(&mut desk, 20, 12 * GB);
    assert_eq!(desk.status().effective_quantum_ms, 20_000, "an eighth of them is borne");
    // What both use fits together: whatever they have, it stays.
    turns_with_faults(&mut desk, 20, 8 * GB);
    assert_eq!(desk.status().effective_quantum_ms, 5000);
    assert!(!desk.status().thrashing);
    // Nobody uses more than it has.
    turns_with_faults(&mut desk, 200, u64::MAX);
    assert_eq!(desk.status().effective_quantum_ms, 20_000);
    let mut desk = Desk::with(Settings { stretches: false, ..settings });
    desk.comes(1, 12 * GB);
    desk.comes(2, 12 * GB);
    turns_with_faults(&mut desk, 20, 12 * GB);
    assert!(!desk.status().thrashing, "where they are to stay as they are");
}

#[test]
fn times_add_up() {
    let mut desk = Desk::new();
    desk.comes(1, 12 * GB);
    desk.comes(2, 12 * GB);
    desk.at(seconds(2));
    desk.resumed(1, seconds(2));
    desk.at(seconds(30));
    desk.at(seconds(31));
    desk.released(1, 1, 0);
    desk.at(seconds(41));
    let (first, second) = (desk.client(1), desk.client(2));
    assert_eq!((first.held_ms, first.moving_ms, first.waited_ms), (31_000, 2_000, 0));
    assert_eq!((second.held_ms, second.moving_ms, second.waited_ms), (10_000, 10_000, 31_000));
    assert!((desk.status().useful_share - 29.0 / 41.0).abs() < 1e-9);
    assert!(!desk.event(Event::Nothing).iter().any(|action| matches!(action, Action::End(_))));
}
