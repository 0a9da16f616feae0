//! What `millpond share status` and `set` say to the daemon, on a socket of its own that only its owner may open.

mod asking;

pub use asking::{AskError, Line};

use serde::{Deserialize, Serialize};

use crate::protocol::Prefetch;

/// Changes whenever a message does.
pub const CONTROL_PROTOCOL: u32 = 3;

/// A question or an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// How things are.
    Status,
    /// Something is to be otherwise.
    Set(Setting),
}

/// A question or an order, with the version in front.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versioned {
    /// [`CONTROL_PROTOCOL`].
    pub protocol: u32,
    /// What is asked.
    pub request: Request,
}

/// Which clients a setting is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    /// The process with that number.
    Process(u32),
    /// All of them.
    Everyone,
}

/// What can be otherwise while the daemon runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Setting {
    /// How long a turn is, on all devices or the one with that number in the status.
    Quantum {
        /// Which device.
        device: Option<u32>,
        /// How long.
        quantum_ms: u64,
    },
    /// How long a client's turns are, in quanta.
    Weight(Target, u32),
    /// Who goes first.
    Priority(Target, i32),
    /// The most a client may allocate.
    MemoryLimit(Target, Option<u64>),
    /// What is brought in.
    Prefetch(Prefetch),
    /// Whether there are turns at all. Without, everybody may use the device at any time.
    Turns(bool),
}

/// What the daemon answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// To a question.
    Status(Status),
    /// To an order.
    Done,
    /// To an order that cannot be: why, and what to do.
    Refused(String),
}

/// How things are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Each device that has had a client.
    pub devices: Vec<DeviceStatus>,
}

/// How a device is shared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceStatus {
    /// Its UUID.
    pub device: String,
    /// Its memory.
    pub capacity_bytes: u64,
    /// Of that, what clients can have: the rest belongs to others.
    pub usable_bytes: u64,
    /// What others have, as far as that is known: programs that do not share, and every program's own context.
    pub foreign_bytes: u64,
    /// `together`, `turns` or `off`.
    pub mode: Mode,
    /// How long a turn is.
    pub quantum_ms: u64,
    /// How long it is at the moment, because moving takes too much of it.
    pub effective_quantum_ms: u64,
    /// Whether the last turns went for the most part into moving memory.
    pub thrashing: bool,
    /// The process whose turn it is, if it is one's alone.
    pub holder: Option<u32>,
    /// How often a turn began.
    pub switches: u64,
    /// The share of the time in which some client's work could go on, since there were clients.
    pub useful_share: f64,
    /// Who shares it.
    pub clients: Vec<ClientStatus>,
}

/// How a device is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// All that want it use it at once: their memory fits.
    Together,
    /// By turns.
    Turns,
    /// As if there were no daemon.
    Off,
}

/// How a client stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It has nothing to do.
    Idle,
    /// It waits for its turn.
    Waiting,
    /// Its memory comes in.
    Arriving,
    /// It works.
    Running,
    /// It has been told to give up the device.
    Dropping,
    /// It did not, and has lost it.
    Revoked,
}

/// A client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientStatus {
    /// Its process.
    pub pid: u32,
    /// The party it belongs to, such as `user:1000`: turns are fair between those first.
    pub principal: String,
    /// What it is called.
    pub name: String,
    /// What it is doing.
    pub state: State,
    /// How long its turns are, in quanta.
    pub weight: u32,
    /// Who has more goes first.
    pub priority: i32,
    /// The most it may allocate.
    pub memory_limit_bytes: Option<u64>,
    /// What it has allocated.
    pub allocated_bytes: u64,
    /// Of that, what is on the device.
    pub resident_bytes: u64,
    /// What has been brought in for it.
    pub moved_in_bytes: u64,
    /// What has been sent out.
    pub moved_out_bytes: u64,
    /// How long it has had the device.
    pub held_ms: u64,
    /// Of that, how long its memory took to come.
    pub moving_ms: u64,
    /// How long it has waited.
    pub waited_ms: u64,
}
