//! On behalf of which user a client runs, and what that user has had of the device.
//!
//! Clients of one principal trust each other; clients of two do not. So turns are fair between principals first, and a principal's
//! clients divide its part among themselves:
//!
//! ```text
//!   spent  += time / weight of the turn     for the principal that others wait for
//!   floor   = max(floor, min spent)         over the principals that contend now
//!   spent   = max(spent, floor - quantum)   for a principal that begins to contend: absence earns one turn at the most
//! ```
//!
//! Between giving up the device and wanting it again a client is absent for a moment, in which its principal loses only what its next
//! turn could not make up for (see `most_made_up`).
//!
//! The principal that has spent least goes first. Ten clients of one principal spend together, and gain nothing by being ten.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use super::clients::Sums;
use super::foreign::may_be_missed_again;
use super::turn::{Pace, Turn};
use super::{ClientId, Moment, Policy};

/// The party that a client belongs to. A pod will be another kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Principal {
    /// A user of the machine, by the number that the kernel gives for the peer of a socket.
    User(u32),
}

impl fmt::Display for Principal {
    /// As `millpond share status --json` writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Principal::User(uid) => write!(f, "user:{uid}"),
        }
    }
}

/// What a principal has had, kept while it has clients or has spent more than the others.
#[derive(Clone, Debug)]
pub(super) struct Account {
    /// Device time in which others waited, each second divided by the weight of its turn.
    pub spent: Duration,
    /// Time in which its clients were slow and others waited for that. It is spent from the next turn on, so that the length of a
    /// turn does not change while it runs.
    pub delayed: Duration,
    /// When it last contended.
    pub contended: Moment,
    /// How much of its own turns goes into moving memory.
    pub pace: Pace,
    /// Turns of a higher priority that began while its clients waited, since its own last turn.
    pub passed_over: u32,
    /// Since when memory of its clients may be on the device though none of them says so, and until when that is allowed for.
    pub missed: Option<(Moment, Moment)>,
    /// External memory, as far as its clients have said something of that.
    pub foreign: Option<u64>,
    /// The least that any of its clients can have of the device, as it was when the policy last settled.
    pub least_usable: u64,
}

impl Account {
    fn new(spent: Duration) -> Account {
        let (delayed, contended) = (Duration::ZERO, Moment::ZERO);
        Account {
            spent,
            delayed,
            contended,
            pace: Pace::new(),
            passed_over: 0,
            missed: None,
            foreign: None,
            least_usable: u64::MAX,
        }
    }
}

impl Policy {
    pub(super) fn principal_of(&self, id: ClientId) -> Principal {
        self.clients[id].principal
    }

    /// The principals that have clients here.
    pub(super) fn principals(&self) -> BTreeSet<Principal> {
        self.clients.principals().map(|(principal, _)| principal).collect()
    }

    /// One part of the device for each principal that has clients here.
    pub(super) fn part_of(&self, bytes: u64) -> u64 {
        bytes / (self.clients.principal_count() as u64).max(1)
    }

    pub(super) fn account_of(&mut self, principal: Principal) -> &mut Account {
        let floor = self.floor;
        self.accounts.entry(principal).or_insert_with(|| Account::new(floor))
    }

    pub(super) fn spent(&self, principal: Principal) -> Duration {
        self.accounts.get(&principal).map_or(self.floor, |account| account.spent)
    }

    fn principals_with(&self, whose: impl Fn(&Sums) -> bool) -> impl Iterator<Item = Principal> {
        let principals = self.clients.principals();
        principals.filter(move |(_, sums)| whose(sums)).map(|(principal, _)| principal)
    }

    pub(super) fn waiting_principals(&self) -> BTreeSet<Principal> {
        self.principals_with(|sums| sums.waiting > 0).collect()
    }

    /// The principals whose turn it is: of the client that the turn is named after, and once that has gone, of all that are left.
    fn payers(&self) -> BTreeSet<Principal> {
        let Some(turn) = self.turn else { return BTreeSet::new() };
        let first = self.clients.get(turn.first).filter(|client| client.is_occupying());
        match first {
            Some(client) => BTreeSet::from([client.principal]),
            None => self.principals_with(|sums| sums.occupying > 0).collect(),
        }
    }

    fn is_contending(&self, principal: Principal) -> bool {
        let first = self.turn.and_then(|turn| self.clients.get(turn.first));
        let sums = self.clients.of(principal);
        sums.waiting > 0
            || match first.filter(|client| client.is_occupying()) {
                Some(client) => client.principal == principal,
                None => self.turn.is_some() && sums.occupying > 0,
            }
    }

    /// The principals whose turn it is, and those that wait for theirs.
    pub(super) fn contending(&self) -> BTreeSet<Principal> {
        self.waiting_principals().into_iter().chain(self.payers()).collect()
    }

    /// The principals that keep others waiting by being slow: to give up the device when the turn is over, or to make room for
    /// memory that arrives.
    fn delayers(&self) -> BTreeSet<Principal> {
        let is_ending = self.turn.is_some_and(|turn| turn.is_ending());
        let arrives = self.clients.everyone().arriving > 0;
        let delays =
            |sums: &Sums| is_ending && sums.dropping > 0 || arrives && sums.making_room > 0;
        self.principals_with(delays).collect()
    }

    /// Charges the time that others have waited to the principals because of which it passed. Looks at all principals, so it is done
    /// before something changes of which that depends, and not for every message.
    pub(super) fn charge(&mut self) {
        let time = std::mem::take(&mut self.uncharged);
        if time.is_zero() {
            return;
        }
        let contending = self.contending();
        if let Some(least) = contending.iter().map(|p| self.spent(*p)).min() {
            self.floor = self.floor.max(least);
        }
        for principal in contending {
            self.account_of(principal).contended = self.accounted;
        }
        if !self.is_contended() {
            return;
        }
        let Some(turn) = self.turn else { return };
        let payers = if turn.is_ending() { BTreeSet::new() } else { self.payers() };
        for delayer in self.delayers().difference(&payers) {
            let account = self.account_of(*delayer);
            account.delayed = account.delayed.saturating_add(time);
        }
        for payer in payers {
            let account = self.account_of(payer);
            account.spent = account.spent.saturating_add(time / turn.weight.max(1));
        }
    }

    /// A turn begins: what was delayed before is spent.
    pub(super) fn settle_delays(&mut self) {
        for account in self.accounts.values_mut() {
            account.spent = account.spent.saturating_add(std::mem::take(&mut account.delayed));
        }
    }

    /// A client is about to wait. Its principal has no claim to time in which it did not contend, but for a quantum: one that is
    /// owed something does not lose it because it has nothing to do for a moment.
    pub(super) fn begin_to_contend(&mut self, now: Moment, id: ClientId) {
        let principal = self.principal_of(id);
        if self.is_contending(principal) {
            return;
        }
        let (floor, quantum) = (self.floor, self.effective_quantum());
        let (a_moment, most_made_up) = (self.settings.idle, self.most_made_up());
        let account = self.account_of(principal);
        let is_back_at_once = now.saturating_sub(account.contended) < a_moment;
        let kept = if is_back_at_once { quantum.saturating_add(most_made_up) } else { quantum };
        account.spent = account.spent.max(floor.saturating_sub(kept));
    }

    /// The most by which a turn makes up for what its principal is owed. As much as another's client can take by being late in one
    /// turn: with less, one that is late each time keeps what it takes.
    pub(super) fn most_made_up(&self) -> Duration {
        self.effective_quantum().max(self.settings.grace.saturating_mul(2))
    }

    /// How far a turn's principal was behind when the turn began: behind the one of the others that wait that has spent least.
    pub(super) fn owed_in(&self, turn: &Turn) -> Duration {
        let others = self.waiting_principals().into_iter().filter(|other| *other != turn.principal);
        let least = others.map(|other| self.spent(other)).min();
        least.map_or(Duration::ZERO, |least| least.saturating_sub(turn.spent_before))
    }

    /// Forgets principals that are gone and owe nothing.
    pub(super) fn forget_settled_accounts(&mut self, now: Moment) {
        let (present, floor) = (self.principals(), self.floor);
        self.accounts.retain(|principal, account| {
            let is_missed =
                account.missed.is_some_and(|(since, _)| !may_be_missed_again(now, since));
            present.contains(principal) || account.spent + account.delayed > floor || is_missed
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_written_by_its_number() {
        assert_eq!(Principal::User(1000).to_string(), "user:1000");
    }
}
