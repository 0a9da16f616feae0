//! The types of the ABI that are looked into here. Handles and what is only passed on are plain pointers.

use std::ffi::{c_char, c_int, c_uint, c_void};

pub(crate) type Handle = *mut c_void;
pub(crate) type Context = Handle;
pub(crate) type Stream = Handle;
pub(crate) type Event = Handle;
pub(crate) type Graph = Handle;
pub(crate) type Pool = Handle;
pub(crate) type Library = Handle;
/// A kernel, or a function of a module: the driver takes either where it wants a function.
pub(crate) type Function = Handle;
pub(crate) type DevicePtr = u64;
/// The program's functions are handed on and never called here.
pub(crate) type HostFunction = Option<extern "C" fn(*mut c_void)>;
pub(crate) type StreamCallback = Option<extern "C" fn(Stream, c_int, *mut c_void)>;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dim3 {
    pub(crate) x: c_uint,
    pub(crate) y: c_uint,
    pub(crate) z: c_uint,
}

/// `cudaMemLocation`, which is `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Location {
    pub(crate) kind: c_int,
    pub(crate) id: c_int,
}

/// `cudaIpcMemHandle_t` and `cudaIpcEventHandle_t`, 64 bytes that only the driver understands.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct IpcHandle {
    pub(crate) bytes: [c_char; 64],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PointerAttributes {
    pub(crate) kind: c_int,
    pub(crate) device: c_int,
    pub(crate) device_pointer: *mut c_void,
    pub(crate) host_pointer: *mut c_void,
}

/// `cudaChannelFormatDesc`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ChannelFormat {
    pub(crate) bits: [c_int; 4],
    pub(crate) kind: c_int,
}

/// `cudaLaunchConfig_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct LaunchConfig {
    pub(crate) grid: Dim3,
    pub(crate) block: Dim3,
    pub(crate) shared_bytes: usize,
    pub(crate) stream: Stream,
    pub(crate) attributes: *mut c_void,
    pub(crate) attribute_count: c_uint,
}

/// `CUlaunchConfig`. The attributes are the same on both sides.
#[repr(C)]
pub(crate) struct DriverLaunchConfig {
    pub(crate) grid: Dim3,
    pub(crate) block: Dim3,
    pub(crate) shared_bytes: c_uint,
    pub(crate) stream: Stream,
    pub(crate) attributes: *mut c_void,
    pub(crate) attribute_count: c_uint,
}

/// `cudaFuncAttributes`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct FunctionAttributes {
    pub(crate) shared_bytes: usize,
    pub(crate) const_bytes: usize,
    pub(crate) local_bytes: usize,
    pub(crate) max_threads_per_block: c_int,
    pub(crate) registers: c_int,
    pub(crate) ptx_version: c_int,
    pub(crate) binary_version: c_int,
    pub(crate) cache_mode_ca: c_int,
    pub(crate) max_dynamic_shared_bytes: c_int,
    pub(crate) preferred_shared_carveout: c_int,
    pub(crate) cluster_dim_must_be_set: c_int,
    pub(crate) required_cluster: [c_int; 3],
    pub(crate) cluster_scheduling_policy: c_int,
    pub(crate) non_portable_cluster: c_int,
    pub(crate) reserved: [c_int; 16],
}

/// `CUDA_MEMCPY2D`.
#[repr(C)]
pub(crate) struct Copy2D {
    pub(crate) from: Plane,
    pub(crate) to: Plane,
    pub(crate) width_bytes: usize,
    pub(crate) height: usize,
}

/// One side of a two-dimensional copy.
#[repr(C)]
pub(crate) struct Plane {
    pub(crate) x_bytes: usize,
    pub(crate) y: usize,
    pub(crate) kind: c_uint,
    pub(crate) host: *mut c_void,
    pub(crate) device: DevicePtr,
    pub(crate) array: Handle,
    pub(crate) pitch_bytes: usize,
}

/// What `__cudaRegisterFatBinary` is given: a note that says where the fat binary is.
#[repr(C)]
pub(crate) struct FatBinaryNote {
    pub(crate) magic: c_uint,
    pub(crate) version: c_uint,
    pub(crate) data: *const c_void,
    pub(crate) more: *const c_void,
}

impl FatBinaryNote {
    pub(crate) const MAGIC: c_uint = 0x466243b1;
}

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::*;

    #[test]
    fn layouts_are_those_of_the_headers() {
        assert_eq!(size_of::<PointerAttributes>(), 24);
        assert_eq!(
            (size_of::<LaunchConfig>(), offset_of!(LaunchConfig, attribute_count)),
            (56, 48)
        );
        assert_eq!(
            (size_of::<DriverLaunchConfig>(), offset_of!(DriverLaunchConfig, stream)),
            (56, 32)
        );
        assert_eq!(
            (size_of::<FunctionAttributes>(), offset_of!(FunctionAttributes, reserved)),
            (144, 76)
        );
        assert_eq!((size_of::<Copy2D>(), offset_of!(Copy2D, width_bytes)), (128, 112));
        assert_eq!(size_of::<FatBinaryNote>(), 24);
    }
}
