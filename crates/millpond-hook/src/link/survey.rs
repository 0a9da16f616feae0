//! How much of the device is taken, by any program: the daemon finds out from that what external programs have.

use std::time::{Duration, Instant};

use millpond_share::protocol::ToDaemon;

use super::{Link, Phase};
use crate::driver_ffi as driver;

/// Between looks.
const PAUSE: Duration = Duration::from_secs(1);
/// What has not changed is said again after so long: while memory moves, the daemon does not listen.
const AGAIN: Duration = Duration::from_secs(10);

/// When it was last looked, and what was said when.
pub(super) struct Survey {
    looked: Option<Instant>,
    said: Option<(u64, Instant)>,
}

impl Survey {
    pub(super) fn new() -> Survey {
        Survey { looked: None, said: None }
    }

    /// It is worth a look at once.
    pub(super) fn hurry(&mut self) {
        self.looked = None;
    }

    fn is_due(&self) -> bool {
        self.looked.is_none_or(|looked| looked.elapsed() >= PAUSE)
    }

    fn is_news(&self, bytes: u64) -> bool {
        self.said.is_none_or(|(said, at)| said != bytes || at.elapsed() >= AGAIN)
    }
}

impl Link {
    /// Says what is taken if it is time for that. Not while memory of ours moves: it would be true of no moment.
    pub(super) fn look_around(&mut self) {
        let is_moving = self.leaving.is_some() || matches!(self.phase, Phase::Arriving(_));
        if is_moving || self.alone.is_some() || !self.survey.is_due() {
            return;
        }
        self.survey.looked = Some(Instant::now());
        let Some(bytes) = self.client.taken_bytes() else { return };
        self.client.note_graph_memory(driver::graph_bytes(self.client.device.ordinal));
        if self.survey.is_news(bytes) {
            // What has come or gone with it is known first.
            self.say_moved();
            self.client.say(&ToDaemon::Taken { bytes });
            self.survey.said = Some((bytes, Instant::now()));
        }
    }
}
