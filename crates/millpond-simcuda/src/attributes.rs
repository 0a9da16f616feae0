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

    /// One attribute. Limits of launches are those that every device since 2016 has.
    pub(crate) fn attribute(&self, attribute: i32) -> Answer<i32> {
        let info = self.gpu.device();
        let (major, minor) = self.compute_capability();
        let value = match attribute {
            1 => 1024,                                                       // MAX_THREADS_PER_BLOCK
            2 | 3 => 1024,                                                   // MAX_BLOCK_DIM_X, _Y
            4 => 64,                                                         // MAX_BLOCK_DIM_Z
            5 => i32::MAX,                                                   // MAX_GRID_DIM_X
            6 | 7 => 65535,                                                  // MAX_GRID_DIM_Y, _Z
            8 => 48 << 10,                     // MAX_SHARED_MEMORY_PER_BLOCK
            9 => 64 << 10,                     // TOTAL_CONSTANT_MEMORY
            10 => 32,                          // WARP_SIZE
            11 => i32::MAX,                    // MAX_PITCH
            12 => 65536,                       // MAX_REGISTERS_PER_BLOCK
            13 => 1_410_000,                   // CLOCK_RATE
            14 => 512,                         // TEXTURE_ALIGNMENT
            15 => 1,                           // GPU_OVERLAP
            16 => info.multiprocessors as i32, // MULTIPROCESSOR_COUNT
            19 => 1,                           // CAN_MAP_HOST_MEMORY
            31 => 1,                           // CONCURRENT_KERNELS
            33 => self.ordinal as i32 + 1,     // PCI_BUS_ID
            36 => (self.profile.bandwidth / (2.0 * 1e3 * BUS_BYTES)) as i32, // MEMORY_CLOCK_RATE
            37 => BUS_BYTES as i32 * 8,        // GLOBAL_MEMORY_BUS_WIDTH
            38 => 40 << 20,                    // L2_CACHE_SIZE
            39 => self.profile.threads_per_multiprocessor as i32, // MAX_THREADS_PER_MULTIPROCESSOR
            40 => info.copy_engines as i32,    // ASYNC_ENGINE_COUNT
            41 => 1,                           // UNIFIED_ADDRESSING
            75 => major,                       // COMPUTE_CAPABILITY_MAJOR
            76 => minor,                       // COMPUTE_CAPABILITY_MINOR
            77 => 1,                           // STREAM_PRIORITIES_SUPPORTED
            78 | 79 => 1,                      // GLOBAL_, LOCAL_L1_CACHE_SUPPORTED
            80 => 164 << 10,                   // MAX_SHARED_MEMORY_PER_MULTIPROCESSOR
            81 => 65536,                       // MAX_REGISTERS_PER_MULTIPROCESSOR
            82 => 1,                           // MANAGED_MEMORY
            87 => 2,                           // SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO
            88 => 0,                           // PAGEABLE_MEMORY_ACCESS
            89 => i32::from(info.concurrent_managed_access), // CONCURRENT_MANAGED_ACCESS
            90 => 1,                           // COMPUTE_PREEMPTION_SUPPORTED
            94 => 1,                           // CAN_USE_STREAM_WAIT_VALUE_NOR
            95 => 1,                           // COOPERATIVE_LAUNCH
            97 => 163 << 10,                   // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
            99 => 1,                           // HOST_REGISTER_SUPPORTED
            102 => i32::from(info.virtual_memory), // VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
            103 => i32::from(info.virtual_memory), // HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
            106 => 32,                         // MAX_BLOCKS_PER_MULTIPROCESSOR
            111 => 1024,                       // RESERVED_SHARED_MEMORY_PER_BLOCK
            115 => i32::from(info.memory_pools), // MEMORY_POOLS_SUPPORTED
            _ if (1..=LAST_ATTRIBUTE).contains(&attribute) => 0,
            _ => return Err(Code::INVALID_VALUE),
        };
        Ok(value)
    }
}
