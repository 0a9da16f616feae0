//! What a replay has under it: a simulated device of its own, or a real one.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use millpond::driver::{Call, DevicePtr, Driver, Timed};
use millpond_cuda::CudaGpu;
use millpond_sim::{Profile, SimGpu};

/// The kind of device.
pub(crate) enum Ground {
    Simulated(Box<Profile>),
    /// The real one of a number.
    Real(u32),
}

/// The device of one replay. What the replay has not given back goes with it.
pub(crate) enum Gpu {
    Simulated {
        gpu: Arc<SimGpu>,
        /// What making a stream takes.
        stream_ns: u64,
    },
    Real(Box<RealGpu>),
}

pub(crate) struct RealGpu {
    timed: Timed,
    /// Holds what is more memory than the replay may have. A value of its own, so that it is not in the replay's books.
    ballast: (CudaGpu, DevicePtr),
}

impl Gpu {
    /// The real device of a number, with so much memory left.
    pub(crate) fn real(number: u32, capacity_bytes: u64) -> Result<Gpu> {
        let holder = CudaGpu::open(number)?;
        let free_bytes = holder.memory_info()?.free_bytes as u64;
        let ballast = match free_bytes.saturating_sub(capacity_bytes) {
            0 => DevicePtr::NULL,
            bytes => holder.alloc(bytes as usize).context("holding what is too much memory")?,
        };
        let timed = Timed::new(Arc::new(CudaGpu::open(number)?));
        Ok(Gpu::Real(Box::new(RealGpu { timed, ballast: (holder, ballast) })))
    }

    pub(crate) fn driver(&self) -> Arc<dyn Driver> {
        match self {
            Gpu::Simulated { gpu, .. } => gpu.clone(),
            Gpu::Real(real) => Arc::new(real.timed.clone()),
        }
    }

    /// Time passes: on a real device it does so by itself.
    pub(crate) fn advance(&self, time: Duration) {
        if let Gpu::Simulated { gpu, .. } = self {
            gpu.advance(time);
        }
    }

    /// The host's time in calls of the driver so far.
    pub(crate) fn call_time(&self) -> Duration {
        match self {
            Gpu::Simulated { gpu, .. } => gpu.call_time(),
            Gpu::Real(real) => real.timed.spent(),
        }
    }

    /// What of that went into making streams, which are the program's. On a real device it is little beside the rest, and not known.
    pub(crate) fn stream_time(&self) -> Duration {
        match self {
            Gpu::Simulated { gpu, stream_ns } => {
                Duration::from_nanos(stream_ns * gpu.calls(Call::CreateStream))
            }
            Gpu::Real(_) => Duration::ZERO,
        }
    }

    /// How often a call was made, if somebody counts.
    pub(crate) fn calls(&self, call: Call) -> Option<u64> {
        match self {
            Gpu::Simulated { gpu, .. } => Some(gpu.calls(call)),
            Gpu::Real(_) => None,
        }
    }
}

impl Drop for RealGpu {
    fn drop(&mut self) {
        let (holder, ballast) = &self.ballast;
        let _ = holder.free(*ballast);
    }
}
