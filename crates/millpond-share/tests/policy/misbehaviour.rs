//! Clients that hang, lie and grab.

use millpond_share::control::State;
use millpond_share::policy::{Action, ClientId, MOST_WEIGHT, Settings, WhenStuck};
use millpond_share::protocol::{ToClient, Traffic};

use crate::desk::{Desk, GB, Newcomer, PLAIN, dropped, granted, room, seconds, to_keep, told};

/// The first has the device, the second waits, and the time is over.
fn over() -> Desk {
    let mut desk = Desk::new();
    desk.comes(1, 12 * GB);
    desk.moved(1, 12 * GB);
    desk.comes(2, 12 * GB);
    assert_eq!(dropped(&desk.at(seconds(30)), 1), Some(1));
    desk
}

#[test]
fn who_does_not_release_is_warned_and_then_loses_the_device() {
    let mut desk = over();
    assert_eq!(desk.at(seconds(39)), []);
    assert_eq!(desk.at(seconds(40)), [Action::Warn(ClientId(1), seconds(10))]);
    let actions = desk.at(seconds(50));
    assert_eq!(told(&actions, 1), [&ToClient::Revoked { turn: 1 }]);
    assert_eq!(granted(&actions, 2), Some((2, 16 * GB)), "its memory counts for nothing");
    assert_eq!(desk.client(1).state, State::Revoked);
}

#[test]
fn who_does_not_release_is_ended_if_so_set() {
    let mut desk = Desk::with(Settings { when_stuck: WhenStuck::End, ..Settings::default() });
    desk.comes(1, 12 * GB);
    desk.comes(2, 12 * GB);
    let actions = desk.at(seconds(50));
    assert!(actions.contains(&Action::End(ClientId(1))));
    assert!(granted(&actions, 2).is_some());
}

#[test]
fn a_revoked_client_may_ask_again_and_its_memory_counts_again() {
    let mut desk = over();
    desk.at(seconds(50));
    let actions = desk.released(1, 1, 12 * GB);
    assert_eq!(to_keep(&actions, 1), Some(4 * GB));
    desk.wants(1, 12 * GB);
    desk.at(seconds(80));
    assert!(granted(&desk.released(2, 2, 4 * GB), 1).is_some());
}

#[test]
fn who_makes_no_room_is_warned_and_then_its_memory_counts_for_nothing() {
    let mut desk = over();
    desk.released(1, 1, 12 * GB);
    let actions = desk.at(seconds(40));
    assert_eq!(actions, [Action::Warn(ClientId(1), seconds(10))]);
    assert_eq!(room(&desk.at(seconds(50)), 2), Some(16 * GB));
    // It may come round yet.
    desk.moved(1, 4 * GB);
    assert_eq!(room(&desk.claim(2, 16 * GB), 2), Some(12 * GB), "then it counts again");
}

#[test]
fn who_makes_room_slowly_but_surely_is_left_alone() {
    let mut desk = over();
    desk.released(1, 1, 12 * GB);
    for step in 1..=6 {
        assert!(desk.at(desk.now + seconds(9)).is_empty());
        desk.moved(1, 12 * GB - step * 8 * GB / 6);
    }
    assert_eq!(desk.at(seconds(10_000)), []);
}

#[test]
fn who_drips_room_by_the_byte_is_not() {
    let mut desk = over();
    desk.released(1, 1, 12 * GB);
    let mut actions = Vec::new();
    for step in 1..=10 {
        actions.extend(desk.at(desk.now + seconds(2)));
        actions.extend(desk.moved(1, 12 * GB - step));
    }
    assert_eq!(room(&actions, 2), Some(16 * GB));
}

#[test]
fn a_release_of_another_turn_releases_nothing() {
    let mut desk = over();
    assert_eq!(granted(&desk.released(1, 7, 0), 2), None);
    assert_eq!(desk.client(1).state, State::Dropping);
    assert!(granted(&desk.released(1, 1, 0), 2).is_some());
}

#[test]
fn one_that_waits_cannot_release_or_resume() {
    let mut desk = over();
    desk.released(2, 2, 0);
    desk.resumed(2, seconds(1));
    assert_eq!(desk.client(2).state, State::Waiting);
}

#[test]
fn nonsense_about_memory_is_not_believed() {
    let mut desk = over();
    let everything = Traffic {
        resident_bytes: u64::MAX,
        moved_in_bytes: u64::MAX,
        moved_out_bytes: u64::MAX,
        fixed_bytes: u64::MAX,
        pinned_bytes: u64::MAX,
        used_bytes: u64::MAX,
    };
    for client in [1, 2, 77] {
        desk.event(millpond_share::policy::Event::Moved(ClientId(client), everything));
    }
    let actions = desk.released(1, 1, u64::MAX);
    assert_eq!(granted(&actions, 2).unwrap().1, 12 * GB, "what it says that it has already");
}

#[test]
fn nobody_keeps_the_device_by_its_weight_or_priority() {
    let mut desk = Desk::new();
    let greedy = Newcomer { weight: u32::MAX, priority: i32::MAX, ..PLAIN };
    desk.comes_as(1, 12 * GB, greedy);
    desk.comes_as(2, 12 * GB, Newcomer { priority: i32::MIN, ..PLAIN });
    let longest = seconds(30) * MOST_WEIGHT;
    assert_eq!(dropped(&desk.at(longest), 1), Some(1));
    let mut turns = 0;
    let mut actions = desk.released(1, 1, 0);
    while granted(&actions, 2).is_none() {
        turns += 1;
        assert!(turns < 25, "it starves");
        desk.comes_as(100 + turns, 12 * GB, greedy);
        actions = desk.left(100 + turns);
    }
}

#[test]
fn one_liar_about_the_devices_memory_changes_nothing() {
    let mut desk = Desk::new();
    desk.join_as(2, Newcomer { capacity_bytes: 5, ..PLAIN });
    desk.comes(1, 12 * GB);
    assert_eq!(desk.client(1).allocated_bytes, 12 * GB, "one word against the other");
    desk.join_as(5, PLAIN);
    for (client, capacity_bytes) in [(6, 0), (3, u64::MAX)] {
        desk.join_as(client, Newcomer { capacity_bytes, ..PLAIN });
    }
    assert_eq!(desk.status().capacity_bytes, 16 * GB);
    desk.moved(1, 12 * GB);
    desk.resumed(1, seconds(0));
    desk.join_as(4, Newcomer { taken_bytes: Some(u64::MAX), ..PLAIN });
    assert_eq!(desk.status().usable_bytes, 12 * GB, "what is a client's is not external");
    desk.moved(1, 0);
    desk.claim(1, 0);
    desk.taken(4, u64::MAX);
    assert_eq!(desk.status().usable_bytes, 8 * GB, "half is never given away");
    for client in [1, 2, 4, 5, 6] {
        desk.left(client);
    }
    assert_eq!(desk.status().capacity_bytes, u64::MAX, "with nobody else to ask");
}

#[test]
fn growing_while_others_wait_gains_no_time() {
    let mut desk = Desk::new();
    desk.comes(1, 8 * GB);
    desk.comes(2, 8 * GB);
    desk.comes(3, 12 * GB);
    desk.at(seconds(20));
    assert_eq!(dropped(&desk.claim(1, 9 * GB), 2), Some(2));
    assert_eq!(dropped(&desk.at(seconds(30)), 1), Some(1));
}
