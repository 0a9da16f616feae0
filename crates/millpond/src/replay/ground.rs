//! What replays run on, and the device that each of them gets.

use std::sync::Arc;
use std::time::Duration;

use super::ReplayError;
use crate::driver::{Call, Driver};

/// A kind of device that replays run on: each on one that it shares with nobody. The simulated and the real GPU have one each.
pub trait Ground: Send + Sync {
    /// Whether it is there, and its times are measured.
    fn is_real(&self) -> bool;

    /// What a replay can have.
    fn capacity_bytes(&self) -> u64;

    /// How many events the device runs behind the host, if somebody decides that.
    fn lag_events(&self) -> u32;

    /// The same with another amount of memory.
    ///
    /// # Errors
    /// There cannot be so much, or so little.
    fn with_capacity(&self, bytes: u64) -> Result<Box<dyn Ground>, ReplayError>;

    /// A device for one replay. If it makes its addresses up, they are above `addresses_above`.
    ///
    /// # Errors
    /// The device cannot be had.
    fn stage(&self, addresses_above: u64) -> Result<Box<dyn Stage>, ReplayError>;
}

/// The device of one replay. What the replay has not given back goes with it.
pub trait Stage: Send + Sync {
    /// What the allocator gets.
    fn driver(&self) -> Arc<dyn Driver>;

    /// Time passes. On a real device it does so by itself.
    fn advance(&self, time: Duration);

    /// The host's time in calls of the driver so far.
    fn call_time(&self) -> Duration;

    /// What of that went into making streams, which are the program's.
    fn stream_time(&self) -> Duration;

    /// How often a call was made, if somebody counts.
    fn calls(&self, call: Call) -> Option<u64>;
}
