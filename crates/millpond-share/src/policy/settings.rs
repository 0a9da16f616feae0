//! What can be set about sharing a device.

use std::time::Duration;

use crate::protocol::{Prefetch, ToClient};

/// What becomes of a client that does not give up the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenStuck {
    /// It has lost the device: the next one gets it.
    #[default]
    Revoke,
    /// Its process is ended.
    End,
}

/// How a device is shared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How long a turn is.
    pub quantum: Duration,
    /// How long a client may take to give up the device before it is warned, and again before it is dealt with.
    pub grace: Duration,
    /// What becomes of it then.
    pub when_stuck: WhenStuck,
    /// A client that has had nothing to do for so long gives up the device, if somebody waits.
    pub idle: Duration,
    /// What is brought in before a client's work goes on.
    pub prefetch: Prefetch,
    /// Whether there are turns at all.
    pub turns: bool,
    /// Whether turns get longer when they go for the most part into moving memory.
    pub stretches: bool,
    /// Device memory that no client gets, beside what contexts and programs that do not share have already.
    pub reserve_bytes: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            quantum: Duration::from_secs(30),
            grace: Duration::from_secs(10),
            when_stuck: WhenStuck::default(),
            idle: Duration::from_millis(300),
            prefetch: Prefetch::default(),
            turns: true,
            stretches: true,
            reserve_bytes: 0,
        }
    }
}

/// Turns shorter than this would be all moving and no work.
const LEAST_QUANTUM: Duration = Duration::from_millis(10);
const MOST_QUANTUM: Duration = Duration::from_secs(24 * 3600);

impl Settings {
    /// What a client has to know of them.
    pub(super) fn message(&self, memory_bytes: u64) -> ToClient {
        ToClient::Settings { prefetch: self.prefetch, memory_bytes, idle_ms: self.idle_ms() }
    }

    pub(super) fn idle_ms(&self) -> u64 {
        u64::try_from(self.idle.as_millis()).unwrap_or(u64::MAX)
    }

    /// The quantum as turns have it: neither so short that nothing gets done nor for ever.
    pub(super) fn believable_quantum(&self) -> Duration {
        self.quantum.clamp(LEAST_QUANTUM, MOST_QUANTUM)
    }
}
