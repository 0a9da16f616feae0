//! The real device for replays.

use std::sync::Arc;
use std::time::Duration;

use millpond::driver::{Call, DevicePtr, Driver, Timed};
use millpond::replay::{Ground, ReplayError, Stage};

use crate::CudaGpu;

/// Replays run on the real device of a number, one after another.
#[derive(Clone, Copy, Debug)]
pub struct CudaGround {
    number: u32,
    capacity_bytes: u64,
}

impl CudaGround {
    /// The device of a number, with all the memory that is free there now: what others have of it is not there to be had.
    ///
    /// # Errors
    /// There is no such device.
    pub fn new(number: u32) -> Result<CudaGround, ReplayError> {
        let capacity_bytes = open(number)?.memory_info()?.free_bytes as u64;
        Ok(CudaGround { number, capacity_bytes })
    }
}

fn open(number: u32) -> Result<CudaGpu, ReplayError> {
    CudaGpu::open(number).map_err(|error| ReplayError::Device(format!("cuda:{number}: {error}")))
}

impl Ground for CudaGround {
    fn is_real(&self) -> bool {
        true
    }

    fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    fn lag_events(&self) -> u32 {
        0
    }

    fn with_capacity(&self, bytes: u64) -> Result<Box<dyn Ground>, ReplayError> {
        let CudaGround { number, capacity_bytes } = *self;
        if bytes > capacity_bytes {
            let free = capacity_bytes >> 20;
            return Err(ReplayError::Device(format!("cuda:{number}: {free} MiB are free there")));
        }
        Ok(Box::new(CudaGround { number, capacity_bytes: bytes }))
    }

    fn stage(&self, _addresses_above: u64) -> Result<Box<dyn Stage>, ReplayError> {
        let holder = open(self.number)?;
        let free_bytes = holder.memory_info()?.free_bytes as u64;
        let ballast = match free_bytes.saturating_sub(self.capacity_bytes) {
            0 => DevicePtr::NULL,
            bytes => holder.alloc(bytes as usize).map_err(|error| {
                ReplayError::Device(format!("holding what is too much memory: {error}"))
            })?,
        };
        let timed = Timed::new(Arc::new(open(self.number)?));
        Ok(Box::new(CudaStage { timed, ballast: (holder, ballast) }))
    }
}

struct CudaStage {
    timed: Timed,
    /// Holds what is more memory than the replay may have. A value of its own, so that it is not in the replay's books.
    ballast: (CudaGpu, DevicePtr),
}

impl Stage for CudaStage {
    fn driver(&self) -> Arc<dyn Driver> {
        Arc::new(self.timed.clone())
    }

    fn advance(&self, _time: Duration) {}

    fn call_time(&self) -> Duration {
        self.timed.spent()
    }

    /// It is little beside the rest, and not known.
    fn stream_time(&self) -> Duration {
        Duration::ZERO
    }

    fn calls(&self, _call: Call) -> Option<u64> {
        None
    }
}

impl Drop for CudaStage {
    fn drop(&mut self) {
        let (holder, ballast) = &self.ballast;
        let _ = holder.free(*ballast);
    }
}
