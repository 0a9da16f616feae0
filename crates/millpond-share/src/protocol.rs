//! What a client and the daemon say to each other.
//!
//! A client is one process on one device; a process that uses two devices is two clients, with a connection each. Amounts are
//! always totals and never differences, so that a lost connection loses nothing: whoever connects again says how things are.
//!
//! ```text
//!        client                                     daemon
//!          │── Hello ──────────────────────────────►│
//!          │◄────────────────────────── Welcome ────│
//!          │── Claim{claim, bytes} ────────────────►│   before memory is allocated
//!          │◄── Admitted{claim} │ Refused{claim} ───│
//!          │── Want{bytes} ────────────────────────►│   there is work to do
//!          │◄──────────────────── Grant{room} ──────│
//!          │── Moved{resident…} ───────────────────►│   as memory comes in, after every part of it
//!          │◄───────────────────── Room{bytes} ─────│   as others make room
//!          │── Resumed ────────────────────────────►│   memory is there, work goes on
//!          │◄───────────────────────── Drop ────────│   somebody waits and the time is over
//!          │── Released{resident} ─────────────────►│   the device has nothing of ours left to do
//!          │◄──────── MakeRoom{resident_at_most} ───│   while the next one comes in
//!          │── Moved{resident…} ───────────────────►│
//! ```

use std::fmt;

use serde::{Deserialize, Serialize};

/// Changes whenever a message does.
pub const PROTOCOL: u32 = 5;

/// The most bytes in a client's name.
pub const MOST_NAME_BYTES: usize = 64;

/// A device, whatever number a process knows it by: its UUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DeviceId(pub [u8; 16]);

impl fmt::Display for DeviceId {
    /// As `nvidia-smi -L` writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GPU")?;
        for (at, byte) in self.0.iter().enumerate() {
            let dash = if matches!(at, 0 | 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

/// What of a client's memory is brought in before its work goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Prefetch {
    /// What the last turns used.
    #[default]
    WorkingSet,
    /// Everything.
    All,
    /// Nothing: the driver brings in what is touched, page by page.
    Off,
}

/// The first message of a client. What follows the version may look different in another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// Drawn by lot when the client began: who comes again with the same one has lost its connection.
    pub instance: u64,
    /// Which device it uses.
    pub device: DeviceId,
    /// That device's memory.
    pub capacity_bytes: u64,
    /// Of that, what is taken, by any program, as the driver says. `None`: it could not be asked.
    pub taken_bytes: Option<u64>,
    /// What to call it.
    pub name: String,
    /// How long its turns are to be, in quanta. The daemon allows other users than its own only so much.
    pub weight: u32,
    /// A higher one goes first, as far as that is allowed.
    pub priority: i32,
    /// The most it may allocate.
    pub memory_limit: Option<u64>,
    /// What it has, when it comes back to a daemon that knows nothing of it.
    pub standing: Standing,
}

/// What a client has and is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// Allocated bytes.
    pub claimed_bytes: u64,
    /// The turn in which it uses the device, if it does: the number that it was granted under, perhaps by another daemon.
    pub holds: Option<u64>,
    /// Its memory on the device and the traffic so far.
    pub traffic: Traffic,
}

/// What has been moved, and what is where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Bytes on the device now.
    pub resident_bytes: u64,
    /// Bytes brought in since the beginning.
    pub moved_in_bytes: u64,
    /// Bytes sent out since the beginning.
    pub moved_out_bytes: u64,
    /// Of what it has or is about to have, what cannot be brought in page by page: all of it is on the device whenever the client
    /// works.
    pub fixed_bytes: u64,
    /// Of that on the device, what cannot leave it: others have been given it too.
    pub pinned_bytes: u64,
    /// What calls have named in its turn so far, or in the last one.
    pub used_bytes: u64,
}

/// What a client says after its hello.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToDaemon {
    /// It wants to have so many bytes in all. Less than before needs no answer and gets none.
    Claim {
        /// A number that no other claim on this connection has. The answer carries it.
        claim: u64,
        /// All its allocations together.
        bytes: u64,
        /// What its process's memory cgroup has left, if it has a limit.
        cgroup_room: Option<u64>,
    },
    /// It has work for the device.
    Want {
        /// What it would like to have on the device then, of what is there already too.
        bytes: u64,
    },
    /// Memory has come or gone.
    Moved(Traffic),
    /// So much of the device is taken, by any program, as the driver says. When that has changed, and now and then.
    Taken {
        /// Clients' memory, that of external programs, and what every context costs.
        bytes: u64,
    },
    /// What it wanted is there and its work goes on.
    Resumed {
        /// The time from the grant until now.
        moving_ns: u64,
    },
    /// The device has nothing of its left to do, and gets nothing before the next grant.
    Released {
        /// Which turn; that of the grant.
        turn: u64,
        /// Its memory.
        traffic: Traffic,
        /// It has gone on by itself, having nothing to do.
        idle: bool,
    },
}

/// What the daemon says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToClient {
    /// To a hello.
    Welcome {
        /// What to bring in.
        prefetch: Prefetch,
        /// The most it may have: its limit, or what the device has for all clients.
        memory_bytes: u64,
        /// Nothing to do for so long while others wait: the device is to be released.
        idle_ms: u64,
    },
    /// To a hello that cannot be: the connection ends, and the program runs without sharing.
    Unfit {
        /// What is wrong and what to do, in a line.
        reason: String,
    },
    /// To a claim.
    Admitted {
        /// The claim's number.
        claim: u64,
    },
    /// To a claim: what the client has stays as it was.
    Refused {
        /// The claim's number.
        claim: u64,
        /// Why and what to do, in a line.
        reason: String,
    },
    /// It may use the device.
    Grant {
        /// The turn's number.
        turn: u64,
        /// What it may have on the device from now on, in all.
        room: u64,
    },
    /// What it may have on the device from now on, in all.
    Room {
        /// Bytes.
        room: u64,
    },
    /// Somebody waits for the device, or nobody does any more.
    Contended(bool),
    /// To give up the device.
    Drop {
        /// Which turn.
        turn: u64,
    },
    /// Its memory has to leave the device but for so much.
    MakeRoom {
        /// Bytes.
        resident_at_most: u64,
    },
    /// It held on to the device for too long, or came back too late, and has lost it; it may ask again.
    Revoked {
        /// Which turn: that of the grant, or the one it came back with.
        turn: u64,
    },
    /// Something that the program's user should know, in a line: the client got less than it asked for, say.
    Notice {
        /// What and why, and what to do.
        line: String,
    },
    /// What of [`Welcome`](ToClient::Welcome) can change has changed.
    Settings {
        /// What to bring in.
        prefetch: Prefetch,
        /// The most it may have.
        memory_bytes: u64,
        /// How long is idle.
        idle_ms: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_written_as_nvidia_smi_writes_it() {
        let id = DeviceId(std::array::from_fn(|at| at as u8 * 17));
        assert_eq!(id.to_string(), "GPU-00112233-4455-6677-8899-aabbccddeeff");
    }
}
