//! What programs that do not share, and contexts, have of the device.

use millpond_share::policy::{ClientId, Event, Settings};
use millpond_share::protocol::{Standing, ToClient, Traffic};

use crate::desk::{CAPACITY, Desk, GB, Newcomer, PLAIN, dropped, granted, resident, seconds, told};

const MIB: u64 = 1 << 20;

/// A client that has the device, with all its memory there.
fn running(desk: &mut Desk, client: u64, bytes: u64) {
    desk.comes(client, bytes);
    desk.moved(client, bytes);
    desk.resumed(client, seconds(0));
}

fn foreign(desk: &Desk) -> u64 {
    desk.status().foreign_bytes
}

#[test]
fn what_is_taken_and_no_clients_is_external() {
    let mut desk = Desk::new();
    running(&mut desk, 1, 6 * GB);
    let actions = desk.taken(1, 9 * GB);
    assert_eq!(foreign(&desk), 3 * GB);
    assert!(matches!(
        told(&actions, 1)[..],
        [ToClient::Settings { memory_bytes, .. }] if *memory_bytes == 13 * GB
    ));
    running(&mut desk, 2, 6 * GB);
    desk.taken(2, 15 * GB);
    assert_eq!(foreign(&desk), 3 * GB, "the other's memory is none");
    desk.taken(1, 12 * GB);
    assert_eq!(foreign(&desk), 0, "it has gone, by the word of one of two");
}

#[test]
fn an_external_program_that_comes_ends_running_together_and_its_going_begins_it() {
    let mut desk = Desk::new();
    running(&mut desk, 1, 6 * GB);
    running(&mut desk, 2, 6 * GB);
    desk.taken(1, 16 * GB);
    let mut actions = desk.taken(2, 16 * GB);
    assert_eq!(foreign(&desk), 4 * GB);
    assert_eq!(dropped(&actions, 2), None, "12 GB fit beside 4 GB");
    actions = desk.claim(2, 7 * GB);
    assert_eq!(dropped(&actions, 2), Some(2));
    desk.wants(2, 7 * GB);
    desk.released(2, 2, 6 * GB);
    assert_eq!(desk.client(2).state, millpond_share::control::State::Waiting);
    actions = desk.taken(1, 12 * GB);
    assert!(granted(&actions, 2).is_some(), "{actions:?}");
}

#[test]
fn memory_that_may_have_come_by_itself_is_not_external() {
    let mut desk = Desk::new();
    desk.comes(1, 12 * GB);
    desk.moved(1, 2 * GB);
    desk.resumed(1, seconds(0));
    // Touched by ways that nobody sees.
    desk.taken(1, 12 * GB);
    assert_eq!(foreign(&desk), 0);
    desk.taken(1, 14 * GB);
    assert_eq!(foreign(&desk), 2 * GB, "so much is certain");
    // Nor is anything believed to be gone that may still be there.
    desk.taken(1, 5 * GB);
    assert_eq!(foreign(&desk), 2 * GB);
    desk.taken(1, 3 * GB);
    assert_eq!(foreign(&desk), GB);
}

#[test]
fn what_is_said_while_memory_moves_is_passed_over() {
    let mut desk = Desk::new();
    desk.comes(1, 6 * GB);
    desk.taken(1, 5 * GB);
    assert_eq!(foreign(&desk), 0, "its memory is on its way in");
    desk.moved(1, 6 * GB);
    desk.resumed(1, seconds(0));
    desk.taken(1, 11 * GB);
    assert_eq!(foreign(&desk), 5 * GB);
    desk.comes(2, 12 * GB);
    desk.at(seconds(30));
    desk.taken(2, 6 * GB);
    assert_eq!(foreign(&desk), 5 * GB, "one is to give up the device");
}

#[test]
fn a_client_that_is_missed_for_a_moment_is_not_external() {
    let mut desk = Desk::new();
    running(&mut desk, 1, 6 * GB);
    running(&mut desk, 2, 6 * GB);
    desk.left(2);
    desk.taken(1, 12 * GB);
    assert_eq!(foreign(&desk), 0, "it may come back");
    desk.at(seconds(11));
    desk.taken(1, 12 * GB);
    assert_eq!(foreign(&desk), 6 * GB, "it shares no longer");
}

#[test]
fn after_a_restart_nothing_is_concluded_before_all_can_be_back() {
    let mut desk = Desk::new();
    let standing = Standing { claimed_bytes: 6 * GB, holds: Some(9), traffic: resident(6 * GB) };
    desk.join_as(1, Newcomer { taken_bytes: Some(14 * GB), standing, ..PLAIN });
    assert_eq!(foreign(&desk), 0);
    desk.at(seconds(11));
    desk.taken(1, 14 * GB);
    assert_eq!(foreign(&desk), 8 * GB);
}

#[test]
fn one_liar_among_several_changes_nothing() {
    let mut desk = Desk::new();
    for client in 1..=3 {
        desk.join_as(client, Newcomer { taken_bytes: Some(2 * GB), ..PLAIN });
    }
    assert_eq!(foreign(&desk), 2 * GB);
    for lie in [u64::MAX, 0, 15 * GB] {
        desk.taken(2, lie);
        assert_eq!(foreign(&desk), 2 * GB, "{lie}");
    }
    desk.left(3);
    desk.taken(1, 2 * GB);
    desk.taken(2, u64::MAX);
    assert_eq!(foreign(&desk), 2 * GB, "of two, the smaller");
    desk.event(Event::Taken(ClientId(77), 0));
    assert_eq!(foreign(&desk), 2 * GB, "a client that is none");
}

#[test]
fn who_says_nothing_for_long_is_not_waited_for() {
    let mut desk = Desk::new();
    desk.join_as(1, Newcomer { taken_bytes: Some(0), ..PLAIN });
    desk.join_as(2, Newcomer { taken_bytes: Some(0), ..PLAIN });
    desk.taken(1, 3 * GB);
    assert_eq!(foreign(&desk), 0, "the other has said otherwise");
    desk.at(seconds(31));
    desk.taken(1, 3 * GB);
    assert_eq!(foreign(&desk), 3 * GB);
}

#[test]
fn what_was_promised_before_an_external_program_came_still_has_room() {
    let mut desk = Desk::new();
    desk.join_as(1, PLAIN);
    desk.claim(1, 15 * GB);
    let traffic = Traffic { fixed_bytes: 15 * GB, ..Traffic::default() };
    desk.event(Event::Moved(ClientId(1), traffic));
    desk.taken(1, 6 * GB);
    assert_eq!((foreign(&desk), desk.status().usable_bytes), (6 * GB, 10 * GB));
    let (_, room) = granted(&desk.wants(1, 15 * GB), 1).expect("nobody else is there");
    assert_eq!(room, 15 * GB, "memory that cannot fault would wait for ever for more");
}

#[test]
fn pages_that_are_larger_than_what_is_in_them_are_no_news() {
    let mut desk = Desk::with(Settings::default());
    running(&mut desk, 1, 6 * GB);
    assert!(desk.taken(1, 6 * GB + 40 * MIB).is_empty());
    assert_eq!(foreign(&desk), 0);
    desk.taken(1, 7 * GB);
    assert!(desk.taken(1, 7 * GB + 40 * MIB).is_empty());
    assert_eq!(foreign(&desk), GB);
    desk.taken(1, CAPACITY + 5 * GB);
    assert_eq!(foreign(&desk), 10 * GB, "no more than the device has");
}

/// What is pinned is believed up to half of a device, and the device may be smaller by a newcomer's word.
#[test]
fn a_device_that_is_smaller_in_other_words_breaks_nothing() {
    let mut desk = Desk::new();
    desk.comes(1, 8 * GB);
    let traffic = Traffic { pinned_bytes: 8 * GB, ..resident(8 * GB) };
    desk.event(Event::Moved(ClientId(1), traffic));
    for client in [2, 3] {
        desk.join_as(client, Newcomer { capacity_bytes: 5, taken_bytes: Some(5), ..PLAIN });
    }
    assert_eq!(desk.status().capacity_bytes, 5, "the status says what most say");
    let said = desk.claim(1, 15 * GB);
    let is_admitted = |said: &&ToClient| matches!(said, ToClient::Admitted { .. });
    assert!(told(&said, 1).iter().any(is_admitted), "and is all");
}
