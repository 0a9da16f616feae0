//! What of the device belongs to nobody here: to programs that do not share, and to every program's own context.
//!
//! The driver says only how much is taken in all. What clients have of that they say themselves, and not to the byte: memory of one
//! that works may have come to the device in between, and at most all that it has. So a report says two things,
//!
//! ```text
//!   taken - Σ (resident, or all that it has, of who may be using the device)  ≤  foreign  ≤  taken - Σ resident
//! ```
//!
//! and what was believed before is left alone as far as it lies between them.

use super::{ClientId, Moment, Policy};
use std::time::Duration;

/// As long as a client looks for a daemon that it has lost: until then its memory, which is on the device, may be nobody's.
const MISSED: Duration = Duration::from_secs(10);
/// A report counts for so long. Clients make one more often than that.
const FRESH: Duration = Duration::from_secs(30);
/// A change of less than one part in so many of the device is none: pages are larger than what is in them.
const PARTS_OF_NEWS: u64 = 256;

impl Policy {
    /// Somebody is gone that may come back, or back while others may not be: what it has is not foreign.
    pub(super) fn miss_somebody(&mut self, now: Moment) {
        self.foreign_grows_from = now.saturating_add(MISSED);
    }

    /// A client says how much of the device is taken. What is said while memory moves is passed over.
    pub(super) fn hear_of_strangers(&mut self, now: Moment, id: ClientId, taken_bytes: u64) {
        if !self.clients.contains_key(&id) || self.clients.values().any(|client| client.is_moving())
        {
            return;
        }
        let taken = taken_bytes.min(self.capacity_bytes);
        let (mut least, mut most) = (taken, taken);
        for client in self.clients.values() {
            // In its words, also of one whose memory counts for nothing: it is there all the same.
            let resident = client.resident_in_its_words();
            most = most.saturating_sub(resident);
            let at_most = if client.is_occupying() { client.claimed } else { resident };
            least = least.saturating_sub(at_most);
        }
        let before = self.clients[&id].foreign.map_or(self.foreign_bytes, |(bytes, _)| bytes);
        let grown = if now < self.foreign_grows_from { before } else { before.max(least) };
        let client = self.clients.get_mut(&id).expect("it is there");
        client.foreign = Some((grown.min(most), now));
        self.believe_about_strangers(now);
    }

    /// The middle one of what clients say, and of two the smaller: one alone that says too much takes nothing from the others.
    fn believe_about_strangers(&mut self, now: Moment) {
        let fresh = |(_, at): &(u64, Moment)| now.saturating_sub(*at) <= FRESH;
        let said = self.clients.values().filter_map(|client| client.foreign);
        let mut said: Vec<u64> = said.filter(fresh).map(|(bytes, _)| bytes).collect();
        said.sort_unstable();
        let Some(&middle) = said.get(said.len().saturating_sub(1) / 2) else { return };
        let is_news = middle.abs_diff(self.foreign_bytes) > self.capacity_bytes / PARTS_OF_NEWS;
        if is_news || middle == 0 {
            self.foreign_bytes = middle;
        }
    }
}
