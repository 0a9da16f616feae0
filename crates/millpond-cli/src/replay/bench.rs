//! The device that replays run on, as it was asked for.

use anyhow::{Context, Result, bail, ensure};
use millpond::Stack;
use millpond::device::DeviceName;
use millpond::replay::{self, Ground, Program, ReplayError, Replayed};
use millpond_cuda::CudaGround;
use millpond_sim::{Profile, SimGround};

use crate::cli::{Addresses, BenchDevice};
use crate::{device, interrupt};

/// The device's pages: capacities are multiples of this.
pub(crate) const PAGE_BYTES: u64 = 2 << 20;
/// The most that the simulated GPU can have: 8 TiB.
const MOST_PAGES: u64 = (8 << 40) / PAGE_BYTES;

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
            // Whoever says 16GB need not know how large pages are.
            let pages = capacity.as_u64() / PAGE_BYTES;
            ensure!(
                (1..=MOST_PAGES).contains(&pages),
                "--capacity {capacity}: a device has at least 2MiB and at most 8TiB"
            );
            bench = bench.with_capacity(pages * PAGE_BYTES).context("--capacity")?;
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
