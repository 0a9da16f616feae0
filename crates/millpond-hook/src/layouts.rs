//! The structs of CUDA's headers, as far as they are looked at.

/// `CUmemLocation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Location {
    pub(crate) kind: i32,
    pub(crate) id: i32,
}

impl Location {
    /// `CU_MEM_LOCATION_TYPE_DEVICE`.
    pub(crate) const DEVICE: i32 = 1;

    pub(crate) const fn device(id: i32) -> Location {
        Location { kind: Location::DEVICE, id }
    }
}

/// `CUmemAllocationProp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct AllocationProperties {
    pub(crate) kind: i32,
    pub(crate) handle_types: i32,
    pub(crate) location: Location,
    /// A pointer of Windows.
    pub(crate) metadata: u64,
    pub(crate) flags: [u8; 8],
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

/// `CUmemAccessDesc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct AccessDescription {
    pub(crate) location: Location,
    pub(crate) flags: i32,
}

impl AccessDescription {
    /// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
    pub(crate) const READ_WRITE: i32 = 3;
}

/// `CUmemPoolProps`, up to where the kinds of handles are that its memory can be shared by.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct PoolProperties {
    pub(crate) kind: i32,
    pub(crate) handle_types: i32,
}

/// `CUDA_MEMCPY2D_v2`, up to where the addresses are.
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
}

/// `CUDA_MEMCPY3D_v2` and `CUDA_MEMCPY3D_PEER`, up to where the addresses are.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Copy3D {
    pub(crate) src_start: [usize; 4],
    pub(crate) src_kind: i32,
    pub(crate) src_host: u64,
    pub(crate) src_device: u64,
    pub(crate) src_array: u64,
    pub(crate) src_context: u64,
    pub(crate) src_size: [usize; 2],
    pub(crate) dst_start: [usize; 4],
    pub(crate) dst_kind: i32,
    pub(crate) dst_host: u64,
    pub(crate) dst_device: u64,
}

/// `CUlaunchConfig`, up to where the stream is.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct LaunchConfig {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
    pub(crate) stream: u64,
}

/// `CUDA_LAUNCH_PARAMS`, of which a cooperative launch on several devices takes one each.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct LaunchParameters {
    pub(crate) function: u64,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
    pub(crate) stream: u64,
    pub(crate) parameters: u64,
}

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::*;

    #[test]
    fn structs_are_laid_out_as_in_the_headers() {
        assert_eq!(size_of::<AllocationProperties>(), 32);
        assert_eq!(size_of::<AccessDescription>(), 12);
        assert_eq!(offset_of!(Copy2D, dst_device), 88);
        assert_eq!(offset_of!(Copy3D, dst_device), 136);
        assert_eq!(offset_of!(LaunchConfig, stream), 32);
        assert_eq!(offset_of!(LaunchParameters, parameters), 48);
    }
}
