//! What was promised, kept apart from the policy: it sees only what is said and told.

use std::collections::{BTreeMap, BTreeSet};

use millpond_share::policy::{
    Action, ClientId, Event, MOST_STRETCH, Moment, Principal, RECOVERY, Settings, WhenStuck,
};
use millpond_share::protocol::{ToClient, Traffic};

use super::actor::{Actor, Kind};
use super::fairness::{Doing, Fairness};
use crate::desk::CAPACITY;

#[derive(Clone, Copy, Debug)]
struct Entry {
    principal: Principal,
    is_obedient: bool,
    /// The device's memory in its words.
    capacity: u64,
    /// What it was last told that it can have.
    memory: u64,
    claimed: u64,
    /// What it has asked for and got no answer to.
    asked: Option<(u64, u64)>,
    traffic: Traffic,
    /// The turn it has, and whether it has been told to give it up.
    holds: Option<(u64, bool)>,
    /// It holds by another daemon's leave.
    from_before: bool,
    wants: bool,
    waits_since: Option<Moment>,
    /// What it was last told that it may have on the device.
    room: u64,
    /// It has been warned or has lost its turn: its memory may count for nothing.
    is_warned: bool,
}

/// Who has what, and since when somebody waits.
#[derive(Debug)]
pub(super) struct Book {
    settings: Settings,
    entries: BTreeMap<ClientId, Entry>,
    began: Option<Moment>,
    comes_from_before: bool,
    pub grants: u64,
    turns: u64,
    turn_began: Moment,
    contended_since: Option<Moment>,
    most_clients: u64,
    /// If no client may ask for more than any other.
    fairness: Option<Fairness>,
}

const HIGHEST_WEIGHT: u32 = 3;
const PRIORITIES_APART: u64 = 4;
const MOST_PRINCIPALS: u64 = 3;

/// What cannot leave, in the client's words.
fn pinned(entry: &Entry) -> u64 {
    entry.traffic.pinned_bytes.min(entry.traffic.resident_bytes).min(entry.claimed)
}

impl Book {
    pub(super) fn new(settings: Settings, are_equal: bool) -> Book {
        let is_fair = are_equal && settings.turns;
        Book {
            fairness: is_fair.then(|| Fairness::new(&settings)),
            settings,
            entries: BTreeMap::new(),
            began: None,
            comes_from_before: false,
            grants: 0,
            turns: 0,
            turn_began: Moment::ZERO,
            contended_since: None,
            most_clients: 0,
        }
    }

    pub(super) fn waiting(&self) -> usize {
        self.entries.values().filter(|entry| entry.wants && entry.holds.is_none()).count()
    }

    pub(super) fn joined(&mut self, now: Moment, actor: &Actor) {
        let standing = actor.standing();
        let began = *self.began.get_or_insert(now);
        self.comes_from_before |= standing.claimed_bytes > 0 && now < began + RECOVERY;
        let entry = Entry {
            principal: actor.principal,
            is_obedient: actor.kind == Kind::Obedient,
            capacity: actor.capacity,
            memory: 0,
            claimed: standing.claimed_bytes.min(actor.capacity),
            asked: None,
            traffic: standing.traffic,
            holds: standing.holds.map(|turn| (turn, false)),
            from_before: standing.holds.is_some(),
            wants: false,
            waits_since: None,
            room: 0,
            is_warned: false,
        };
        self.entries.insert(actor.id, entry);
        self.most_clients = self.most_clients.max(self.entries.len() as u64);
    }

    /// Time goes by, and nothing has changed meanwhile.
    pub(super) fn pass(&mut self, now: Moment) {
        let Some(fairness) = &mut self.fairness else { return };
        let mut doing: BTreeMap<Principal, Doing> = BTreeMap::new();
        for entry in self.entries.values() {
            let principals = doing.entry(entry.principal);
            let does = principals.or_insert(Doing { obeys: true, ..Doing::default() });
            does.waits |= entry.wants && entry.holds.is_none();
            does.holds |= entry.holds.is_some();
            does.obeys &= entry.is_obedient;
        }
        fairness.pass(now, &doing);
    }

    /// A client does nothing any more.
    pub(super) fn hangs(&mut self, client: ClientId) {
        if let Some(entry) = self.entries.get_mut(&client) {
            entry.is_obedient = false;
        }
    }

    /// Something was said to the policy.
    pub(super) fn heard(&mut self, event: &Event) {
        match *event {
            Event::Left(client) => {
                self.entries.remove(&client);
            }
            Event::Claimed { client, bytes, host_room, .. } => {
                let Some(entry) = self.entries.get_mut(&client) else { return };
                if bytes < entry.claimed {
                    entry.claimed = bytes;
                } else {
                    entry.asked = Some((bytes, host_room));
                }
            }
            Event::Wants { client, .. } => {
                let Some(entry) = self.entries.get_mut(&client) else { return };
                entry.wants |= entry.holds.is_none_or(|(_, is_dropping)| is_dropping);
            }
            Event::Moved(client, traffic) => {
                let Some(entry) = self.entries.get_mut(&client) else { return };
                entry.traffic = traffic;
            }
            Event::Released { client, turn, traffic, .. } => {
                let Some(entry) = self.entries.get_mut(&client) else { return };
                entry.traffic = traffic;
                if entry.holds.is_some_and(|(held, _)| held == turn) {
                    entry.holds = None;
                    entry.from_before = false;
                }
            }
            _ => {}
        }
    }

    /// The policy's answer, checked action by action and then as a whole.
    pub(super) fn answered(&mut self, actions: &[Action]) {
        for action in actions {
            // What clients can have is said last, and is why others were told what they were.
            if let Action::Tell(client, ToClient::Settings { memory_bytes, .. }) = action {
                self.entry(*client).memory = *memory_bytes;
            }
        }
        for action in actions {
            match action {
                Action::Tell(client, message) => self.told(*client, message),
                Action::End(client) => {
                    assert_eq!(self.settings.when_stuck, WhenStuck::End);
                    let entry = self.entry(*client);
                    if entry.holds.take().is_some() {
                        (entry.wants, entry.from_before) = (false, false);
                    }
                }
                Action::Warn(client, _) => self.entry(*client).is_warned = true,
            }
        }
    }

    /// What holds once the policy has drawn its conclusions.
    pub(super) fn check(&mut self, now: Moment) {
        let fit = self.holders_fit_in(|entry| entry.capacity);
        assert!(fit, "holders that do not fit together: {:?}", self.entries);
        if self.settings.turns {
            self.check_rooms();
            self.check_nobody_waits_in_vain(now);
        } else {
            let waits = |entry: &&Entry| entry.wants && entry.holds.is_none();
            let mut waiting = self.entries.values().filter(waits);
            // What is pinned in a client's words is not believed by all.
            let is_believed = self.pinned() == 0;
            assert!(
                !is_believed || waiting.all(|entry| self.footprint(entry) > 0),
                "without turns only what cannot fault waits"
            );
        }
    }

    fn entry(&mut self, client: ClientId) -> &mut Entry {
        self.entries.get_mut(&client).expect("only clients are told something")
    }

    fn told(&mut self, client: ClientId, message: &ToClient) {
        match *message {
            ToClient::Admitted { .. } => self.admitted(client),
            ToClient::Refused { .. } => self.entry(client).asked = None,
            ToClient::Grant { turn, room } => {
                self.granted(client, turn);
                let entry = self.entry(client);
                (entry.room, entry.is_warned) = (room, false);
            }
            ToClient::Room { room } => self.entry(client).room = room,
            ToClient::Welcome { memory_bytes, .. } | ToClient::Settings { memory_bytes, .. } => {
                let entry = self.entry(client);
                assert!(memory_bytes <= entry.capacity, "{memory_bytes} bytes for {entry:?}");
                entry.memory = memory_bytes;
            }
            ToClient::Drop { turn } => {
                let still_fit = self.holders_fit_in(|entry| entry.memory) && self.pinned() == 0;
                assert!(self.waiting() > 0 || !still_fit, "{client:?} is dropped and nobody waits");
                let entry = self.entry(client);
                let (held, is_dropping) = entry.holds.expect("only holders are dropped");
                assert!(!is_dropping, "{client:?} is told twice");
                assert_eq!(held, turn);
                entry.holds = Some((turn, true));
            }
            ToClient::Revoked { turn } => {
                let entry = self.entry(client);
                let was_told = entry.holds == Some((turn, true));
                // In words that it understands: of the turn that it has.
                let came_back = entry.from_before && entry.holds.is_some_and(|held| held.0 == turn);
                assert!(was_told || came_back, "only who was told can lose it, and by its number");
                // What it wanted while it held on is forgotten: it may ask again.
                (entry.holds, entry.wants, entry.from_before) = (None, false, false);
                entry.is_warned = true;
            }
            _ => {}
        }
    }

    fn granted(&mut self, client: ClientId, turn: u64) {
        let occupied = self.entries.iter().filter(|(id, _)| **id != client);
        let beside: Vec<_> = occupied.filter(|(_, entry)| entry.holds.is_some()).collect();
        let claimed = beside
            .iter()
            .map(|(_, entry)| self.footprint(entry))
            .fold(self.footprint(&self.entries[&client]), u64::saturating_add);
        let is_alone = beside.iter().all(|(_, entry)| self.footprint(entry) == 0);
        let entry = self.entry(client);
        assert!(entry.wants, "{client:?} gets what it does not want");
        entry.wants = false;
        entry.holds = Some((turn, false));
        self.grants += 1;
        let takes_nothing = self.footprint(&self.entries[&client]) == 0;
        let fits = is_alone || takes_nothing || claimed <= self.entries[&client].capacity;
        assert!(
            fits || !self.settings.turns,
            "{client:?} is granted beside {beside:?}",
            beside = claimed
        );
    }

    fn admitted(&mut self, client: ClientId) {
        let principal = self.entries[&client].principal;
        let before = self.host_need(principal);
        let entry = self.entry(client);
        let (bytes, host_room) = entry.asked.take().expect("it has asked");
        assert!(bytes <= entry.capacity);
        let is_honest = entry.capacity == CAPACITY;
        entry.claimed = bytes;
        let need = self.host_need(principal);
        assert!(
            !is_honest || need <= host_room || need <= before,
            "{need} of host memory where {host_room} is"
        );
    }

    /// What a principal needs of the host's memory at the least: what cannot be on the device and is its own, beyond its part.
    fn host_need(&self, principal: Principal) -> u64 {
        let own = || self.entries.values().filter(|entry| entry.principal == principal);
        let sum = |claims: &mut dyn Iterator<Item = u64>| claims.fold(0, u64::saturating_add);
        let all = sum(&mut self.entries.values().map(|entry| entry.claimed));
        let claimed = sum(&mut own().map(|entry| entry.claimed));
        let on_host = |entry: &Entry| {
            let sent = entry.traffic.moved_out_bytes.saturating_sub(entry.traffic.moved_in_bytes);
            sent.min(entry.claimed - entry.traffic.resident_bytes.min(entry.claimed))
        };
        let on_host = sum(&mut own().map(on_host));
        let principals: BTreeSet<Principal> =
            self.entries.values().map(|entry| entry.principal).collect();
        let part = CAPACITY / principals.len() as u64;
        let excess = all.saturating_sub(CAPACITY).min(claimed.saturating_sub(part));
        excess.saturating_sub(on_host)
    }

    /// Whoever follows what it was told of its room finds the device with room for it, but for those that have more there already.
    fn check_rooms(&self) {
        let resident = |entry: &Entry| entry.traffic.resident_bytes.min(entry.claimed);
        let believed = || self.entries.values().filter(|entry| !entry.is_warned);
        let taken = believed().fold(0_u64, |sum, entry| {
            let is_holding = entry.holds.is_some_and(|(_, is_dropping)| !is_dropping);
            let room = if is_holding { entry.room.min(entry.claimed) } else { 0 };
            sum.saturating_add(room.max(resident(entry)))
        });
        let there = self.entries.values().map(resident).fold(0_u64, u64::saturating_add);
        // What others say is pinned and a holder's own driver has not confirmed is room for that holder.
        let most = there.max(CAPACITY).saturating_add(self.pinned());
        let are_honest = self.entries.values().all(|entry| entry.capacity == CAPACITY);
        assert!(!are_honest || taken <= most, "rooms of {taken} bytes in all: {:?}", self.entries);
    }

    /// The least that any client was told that it can have.
    fn least_memory(&self) -> u64 {
        self.entries.values().map(|entry| entry.memory).min().unwrap_or(CAPACITY)
    }

    /// Whether a client may be using the device, as far as it has been told.
    pub(super) fn holds(&self, client: ClientId) -> bool {
        self.entries.get(&client).is_some_and(|entry| entry.holds.is_some())
    }

    /// A client that takes something is beside others only if they fit on the device in its own words.
    fn holders_fit_in(&self, words: impl Fn(&Entry) -> u64) -> bool {
        let holders = || {
            let entries = self.entries.values();
            entries.filter(|entry| entry.holds.is_some_and(|(_, is_dropping)| !is_dropping))
        };
        let taking = || holders().filter(|entry| self.footprint(entry) > 0);
        let taken: u128 = holders().map(|entry| u128::from(self.footprint(entry))).sum();
        taking().count() < 2 || taking().all(|entry| taken <= u128::from(words(entry)))
    }

    /// What an entry takes of what can change hands, as long as it may work.
    fn footprint(&self, entry: &Entry) -> u64 {
        let fixed = entry.traffic.fixed_bytes.min(entry.claimed);
        let has = if self.settings.turns { entry.claimed } else { fixed };
        has - pinned(entry).min(has)
    }

    fn pinned(&self) -> u64 {
        self.entries.values().map(pinned).fold(0, u64::saturating_add)
    }

    /// A turn began, as the policy counts them.
    pub(super) fn turns_so_far(&mut self, now: Moment, turns: u64) {
        if turns != self.turns {
            (self.turns, self.turn_began) = (turns, now);
        }
    }

    fn check_nobody_waits_in_vain(&mut self, now: Moment) {
        let is_contended = self.waiting() > 0;
        let is_occupied = self.entries.values().any(|entry| entry.holds.is_some());
        let recovers_until = self.began.unwrap_or_default() + RECOVERY;
        let may_wait = self.comes_from_before && now < recovers_until;
        assert!(may_wait || is_occupied || !is_contended, "a free device, and somebody waits");
        let claimed: u128 = self.entries.values().map(|entry| u128::from(entry.claimed)).sum();
        let all_fit = claimed <= u128::from(self.least_memory());
        assert!(may_wait || !all_fit || !is_contended, "all fit, and somebody waits");

        let since = *self.contended_since.get_or_insert(now);
        if !is_contended {
            self.contended_since = None;
        }
        // Longer, if its principal is owed something.
        let quantum = self.settings.quantum * MOST_STRETCH;
        let longest_turn = (quantum + quantum.max(self.settings.grace * 2)) * HIGHEST_WEIGHT;
        let longest_drop = self.settings.grace * 2 * self.most_clients as u32;
        let waited = now - since.max(self.turn_began).max(recovers_until).min(now);
        assert!(!is_contended || waited <= longest_turn + longest_drop, "no turn for {waited:?}");

        // Its own principal's other clients go before it at most so often, and each time every other principal.
        let most_turns = PRIORITIES_APART + self.most_clients + 1;
        let longest = (longest_turn + longest_drop) * (most_turns * MOST_PRINCIPALS) as u32;
        for (client, entry) in &mut self.entries {
            if !entry.wants || entry.holds.is_some() {
                entry.waits_since = None;
                continue;
            }
            let waited = now - *entry.waits_since.get_or_insert(now);
            assert!(waited <= longest, "{client:?} starves: it waits for {waited:?}");
        }
    }
}
