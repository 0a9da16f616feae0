//! The structs of CUDA's headers, as far as they are looked at. Numbers stay numbers, for a program may pass any.

use std::ffi::c_void;

/// `CUmemLocation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Location {
    pub(crate) kind: i32,
    pub(crate) id: i32,
}

/// `CUmemAllocationProp`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct AllocationProperties {
    pub(crate) kind: i32,
    pub(crate) handle_types: i32,
    pub(crate) location: Location,
    pub(crate) win32_metadata: *mut c_void,
    pub(crate) compression: u8,
    pub(crate) rdma: u8,
    pub(crate) usage: u16,
    pub(crate) reserved: [u8; 4],
}

/// `CUmemAccessDesc`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct AccessDescription {
    pub(crate) location: Location,
    pub(crate) flags: i32,
}

/// `CUmemPoolProps`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct PoolProps {
    pub(crate) kind: i32,
    pub(crate) handle_types: i32,
    pub(crate) location: Location,
    pub(crate) win32_attributes: *mut c_void,
    pub(crate) max_bytes: usize,
    pub(crate) usage: u16,
    pub(crate) reserved: [u8; 54],
}

/// `CUDA_MEMCPY2D_v2`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Copy2D {
    pub(crate) src_x: usize,
    pub(crate) src_y: usize,
    pub(crate) src_kind: i32,
    pub(crate) src_host: u64,
    pub(crate) src_device: u64,
    pub(crate) src_array: u64,
    pub(crate) src_pitch: usize,
    pub(crate) dst_x: usize,
    pub(crate) dst_y: usize,
    pub(crate) dst_kind: i32,
    pub(crate) dst_host: u64,
    pub(crate) dst_device: u64,
    pub(crate) dst_array: u64,
    pub(crate) dst_pitch: usize,
    pub(crate) width: usize,
    pub(crate) height: usize,
}

/// `CUDA_ARRAY_DESCRIPTOR`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct ArrayDescription {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) format: i32,
    pub(crate) channels: u32,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct ArrayDescription3D {
    /// Width, height and depth.
    pub(crate) extent: [usize; 3],
    pub(crate) format: i32,
    pub(crate) channels: u32,
    pub(crate) flags: u32,
}

/// `CUlaunchConfig`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct LaunchConfig {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
    pub(crate) stream: u64,
    pub(crate) attributes: *const c_void,
    pub(crate) attribute_count: u32,
}

/// `CUDA_GRAPH_INSTANTIATE_PARAMS`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct InstantiateParameters {
    pub(crate) flags: u64,
    pub(crate) upload_stream: u64,
    pub(crate) error_node: u64,
    pub(crate) result: i32,
}

/// `CUuuid`.
pub(crate) type Uuid = [u8; 16];

/// `CUmemLocationType`.
pub(crate) mod location {
    pub(crate) const INVALID: i32 = 0;
    pub(crate) const DEVICE: i32 = 1;
    pub(crate) const HOST: i32 = 2;
    pub(crate) const HOST_NUMA: i32 = 3;
    pub(crate) const HOST_NUMA_CURRENT: i32 = 4;
}

/// `CUmemorytype`.
pub(crate) mod memory_type {
    pub(crate) const HOST: i32 = 1;
    pub(crate) const DEVICE: i32 = 2;
    pub(crate) const UNIFIED: i32 = 4;
}

/// The handle type of `CUmemAllocationHandleType` that is a file descriptor.
pub(crate) const HANDLE_IS_DESCRIPTOR: i32 = 1;

#[cfg(test)]
mod tests {
    use std::mem::size_of;

    use super::*;

    #[test]
    fn structs_have_the_sizes_of_the_headers() {
        assert_eq!(size_of::<AllocationProperties>(), 32);
        assert_eq!(size_of::<AccessDescription>(), 12);
        assert_eq!(size_of::<PoolProps>(), 88);
        assert_eq!(size_of::<Copy2D>(), 128);
        assert_eq!(size_of::<LaunchConfig>(), 56);
        assert_eq!(size_of::<InstantiateParameters>(), 32);
        assert_eq!(size_of::<ArrayDescription>(), 24);
        assert_eq!(size_of::<ArrayDescription3D>(), 40);
    }
}
