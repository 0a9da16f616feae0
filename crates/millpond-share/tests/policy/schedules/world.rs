//! A schedule: who comes when, what is said when, and what goes wrong.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::time::Duration;

use fastrand::Rng;
use millpond_share::policy::{
    Action, Allowance, ClientId, Event, Moment, Policy, Settings, WhenStuck,
};
use millpond_share::protocol::{Prefetch, ToClient};

use super::actor::{Actor, Doing, Kind, Then, milliseconds};
use super::book::Book;
use crate::desk::{CAPACITY, GB};

/// An actor keeps its number when it has to connect again; what the policy knows it by is another one then.
type ActorNumber = usize;

#[derive(Debug)]
enum Happening {
    Hears(ActorNumber, ClientId, ToClient),
    Says(ActorNumber, ClientId, Event),
    Does(ActorNumber, Doing),
    Connects(ActorNumber),
    Arrives,
    Dies(ActorNumber),
    /// Its connection breaks, and it comes back.
    IsCutOff(ActorNumber),
    Hangs(ActorNumber),
    /// It asks the driver what is taken, and says so.
    LooksAround(ActorNumber),
    /// A program that does not share takes something of the device, or gives it back.
    ExternalTakes(u64),
    DaemonRestarts,
    /// The policy draws its conclusions from what it has heard.
    Settles,
    /// Nobody misbehaves from now on: the liars and the hung are gone, and nobody comes.
    CalmsDown,
}

pub(super) struct World {
    schedule: u64,
    is_told: bool,
    rng: Rng,
    settings: Settings,
    policy: Policy,
    /// The daemon hears several messages before the policy settles.
    settles_late: bool,
    is_unsettled: bool,
    book: Book,
    now: Moment,
    actors: Vec<Actor>,
    by_id: BTreeMap<ClientId, ActorNumber>,
    next_id: u64,
    queue: BinaryHeap<Reverse<(Moment, u64)>>,
    happenings: HashMap<u64, Happening>,
    queued: u64,
    happened: u64,
    /// When the last message to and from each actor arrives: none overtakes another.
    arrives: HashMap<(ActorNumber, bool), Moment>,
    /// Messages to and from each actor that have not arrived.
    under_way: HashMap<ActorNumber, u32>,
    /// Everybody has behaved and nobody was cut off.
    is_orderly: bool,
    is_calm: bool,
    /// What clients may ask for. With the default of the daemon no principal has more of a right to turns than another.
    allowance: Allowance,
    grants: u64,
    /// What a program that does not share has of the device.
    external_bytes: u64,
}

const MOST_ACTORS: usize = 6;
/// As if an administrator allowed every user as much as actors ask for.
const MORE: Allowance = Allowance::ALL;

impl World {
    pub(super) fn new(schedule: u64, is_told: bool) -> World {
        let mut rng = Rng::with_seed(schedule);
        let settings = Settings {
            quantum: milliseconds(&mut rng, 100..3000),
            grace: milliseconds(&mut rng, 500..3000),
            when_stuck: if rng.bool() { WhenStuck::Revoke } else { WhenStuck::End },
            turns: rng.u32(0..50) > 0,
            prefetch: if rng.u32(0..8) == 0 { Prefetch::Off } else { Prefetch::default() },
            stretches: rng.bool(),
            ..Settings::default()
        };
        let are_equal = rng.bool();
        let allowance = if are_equal { Allowance::default() } else { MORE };
        World {
            allowance,
            schedule,
            is_told,
            settles_late: rng.bool(),
            is_unsettled: false,
            rng,
            policy: Policy::new(settings.clone()),
            book: Book::new(settings.clone(), are_equal),
            settings,
            now: Moment::ZERO,
            actors: Vec::new(),
            by_id: BTreeMap::new(),
            next_id: 0,
            queue: BinaryHeap::new(),
            happenings: HashMap::new(),
            queued: 0,
            happened: 0,
            arrives: HashMap::new(),
            under_way: HashMap::new(),
            is_orderly: true,
            is_calm: false,
            grants: 0,
            external_bytes: 0,
        }
    }

    /// Plays the schedule to its end; returns how many grants there were.
    pub(super) fn run(mut self) -> u64 {
        let schedule = self.schedule;
        // Says which schedule it was if anything in it panics, the policy too.
        let says_number = SaysNumber(schedule);
        for _ in 0..self.rng.usize(2..=MOST_ACTORS) {
            let after = milliseconds(&mut self.rng, 0..3000);
            self.later(after, Happening::Arrives);
        }
        for _ in 0..self.rng.u32(0..3) {
            let after = milliseconds(&mut self.rng, 0..30_000);
            self.later(after, Happening::DaemonRestarts);
        }
        for _ in 0..self.rng.u32(0..4) {
            let (after, bytes) = (milliseconds(&mut self.rng, 0..30_000), self.rng.u64(0..10) * GB);
            self.later(after, Happening::ExternalTakes(bytes));
        }
        self.later(Duration::from_secs(30), Happening::CalmsDown);
        while let Some(next) = self.next() {
            self.happened += 1;
            assert!(self.happened < 200_000, "it never ends");
            match next {
                Some(happening) => self.happen(happening),
                None => {
                    self.is_unsettled = true;
                    self.settle();
                }
            }
            self.check_who_uses_the_device();
            self.check_the_device_has_room();
        }
        assert_eq!(self.book.waiting(), 0, "somebody waits and nothing will happen any more");
        assert!(self.actors.iter().all(|actor| actor.is_gone), "somebody never got done");
        std::mem::forget(says_number);
        self.grants + self.book.grants
    }

    /// What happens next, or nothing but time for the policy.
    fn next(&mut self) -> Option<Option<Happening>> {
        let first = self.queue.peek().map(|Reverse((at, _))| *at);
        let wakes = self.policy.next_moment();
        if wakes.is_some_and(|wakes| first.is_none_or(|first| wakes < first)) {
            self.now = self.now.max(wakes?);
            return Some(None);
        }
        let Reverse((at, number)) = self.queue.pop()?;
        self.now = at;
        Some(self.happenings.remove(&number))
    }

    fn later(&mut self, after: Duration, happening: Happening) {
        self.queued += 1;
        self.happenings.insert(self.queued, happening);
        self.queue.push(Reverse((self.now + after, self.queued)));
    }

    fn happen(&mut self, happening: Happening) {
        if self.is_told {
            println!("{:?} {happening:?}", self.now);
        }
        self.is_orderly &= !matches!(
            happening,
            Happening::Hangs(_) | Happening::IsCutOff(_) | Happening::DaemonRestarts
        );
        match happening {
            Happening::Hears(actor, id, message) => {
                *self.under_way.entry(actor).or_default() -= 1;
                if self.actors[actor].id == id && !self.actors[actor].is_gone {
                    let then = self.actors[actor].hear(&message, &mut self.rng);
                    self.follow(actor, then);
                }
            }
            Happening::Says(actor, id, event) => {
                *self.under_way.entry(actor).or_default() -= 1;
                if self.actors[actor].id == id && self.by_id.contains_key(&id) {
                    self.tell_policy(Some(id), event);
                }
            }
            Happening::Does(actor, doing) => {
                let then = self.actors[actor].act(doing, &mut self.rng);
                self.follow(actor, then);
            }
            Happening::Connects(actor) => self.connect(actor),
            Happening::Arrives => self.arrive(),
            Happening::Dies(actor) => self.die(actor),
            Happening::IsCutOff(actor) => self.cut_off(actor),
            Happening::Hangs(_) if self.is_calm => {}
            Happening::Hangs(actor) => {
                self.actors[actor].kind = Kind::Hung;
                self.book.hangs(self.actors[actor].id);
            }
            Happening::LooksAround(actor) => self.look_around(actor),
            Happening::ExternalTakes(bytes) => self.external_bytes = bytes,
            Happening::DaemonRestarts => self.restart(),
            Happening::Settles => self.settle(),
            Happening::CalmsDown => self.calm_down(),
        }
    }

    /// The policy and whoever listens are of one mind, once all that was said has been heard: nobody uses a device that it has
    /// lost.
    fn check_who_uses_the_device(&self) {
        for (number, actor) in self.actors.iter().enumerate() {
            // Who is slow may have been ended, which takes a moment.
            let listens = match actor.kind {
                Kind::Obedient => !actor.is_gone,
                Kind::Slow => !actor.is_gone && self.settings.when_stuck == WhenStuck::Revoke,
                Kind::Hung | Kind::Liar => false,
            };
            let has_heard_all = self.under_way.get(&number).is_none_or(|count| *count == 0);
            if listens && has_heard_all && self.by_id.contains_key(&actor.id) {
                let may = self.book.holds(actor.id);
                assert!(may || actor.holds.is_none(), "{number} uses what it has lost: {actor:?}");
            }
        }
    }

    /// As long as everybody does as told, there is never more on the device than it holds.
    fn check_the_device_has_room(&self) {
        let there = self.actors.iter().filter(|actor| !actor.is_gone);
        let resident: u64 = there.map(|actor| actor.resident).sum();
        // What is left to the driver it pushes out by itself.
        let driver_moves = !self.settings.turns || self.settings.prefetch == Prefetch::Off;
        assert!(!self.is_orderly || driver_moves || resident <= CAPACITY, "{resident} bytes on it");
    }

    /// What is taken in truth, though the word of it takes a moment.
    fn look_around(&mut self, number: ActorNumber) {
        let actor = &self.actors[number];
        if actor.is_gone {
            return;
        }
        if !matches!(actor.kind, Kind::Hung | Kind::Liar) {
            let there = self.actors.iter().filter(|actor| !actor.is_gone);
            let taken = there.map(|actor| actor.resident).sum::<u64>() + self.external_bytes;
            let said = Event::Taken(actor.id, taken.min(CAPACITY));
            self.follow(number, vec![Then::Says(said)]);
        }
        let after = milliseconds(&mut self.rng, 200..3000);
        self.later(after, Happening::LooksAround(number));
    }

    fn arrive(&mut self) {
        if self.is_calm {
            return;
        }
        let number = self.actors.len();
        let actor = Actor::new(ClientId(u64::MAX), &mut self.rng);
        let is_liar = actor.kind == Kind::Liar;
        self.is_orderly &= actor.kind == Kind::Obedient;
        self.actors.push(actor);
        self.connect(number);
        let after = milliseconds(&mut self.rng, 0..500);
        self.later(after, Happening::LooksAround(number));
        if is_liar {
            self.later(Duration::ZERO, Happening::Does(number, Doing::Lie));
        }
        let after = milliseconds(&mut self.rng, 100..40_000);
        match self.rng.u32(0..6) {
            0 => self.later(after, Happening::Dies(number)),
            1 => self.later(after, Happening::Hangs(number)),
            2 => self.later(after, Happening::IsCutOff(number)),
            _ => {}
        }
    }

    fn connect(&mut self, number: ActorNumber) {
        let is_there = self.by_id.contains_key(&self.actors[number].id);
        if self.actors[number].is_gone || is_there {
            return;
        }
        let is_back = self.next_id > 0 && self.actors[number].id != ClientId(u64::MAX);
        self.next_id += 1;
        let id = ClientId(self.next_id);
        let standing = self.actors[number].standing();
        let then = if is_back {
            self.actors[number].reconnected(id, &mut self.rng)
        } else {
            self.actors[number].id = id;
            Vec::new()
        };
        self.by_id.insert(id, number);
        self.book.joined(self.now, &self.actors[number]);
        let (weight, priority) = self.asks_for(number);
        let joined = Event::Joined {
            client: id,
            principal: self.actors[number].principal,
            pid: number as u32,
            name: format!("{number}"),
            capacity_bytes: self.actors[number].capacity,
            taken_bytes: self.rng.bool().then_some(self.external_bytes),
            weight,
            priority,
            memory_limit: None,
            standing,
        };
        self.tell_policy(Some(id), joined);
        self.follow(number, then);
    }

    /// What the daemon makes of the weight and the priority that an actor asks for.
    fn asks_for(&mut self, number: ActorNumber) -> (u32, i32) {
        if self.allowance == MORE {
            return (self.actors[number].weight, self.actors[number].priority);
        }
        self.allowance.cut(self.rng.u32(1..), self.rng.i32(0..))
    }

    fn die(&mut self, number: ActorNumber) {
        let actor = &mut self.actors[number];
        if !std::mem::replace(&mut actor.is_gone, true) && self.by_id.contains_key(&actor.id) {
            let id = actor.id;
            self.tell_policy(Some(id), Event::Left(id));
        }
        if self.rng.bool() {
            let after = milliseconds(&mut self.rng, 0..2000);
            self.later(after, Happening::Arrives);
        }
    }

    fn cut_off(&mut self, number: ActorNumber) {
        let id = self.actors[number].id;
        if self.by_id.contains_key(&id) {
            self.tell_policy(Some(id), Event::Left(id));
            let after = milliseconds(&mut self.rng, 0..3000);
            self.later(after, Happening::Connects(number));
        }
    }

    /// The daemon is gone with all that it knew and all that was under way; clients come back one by one.
    fn restart(&mut self) {
        self.grants += self.book.grants;
        self.policy = Policy::new(self.settings.clone());
        self.is_unsettled = false;
        let are_equal = self.allowance == Allowance::default();
        self.book = Book::new(self.settings.clone(), are_equal);
        self.by_id.clear();
        for number in 0..self.actors.len() {
            // Some come back when the new daemon no longer waits for them.
            let latest = if self.rng.u32(0..4) == 0 { 4000 } else { 900 };
            let after = milliseconds(&mut self.rng, 0..latest);
            self.later(after, Happening::Connects(number));
        }
    }

    fn calm_down(&mut self) {
        self.is_calm = true;
        for number in 0..self.actors.len() {
            let hung_or_lying = matches!(self.actors[number].kind, Kind::Hung | Kind::Liar);
            if hung_or_lying && !self.actors[number].is_gone {
                self.die(number);
            }
        }
    }

    fn follow(&mut self, number: ActorNumber, then: Vec<Then>) {
        for then in then {
            match then {
                Then::Does(after, doing) => self.later(after, Happening::Does(number, doing)),
                Then::Says(event) => {
                    let id = self.actors[number].id;
                    self.send(number, true, Happening::Says(number, id, event));
                }
            }
        }
    }

    /// Messages take a moment and arrive in order.
    fn send(&mut self, number: ActorNumber, to_policy: bool, message: Happening) {
        let after = Duration::from_micros(self.rng.u64(10..2000));
        let last = self.arrives.entry((number, to_policy)).or_default();
        *last = (*last + Duration::from_nanos(1)).max(self.now + after);
        let after = *last - self.now;
        *self.under_way.entry(number).or_default() += 1;
        self.later(after, message);
    }

    fn tell_policy(&mut self, from: Option<ClientId>, event: Event) {
        self.book.pass(self.now);
        self.book.heard(&event);
        if let (Some(id), Event::Left(_)) = (from, &event) {
            self.by_id.remove(&id);
        }
        let actions = self.policy.hear(self.now, event);
        self.carry_out(actions);
        if !std::mem::replace(&mut self.is_unsettled, true) {
            let after = if self.settles_late { self.rng.u64(0..1000) } else { 0 };
            match after {
                0 => self.settle(),
                after => self.later(Duration::from_micros(after), Happening::Settles),
            }
        }
    }

    fn settle(&mut self) {
        if !std::mem::take(&mut self.is_unsettled) {
            return;
        }
        self.book.pass(self.now);
        let actions = self.policy.settle(self.now);
        self.carry_out(actions);
        self.book.check(self.now);
    }

    fn carry_out(&mut self, actions: Vec<Action>) {
        if self.is_told && !actions.is_empty() {
            println!("{:?}     → {actions:?}", self.now);
        }
        let status = self.policy.status(self.now);
        self.book.turns_so_far(self.now, status.switches);
        self.book.answered(&actions);
        for action in actions {
            match action {
                Action::Tell(id, message) => {
                    let number = self.by_id[&id];
                    self.send(number, false, Happening::Hears(number, id, message));
                }
                Action::End(id) => {
                    let number = self.by_id[&id];
                    self.later(Duration::from_millis(1), Happening::Dies(number));
                }
                Action::Warn(..) => {}
            }
        }
    }
}

struct SaysNumber(u64);

impl Drop for SaysNumber {
    fn drop(&mut self) {
        eprintln!("this was schedule {}: SCHEDULE={} runs it alone", self.0, self.0);
    }
}
