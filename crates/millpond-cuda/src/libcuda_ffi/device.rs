//! What devices there are, and what the driver says of them.

use std::ffi::c_int;

use cudarc::driver::sys::{CUdevice, CUdevice_attribute};

use super::library::Cuda;
use super::status::{Status, call};

/// A device that the driver has named.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Device {
    pub(super) cuda: &'static Cuda,
    pub(super) raw: CUdevice,
}

/// What is asked of a device.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Attribute {
    Multiprocessors,
    CopyEngines,
    ConcurrentManagedAccess,
    VirtualMemory,
    MemoryPools,
    PosixHandles,
    RdmaWithVirtualMemory,
    MemoryClockKilohertz,
    MemoryBusBits,
    ComputeMajor,
    ComputeMinor,
}

impl Device {
    /// How many there are.
    pub(crate) fn count(cuda: &Cuda) -> Result<u32, Status> {
        let mut count: c_int = 0;
        // SAFETY: the number goes into a variable that is there.
        unsafe { call!(cuda, cuDeviceGetCount(&mut count)) }?;
        Ok(count.max(0) as u32)
    }

    /// The device of a number.
    pub(crate) fn numbered(cuda: &'static Cuda, number: u32) -> Result<Device, Status> {
        let number = c_int::try_from(number).map_err(|_| Status::INVALID_VALUE)?;
        let mut raw = 0;
        // SAFETY: the device goes into a variable that is there.
        unsafe { call!(cuda, cuDeviceGet(&mut raw, number)) }?;
        Ok(Device { cuda, raw })
    }

    /// What its maker calls it.
    pub(crate) fn title(&self) -> Result<String, Status> {
        let mut name = [0_u8; 256];
        // SAFETY: the driver writes at most as many bytes as it is told there are.
        unsafe {
            call!(
                self.cuda,
                cuDeviceGetName(name.as_mut_ptr().cast(), name.len() as c_int, self.raw)
            )
        }?;
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        Ok(String::from_utf8_lossy(&name[..end]).into_owned())
    }

    /// All its memory.
    pub(crate) fn total_bytes(&self) -> Result<usize, Status> {
        let mut bytes = 0;
        // SAFETY: the number goes into a variable that is there.
        unsafe { call!(self.cuda, cuDeviceTotalMem(&mut bytes, self.raw)) }?;
        Ok(bytes)
    }

    /// An attribute. One that the driver does not know yet is 0, as the features are that such attributes stand for.
    pub(crate) fn attribute(&self, attribute: Attribute) -> Result<i32, Status> {
        use CUdevice_attribute as A;
        let attribute = match attribute {
            Attribute::Multiprocessors => A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
            Attribute::CopyEngines => A::CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT,
            Attribute::ConcurrentManagedAccess => A::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
            Attribute::VirtualMemory => A::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
            Attribute::MemoryPools => A::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED,
            Attribute::PosixHandles => {
                A::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
            }
            Attribute::RdmaWithVirtualMemory => {
                A::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED
            }
            Attribute::MemoryClockKilohertz => A::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE,
            Attribute::MemoryBusBits => A::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH,
            Attribute::ComputeMajor => A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            Attribute::ComputeMinor => A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        };
        let mut value: c_int = 0;
        // SAFETY: the number goes into a variable that is there.
        match unsafe { call!(self.cuda, cuDeviceGetAttribute(&mut value, attribute, self.raw)) } {
            Ok(()) => Ok(value),
            Err(Status::INVALID_VALUE | Status::NOT_SUPPORTED) => Ok(0),
            Err(status) => Err(status),
        }
    }

    /// Whether it can reach another device's memory.
    pub(crate) fn reaches(&self, other: &Device) -> bool {
        let mut can: c_int = 0;
        // SAFETY: the number goes into a variable that is there.
        let asked =
            unsafe { call!(self.cuda, cuDeviceCanAccessPeer(&mut can, self.raw, other.raw)) };
        asked.is_ok() && can != 0
    }

    pub(crate) fn have_virtual_memory(&self) -> bool {
        self.cuda.functions.have_virtual_memory()
    }

    pub(crate) fn have_pools(&self) -> bool {
        self.cuda.functions.have_pools()
    }
}
