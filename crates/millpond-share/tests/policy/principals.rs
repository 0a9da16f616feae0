//! Users of one machine that do not trust each other: what one says and does takes neither memory nor turns from another.

use std::collections::BTreeMap;
use std::time::Duration;

use millpond_share::control::State;
use millpond_share::policy::{Action, Allowance, ClientId, Event, Moment, Settings};
use millpond_share::protocol::{Prefetch, Standing, ToClient, Traffic};

use crate::desk::{
    CAPACITY, Desk, GB, Newcomer, PLAIN, dropped, granted, of_user, resident, room, seconds, told,
};

/// The user whose programs do as they should. The others' numbers are what tests give them.
const HONEST: Newcomer = PLAIN;

fn is_admitted(actions: &[Action], client: u64) -> bool {
    told(actions, client).iter().any(|said| matches!(said, ToClient::Admitted { .. }))
}

/// What a client was last told that it can have.
fn memory(actions: &[Action], client: u64) -> Option<u64> {
    told(actions, client).into_iter().rev().find_map(|message| match message {
        ToClient::Welcome { memory_bytes, .. } | ToClient::Settings { memory_bytes, .. } => {
            Some(*memory_bytes)
        }
        _ => None,
    })
}

/// A client of 12 GB that has work from some moment on, gives up the device so long after it was told, and has no work for a pause then.
#[derive(Clone, Copy)]
struct Player {
    client: u64,
    from: Moment,
    late: Duration,
    pause: Duration,
}

fn prompt(client: u64) -> Player {
    Player { client, from: Moment::ZERO, late: Duration::ZERO, pause: Duration::ZERO }
}

const BYTES: u64 = 12 * GB;

/// Lets clients use the device by turns; returns how long each had it.
fn play(desk: &mut Desk, players: &[Player], until: Moment) -> BTreeMap<u64, Duration> {
    let mut due: BTreeMap<(Moment, u64), Option<u64>> =
        players.iter().map(|player| ((player.from, player.client), None)).collect();
    let mut took: BTreeMap<u64, Moment> = BTreeMap::new();
    let mut held: BTreeMap<u64, Duration> =
        players.iter().map(|player| (player.client, Duration::ZERO)).collect();
    while desk.now < until {
        let wakes = desk.policy.next_moment().unwrap_or(until).min(until).max(desk.now);
        let next = due.first_key_value().map(|(key, _)| *key).filter(|(at, _)| *at <= wakes);
        let mut actions = Vec::new();
        if let Some((at, client)) = next {
            let releases = due.remove(&(at, client)).expect("it is the first");
            desk.now = desk.now.max(at);
            if let Some(turn) = releases {
                let since = took.remove(&client).expect("it has the device");
                *held.get_mut(&client).expect("it plays") += desk.now - since;
                actions.extend(desk.released(client, turn, 0));
                let pause = players.iter().find(|player| player.client == client);
                let pause = pause.expect("it plays").pause;
                if !pause.is_zero() {
                    due.insert((desk.now + pause, client), None);
                }
            }
            if !due.keys().any(|(_, waits)| *waits == client) {
                actions.extend(desk.wants(client, BYTES));
            }
        } else {
            desk.now = wakes;
            actions = desk.event(Event::Nothing);
        }
        for &Player { client, late, .. } in players {
            if granted(&actions, client).is_some() {
                took.insert(client, desk.now);
                let said = desk.resumed(client, Duration::ZERO);
                assert!(said.is_empty(), "{said:?}");
            }
            if let Some(turn) = dropped(&actions, client) {
                due.insert((desk.now + late, client), Some(turn));
            }
        }
    }
    for (client, since) in took {
        *held.get_mut(&client).expect("it plays") += desk.now - since;
    }
    held
}

fn total(held: &BTreeMap<u64, Duration>, clients: impl Iterator<Item = u64>) -> Duration {
    clients.map(|client| held[&client]).sum()
}

#[test]
fn users_that_agree_on_a_small_device_make_it_small_for_themselves_only() {
    let mut desk = Desk::new();
    for client in 10..20 {
        let uid = 2000 + client as u32;
        desk.join_as(client, Newcomer { capacity_bytes: 4096, ..of_user(uid) });
        desk.wants(client, 0);
    }
    let actions = desk.join_as(1, HONEST);
    assert_eq!(memory(&actions, 1), Some(CAPACITY));
    assert!(is_admitted(&desk.claim(1, 15 * GB), 1));
    let (_, room) = granted(&desk.wants(1, 15 * GB), 1).expect("they take nothing");
    assert_eq!(room, 15 * GB);
}

#[test]
fn users_that_agree_on_a_large_device_do_not_get_in_beside_others() {
    let mut desk = Desk::new();
    desk.comes(1, 12 * GB);
    for client in 10..13 {
        let large = Newcomer { capacity_bytes: u64::MAX, ..of_user(client as u32) };
        assert_eq!(granted(&desk.comes_as(client, 12 * GB, large), client), None);
    }
    assert_eq!(desk.client(1).state, State::Arriving);
    let actions = desk.join_as(2, HONEST);
    assert_eq!(memory(&actions, 2), Some(CAPACITY), "by its own word");
}

#[test]
fn users_that_say_that_others_have_the_device_take_nothing_of_it() {
    let mut desk = Desk::new();
    for client in 10..15 {
        let liar = Newcomer { taken_bytes: Some(CAPACITY), ..of_user(client as u32) };
        desk.join_as(client, liar);
    }
    let actions = desk.join_as(1, Newcomer { taken_bytes: Some(GB), ..HONEST });
    assert_eq!(memory(&actions, 1), Some(15 * GB));
    for client in 10..15 {
        let actions = desk.taken(client, u64::MAX);
        assert_eq!(memory(&actions, 1), None, "it stays so");
    }
    assert!(is_admitted(&desk.claim(1, 15 * GB), 1));
}

#[test]
fn a_client_that_never_arrives_does_not_hide_what_others_have() {
    let mut desk = Desk::new();
    desk.comes_as(2, GB, of_user(2));
    desk.join_as(1, Newcomer { taken_bytes: Some(0), ..HONEST });
    assert_eq!(desk.client(2).state, State::Arriving);
    assert_eq!(memory(&desk.taken(1, 7 * GB), 1), Some(10 * GB), "7 GB less what may be its");
}

#[test]
fn coming_and_going_does_not_hide_what_others_have_for_ever() {
    let mut desk = Desk::new();
    desk.join_as(1, Newcomer { taken_bytes: Some(0), ..HONEST });
    let standing = Standing { claimed_bytes: 1, ..Standing::default() };
    for round in 0..20 {
        desk.join_as(100 + round, Newcomer { standing, ..of_user(2) });
        desk.at(desk.now + seconds(4));
        desk.left(100 + round);
        desk.taken(1, 6 * GB);
    }
    assert_eq!(desk.status().foreign_bytes, 6 * GB);
}

#[test]
fn what_another_says_is_pinned_counts_only_if_the_driver_says_that_it_is_there() {
    let mut desk = Desk::new();
    desk.comes_as(2, 8 * GB, of_user(2));
    let traffic = Traffic { pinned_bytes: 8 * GB, ..resident(8 * GB) };
    desk.event(Event::Released { client: ClientId(2), turn: 1, traffic, idle: true });
    let actions = desk.join_as(1, Newcomer { taken_bytes: Some(0), ..HONEST });
    assert_eq!(memory(&actions, 1), Some(CAPACITY), "the device is empty");
    assert!(is_admitted(&desk.claim(1, 15 * GB), 1));
    let (_, room) = granted(&desk.wants(1, 15 * GB), 1).expect("the other has nothing to do");
    assert!(room >= 15 * GB, "{room}");
    // One that really has it there has it.
    let actions = desk.join_as(3, Newcomer { taken_bytes: Some(6 * GB), ..of_user(3) });
    assert_eq!(memory(&actions, 3), Some(10 * GB));
}

#[test]
fn another_users_cgroup_refuses_only_what_is_beyond_ones_own_part() {
    let mut desk = Desk::new();
    desk.join_as(1, HONEST);
    desk.join_as(2, of_user(2));
    assert!(is_admitted(&desk.claim_within(2, 15 * GB, 0), 2));
    assert!(is_admitted(&desk.claim(1, 8 * GB), 1), "half of the device is its own");
    assert!(!is_admitted(&desk.claim(1, 9 * GB), 1), "the other's memory has nowhere to go");
    // Of the same user's programs each still counts.
    desk.join_as(3, HONEST);
    assert!(!is_admitted(&desk.claim_within(3, GB, 0), 3));
}

#[test]
fn a_users_claims_are_refused_for_its_own_need_of_the_host() {
    let mut desk = Desk::new();
    for client in 10..20 {
        desk.join_as(client, of_user(2));
        desk.claim_with(client, 16 * GB, 30 * GB);
    }
    let needs = desk.policy.host_use().map(|(_, host_use)| host_use.needs_bytes);
    assert_eq!(needs.collect::<Vec<_>>(), [16 * GB], "a second one fits there");
    desk.join_as(1, HONEST);
    assert!(is_admitted(&desk.claim_with(1, 8 * GB, 0), 1), "its part of the device is its own");
    assert!(!is_admitted(&desk.claim_with(1, 9 * GB, 0), 1));
    assert!(is_admitted(&desk.claim_with(1, 16 * GB, 8 * GB), 1));
}

#[test]
fn ten_programs_of_one_user_have_as_much_as_one_of_another() {
    let mut desk = Desk::new();
    let mut players = vec![prompt(1)];
    desk.join_as(1, HONEST);
    desk.claim(1, BYTES);
    for client in 10..20 {
        desk.join_as(client, of_user(2));
        desk.claim(client, BYTES);
        players.push(prompt(client));
    }
    let until = seconds(30 * 200);
    let held = play(&mut desk, &players, until);
    let (one, ten) = (held[&1], total(&held, 10..20));
    assert!(one.as_secs_f64() > 0.49 * until.as_secs_f64(), "{held:?}");
    assert!(ten.as_secs_f64() > 0.49 * until.as_secs_f64(), "{held:?}");
    let fewest = (10..20).map(|client| held[&client]).min().expect("there are ten");
    assert!(fewest.as_secs_f64() > 0.08 * ten.as_secs_f64(), "among themselves too: {held:?}");
}

/// What an honest user gets of 22 s beside one that asks for weight 100 and priority 10, with so many programs.
fn beside_a_greedy_user(programs: u64, allowance: Allowance) -> Duration {
    let (weight, priority) = allowance.cut(100, 10);
    let mut desk = Desk::with(Settings { quantum: seconds(1), ..Settings::default() });
    let mut players = Vec::new();
    for client in (10..10 + programs).chain([1]) {
        let greedy = Newcomer { weight, priority, ..of_user(2) };
        desk.join_as(client, if client == 1 { HONEST } else { greedy });
        desk.claim(client, BYTES);
        players.push(prompt(client));
    }
    play(&mut desk, &players, seconds(22))[&1]
}

/// It was 0.3 of 22 s.
#[test]
fn a_user_that_asks_for_all_leaves_another_half_of_the_time() {
    for programs in [1, 10] {
        let honest = beside_a_greedy_user(programs, Allowance::default());
        println!("{programs} greedy programs: {honest:.2?} of 22 s");
        assert!((10..=12).contains(&honest.as_secs()), "{programs}: {honest:?}");
        // Only the administrator's word makes it less.
        let beside_a_favourite = beside_a_greedy_user(programs, Allowance::ALL);
        println!("{programs} programs with weight 100 and priority 10: {beside_a_favourite:.2?}");
        assert!(beside_a_favourite < seconds(2), "{programs}: {beside_a_favourite:?}");
    }
}

#[test]
fn time_that_a_user_takes_by_being_late_is_made_up_for() {
    let mut desk = Desk::new();
    for (client, newcomer) in [(1, HONEST), (2, of_user(2)), (3, of_user(2)), (4, of_user(4))] {
        desk.join_as(client, newcomer);
        desk.claim(client, 12 * GB);
    }
    let late = |client| Player { late: seconds(19), ..prompt(client) };
    let until = seconds(30 * 300);
    let held = play(&mut desk, &[prompt(1), late(2), late(3), prompt(4)], until);
    for honest in [1, 4] {
        assert!(held[&honest].as_secs_f64() > 0.32 * until.as_secs_f64(), "{held:?}");
    }
}

#[test]
fn one_that_is_late_against_one_that_is_not_gains_nothing_either() {
    let mut desk = Desk::new();
    for (client, newcomer) in [(1, HONEST), (2, of_user(2))] {
        desk.join_as(client, newcomer);
        desk.claim(client, 12 * GB);
    }
    let until = seconds(30 * 300);
    let late = Player { late: seconds(19), ..prompt(2) };
    let held = play(&mut desk, &[prompt(1), late], until);
    assert!(held[&1].as_secs_f64() > 0.48 * until.as_secs_f64(), "{held:?}");
}

/// Between giving up the device and wanting it again a client is absent for a moment.
#[test]
fn what_one_that_is_late_takes_is_made_up_for_where_turns_are_short() {
    let settings = Settings { quantum: seconds(1), ..Settings::default() };
    let mut desk = Desk::with(settings);
    for (client, newcomer) in [(1, HONEST), (2, of_user(2))] {
        desk.join_as(client, newcomer);
        desk.claim(client, 12 * GB);
    }
    let until = seconds(22 * 100);
    let honest = Player { pause: Duration::from_millis(1), ..prompt(1) };
    let held = play(&mut desk, &[honest, Player { late: seconds(19), ..prompt(2) }], until);
    assert!(held[&1].as_secs_f64() > 0.45 * until.as_secs_f64(), "{held:?}");
}

#[test]
fn absence_earns_nothing() {
    let mut desk = Desk::new();
    for (client, newcomer) in [(1, HONEST), (2, of_user(2)), (3, of_user(3))] {
        desk.join_as(client, newcomer);
        desk.claim(client, 12 * GB);
    }
    // The third has nothing to do for long.
    let third = Player { from: seconds(3000), ..prompt(3) };
    let held = play(&mut desk, &[prompt(1), prompt(2), third], seconds(3900));
    assert!((269..=331).contains(&held[&3].as_secs()), "a third of 900 s: {held:?}");
    assert!((1769..=1831).contains(&held[&1].as_secs()), "{held:?}");
}

#[test]
fn leaving_and_coming_again_pays_no_debt() {
    let mut desk = Desk::new();
    desk.comes(1, 12 * GB);
    desk.comes_as(2, 12 * GB, of_user(2));
    desk.comes_as(3, 12 * GB, of_user(3));
    assert_eq!(dropped(&desk.at(seconds(30)), 1), Some(1));
    desk.left(1);
    desk.comes(4, 12 * GB);
    // It has had a quantum and the others none: they go first.
    let mut holder = 2;
    assert_eq!(desk.client(holder).state, State::Arriving);
    for next in [3, 4] {
        let turn = dropped(&desk.at(desk.now + seconds(30)), holder).expect("its time is over");
        let actions = desk.released(holder, turn, 0);
        assert!(granted(&actions, next).is_some(), "{next}: {actions:?}");
        holder = next;
    }
}

#[test]
fn clients_that_come_back_with_a_turn_by_turns_do_not_keep_a_large_one_out() {
    let mut desk = Desk::new();
    desk.comes_as(10, 1, of_user(2));
    desk.at(seconds(5));
    desk.comes(1, 16 * GB);
    let back = |turn| Newcomer {
        standing: Standing { claimed_bytes: 1, holds: Some(turn), ..Standing::default() },
        ..of_user(2)
    };
    let mut actions = Vec::new();
    for round in 0..20 {
        actions.extend(desk.join_as(100 + round, back(round)));
        actions.extend(desk.left(if round == 0 { 10 } else { 99 + round }));
        actions.extend(desk.at(desk.now + seconds(5)));
    }
    assert!(granted(&actions, 1).is_some(), "it starves");
}

#[test]
fn growing_and_shrinking_by_turns_keeps_the_device_for_one_quantum_only() {
    let mut desk = Desk::new();
    desk.comes_as(2, 4 * GB, of_user(2));
    desk.comes(1, 8 * GB);
    let mut lost = false;
    for _ in 0..40 {
        let mut actions = desk.claim(2, 16 * GB);
        if let Some(turn) = dropped(&actions, 1) {
            desk.wants(1, 8 * GB);
            actions.extend(desk.released(1, turn, 8 * GB));
        }
        actions.extend(desk.at(desk.now + seconds(1)));
        lost |= dropped(&actions, 2).is_some();
        actions = desk.claim(2, 4 * GB);
        actions.extend(desk.at(desk.now + seconds(1)));
        lost |= dropped(&actions, 2).is_some();
    }
    assert!(lost, "it never came to the end of its turn");
}

#[test]
fn one_users_word_on_moving_makes_no_turns_longer_for_another() {
    let mut desk = Desk::new();
    desk.comes_as(2, 12 * GB, of_user(2));
    desk.comes(1, 12 * GB);
    let mut holder = 2;
    for _ in 0..20 {
        // The liar never says that it works; the other works at once.
        if holder == 1 {
            desk.resumed(1, Duration::ZERO);
        }
        let end = desk.policy.next_moment().expect("the other one waits");
        let turn = dropped(&desk.at(end), holder).expect("its time is over");
        desk.released(holder, turn, 0);
        desk.wants(holder, 12 * GB);
        holder = 3 - holder;
    }
    assert!(!desk.status().thrashing);
    assert_eq!(desk.status().effective_quantum_ms, 30_000);
}

#[test]
fn what_a_user_says_it_used_makes_no_turns_longer_for_another() {
    let mut desk = Desk::with(Settings {
        prefetch: Prefetch::Off,
        quantum: seconds(1),
        ..Settings::default()
    });
    desk.comes_as(2, 16 * GB, of_user(2));
    desk.comes(1, GB);
    let mut holder = 2;
    for _ in 0..20 {
        if holder == 1 {
            desk.resumed(1, Duration::ZERO);
        }
        let end = desk.policy.next_moment().expect("the other one waits");
        let turn = dropped(&desk.at(end), holder).expect("its time is over");
        let used_bytes = if holder == 2 { u64::MAX } else { GB / 8 };
        let traffic = Traffic { used_bytes, ..Traffic::default() };
        desk.event(Event::Released { client: ClientId(holder), turn, traffic, idle: false });
        desk.wants(holder, 0);
        holder = 3 - holder;
    }
    assert_eq!(desk.status().effective_quantum_ms, 1000);
}

#[test]
fn a_higher_priority_of_another_user_goes_first_and_starves_none() {
    let mut desk = Desk::new();
    let first = Newcomer { priority: 3, ..of_user(2) };
    for (client, newcomer) in [(2, first), (3, first), (1, HONEST)] {
        desk.comes_as(client, 12 * GB, newcomer);
    }
    let (mut holder, mut turns) = (2, 1);
    while holder != 1 {
        let turn = dropped(&desk.at(desk.now + seconds(30)), holder).expect("others wait");
        let actions = desk.released(holder, turn, 0);
        desk.wants(holder, 12 * GB);
        holder = (1..=3).find(|&next| granted(&actions, next).is_some()).expect("the next");
        turns += 1;
        assert!(turns < 7, "it starves");
    }
    assert!(turns > 3, "three turns go before it: {turns}");
}

#[test]
fn a_weight_counts_between_users() {
    let mut desk = Desk::new();
    desk.join_as(1, HONEST);
    desk.join_as(2, Newcomer { weight: 3, ..of_user(2) });
    for client in [1, 2] {
        desk.claim(client, 12 * GB);
    }
    let held = play(&mut desk, &[prompt(1), prompt(2)], seconds(12_000));
    let ratio = held[&2].as_secs_f64() / held[&1].as_secs_f64();
    assert!((2.9..3.1).contains(&ratio), "{held:?}");
}

#[test]
fn room_that_is_not_made_costs_the_one_that_does_not_make_it() {
    let mut desk = Desk::new();
    for (client, newcomer) in [(1, HONEST), (2, of_user(2))] {
        desk.join_as(client, newcomer);
        desk.claim(client, 12 * GB);
    }
    desk.wants(2, 12 * GB);
    desk.moved(2, 12 * GB);
    desk.wants(1, 12 * GB);
    assert_eq!(dropped(&desk.at(seconds(30)), 2), Some(1));
    desk.wants(2, 12 * GB);
    // It gives up the device and not its memory, for as long as it is waited for.
    assert_eq!(granted(&desk.released(2, 1, 12 * GB), 1).map(|grant| grant.1), Some(4 * GB));
    let actions = desk.at(seconds(50));
    assert_eq!(room(&actions, 1), Some(16 * GB));
    desk.moved(1, 12 * GB);
    desk.resumed(1, seconds(20));
    assert_eq!(dropped(&desk.at(seconds(60)), 1), Some(2));
    // Its next turn is longer by what it lost.
    let (turn, _) = granted(&desk.released(1, 2, 0), 2).expect("it waits");
    desk.wants(1, 12 * GB);
    assert_eq!(dropped(&desk.at(seconds(90)), 2), Some(turn));
    let (turn, _) = granted(&desk.released(2, turn, 0), 1).expect("it waits");
    desk.wants(2, 12 * GB);
    assert_eq!(dropped(&desk.at(seconds(139)), 1), None);
    assert_eq!(dropped(&desk.at(seconds(140)), 1), Some(turn));
}
