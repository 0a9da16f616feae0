//! A device, described without being taken into use.

use millpond::driver::{DeviceInfo, DeviceKind};

use crate::error::OpenError;
use crate::libcuda_ffi::{Attribute, Cuda, Device, Status};

/// Plain allocations are multiples of this, as far as consecutive small ones show.
const PLAIN_GRANULARITY_BYTES: usize = 512;
/// The page of devices whose driver does not tell.
const USUAL_PAGE_BYTES: usize = 2 << 20;

/// A real device and what its driver says of it.
#[derive(Clone, Debug, PartialEq)]
pub struct CudaDevice {
    /// What Millpond goes by.
    pub info: DeviceInfo,
    /// What its maker calls it.
    pub title: String,
    /// CUDA's version as the driver counts it: 12090 is 12.9.
    pub driver_version: u32,
    /// Compute capability, major and minor.
    pub compute_capability: (u32, u32),
    /// The memory's bandwidth as clock and width give it; 0 where the driver does not tell.
    pub memory_bytes_per_second: f64,
    /// Whether physical memory can be given to other processes.
    pub exportable_memory: bool,
    /// Whether physical memory can be given to network cards.
    pub rdma_memory: bool,
}

/// How the names of devices end that are none.
const SIMULATED: &str = "(simulated)";

impl CudaDevice {
    pub(crate) fn describe(
        cuda: &Cuda,
        device: &Device,
        number: u32,
    ) -> Result<CudaDevice, Status> {
        let number_of = |attribute| Ok(device.attribute(attribute)?.max(0) as u32);
        let has = |attribute| Ok(device.attribute(attribute)? != 0);
        let granularity = if has(Attribute::VirtualMemory)? && device.have_virtual_memory() {
            device.granularity().ok().filter(|bytes| bytes.is_power_of_two())
        } else {
            None
        };
        let title = device.title()?;
        // The stand-in for NVIDIA's driver says what it is, and so does whoever reports figures of it.
        let kind =
            if title.ends_with(SIMULATED) { DeviceKind::Simulated } else { DeviceKind::Real };
        let info = DeviceInfo {
            name: format!("cuda:{number}"),
            kind,
            capacity_bytes: device.total_bytes()?,
            granularity_bytes: granularity.unwrap_or(USUAL_PAGE_BYTES),
            plain_granularity_bytes: PLAIN_GRANULARITY_BYTES,
            virtual_memory: granularity.is_some(),
            memory_pools: has(Attribute::MemoryPools)? && device.have_pools(),
            concurrent_managed_access: has(Attribute::ConcurrentManagedAccess)?,
            copy_engines: number_of(Attribute::CopyEngines)?,
            multiprocessors: number_of(Attribute::Multiprocessors)?,
        };
        // Two transfers per clock, as for all memory that GPUs have had.
        let clock_hz = f64::from(number_of(Attribute::MemoryClockKilohertz)?) * 1e3;
        let bus_bytes = f64::from(number_of(Attribute::MemoryBusBits)?) / 8.0;
        Ok(CudaDevice {
            info,
            title,
            driver_version: cuda.version(),
            compute_capability: (
                number_of(Attribute::ComputeMajor)?,
                number_of(Attribute::ComputeMinor)?,
            ),
            memory_bytes_per_second: 2.0 * clock_hz * bus_bytes,
            exportable_memory: granularity.is_some() && has(Attribute::PosixHandles)?,
            rdma_memory: granularity.is_some() && has(Attribute::RdmaWithVirtualMemory)?,
        })
    }

    /// Every device that the driver sees, without taking any into use.
    ///
    /// # Errors
    /// There is no driver, or it does not work. A driver without devices is [`OpenError::NoDevice`].
    pub fn all() -> Result<Vec<CudaDevice>, OpenError> {
        let cuda = crate::gpu::load_driver()?;
        let not_started = |status: Status| OpenError::NotStarted(status.describe(cuda));
        let count = Device::count(cuda).map_err(not_started)?;
        if count == 0 {
            return Err(OpenError::NoDevice);
        }
        (0..count)
            .map(|number| {
                let device = Device::numbered(cuda, number)?;
                CudaDevice::describe(cuda, &device, number)
            })
            .collect::<Result<_, Status>>()
            .map_err(not_started)
    }
}
