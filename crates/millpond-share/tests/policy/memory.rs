//! Whose memory is on the device, and what is promised.

use millpond_share::control::{Setting, Target};
use millpond_share::policy::{Action, ClientId, Event, Settings, WhenStuck};
use millpond_share::protocol::{Prefetch, Standing, ToClient, Traffic};

use crate::desk::{Desk, GB, Newcomer, PLAIN, dropped, granted, room, seconds, to_keep, told};

#[test]
fn only_what_is_missing_leaves_and_room_grows_as_it_does() {
    let mut desk = Desk::new();
    desk.comes(1, 12 * GB);
    desk.moved(1, 12 * GB);
    desk.comes(2, 12 * GB);
    desk.at(seconds(30));
    let actions = desk.released(1, 1, 12 * GB);
    assert_eq!(granted(&actions, 2), Some((2, 4 * GB)));
    assert_eq!(to_keep(&actions, 1), Some(4 * GB));
    let actions = desk.moved(1, 9 * GB);
    assert_eq!(room(&actions, 2), Some(7 * GB));
    assert_eq!(to_keep(&actions, 1), None, "it has been told");
    assert_eq!(desk.moved(2, 7 * GB), []);
    assert_eq!(room(&desk.moved(1, 4 * GB), 2), Some(12 * GB));
    assert_eq!(desk.moved(2, 12 * GB), []);
}

#[test]
fn who_wants_less_than_it_has_needs_less_room() {
    let mut desk = Desk::new();
    desk.comes(1, 12 * GB);
    desk.moved(1, 12 * GB);
    desk.join_as(2, PLAIN);
    desk.claim(2, 12 * GB);
    desk.wants(2, 5 * GB);
    desk.at(seconds(30));
    assert_eq!(to_keep(&desk.released(1, 1, 12 * GB), 1), Some(11 * GB));
}

#[test]
fn who_has_been_idle_longest_makes_room_first_and_then_the_queue_from_its_end() {
    let mut desk = Desk::new();
    for client in 1..=4 {
        desk.join_as(client, PLAIN);
        desk.claim(client, 12 * GB);
    }
    for (client, turn) in [(4, 1), (3, 2), (2, 3)] {
        desk.wants(client, 12 * GB);
        desk.moved(client, 4 * GB);
        desk.now += seconds(1);
        desk.released(client, turn, 4 * GB);
    }
    let kept = |actions: &[Action]| [2, 3, 4].map(|client| to_keep(actions, client));
    assert_eq!(kept(&desk.wants(1, 10 * GB)), [None, Some(2 * GB), Some(0)]);
    // Whoever waits is nearer to its turn than who does not.
    assert_eq!(kept(&desk.wants(3, 12 * GB)), [Some(2 * GB), Some(4 * GB), None]);
    desk.now += seconds(1);
    assert_eq!(kept(&desk.wants(2, 12 * GB)), [None, None, None]);
}

#[test]
fn asking_stops_when_the_room_is_no_longer_needed() {
    let mut desk = Desk::new();
    desk.comes(1, 12 * GB);
    desk.moved(1, 12 * GB);
    desk.comes(2, 12 * GB);
    desk.at(seconds(30));
    desk.released(1, 1, 12 * GB);
    desk.moved(1, 9 * GB);
    assert_eq!(to_keep(&desk.left(2), 1), Some(9 * GB));
    assert_eq!(desk.at(seconds(1000)), []);
}

#[test]
fn two_that_come_together_are_not_promised_the_same_room() {
    let mut desk = Desk::new();
    desk.comes(1, 14 * GB);
    desk.moved(1, 14 * GB);
    desk.comes(2, 6 * GB);
    desk.comes(3, 6 * GB);
    desk.at(seconds(30));
    let actions = desk.released(1, 1, 14 * GB);
    let rooms = [2, 3].map(|client| granted(&actions, client).expect("they fit together").1);
    assert_eq!(rooms, [2 * GB, 0]);
    let actions = desk.moved(1, 7 * GB);
    assert_eq!((room(&actions, 2), room(&actions, 3)), (Some(6 * GB), Some(3 * GB)));
}

#[test]
fn the_driver_moves_everything_where_nothing_is_to_be_prefetched() {
    let mut desk = Desk::with(Settings { prefetch: Prefetch::Off, ..Settings::default() });
    desk.comes(1, 12 * GB);
    desk.moved(1, 12 * GB);
    desk.comes(2, 12 * GB);
    desk.at(seconds(30));
    assert_eq!(to_keep(&desk.released(1, 1, 12 * GB), 1), None);
    assert_eq!(desk.at(seconds(1000)), []);
}

/// A client whose memory cannot fault, of which some is on the device.
fn fixed(desk: &mut Desk, client: u64, bytes: u64, resident_bytes: u64, pinned_bytes: u64) {
    let traffic =
        Traffic { resident_bytes, fixed_bytes: bytes, pinned_bytes, ..Traffic::default() };
    desk.event(Event::Moved(ClientId(client), traffic));
}

#[test]
fn what_the_driver_cannot_move_is_made_room_for_all_the_same() {
    let mut desk = Desk::with(Settings { prefetch: Prefetch::Off, ..Settings::default() });
    desk.comes(1, 12 * GB);
    desk.moved(1, 12 * GB);
    desk.join_as(2, PLAIN);
    desk.claim(2, 12 * GB);
    fixed(&mut desk, 2, 12 * GB, 0, 0);
    desk.wants(2, 12 * GB);
    desk.at(seconds(30));
    let actions = desk.released(1, 1, 12 * GB);
    assert_eq!(granted(&actions, 2).map(|grant| grant.1), Some(4 * GB));
    assert_eq!(to_keep(&actions, 1), Some(4 * GB));
    assert_eq!(room(&desk.moved(1, 4 * GB), 2), Some(12 * GB));
}

#[test]
fn with_turns_off_only_what_cannot_fault_takes_them() {
    let mut desk = Desk::new();
    desk.set(Setting::Turns(false));
    for client in [1, 2] {
        desk.join_as(client, PLAIN);
        desk.claim(client, 12 * GB);
        fixed(&mut desk, client, 12 * GB, 0, 0);
    }
    assert!(granted(&desk.wants(1, 12 * GB), 1).is_some());
    fixed(&mut desk, 1, 12 * GB, 12 * GB, 0);
    assert_eq!(
        granted(&desk.wants(2, 12 * GB), 2),
        None,
        "it could never come in beside the first"
    );
    assert!(granted(&desk.comes(3, 12 * GB), 3).is_some(), "who can fault waits for nobody");
    let actions = desk.at(seconds(30));
    assert!(dropped(&actions, 1).is_some() && dropped(&actions, 3).is_none());
    let actions = desk.released(1, 1, 12 * GB);
    assert!(granted(&actions, 2).is_some() && to_keep(&actions, 1).is_some());
}

#[test]
fn switching_turns_off_lets_in_what_is_out() {
    let mut desk = Desk::new();
    desk.comes(1, 12 * GB);
    fixed(&mut desk, 1, 12 * GB, 12 * GB, 0);
    desk.comes(2, 12 * GB);
    fixed(&mut desk, 2, 12 * GB, 0, 0);
    desk.set(Setting::Turns(false));
    assert_eq!(dropped(&desk.at(seconds(30)), 1), Some(1));
    let actions = desk.released(1, 1, 12 * GB);
    assert!(granted(&actions, 2).is_some());
    assert_eq!(to_keep(&actions, 1), Some(4 * GB));
}

#[test]
fn what_cannot_leave_is_not_asked_to_and_others_have_the_rest() {
    let end = Settings { when_stuck: WhenStuck::End, ..Settings::default() };
    let mut desk = Desk::with(end);
    desk.comes(1, 6 * GB);
    fixed(&mut desk, 1, 6 * GB, 6 * GB, 6 * GB);
    desk.join_as(2, PLAIN);
    let refused = refusal(&mut desk, 2, 12 * GB, u64::MAX).expect("there is no place for it");
    assert!(refused.contains("exported"), "{refused}");
    desk.claim(2, 10 * GB);
    let actions = desk.wants(2, 10 * GB);
    assert_eq!(granted(&actions, 2).map(|grant| grant.1), Some(10 * GB), "it fits beside");
    assert_eq!(desk.at(seconds(1000)), []);
}

#[test]
fn who_says_that_everything_is_pinned_takes_half_and_is_not_ended_for_it() {
    let end = Settings { when_stuck: WhenStuck::End, ..Settings::default() };
    let mut desk = Desk::with(end);
    desk.comes(1, 14 * GB);
    desk.comes(2, 8 * GB);
    let traffic = Traffic { resident_bytes: 14 * GB, pinned_bytes: 14 * GB, ..Traffic::default() };
    desk.event(Event::Released { client: ClientId(1), turn: 1, traffic, idle: true });
    let actions = desk.at(seconds(1000));
    assert!(!actions.iter().any(|action| matches!(action, Action::End(_))), "{actions:?}");
    assert_eq!(room(&actions, 2), Some(8 * GB));
}

#[test]
fn each_clients_memory_must_fit_into_its_own_part_of_the_host() {
    let mut desk = Desk::new();
    for client in [1, 2, 3] {
        desk.join_as(client, PLAIN);
    }
    desk.claim(1, 14 * GB);
    desk.claim(3, 14 * GB);
    // Of the second only its own could have to leave.
    assert_eq!(told(&desk.claim_within(2, GB, 2 * GB), 2), [&ToClient::Admitted { claim: 0 }]);
    let refused = desk.claim_within(2, 5 * GB, 2 * GB);
    assert!(matches!(told(&refused, 2)[..], [ToClient::Refused { .. }]), "{refused:?}");
}

#[test]
fn nobodys_claim_drives_out_what_another_has_no_place_for() {
    let mut desk = Desk::new();
    desk.join_as(1, PLAIN);
    desk.join_as(2, PLAIN);
    assert_eq!(
        told(&desk.claim_within(1, 14 * GB, GB), 1),
        [&ToClient::Admitted { claim: 0 }],
        "it fits"
    );
    let refused = refusal(&mut desk, 2, 14 * GB, u64::MAX).expect("12 GB would have to leave");
    assert!(refused.contains("process 1"), "{refused}");
    assert_eq!(refusal(&mut desk, 2, 3 * GB, u64::MAX), None, "one would");
}

#[test]
fn a_claim_is_answered_if_it_is_not_less_than_before() {
    let mut desk = Desk::new();
    desk.join_as(1, PLAIN);
    assert_eq!(told(&desk.claim(1, 5), 1), [&ToClient::Admitted { claim: 0 }]);
    assert_eq!(told(&desk.claim(1, 5), 1), [&ToClient::Admitted { claim: 0 }]);
    assert_eq!(told(&desk.claim(1, 4), 1), Vec::<&ToClient>::new());
}

/// The host memory that all principals together still need.
fn host_need(desk: &Desk) -> u64 {
    desk.policy.host_use().map(|(_, host_use)| host_use.needs_bytes).sum()
}

/// Whether a claim was refused, and why.
fn refusal(desk: &mut Desk, client: u64, bytes: u64, host_room: u64) -> Option<String> {
    let actions = desk.claim_with(client, bytes, host_room);
    told(&actions, client).into_iter().find_map(|message| match message {
        ToClient::Refused { reason, .. } => Some(reason.clone()),
        _ => None,
    })
}

#[test]
fn nobody_gets_more_than_its_limit_or_the_device() {
    let mut desk = Desk::new();
    desk.join_as(1, Newcomer { memory_limit: Some(8 * GB), ..PLAIN });
    assert_eq!(refusal(&mut desk, 1, 8 * GB, u64::MAX), None);
    let reason = refusal(&mut desk, 1, 8 * GB + 1, u64::MAX).unwrap();
    assert!(reason.contains("limit"), "{reason}");
    assert_eq!(desk.client(1).allocated_bytes, 8 * GB, "it stays as it was");
    desk.join_as(2, PLAIN);
    let reason = refusal(&mut desk, 2, u64::MAX, u64::MAX).unwrap();
    assert!(reason.contains("device"), "{reason}");
    let actions = desk.set(Setting::MemoryLimit(Target::Process(1), Some(16 * GB)));
    assert!(matches!(
        told(&actions, 1)[..],
        [ToClient::Settings { memory_bytes, .. }] if *memory_bytes == 16 * GB
    ));
    assert_eq!(refusal(&mut desk, 1, 9 * GB, u64::MAX), None);
}

#[test]
fn a_claim_that_the_host_has_no_memory_for_is_refused() {
    let mut desk = Desk::new();
    desk.join_as(1, PLAIN);
    desk.join_as(2, PLAIN);
    assert_eq!(refusal(&mut desk, 1, 12 * GB, 0), None, "it fits on the device");
    assert_eq!(refusal(&mut desk, 2, 12 * GB, 8 * GB), None);
    assert_eq!(host_need(&desk), 8 * GB);
    assert!(refusal(&mut desk, 2, 13 * GB, 8 * GB).is_some());
    // What has left the device is on the host already, and is not needed again.
    let traffic = Traffic {
        resident_bytes: 6 * GB,
        moved_in_bytes: 2 * GB,
        moved_out_bytes: 8 * GB,
        ..Traffic::default()
    };
    desk.event(Event::Moved(ClientId(1), traffic));
    assert_eq!(host_need(&desk), 2 * GB);
    assert_eq!(refusal(&mut desk, 2, 13 * GB, 8 * GB), None);
}

#[test]
fn a_claim_is_not_refused_for_a_need_that_it_does_not_raise() {
    let mut desk = Desk::new();
    desk.join_as(1, PLAIN);
    desk.join_as(2, PLAIN);
    desk.claim(1, 12 * GB);
    desk.claim(2, 12 * GB);
    desk.claim(2, 2 * GB);
    assert_eq!(refusal(&mut desk, 2, 4 * GB, 0), None);
}

#[test]
fn external_memory_is_not_there_for_clients() {
    let mut desk = Desk::new();
    let newcomer = Newcomer { taken_bytes: Some(3 * GB), ..PLAIN };
    let actions = desk.join_as(1, newcomer);
    assert!(matches!(
        told(&actions, 1)[..],
        [ToClient::Welcome { memory_bytes, .. }] if *memory_bytes == 13 * GB
    ));
    desk.claim(1, 7 * GB);
    desk.wants(1, 7 * GB);
    assert_eq!(granted(&desk.comes_as(2, 7 * GB, newcomer), 2), None);
}

#[test]
fn what_is_kept_back_is_not_there_for_clients_either() {
    let settings = Settings { reserve_bytes: GB, ..Settings::default() };
    let actions = Desk::with(settings).join_as(1, Newcomer { taken_bytes: Some(3 * GB), ..PLAIN });
    assert!(matches!(
        told(&actions, 1)[..],
        [ToClient::Welcome { memory_bytes, .. }] if *memory_bytes == 12 * GB
    ));
}

#[test]
fn holders_that_grow_until_they_no_longer_fit_take_turns() {
    let mut desk = Desk::new();
    desk.comes(1, 6 * GB);
    desk.comes(2, 6 * GB);
    desk.at(seconds(100));
    let actions = desk.claim(2, 12 * GB);
    assert!(told(&actions, 2).contains(&&ToClient::Admitted { claim: 0 }));
    assert_eq!((dropped(&actions, 1), dropped(&actions, 2)), (None, Some(2)));
    desk.released(2, 2, 6 * GB);
    desk.wants(2, 12 * GB);
    assert_eq!(dropped(&desk.at(seconds(130)), 1), Some(1));
    assert!(granted(&desk.released(1, 1, 6 * GB), 2).is_some());
}

#[test]
fn new_memory_of_a_holder_is_made_room_for() {
    let mut desk = Desk::new();
    desk.join_as(1, PLAIN);
    desk.claim(1, 10 * GB);
    desk.wants(1, 10 * GB);
    desk.moved(1, 10 * GB);
    desk.released(1, 1, 10 * GB);
    desk.comes(2, 6 * GB);
    assert_eq!(to_keep(&desk.claim(2, 8 * GB), 1), Some(8 * GB));
}

#[test]
fn a_standing_is_believed_only_up_to_the_device() {
    let mut desk = Desk::new();
    let standing = Standing { claimed_bytes: u64::MAX, ..Standing::default() };
    desk.join_as(1, Newcomer { standing, ..PLAIN });
    assert_eq!(desk.client(1).allocated_bytes, 16 * GB);
}
