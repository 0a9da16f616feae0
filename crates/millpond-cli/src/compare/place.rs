//! Where a scenario is played: on a simulated device of its own, or on a real one of which it is left as much as the scenario is about.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use millpond::driver::{
    DevicePtr, Driver, DriverResult, Event, EventTiming, Kernel, Stream, StreamFlags,
};
use millpond_cuda::CudaGpu;
use millpond_sim::{Profile, SimGpu, SimOptions};

use crate::device::Site;

/// A device for one scenario with one allocator, and its clock. What was made of it goes with it.
pub(crate) struct Place {
    gpu: Gpu,
    streams: Vec<Stream>,
    events: Vec<Event>,
    capacity_bytes: u64,
    /// What kernels have taken since it was last asked: what is known of it, and what is still to be read from events.
    kernels: Duration,
    timed_kernels: Vec<[Event; 2]>,
    untimed_kernels: u32,
}

/// As many kernels of a real device are timed until they are waited for; others count as taking as long as these.
const MOST_TIMED: usize = 4096;

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
        Ok(Place {
            gpu,
            streams: Vec::new(),
            events: Vec::new(),
            capacity_bytes,
            kernels: Duration::ZERO,
            timed_kernels: Vec::new(),
            untimed_kernels: 0,
        })
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

    /// Queues a kernel that goes through so many bytes.
    pub(crate) fn launch(
        &mut self,
        kernel: &Kernel,
        bytes: u64,
        stream: Stream,
    ) -> DriverResult<()> {
        match &self.gpu {
            Gpu::Simulated { gpu, profile } => {
                gpu.launch(kernel, stream)?;
                let ns = (bytes as f64 / profile.bandwidth * 1e9).max(profile.kernel_minimum_ns);
                self.kernels += Duration::from_nanos(ns as u64);
            }
            Gpu::Real { gpu, .. } if self.timed_kernels.len() < MOST_TIMED => {
                let around = [(); 2].map(|()| gpu.create_event(EventTiming::Enabled));
                let [start, end] = [around[0].clone()?, around[1].clone()?];
                gpu.record_event(start, stream)?;
                gpu.launch(kernel, stream)?;
                gpu.record_event(end, stream)?;
                self.timed_kernels.push([start, end]);
            }
            Gpu::Real { gpu, .. } => {
                gpu.launch(kernel, stream)?;
                self.untimed_kernels += 1;
            }
        }
        Ok(())
    }

    /// What the kernels since the last time have taken, one after the other. Everything has been waited for.
    pub(crate) fn take_kernel_time(&mut self) -> DriverResult<Duration> {
        let driver = self.driver();
        let timed = self.timed_kernels.len() as u32;
        for [start, end] in self.timed_kernels.drain(..) {
            self.kernels += driver.elapsed(start, end)?;
            driver.destroy_event(start)?;
            driver.destroy_event(end)?;
        }
        let untimed = std::mem::take(&mut self.untimed_kernels);
        let known = std::mem::take(&mut self.kernels);
        Ok(known + known.checked_div(timed).unwrap_or_default() * untimed)
    }

    pub(crate) fn create_streams(&mut self, count: usize) -> Result<Vec<Stream>> {
        let driver = self.driver();
        for _ in 0..count {
            self.streams.push(driver.create_stream(StreamFlags::NON_BLOCKING)?);
        }
        Ok(self.streams.clone())
    }

    pub(crate) fn create_event(&mut self) -> DriverResult<Event> {
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
        for event in self.events.drain(..).chain(self.timed_kernels.drain(..).flatten()) {
            let _ = driver.destroy_event(event);
        }
        if let Gpu::Real { gpu, ballast, .. } = &self.gpu {
            let _ = gpu.free(*ballast);
        }
    }
}
