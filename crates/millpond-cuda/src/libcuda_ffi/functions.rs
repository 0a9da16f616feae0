//! The driver's functions that are used.

use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ulonglong, c_void};

use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUfunction, CUgraph,
    CUgraphExec, CUmem_advise, CUmemAccessDesc, CUmemAllocationGranularity_flags,
    CUmemAllocationProp, CUmemGenericAllocationHandle, CUmemLocation, CUmemPool_attribute,
    CUmemPoolProps, CUmemoryPool, CUmodule, CUstream,
};

use super::library::Libcuda;

/// What the driver's functions return. Not cudarc's enum: a newer driver may answer what that does not list.
pub(super) type RawStatus = c_uint;

macro_rules! functions {
    ($($name:ident = $symbol:literal @ $version:literal ($($argument:ty),*);)*) => {
        /// The driver's functions, by the names that the CUDA documentation gives them. One that the driver does not have is `None`.
        #[allow(non_snake_case)]
        pub(super) struct Functions {
            $(pub(super) $name: Option<unsafe extern "C" fn($($argument),*) -> RawStatus>,)*
        }

        impl Functions {
            /// Looks each of them up.
            pub(super) fn of(library: &Libcuda) -> Functions {
                Functions { $(
                    $name: library.find(documented(stringify!($name)), $symbol, $version).map(|address| {
                        // SAFETY: the table says which signature the function of this name has since this version, as the
                        // CUDA headers have it, and `find` gives only that one.
                        unsafe {
                            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) -> RawStatus>(address)
                        }
                    }),
                )* }
            }
        }

        /// Every function: the name in the documentation, the symbol of that version, and the version.
        #[cfg(test)]
        pub(super) const TABLE: &[(&str, &str, u32)] = &[$((stringify!($name), $symbol, $version),)*];
    };
}

/// Two versions of a function with different signatures have a field each; the newer one's has a number at its end.
fn documented(field: &'static str) -> &'static str {
    field.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('_')
}

// Name of the field, symbol of that version, the CUDA version since which it has this signature.
functions! {
    cuGetErrorName = "cuGetErrorName" @ 6000 (c_uint, *mut *const c_char);
    cuGetErrorString = "cuGetErrorString" @ 6000 (c_uint, *mut *const c_char);

    cuDeviceGetCount = "cuDeviceGetCount" @ 2000 (*mut c_int);
    cuDeviceGet = "cuDeviceGet" @ 2000 (*mut CUdevice, c_int);
    cuDeviceGetName = "cuDeviceGetName" @ 2000 (*mut c_char, c_int, CUdevice);
    cuDeviceGetAttribute = "cuDeviceGetAttribute" @ 2000 (*mut c_int, CUdevice_attribute, CUdevice);
    cuDeviceTotalMem = "cuDeviceTotalMem_v2" @ 3020 (*mut usize, CUdevice);
    cuDeviceCanAccessPeer = "cuDeviceCanAccessPeer" @ 4000 (*mut c_int, CUdevice, CUdevice);
    cuDeviceGetDefaultMemPool = "cuDeviceGetDefaultMemPool" @ 11020 (*mut CUmemoryPool, CUdevice);

    cuDevicePrimaryCtxRetain = "cuDevicePrimaryCtxRetain" @ 7000 (*mut CUcontext, CUdevice);
    cuDevicePrimaryCtxRelease = "cuDevicePrimaryCtxRelease_v2" @ 11000 (CUdevice);
    cuCtxGetCurrent = "cuCtxGetCurrent" @ 4000 (*mut CUcontext);
    cuCtxPushCurrent = "cuCtxPushCurrent_v2" @ 4000 (CUcontext);
    cuCtxPopCurrent = "cuCtxPopCurrent_v2" @ 4000 (*mut CUcontext);
    cuCtxSynchronize = "cuCtxSynchronize" @ 2000 ();

    cuMemGetInfo = "cuMemGetInfo_v2" @ 3020 (*mut usize, *mut usize);
    cuMemAlloc = "cuMemAlloc_v2" @ 3020 (*mut CUdeviceptr, usize);
    cuMemFree = "cuMemFree_v2" @ 3020 (CUdeviceptr);
    cuMemHostAlloc = "cuMemHostAlloc" @ 2020 (*mut *mut c_void, usize, c_uint);
    cuMemFreeHost = "cuMemFreeHost" @ 2000 (*mut c_void);
    cuMemAllocManaged = "cuMemAllocManaged" @ 6000 (*mut CUdeviceptr, usize, c_uint);
    cuMemPrefetchAsync = "cuMemPrefetchAsync" @ 8000 (CUdeviceptr, usize, CUdevice, CUstream);
    cuMemPrefetchAsync_12020 = "cuMemPrefetchAsync_v2" @ 12020 (CUdeviceptr, usize, CUmemLocation, c_uint, CUstream);
    cuMemAdvise = "cuMemAdvise" @ 8000 (CUdeviceptr, usize, CUmem_advise, CUdevice);
    cuMemAdvise_12020 = "cuMemAdvise_v2" @ 12020 (CUdeviceptr, usize, CUmem_advise, CUmemLocation);

    cuMemcpyHtoDAsync = "cuMemcpyHtoDAsync_v2" @ 3020 (CUdeviceptr, *const c_void, usize, CUstream);
    cuMemcpyDtoHAsync = "cuMemcpyDtoHAsync_v2" @ 3020 (*mut c_void, CUdeviceptr, usize, CUstream);
    cuMemcpyDtoDAsync = "cuMemcpyDtoDAsync_v2" @ 3020 (CUdeviceptr, CUdeviceptr, usize, CUstream);
    cuMemsetD8Async = "cuMemsetD8Async" @ 3020 (CUdeviceptr, c_uchar, usize, CUstream);

    cuMemPoolCreate = "cuMemPoolCreate" @ 11020 (*mut CUmemoryPool, *const CUmemPoolProps);
    cuMemPoolDestroy = "cuMemPoolDestroy" @ 11020 (CUmemoryPool);
    cuMemPoolGetAttribute = "cuMemPoolGetAttribute" @ 11020 (CUmemoryPool, CUmemPool_attribute, *mut c_void);
    cuMemPoolSetAttribute = "cuMemPoolSetAttribute" @ 11020 (CUmemoryPool, CUmemPool_attribute, *mut c_void);
    cuMemPoolTrimTo = "cuMemPoolTrimTo" @ 11020 (CUmemoryPool, usize);
    cuMemAllocFromPoolAsync = "cuMemAllocFromPoolAsync" @ 11020 (*mut CUdeviceptr, usize, CUmemoryPool, CUstream);
    cuMemFreeAsync = "cuMemFreeAsync" @ 11020 (CUdeviceptr, CUstream);

    cuMemAddressReserve = "cuMemAddressReserve" @ 10020 (*mut CUdeviceptr, usize, usize, CUdeviceptr, c_ulonglong);
    cuMemAddressFree = "cuMemAddressFree" @ 10020 (CUdeviceptr, usize);
    cuMemCreate = "cuMemCreate" @ 10020 (*mut CUmemGenericAllocationHandle, usize, *const CUmemAllocationProp, c_ulonglong);
    cuMemRelease = "cuMemRelease" @ 10020 (CUmemGenericAllocationHandle);
    cuMemMap = "cuMemMap" @ 10020 (CUdeviceptr, usize, usize, CUmemGenericAllocationHandle, c_ulonglong);
    cuMemUnmap = "cuMemUnmap" @ 10020 (CUdeviceptr, usize);
    cuMemSetAccess = "cuMemSetAccess" @ 10020 (CUdeviceptr, usize, *const CUmemAccessDesc, usize);
    cuMemGetAllocationGranularity = "cuMemGetAllocationGranularity" @ 10020
        (*mut usize, *const CUmemAllocationProp, CUmemAllocationGranularity_flags);

    cuStreamCreateWithPriority = "cuStreamCreateWithPriority" @ 5050 (*mut CUstream, c_uint, c_int);
    cuStreamDestroy = "cuStreamDestroy_v2" @ 4000 (CUstream);
    cuStreamSynchronize = "cuStreamSynchronize" @ 2000 (CUstream);
    cuStreamQuery = "cuStreamQuery" @ 2000 (CUstream);
    cuStreamWaitEvent = "cuStreamWaitEvent" @ 3020 (CUstream, CUevent, c_uint);
    cuStreamGetId = "cuStreamGetId" @ 12000 (CUstream, *mut c_ulonglong);

    cuStreamBeginCapture = "cuStreamBeginCapture_v2" @ 10010 (CUstream, c_uint);
    cuStreamEndCapture = "cuStreamEndCapture" @ 10000 (CUstream, *mut CUgraph);
    cuStreamGetCaptureInfo = "cuStreamGetCaptureInfo" @ 10010 (CUstream, *mut c_uint, *mut c_ulonglong);
    cuStreamGetCaptureInfo_12030 = "cuStreamGetCaptureInfo_v3" @ 12030
        (CUstream, *mut c_uint, *mut c_ulonglong, *mut c_void, *mut c_void, *mut c_void, *mut c_void);
    cuThreadExchangeStreamCaptureMode = "cuThreadExchangeStreamCaptureMode" @ 10010 (*mut c_uint);
    cuGraphInstantiateWithFlags = "cuGraphInstantiateWithFlags" @ 11040 (*mut CUgraphExec, CUgraph, c_ulonglong);
    cuGraphLaunch = "cuGraphLaunch" @ 10000 (CUgraphExec, CUstream);
    cuGraphDestroy = "cuGraphDestroy" @ 10000 (CUgraph);
    cuGraphExecDestroy = "cuGraphExecDestroy" @ 10000 (CUgraphExec);

    cuEventCreate = "cuEventCreate" @ 2000 (*mut CUevent, c_uint);
    cuEventDestroy = "cuEventDestroy_v2" @ 4000 (CUevent);
    cuEventRecord = "cuEventRecord" @ 2000 (CUevent, CUstream);
    cuEventQuery = "cuEventQuery" @ 2000 (CUevent);
    cuEventSynchronize = "cuEventSynchronize" @ 2000 (CUevent);
    cuEventElapsedTime = "cuEventElapsedTime" @ 2000 (*mut f32, CUevent, CUevent);

    cuModuleLoadData = "cuModuleLoadData" @ 2000 (*mut CUmodule, *const c_void);
    cuModuleUnload = "cuModuleUnload" @ 2000 (CUmodule);
    cuModuleGetFunction = "cuModuleGetFunction" @ 2000 (*mut CUfunction, CUmodule, *const c_char);
    cuLaunchKernel = "cuLaunchKernel" @ 4000
        (CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream, *mut *mut c_void, *mut *mut c_void);
}

impl Functions {
    /// The first function that every driver from 11.4 on has and this one does not.
    pub(super) fn first_missing(&self) -> Option<&'static str> {
        macro_rules! first_missing {
            ($($name:ident)*) => {
                [$((stringify!($name), self.$name.is_some()),)*]
                    .into_iter()
                    .find_map(|(name, there)| (!there).then_some(name))
            };
        }
        // Pools, virtual memory, stream ids, captures and managed memory are not among them: what is missing there is not offered.
        first_missing! {
            cuDeviceGetCount cuDeviceGet cuDeviceGetName cuDeviceGetAttribute cuDeviceTotalMem
            cuDevicePrimaryCtxRetain cuDevicePrimaryCtxRelease cuCtxGetCurrent cuCtxPushCurrent cuCtxPopCurrent cuCtxSynchronize
            cuMemGetInfo cuMemAlloc cuMemFree cuMemHostAlloc cuMemFreeHost
            cuMemcpyHtoDAsync cuMemcpyDtoHAsync cuMemcpyDtoDAsync cuMemsetD8Async
            cuStreamCreateWithPriority cuStreamDestroy cuStreamSynchronize cuStreamQuery cuStreamWaitEvent
            cuEventCreate cuEventDestroy cuEventRecord cuEventQuery cuEventSynchronize cuEventElapsedTime
            cuModuleLoadData cuModuleUnload cuModuleGetFunction cuLaunchKernel
        }
    }

    /// Whether physical memory and addresses can be had apart.
    pub(super) fn have_virtual_memory(&self) -> bool {
        self.cuMemAddressReserve.is_some()
            && self.cuMemAddressFree.is_some()
            && self.cuMemCreate.is_some()
            && self.cuMemRelease.is_some()
            && self.cuMemMap.is_some()
            && self.cuMemUnmap.is_some()
            && self.cuMemSetAccess.is_some()
            && self.cuMemGetAllocationGranularity.is_some()
    }

    /// Whether there are stream-ordered pools.
    pub(super) fn have_pools(&self) -> bool {
        self.cuDeviceGetDefaultMemPool.is_some()
            && self.cuMemPoolCreate.is_some()
            && self.cuMemPoolDestroy.is_some()
            && self.cuMemPoolGetAttribute.is_some()
            && self.cuMemPoolSetAttribute.is_some()
            && self.cuMemPoolTrimTo.is_some()
            && self.cuMemAllocFromPoolAsync.is_some()
            && self.cuMemFreeAsync.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::{TABLE, documented};

    #[test]
    fn symbols_are_versions_of_their_functions() {
        for &(field, symbol, version) in TABLE {
            let name = documented(field);
            let suffix =
                symbol.strip_prefix(name).unwrap_or_else(|| panic!("{symbol} is no {name}"));
            assert!(["", "_v2", "_v3"].contains(&suffix), "{symbol}");
            assert!((2000..=12030).contains(&version), "{name} @ {version}");
        }
    }

    #[test]
    fn nothing_newer_than_11_4_is_needed() {
        // What came later has an older form beside it, or something of our own in its place.
        let newer: Vec<_> =
            TABLE.iter().filter(|(_, _, since)| *since > 11040).map(|row| row.0).collect();
        assert_eq!(
            newer,
            [
                "cuMemPrefetchAsync_12020",
                "cuMemAdvise_12020",
                "cuStreamGetId",
                "cuStreamGetCaptureInfo_12030"
            ]
        );
    }
}
