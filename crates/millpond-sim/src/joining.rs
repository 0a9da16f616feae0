//! A device that other processes have too.

use crate::Profile;
use crate::board::Board;
use crate::board_figures::BoardFigures;
use crate::broker::{self, JoinError, Sharing};
use crate::clock::{RealClock, SimClock};
use crate::gpu::{SimGpu, SimOptions};
use crate::parts::Parts;
use crate::shared_memory::SharedMemory;

/// What a process knows of the broker of its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined {
    /// The broker's process.
    pub broker_pid: u32,
}

impl SimGpu {
    /// The device of a name, shared with every process that joins it: one capacity, one link, one clock. The first
    /// one's profile, fault model and clock are the device's.
    ///
    /// The clock is real time: [`SimClock::Virtual`] here means real time at its own speed. If the broker dies, the device is
    /// lost: calls fail with [`DEVICE_LOST_CODE`](crate::DEVICE_LOST_CODE). A child that is forked has no device: its calls
    /// fail with [`FORKED_CODE`](crate::FORKED_CODE).
    ///
    /// # Errors
    /// The broker can neither be found nor started, or the device of this name is another one than asked for.
    pub fn join(
        profile: Profile,
        options: SimOptions,
        sharing: &Sharing,
    ) -> Result<SimGpu, JoinError> {
        let speed = match options.clock {
            SimClock::Virtual => 1000,
            SimClock::Real { speed } => speed,
        };
        let figures = BoardFigures::new(&profile, options.fault_model);
        let hello =
            broker::Hello { protocol: broker::PROTOCOL, device: sharing.device, speed, figures };
        let (board, welcome) = broker::join(sharing, &hello)?;
        let memory = SharedMemory::map(welcome.memory, profile.capacity_bytes as u64);
        let memory = memory.map_err(|error| JoinError::Unreachable {
            name: sharing.name.to_string(),
            reason: format!("cannot map the device's memory: {error}"),
        })?;
        let parts = Parts {
            board: Board::Shared(board),
            clock: Some(RealClock::begun_at(welcome.clock_start_ns, speed)),
            memory: Some(memory),
        };
        let joined = Joined { broker_pid: welcome.broker_pid };
        Ok(SimGpu::from_parts(profile, options, parts, Some(joined)))
    }

    /// What is known of the broker, if the device is shared.
    pub fn joined(&self) -> Option<Joined> {
        self.joined
    }
}
