//! A new daemon, and clients that come back to it.

use std::time::Duration;

use millpond_share::control::State;
use millpond_share::protocol::{Standing, ToClient, Traffic};

use crate::desk::{Desk, GB, Newcomer, PLAIN, dropped, granted, resident, seconds, told};

/// What it knows its turn by, from another daemon or a connection that is lost.
const TURN_BEFORE: u64 = 4711;

fn back(claimed_bytes: u64, holds: bool) -> Newcomer {
    let traffic = if holds { resident(claimed_bytes) } else { Traffic::default() };
    let holds = holds.then_some(TURN_BEFORE);
    Newcomer { standing: Standing { claimed_bytes, holds, traffic }, ..PLAIN }
}

#[test]
fn a_holder_that_comes_back_stays_one() {
    let mut desk = Desk::new();
    let actions = desk.join_as(1, back(12 * GB, true));
    // No grant, which it might take for another one if it gives up the device at this moment.
    assert!(matches!(told(&actions, 1)[..], [ToClient::Welcome { .. }, ToClient::Room { .. }]));
    desk.comes(2, 12 * GB);
    assert_eq!(dropped(&desk.at(seconds(30)), 1), Some(TURN_BEFORE));
    let (turn, _) = granted(&desk.released(1, TURN_BEFORE, 12 * GB), 2).unwrap();
    assert!(turn > TURN_BEFORE, "no number is used twice");
}

#[test]
fn of_several_that_say_they_hold_and_do_not_fit_the_first_stays() {
    let mut desk = Desk::new();
    desk.join_as(1, back(12 * GB, true));
    let actions = desk.join_as(2, back(12 * GB, true));
    assert!(matches!(told(&actions, 2)[..], [ToClient::Welcome { .. }, ToClient::Drop { .. }]));
    // It knows its turn by the number that the other daemon gave it.
    desk.released(2, TURN_BEFORE, 12 * GB);
    desk.wants(2, 12 * GB);
    assert_eq!(granted(&desk.left(1), 2), None, "others may be on their way");
    assert!(granted(&desk.at(seconds(1)), 2).is_some());
}

#[test]
fn nobody_who_waits_is_granted_before_the_others_had_time_to_come_back() {
    let mut desk = Desk::new();
    desk.join_as(1, back(12 * GB, false));
    assert_eq!(granted(&desk.wants(1, 12 * GB), 1), None);
    desk.now += Duration::from_millis(900);
    desk.join_as(2, back(12 * GB, true));
    assert_eq!(granted(&desk.at(seconds(2)), 1), None);
    assert!(granted(&desk.left(2), 1).is_some());
}

#[test]
fn new_clients_wait_for_no_recovery() {
    let mut desk = Desk::new();
    assert!(granted(&desk.comes(1, 12 * GB), 1).is_some());
    desk.left(1);
    desk.at(seconds(5));
    desk.join_as(2, back(12 * GB, false));
    assert!(granted(&desk.wants(2, 12 * GB), 2).is_some(), "the daemon has run for long");
}

#[test]
fn who_comes_back_to_a_daemon_that_was_there_has_lost_what_others_have_now() {
    let mut desk = Desk::new();
    desk.comes(1, 12 * GB);
    desk.comes(2, 12 * GB);
    desk.at(seconds(5));
    assert!(granted(&desk.left(1), 2).is_some());
    let actions = desk.join_as(3, back(12 * GB, true));
    let revoked = ToClient::Revoked { turn: TURN_BEFORE };
    assert!(matches!(told(&actions, 3)[..], [ToClient::Welcome { .. }, said] if *said == revoked));
    // It keeps nobody out, though it never says that it is done.
    desk.comes(4, 12 * GB);
    assert!(granted(&desk.left(2), 4).is_some());
    desk.wants(3, 12 * GB);
    assert!(granted(&desk.left(4), 3).is_some());
}

#[test]
fn who_comes_back_and_fits_beside_the_others_goes_on() {
    let mut desk = Desk::new();
    desk.comes(1, 8 * GB);
    desk.at(seconds(5));
    let actions = desk.join_as(2, back(8 * GB, true));
    assert!(matches!(told(&actions, 2)[..], [ToClient::Welcome { .. }, ToClient::Room { .. }]));
    assert_eq!(desk.client(2).state, State::Running);
}
