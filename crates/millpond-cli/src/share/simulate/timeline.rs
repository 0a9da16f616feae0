//! What a simulated job did when.

use millpond_share::policy::Moment;
use serde::Serialize;

/// What a job is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Activity {
    /// It has not come yet, or is done.
    Away,
    /// Waits for the device.
    Waiting,
    /// Has the device, and its memory is coming in.
    Moving,
    /// Has the device and computes; pages that are not there come in as they are touched.
    Computing,
    /// Computes on the host.
    Host,
}

/// What a job did, from when on.
#[derive(Clone, Debug, Default)]
pub(super) struct Timeline {
    changes: Vec<(Moment, Activity)>,
}

impl Timeline {
    pub(super) fn note(&mut self, now: Moment, activity: Activity) {
        let last = self.changes.last().map_or(Activity::Away, |change| change.1);
        if last == activity {
            return;
        }
        // What took no time was not done.
        while self.changes.last().is_some_and(|change| change.0 == now) {
            self.changes.pop();
        }
        self.changes.push((now, activity));
    }

    pub(super) fn changes(&self) -> &[(Moment, Activity)] {
        &self.changes
    }
}
