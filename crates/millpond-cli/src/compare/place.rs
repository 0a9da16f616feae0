//! Where a scenario is played: on a simulated device of its own, or on a real one of which it is left as much as the scenario is about.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use millpond::driver::{DevicePtr, Driver, Event, EventTiming, Stream, StreamFlags};
use millpond_cuda::CudaGpu;
use millpond_sim::{Profile, SimGpu, SimOptions};

use crate::device::Site;

/// A device for one scenario with one allocator, and its clock. What was made of it goes with it.
pub(crate) struct Place {
    gpu: Gpu,
    streams: Vec<Stream>,
    events: Vec<Event>,
    capacity_bytes: u64,
}

enum Gpu {
    Simulated {
        gpu: Arc<SimGpu>,
        profile: Box<Profile>,
    },
    Real {
        gpu: Arc<CudaGpu>,
        begun: Instant,
        /// What is held of its memory so that the scenario has no more than it is about.
        ballast: DevicePtr,
    },
}

impl Place {
    /// A device with no more memory than that, if it is said.
    pub(crate) fn new(site: &Site, seed: u64, most_bytes: Option<u64>) -> Result<Place> {
        let (gpu, capacity_bytes) = match site {
            Site::Simulated(profile) => {
                let least = most_bytes.filter(|bytes| *bytes < profile.capacity_bytes as u64);
                let profile = match least {
                    Some(bytes) => profile.with_capacity(bytes)?,
                    None => Profile::clone(profile),
                };
                let options = SimOptions { seed, ..SimOptions::default() };
                let capacity_bytes = profile.capacity_bytes as u64;
                let gpu = Arc::new(SimGpu::with_options(profile.clone(), options));
                (Gpu::Simulated { gpu, profile: Box::new(profile) }, capacity_bytes)
            }
            Site::Real(gpu) => {
                // Others may use the device, too: what is free now is what there is.
                let free_bytes = gpu.memory_info()?.free_bytes as u64;
                let too_much = most_bytes.map_or(0, |most| free_bytes.saturating_sub(most));
                let ballast = match too_much {
                    0 => DevicePtr::NULL,
                    bytes => {
                        gpu.alloc(bytes as usize).context("holding what is too much memory")?
                    }
                };
                let gpu = gpu.clone();
                (Gpu::Real { gpu, begun: Instant::now(), ballast }, free_bytes - too_much)
            }
        };
        Ok(Place { gpu, streams: Vec::new(), events: Vec::new(), capacity_bytes })
    }

    pub(crate) fn driver(&self) -> Arc<dyn Driver> {
        match &self.gpu {
            Gpu::Simulated { gpu, .. } => gpu.clone(),
            Gpu::Real { gpu, .. } => gpu.clone(),
        }
    }

    /// The time there: modelled, or the host's.
    pub(crate) fn now(&self) -> Duration {
        match &self.gpu {
            Gpu::Simulated { gpu, .. } => gpu.now(),
            Gpu::Real { begun, .. } => begun.elapsed(),
        }
    }

    /// Whether the time is the host's, so that what the host does meanwhile is part of it.
    pub(crate) fn is_real(&self) -> bool {
        matches!(self.gpu, Gpu::Real { .. })
    }

    pub(crate) fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    /// How long a kernel takes that goes through so many bytes, by the memory's speed.
    pub(crate) fn kernel_time(&self, bytes: u64) -> Duration {
        let ns = match &self.gpu {
            Gpu::Simulated { profile, .. } => {
                (bytes as f64 / profile.bandwidth * 1e9).max(profile.kernel_minimum_ns)
            }
            Gpu::Real { gpu, .. } => match gpu.description().memory_bytes_per_second {
                0.0 => 0.0,
                bandwidth => bytes as f64 / bandwidth * 1e9,
            },
        };
        Duration::from_nanos(ns as u64)
    }

    pub(crate) fn create_streams(&mut self, count: usize) -> Result<Vec<Stream>> {
        let driver = self.driver();
        for _ in 0..count {
            self.streams.push(driver.create_stream(StreamFlags::NON_BLOCKING)?);
        }
        Ok(self.streams.clone())
    }

    pub(crate) fn create_event(&mut self) -> Result<Event, millpond::driver::DriverError> {
        let event = self.driver().create_event(EventTiming::Disabled)?;
        self.events.push(event);
        Ok(event)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // What a device that is lost does not take back goes with the process.
        let driver = self.driver();
        for stream in self.streams.drain(..) {
            let _ = driver.destroy_stream(stream);
        }
        for event in self.events.drain(..) {
            let _ = driver.destroy_event(event);
        }
        if let Gpu::Real { gpu, ballast, .. } = &self.gpu {
            let _ = gpu.free(*ballast);
        }
    }
}
