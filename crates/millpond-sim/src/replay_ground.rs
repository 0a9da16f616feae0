//! Simulated devices for replays.

use std::sync::Arc;
use std::time::Duration;

use millpond::driver::{Call, Driver};
use millpond::replay::{Ground, ReplayError, Stage, TICK};

use crate::{Profile, RunOrder, SimGpu, SimOptions};

/// Replays run on simulated devices, one for each.
#[derive(Clone, Debug)]
pub struct SimGround {
    profile: Profile,
    lag_events: u32,
}

impl SimGround {
    /// Devices of a profile that run so many events behind the host.
    pub fn new(profile: Profile, lag_events: u32) -> SimGround {
        SimGround { profile, lag_events }
    }
}

impl Ground for SimGround {
    fn is_real(&self) -> bool {
        false
    }

    fn capacity_bytes(&self) -> u64 {
        self.profile.capacity_bytes as u64
    }

    fn lag_events(&self) -> u32 {
        self.lag_events
    }

    fn with_capacity(&self, bytes: u64) -> Result<Box<dyn Ground>, ReplayError> {
        let profile = self.profile.with_capacity(bytes);
        let profile = profile.map_err(|error| ReplayError::Device(error.to_string()))?;
        Ok(Box::new(SimGround::new(profile, self.lag_events)))
    }

    fn stage(&self, addresses_above: u64) -> Result<Box<dyn Stage>, ReplayError> {
        let run_order = match self.lag_events {
            0 => RunOrder::Timed,
            lag => RunOrder::Behind(TICK * lag),
        };
        let options = SimOptions { run_order, addresses_above, ..SimOptions::default() };
        Ok(Box::new(SimStage {
            gpu: Arc::new(SimGpu::with_options(self.profile.clone(), options)),
            stream_ns: self.profile.latency_ns(Call::CreateStream),
        }))
    }
}

struct SimStage {
    gpu: Arc<SimGpu>,
    /// What making a stream takes.
    stream_ns: u64,
}

impl Stage for SimStage {
    fn driver(&self) -> Arc<dyn Driver> {
        self.gpu.clone()
    }

    fn advance(&self, time: Duration) {
        self.gpu.advance(time);
    }

    fn call_time(&self) -> Duration {
        self.gpu.call_time()
    }

    fn stream_time(&self) -> Duration {
        Duration::from_nanos(self.stream_ns * self.gpu.calls(Call::CreateStream))
    }

    fn calls(&self, call: Call) -> Option<u64> {
        Some(self.gpu.calls(call))
    }
}
