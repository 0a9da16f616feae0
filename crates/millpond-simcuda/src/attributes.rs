//! The attributes of a device, as CUDA numbers them.

use millpond::driver::Driver;

use crate::code_number::{Answer, Code};
use crate::device::Device;

/// CUDA's numbers run from 1 to somewhere here; what is not listed below is 0.
const LAST_ATTRIBUTE: i32 = 150;

/// Memory gives two words of this width a cycle: what makes a clock of the profile's bandwidth.
const BUS_BYTES: f64 = 128.0;

/// What a device that was not described otherwise can compute.
const DEFAULT_CAPABILITY: (i32, i32) = (8, 0);

impl Device {
    /// Major and minor: by the architecture in the profile's name, for no other figure of it depends on this.
    pub(crate) fn compute_capability(&self) -> (i32, i32) {
        let known = [
            ("a100", (8, 0)),
            ("h100", (9, 0)),
            ("v100", (7, 0)),
            ("rtx4090", (8, 9)),
            ("p100", (6, 0)),
        ];
        let found = known.iter().find(|(name, _)| self.profile.name.starts_with(name));
        found.map_or(DEFAULT_CAPABILITY, |(_, capability)| *capability)
    }

    /// One attribute. Limits of launches are those that every device since 2016 has. What a device can do that is not here is 0,
    /// also where NVIDIA's device of the same name can do it: a program that asks is not sent to a call that is not there.
    pub(crate) fn attribute(&self, attribute: i32) -> Answer<i32> {
        use number::*;
        let info = self.gpu.device();
        let (major, minor) = self.compute_capability();
        let value = match attribute {
            MAX_THREADS_PER_BLOCK => 1024,
            MAX_BLOCK_DIM_X | MAX_BLOCK_DIM_Y => 1024,
            MAX_BLOCK_DIM_Z => 64,
            MAX_GRID_DIM_X => i32::MAX,
            MAX_GRID_DIM_Y | MAX_GRID_DIM_Z => 65535,
            MAX_SHARED_MEMORY_PER_BLOCK => SHARED_BYTES_PER_BLOCK as i32,
            TOTAL_CONSTANT_MEMORY => 64 << 10,
            WARP_SIZE => 32,
            MAX_PITCH => i32::MAX,
            MAX_REGISTERS_PER_BLOCK => 65536,
            CLOCK_RATE => 1_410_000,
            TEXTURE_ALIGNMENT => 512,
            GPU_OVERLAP => 1,
            MULTIPROCESSOR_COUNT => info.multiprocessors as i32,
            CAN_MAP_HOST_MEMORY => 1,
            CONCURRENT_KERNELS => 1,
            PCI_BUS_ID => self.number as i32 + 1,
            MEMORY_CLOCK_RATE => (self.profile.bandwidth / (2.0 * 1e3 * BUS_BYTES)) as i32,
            GLOBAL_MEMORY_BUS_WIDTH => BUS_BYTES as i32 * 8,
            L2_CACHE_SIZE => 40 << 20,
            MAX_THREADS_PER_MULTIPROCESSOR => self.profile.threads_per_multiprocessor as i32,
            ASYNC_ENGINE_COUNT => info.copy_engines as i32,
            UNIFIED_ADDRESSING => 1,
            COMPUTE_CAPABILITY_MAJOR => major,
            COMPUTE_CAPABILITY_MINOR => minor,
            STREAM_PRIORITIES_SUPPORTED => 1,
            GLOBAL_L1_CACHE_SUPPORTED | LOCAL_L1_CACHE_SUPPORTED => 1,
            MAX_SHARED_MEMORY_PER_MULTIPROCESSOR => SHARED_BYTES_PER_MULTIPROCESSOR as i32,
            MAX_REGISTERS_PER_MULTIPROCESSOR => 65536,
            MANAGED_MEMORY => 1,
            SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO => 2,
            CONCURRENT_MANAGED_ACCESS => i32::from(info.concurrent_managed_access),
            COMPUTE_PREEMPTION_SUPPORTED => 1,
            COOPERATIVE_LAUNCH => 1,
            MAX_SHARED_MEMORY_PER_BLOCK_OPTIN => SHARED_BYTES_PER_BLOCK_OPT_IN as i32,
            HOST_REGISTER_SUPPORTED => 1,
            VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED => i32::from(info.virtual_memory),
            HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED => i32::from(info.virtual_memory),
            MAX_BLOCKS_PER_MULTIPROCESSOR => MOST_BLOCKS as i32,
            RESERVED_SHARED_MEMORY_PER_BLOCK => SHARED_BYTES_RESERVED as i32,
            MEMORY_POOLS_SUPPORTED => i32::from(info.memory_pools),
            _ if (1..=LAST_ATTRIBUTE).contains(&attribute) => 0,
            _ => return Err(Code::INVALID_VALUE),
        };
        Ok(value)
    }
}

/// Shared memory that a block may have: without asking, and after `cuFuncSetAttribute`.
pub(crate) const SHARED_BYTES_PER_BLOCK: usize = 48 << 10;
pub(crate) const SHARED_BYTES_PER_BLOCK_OPT_IN: usize = 163 << 10;
/// What the driver takes of it for itself, of every block.
pub(crate) const SHARED_BYTES_RESERVED: usize = 1 << 10;
pub(crate) const SHARED_BYTES_PER_MULTIPROCESSOR: usize = 164 << 10;
/// Blocks that a multiprocessor runs at a time.
pub(crate) const MOST_BLOCKS: usize = 32;

/// `CUdevice_attribute`, without its prefix. A test compares what each answers with the numbers of NVIDIA's header.
mod number {
    pub(super) const MAX_THREADS_PER_BLOCK: i32 = 1;
    pub(super) const MAX_BLOCK_DIM_X: i32 = 2;
    pub(super) const MAX_BLOCK_DIM_Y: i32 = 3;
    pub(super) const MAX_BLOCK_DIM_Z: i32 = 4;
    pub(super) const MAX_GRID_DIM_X: i32 = 5;
    pub(super) const MAX_GRID_DIM_Y: i32 = 6;
    pub(super) const MAX_GRID_DIM_Z: i32 = 7;
    pub(super) const MAX_SHARED_MEMORY_PER_BLOCK: i32 = 8;
    pub(super) const TOTAL_CONSTANT_MEMORY: i32 = 9;
    pub(super) const WARP_SIZE: i32 = 10;
    pub(super) const MAX_PITCH: i32 = 11;
    pub(super) const MAX_REGISTERS_PER_BLOCK: i32 = 12;
    pub(super) const CLOCK_RATE: i32 = 13;
    pub(super) const TEXTURE_ALIGNMENT: i32 = 14;
    pub(super) const GPU_OVERLAP: i32 = 15;
    pub(super) const MULTIPROCESSOR_COUNT: i32 = 16;
    pub(super) const CAN_MAP_HOST_MEMORY: i32 = 19;
    pub(super) const CONCURRENT_KERNELS: i32 = 31;
    pub(super) const PCI_BUS_ID: i32 = 33;
    pub(super) const MEMORY_CLOCK_RATE: i32 = 36;
    pub(super) const GLOBAL_MEMORY_BUS_WIDTH: i32 = 37;
    pub(super) const L2_CACHE_SIZE: i32 = 38;
    pub(super) const MAX_THREADS_PER_MULTIPROCESSOR: i32 = 39;
    pub(super) const ASYNC_ENGINE_COUNT: i32 = 40;
    pub(super) const UNIFIED_ADDRESSING: i32 = 41;
    pub(super) const COMPUTE_CAPABILITY_MAJOR: i32 = 75;
    pub(super) const COMPUTE_CAPABILITY_MINOR: i32 = 76;
    pub(super) const STREAM_PRIORITIES_SUPPORTED: i32 = 78;
    pub(super) const GLOBAL_L1_CACHE_SUPPORTED: i32 = 79;
    pub(super) const LOCAL_L1_CACHE_SUPPORTED: i32 = 80;
    pub(super) const MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: i32 = 81;
    pub(super) const MAX_REGISTERS_PER_MULTIPROCESSOR: i32 = 82;
    pub(super) const MANAGED_MEMORY: i32 = 83;
    pub(super) const SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO: i32 = 87;
    pub(super) const CONCURRENT_MANAGED_ACCESS: i32 = 89;
    pub(super) const COMPUTE_PREEMPTION_SUPPORTED: i32 = 90;
    pub(super) const COOPERATIVE_LAUNCH: i32 = 95;
    pub(super) const MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: i32 = 97;
    pub(super) const HOST_REGISTER_SUPPORTED: i32 = 99;
    pub(super) const VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: i32 = 102;
    pub(super) const HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED: i32 = 103;
    pub(super) const MAX_BLOCKS_PER_MULTIPROCESSOR: i32 = 106;
    pub(super) const RESERVED_SHARED_MEMORY_PER_BLOCK: i32 = 111;
    pub(super) const MEMORY_POOLS_SUPPORTED: i32 = 115;
}
