//! That turns are fair between principals, as it is seen from outside.
//!
//! For each principal P whose clients do as they are told, and each other principal Q, one number is kept as long as both have clients
//! that wait for the device or hold it:
//!
//! ```text
//!   lag(P, Q) = max(0, lag + time in which Q alone had the device and P waited - time in which P had it)
//! ```
//!
//! It is the most that Q got more than P in any window that ends now. It is bounded by what one turn and what is late in it can take,
//! however many clients Q has, and whatever they say.
//!
//! Time after Q had the device together with a third principal is left out until the device is free: a client that fits beside
//! another's turn pays nothing for it, and when it is late at its end, it is charged only once it has a turn of its own.
//!
//! A principal of whose clients one did not do as it was told may owe the others time long after that client is gone, and is judged no
//! more.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use millpond_share::policy::{MOST_STRETCH, Moment, Principal, Settings};

/// What a principal's clients do at present.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Doing {
    pub waits: bool,
    pub holds: bool,
    /// All of them do as they are told.
    pub obeys: bool,
}

/// A client that gives up the device and wants it again says so in two messages, and its principal does not cease to contend between
/// them.
const MOMENT: Duration = Duration::from_millis(20);

/// As long as messages take, and clients that do as they are told.
const PROMPT: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(super) struct Fairness {
    tolerance: Duration,
    passed: Moment,
    contended_at: BTreeMap<Principal, Moment>,
    /// Clients of several principals have held the device since it was last free.
    is_shared: bool,
    disobeyed: BTreeSet<Principal>,
    lags: BTreeMap<(Principal, Principal), Duration>,
}

impl Fairness {
    pub(super) fn new(settings: &Settings) -> Fairness {
        let stretch = if settings.stretches { MOST_STRETCH } else { 1 };
        let (quantum, late) = (settings.quantum * stretch, settings.grace * 2);
        Fairness {
            // Q's turn, what it makes up for, and what is late in it; by a turn equal parts are apart, and one absence earns.
            tolerance: quantum * 3 + quantum.max(late) + late + PROMPT,
            passed: Moment::ZERO,
            contended_at: BTreeMap::new(),
            is_shared: false,
            disobeyed: BTreeSet::new(),
            lags: BTreeMap::new(),
        }
    }

    /// Time goes by up to now, and principals have done this meanwhile.
    pub(super) fn pass(&mut self, now: Moment, doing: &BTreeMap<Principal, Doing>) {
        let time = now.saturating_sub(self.passed);
        self.passed = now;
        let contending = doing.iter().filter(|(_, doing)| doing.waits || doing.holds);
        self.contended_at.extend(contending.map(|(principal, _)| (*principal, now)));
        self.contended_at.retain(|_, at| now - *at <= MOMENT);
        let holders: BTreeSet<Principal> = doing
            .iter()
            .filter(|(_, doing)| doing.holds)
            .map(|(principal, _)| *principal)
            .collect();
        self.is_shared = holders.len() > 1 || self.is_shared && !holders.is_empty();
        let disobeying = doing.iter().filter(|(_, doing)| !doing.obeys);
        self.disobeyed.extend(disobeying.map(|(principal, _)| *principal));
        let contending: Vec<Principal> = self.contended_at.keys().copied().collect();
        let does = |principal: Principal| doing.get(&principal).copied().unwrap_or_default();
        let mut lags = BTreeMap::new();
        for &own in contending.iter().filter(|own| !self.disobeyed.contains(own)) {
            for &other in contending.iter().filter(|other| **other != own) {
                let mut lag = self.lags.get(&(own, other)).copied().unwrap_or_default();
                if does(own).holds {
                    lag = lag.saturating_sub(time);
                } else if does(own).waits && !self.is_shared && holders == BTreeSet::from([other]) {
                    lag += time;
                }
                assert!(
                    lag <= self.tolerance,
                    "{other} has had the device for {lag:?} more than {own}, which waits; {:?} are allowed",
                    self.tolerance
                );
                lags.insert((own, other), lag);
            }
        }
        self.lags = lags;
    }
}
