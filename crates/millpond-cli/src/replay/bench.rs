//! The device that replays run on, as it was asked for.

use anyhow::{Context, Result, bail};
use millpond::device::DeviceName;
use millpond::replay::{self, Ground};
use millpond_cuda::CudaGround;
use millpond_sim::{Profile, SimGround};

use crate::cli::{Addresses, BenchDevice};
use crate::device;

/// The device that replays run on, and how it was named.
pub(crate) struct Bench {
    pub(crate) device: String,
    pub(crate) bench: replay::Bench,
}

impl Bench {
    /// The device that was asked for, or the usual one.
    pub(crate) fn new(options: &BenchDevice, addresses: Addresses) -> Result<Bench> {
        let device = options.device.clone().unwrap_or_else(device::default_name);
        let ground: Box<dyn Ground> = match device.parse()? {
            DeviceName::Simulated(profile) => {
                Box::new(SimGround::new(Profile::named(&profile)?, options.lag))
            }
            DeviceName::Cuda(_) if addresses == Addresses::Recorded => {
                bail!(
                    "{device}: a real device has addresses of its own: use a simulated one with --addresses recorded"
                )
            }
            DeviceName::Cuda(number) => Box::new(CudaGround::new(number)?),
        };
        let mut bench = replay::Bench::new(ground);
        if addresses == Addresses::Recorded {
            bench = bench.answering_as_recorded();
        }
        if let Some(capacity) = options.capacity {
            bench = bench.with_capacity(capacity.as_u64()).context("--capacity")?;
        }
        Ok(Bench { device, bench })
    }
}
