//! The device that replays run on, as it was asked for.

use anyhow::{Context, Result, bail};
use millpond::Stack;
use millpond::device::DeviceName;
use millpond::replay::{self, Ground, Program, ReplayError, Replayed};
use millpond_cuda::CudaGround;
use millpond_sim::{Profile, SimGround};

use crate::cli::{Addresses, BenchDevice};
use crate::{device, interrupt};

/// The device that replays run on, and how it was named.
pub(crate) struct Bench {
    pub(crate) device: String,
    pub(crate) bench: replay::Bench,
}

impl Bench {
    /// The device that was asked for, or the usual one.
    pub(crate) fn new(options: &BenchDevice, addresses: Addresses) -> Result<Bench> {
        let device = device::chosen(options.device.as_deref());
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
        let mut bench = replay::Bench::new(ground).until(interrupt::is_requested);
        if addresses == Addresses::Recorded {
            bench = bench.answering_as_recorded();
        }
        if let Some(capacity) = options.capacity {
            bench = bench.with_capacity(capacity.as_u64()).context("--capacity")?;
        }
        Ok(Bench { device, bench })
    }
}

/// The smallest device on which an allocator comes to the end. `None` also when Ctrl-C came before it was found.
pub(crate) fn smallest_bytes(
    bench: &replay::Bench,
    stack: &Stack,
    program: &Program,
    replayed: &Replayed,
) -> Result<Option<u64>> {
    match bench.smallest_bytes(stack, program, replayed) {
        Err(ReplayError::Interrupted) => Ok(None),
        found => Ok(found?),
    }
}
