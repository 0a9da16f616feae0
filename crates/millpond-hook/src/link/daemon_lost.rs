//! When the daemon is gone: who has the device goes on, who waits for it waits a while, and both look for the next daemon.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use millpond_share::protocol::Standing;

use super::{Link, Phase};
use crate::said::{log, warn};

/// So long a program waits for a daemon to come back.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between attempts to find it.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// No daemon.
pub(super) struct Alone {
    pub(super) since: Instant,
    pub(super) next_try: Instant,
    pub(super) pause: Duration,
}

impl Link {
    pub(super) fn lose(&mut self) {
        let now = Instant::now();
        warn("the sharing daemon is gone; looking for it");
        (self.has_asked, self.dropping, self.contended) = (false, None, false);
        self.alone = Some(Alone { since: now, next_try: now, pause: FIRST_PAUSE });
    }

    pub(super) fn look_for_daemon(&mut self) {
        let Some(alone) = &mut self.alone else { return };
        let now = Instant::now();
        let gave_up = now.duration_since(alone.since) >= PATIENCE;
        if now >= alone.next_try {
            alone.next_try = now + alone.pause;
            alone.pause = (alone.pause * 2).min(LONGEST_PAUSE);
            if self.meet_again() {
                return;
            }
        }
        if gave_up && matches!(self.phase, Phase::Outside | Phase::Leaving(_)) {
            warn("no sharing daemon came back; going on without turns");
            self.begin(self.turn, u64::MAX);
        } else if gave_up {
            // What is on its way in waits for nobody any more.
            self.client.room.store(u64::MAX, Ordering::Relaxed);
        }
    }

    fn meet_again(&mut self) -> bool {
        let standing = Standing {
            claimed_bytes: self.client.claimed_bytes(),
            holds: (!matches!(self.phase, Phase::Outside)).then_some(self.turn),
            traffic: self.client.traffic(),
        };
        let listening = match self.client.meet(standing) {
            Ok(listening) => listening,
            Err(not_met) => {
                if not_met.is_absent {
                    self.client.claims.note_no_daemon();
                }
                return false;
            }
        };
        if self.client.listen(listening).is_err() {
            self.client.connection.forget();
            return false;
        }
        self.client.claims.begin_anew(self.client.most_bytes());
        crate::process::note_socket(self.client);
        self.alone = None;
        log(|| "a sharing daemon is there again".to_owned());
        if self.client.gate.waiting() > 0 {
            self.want();
        }
        true
    }
}
