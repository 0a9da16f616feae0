//! What clients of three users tell the daemon, in any order: the policy answers, and nothing is left when they are gone.

#![no_main]

use std::time::Duration;

use millpond_fuzz::Choices;
use millpond_share::control::{Setting, Target};
use millpond_share::policy::{ClientId, Event, Policy, Principal, Settings};
use millpond_share::protocol::{Prefetch, Standing, Traffic};

const CLIENTS: u64 = 5;
const USERS: u32 = 3;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut choices = Choices(bytes);
    let mut policy = Policy::new(Settings::default());
    let mut now = Duration::ZERO;
    while !choices.is_empty() {
        now += Duration::from_millis(u64::from(choices.byte()) << (choices.byte() % 10));
        let event = event(&mut choices);
        policy.hear(now, event);
        if choices.byte() % 3 > 0 {
            policy.settle(now);
            policy.status(now);
            let due = policy.next_moment().is_none_or(|due| due > now);
            assert!(due, "the policy wants to be asked again at once, for ever");
        }
    }
    for client in 0..CLIENTS {
        policy.handle(now, Event::Left(ClientId(client)));
    }
    assert!(policy.is_deserted());
});

/// Figures that are plausible, and figures at which sums overflow.
fn bytes(choices: &mut Choices<'_>) -> u64 {
    match choices.byte() {
        0 => 0,
        255 => u64::MAX,
        254 => u64::MAX / 2,
        gigabytes => u64::from(gigabytes % 40) << 30,
    }
}

fn traffic(choices: &mut Choices<'_>) -> Traffic {
    Traffic {
        resident_bytes: bytes(choices),
        moved_in_bytes: bytes(choices),
        moved_out_bytes: bytes(choices),
        fixed_bytes: bytes(choices),
        pinned_bytes: bytes(choices),
        used_bytes: bytes(choices),
    }
}

fn event(choices: &mut Choices<'_>) -> Event {
    let number = u64::from(choices.byte()) % CLIENTS;
    let client = ClientId(number);
    match choices.byte() % 12 {
        0 | 1 => Event::Joined {
            client,
            principal: Principal::User(number as u32 % USERS),
            pid: number as u32,
            name: String::new(),
            capacity_bytes: bytes(choices).max(1),
            taken_bytes: Some(bytes(choices)).filter(|bytes| *bytes > 0),
            weight: choices.word(),
            priority: choices.word() as i32,
            memory_limit: Some(bytes(choices)).filter(|bytes| *bytes > 0),
            standing: Standing {
                claimed_bytes: bytes(choices),
                holds: Some(bytes(choices)).filter(|turn| *turn > 0),
                traffic: traffic(choices),
            },
        },
        2 => Event::Left(client),
        3 | 4 => Event::Claimed {
            client,
            claim: u64::from(choices.byte()),
            bytes: bytes(choices),
            host_room: bytes(choices),
            own_room: Some(bytes(choices)).filter(|bytes| *bytes > 0),
        },
        5 => Event::Wants { client, bytes: bytes(choices) },
        6 => Event::Moved(client, traffic(choices)),
        7 => Event::Taken(client, bytes(choices)),
        8 => Event::Resumed(client, Duration::from_nanos(bytes(choices))),
        9 => Event::Released {
            client,
            turn: u64::from(choices.byte()),
            traffic: traffic(choices),
            idle: false,
        },
        10 => Event::Set(setting(choices, number as u32)),
        _ => Event::Nothing,
    }
}

fn setting(choices: &mut Choices<'_>, pid: u32) -> Setting {
    let target =
        if choices.byte().is_multiple_of(2) { Target::Everyone } else { Target::Process(pid) };
    match choices.byte() % 6 {
        0 => Setting::Quantum { device: None, quantum_ms: 1 + u64::from(choices.word() >> 8) },
        1 => Setting::Weight(target, choices.word()),
        2 => Setting::Priority(target, choices.word() as i32),
        3 => Setting::MemoryLimit(target, Some(bytes(choices))),
        4 => Setting::Prefetch(if pid == 0 { Prefetch::Off } else { Prefetch::All }),
        _ => Setting::Turns(choices.byte().is_multiple_of(2)),
    }
}
