//! External memory: what programs that do not share, and every program's own context, have of the device.
//!
//! The driver says only how much is taken in all. What clients have of that they say themselves, and not to the byte: memory of one
//! that works may have come to the device in between, and at most all that it has. So a report says two things,
//!
//! ```text
//!   taken - Σ (resident, or all that it has, of who may be using the device)  ≤  external  ≤  taken - Σ resident
//! ```
//!
//! and what was believed before is left alone as far as it lies between them.
//!
//! A report counts for the principal that makes it: what a client says of the device changes nothing for the clients of others.

use std::collections::BTreeMap;
use std::time::Duration;

use super::client::Client;
use super::clients::at_most_u64;
use super::{ClientId, Moment, Policy, Principal};

/// As long as a client looks for a daemon that it has lost: until then its memory, which is on the device, may be without a client.
const MISSED: Duration = Duration::from_secs(10);
/// A principal's clients that come and go are allowed for during so long at a stretch, and then not again for twice as long: else
/// one that comes and goes for ever would hide external memory from the others.
const LONGEST_MISSED: Duration = Duration::from_secs(30);
/// A report counts for so long. Clients make one more often than that.
const FRESH: Duration = Duration::from_secs(30);
/// A change of less than one part in so many of the device is none: pages are larger than what is in them.
const PARTS_OF_NEWS: u64 = 256;

pub(super) fn may_be_missed_again(now: Moment, since: Moment) -> bool {
    now >= since.saturating_add(3 * LONGEST_MISSED)
}

impl Policy {
    /// A client is gone that may come back, or back while others may not be: what it has is not external.
    pub(super) fn miss_a_client_of(&mut self, now: Moment, principal: Principal) {
        let account = self.account_of(principal);
        let since = match account.missed {
            Some((since, _)) if !may_be_missed_again(now, since) => since,
            _ => now,
        };
        let until = now.saturating_add(MISSED).min(since.saturating_add(LONGEST_MISSED));
        account.missed = Some((since, until));
        self.missed_until = self.missed_until.max(until);
    }

    /// A client says how much of the device is taken. What is said while memory of its own principal moves is passed over.
    pub(super) fn hear_what_is_taken(&mut self, now: Moment, id: ClientId, taken_bytes: u64) {
        let Some(client) = self.clients.get(id) else { return };
        let own = self.clients.of(client.principal);
        if own.moving > 0 {
            return;
        }
        let taken = taken_bytes.min(client.capacity_bytes);
        let without = |bytes: u128| taken.saturating_sub(at_most_u64(bytes));
        // In clients' words, also of one whose memory counts for nothing: it is there all the same.
        let everyone = self.clients.everyone();
        let most = without(everyone.resident_for_sure);
        let least = without(everyone.resident_at_most);
        let around = without(own.resident);
        let before = client.foreign.map_or_else(|| self.foreign_for(client), |(bytes, _)| bytes);
        let grown = if now < self.missed_until { before } else { before.max(least) };
        let mut client = self.clients.get_mut(id).expect("it is there");
        client.foreign = Some((grown.min(most), now));
        client.around = Some(around);
    }

    /// What a newcomer says of external memory is believed at once if its principal has said nothing of that before, so that its
    /// welcome says what it can have. What others believe follows when the policy settles.
    pub(super) fn believe_a_first_word(&mut self, id: ClientId) {
        let client = &self.clients[id];
        let Some((bytes, _)) = client.foreign else { return };
        let before = self.least_foreign;
        let is_news = bytes.abs_diff(before) > client.capacity_bytes / PARTS_OF_NEWS;
        let believed = if is_news || bytes == 0 { bytes } else { before };
        let principal = client.principal;
        self.account_of(principal).foreign.get_or_insert(believed);
    }

    /// What each principal believes: of what its own clients say the middle one, and of two the smaller. Where no report is fresh at
    /// all, everything stays as it was.
    pub(super) fn believe_what_is_external(&mut self, now: Moment) {
        let mut words: BTreeMap<Principal, Vec<u64>> = BTreeMap::new();
        let mut capacities: BTreeMap<Principal, u64> = BTreeMap::new();
        for client in self.clients.values() {
            capacities.insert(client.principal, client.capacity_bytes);
            if let Some((bytes, at)) = client.foreign
                && now.saturating_sub(at) <= FRESH
            {
                words.entry(client.principal).or_default().push(bytes);
            }
        }
        if words.is_empty() {
            return;
        }
        let least_foreign = self.least_foreign;
        for (principal, account) in &mut self.accounts {
            let Some(said) = words.get_mut(principal) else {
                account.foreign = None;
                continue;
            };
            said.sort_unstable();
            let middle = said[(said.len() - 1) / 2];
            let least_news = capacities.get(principal).map_or(0, |bytes| bytes / PARTS_OF_NEWS);
            let before = account.foreign.unwrap_or(least_foreign);
            let is_news = middle.abs_diff(before) > least_news || middle == 0;
            account.foreign = Some(if is_news { middle } else { before });
        }
        let believed = self.accounts.values().filter_map(|account| account.foreign);
        self.least_foreign = believed.min().unwrap_or(0);
    }

    /// External memory as a client has it: by its own principal's reports. Before the first one, the least that another principal
    /// believes in, as far as the client's own driver has said that something is there.
    pub(super) fn foreign_for(&self, client: &Client) -> u64 {
        let own = self.accounts.get(&client.principal).and_then(|account| account.foreign);
        own.unwrap_or_else(|| self.least_foreign.min(client.around.unwrap_or(0)))
    }

    /// For the status: the middle one of what principals believe, and of two the smaller.
    pub(super) fn foreign_in_most_words(&self) -> u64 {
        let mut believed: Vec<u64> =
            self.accounts.values().filter_map(|account| account.foreign).collect();
        believed.sort_unstable();
        believed.get(believed.len().saturating_sub(1) / 2).copied().unwrap_or(self.least_foreign)
    }
}
