//! Launching the built-in kernels.

use std::time::Duration;

use millpond::driver::{Call, DevicePtr, DriverResult, Kernel, Touch, TouchKind};

use crate::gpu::{CudaGpu, invalid};
use crate::libcuda_ffi::{Argument, LiveStream};

/// As many ranges one launch of `millpond_work` touches.
const TOUCHES_PER_LAUNCH: usize = 8;
/// As many words one block does in one go.
const ITEMS_PER_BLOCK: usize = 256;
/// More blocks per multiprocessor than that only wait for each other.
const BLOCKS_PER_MULTIPROCESSOR: u32 = 8;

impl CudaGpu {
    pub(crate) fn launch_on(&self, kernel: &Kernel, stream: &LiveStream) -> DriverResult<()> {
        use Argument::{Long, Word};
        let length = |count: usize| Long(count as u64);
        let run = |items, arguments: &[Argument]| {
            self.run(kernel.name(), self.blocks_for(items), arguments, stream)
        };
        match *kernel {
            Kernel::Fill { dst, value, count } => {
                aligned(4, [dst])?;
                run(count, &[Long(dst.0), Word(value), length(count)])
            }
            Kernel::Add { dst, a, b, count } => {
                aligned(4, [dst, a, b])?;
                run(count, &[Long(dst.0), Long(a.0), Long(b.0), length(count)])
            }
            Kernel::Checksum { src, bytes, out } => {
                aligned(4, [src])?;
                self.zero_sum(out, stream)?;
                run(bytes / 4, &[Long(src.0), length(bytes), Long(out.0)])
            }
            Kernel::Chase { table, entries, out } => {
                aligned(8, [table])?;
                self.zero_sum(out, stream)?;
                run(entries, &[Long(table.0), length(entries), Long(out.0)])
            }
            Kernel::Work { ref touches, duration } => self.work(touches, duration, stream),
        }
    }

    /// Any number of touches, as launches of eight each. The last one takes the time.
    fn work(&self, touches: &[Touch], duration: Duration, stream: &LiveStream) -> DriverResult<()> {
        let mut rest = touches;
        loop {
            let (now, later) = rest.split_at(rest.len().min(TOUCHES_PER_LAUNCH));
            let takes = if later.is_empty() { duration } else { Duration::ZERO };
            let mut ranges = [[0; 3]; TOUCHES_PER_LAUNCH];
            for (range, touch) in ranges.iter_mut().zip(now) {
                let kind = u64::from(touch.kind == TouchKind::Write);
                *range = [touch.ptr.0, touch.bytes as u64, kind];
            }
            let longest = now.iter().map(|touch| touch.bytes).max().unwrap_or(0);
            let arguments = [
                Argument::Long(u64::try_from(takes.as_nanos()).unwrap_or(u64::MAX)),
                Argument::Long(now.len() as u64),
                Argument::Touches(ranges),
            ];
            // It touches a byte of every 32.
            self.run("work", self.blocks_for(longest / 32), &arguments, stream)?;
            if later.is_empty() {
                return Ok(());
            }
            rest = later;
        }
    }

    /// Sums are added to what is there.
    fn zero_sum(&self, out: DevicePtr, stream: &LiveStream) -> DriverResult<()> {
        aligned(8, [out])?;
        self.context.memset(out.0, 0, 8, stream).map_err(self.error(Call::Launch))
    }

    fn run(
        &self,
        name: &str,
        blocks: u32,
        arguments: &[Argument],
        stream: &LiveStream,
    ) -> DriverResult<()> {
        let error = self.error(Call::Launch);
        self.kernels().map_err(&error)?.launch(name, blocks, arguments, stream).map_err(error)
    }

    fn blocks_for(&self, items: usize) -> u32 {
        let most = self.description.info.multiprocessors.max(1) * BLOCKS_PER_MULTIPROCESSOR;
        u32::try_from(items.div_ceil(ITEMS_PER_BLOCK)).unwrap_or(u32::MAX).clamp(1, most)
    }
}

/// The device would be lost to an access that is not aligned.
fn aligned<const N: usize>(to: usize, addresses: [DevicePtr; N]) -> DriverResult<()> {
    match addresses.iter().find(|address| !address.is_aligned_to(to)) {
        Some(address) => Err(invalid(Call::Launch, format!("{address} is no multiple of {to}"))),
        None => Ok(()),
    }
}
