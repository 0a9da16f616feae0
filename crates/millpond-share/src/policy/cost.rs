//! What a message costs does not depend on how many clients there are.

use std::time::Duration;

use super::{Action, ClientId, Event, Policy, Principal, Settings};
use crate::protocol::{Standing, Traffic};

const CAPACITY: u64 = 16 << 30;
const CLAIM: u64 = 12 << 30;
const USERS: u64 = 3;

fn joined(number: u64) -> Event {
    Event::Joined {
        client: ClientId(number),
        principal: Principal::User((number % USERS) as u32),
        pid: number as u32,
        name: String::new(),
        capacity_bytes: CAPACITY,
        taken_bytes: Some(1 << 30),
        weight: 1,
        priority: 0,
        memory_limit: None,
        standing: Standing { claimed_bytes: CLAIM, ..Standing::default() },
    }
}

fn claimed(number: u64, bytes: u64) -> Event {
    let (client, own_room) = (ClientId(number), Some(2 * CLAIM));
    Event::Claimed { client, claim: 0, bytes, host_room: u64::MAX, own_room }
}

/// So many clients, of which the first has the device and the others wait.
fn crowd(clients: u64) -> Policy {
    let mut policy = Policy::new(Settings::default());
    for number in 0..clients {
        policy.hear(Duration::ZERO, joined(number));
        policy.hear(Duration::ZERO, Event::Wants { client: ClientId(number), bytes: CLAIM });
    }
    policy.settle(Duration::from_secs(2));
    policy
}

/// How many clients are looked at for each kind of message, each some time after the one before.
fn looks(clients: u64) -> Vec<(&'static str, usize)> {
    let mut policy = crowd(clients);
    let (holder, waiter, newcomer) = (ClientId(0), ClientId(clients - 1), clients);
    let traffic = Traffic { resident_bytes: 1 << 30, ..Traffic::default() };
    let messages = [
        ("a waiting client's memory moves", Event::Moved(waiter, traffic)),
        ("the holder's memory moves", Event::Moved(holder, traffic)),
        ("a report of what is taken", Event::Taken(waiter, 3 << 30)),
        ("a claim that is admitted", claimed(waiter.0, CLAIM + 1)),
        ("a claim that is refused", claimed(waiter.0, 2 * CAPACITY)),
        ("less is claimed", claimed(waiter.0, CLAIM)),
        ("a client wants what it wants already", Event::Wants { client: waiter, bytes: CLAIM }),
        ("the holder's work goes on", Event::Resumed(holder, Duration::ZERO)),
        ("another comes", joined(newcomer)),
        ("it wants the device", Event::Wants { client: ClientId(newcomer), bytes: CLAIM }),
        ("it goes", Event::Left(ClientId(newcomer))),
        ("the holder gives up", Event::Released { client: holder, turn: 1, traffic, idle: false }),
        ("a message of one that is gone", Event::Taken(ClientId(newcomer), 0)),
    ];
    let mut now = Duration::from_secs(3);
    let mut count = |(name, event)| {
        now += Duration::from_millis(5);
        let before = policy.clients.looks();
        assert_eq!(policy.host_use().count(), USERS as usize);
        let said = policy.hear(now, event);
        assert!(said.iter().all(|action| matches!(action, Action::Tell(..))));
        (name, policy.clients.looks() - before)
    };
    messages.into_iter().map(&mut count).collect()
}

#[test]
fn no_message_looks_at_more_clients_where_there_are_more() {
    let few = looks(10);
    assert_eq!(few, looks(100));
    assert_eq!(few, looks(1000));
    let most = few.iter().map(|(_, looks)| *looks).max();
    assert!(most < Some(20), "{few:?}");
}

#[test]
fn settling_looks_at_all() {
    let looks = |clients| {
        let mut policy = crowd(clients);
        let before = policy.clients.looks();
        policy.settle(Duration::from_secs(3));
        policy.clients.looks() - before
    };
    assert!(looks(1000) > 1000, "looks are not counted");
}
