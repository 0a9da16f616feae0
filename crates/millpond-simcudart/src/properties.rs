//! `cudaDeviceProp` as CUDA 12 lays it out, filled from the driver's attributes.

use std::ffi::c_int;

use Width::{Int, Size};

/// Bytes of the structure that programs of CUDA 12 hand in.
pub(crate) const BYTES: usize = 1032;
/// Bytes that programs built for CUDA 11 have: the same fields, up to here.
pub(crate) const BYTES_OF_11: usize = 728;

pub(crate) const NAME_BYTES: usize = 256;
pub(crate) const UUID_OFFSET: usize = 256;
pub(crate) const TOTAL_MEMORY_OFFSET: usize = 288;

/// Whether a field is an `int` or a `size_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Width {
    Int,
    Size,
}

/// The structure, as bytes.
pub(crate) struct Properties(pub(crate) [u8; BYTES]);

impl Properties {
    pub(crate) fn new(total_bytes: usize) -> Properties {
        let mut properties = Properties([0; BYTES]);
        properties.0[TOTAL_MEMORY_OFFSET..TOTAL_MEMORY_OFFSET + 8]
            .copy_from_slice(&total_bytes.to_ne_bytes());
        properties
    }

    /// Sets each field that is an attribute of the device. One that the driver does not know stays zero.
    pub(crate) fn fill(&mut self, attribute: impl Fn(c_int) -> Option<c_int>) {
        for &(offset, number, width, _) in FIELDS {
            let value = attribute(number).unwrap_or(0);
            match width {
                Int => self.0[offset..offset + 4].copy_from_slice(&value.to_ne_bytes()),
                Size => self.0[offset..offset + 8]
                    .copy_from_slice(&(value.max(0) as usize).to_ne_bytes()),
            }
        }
    }
}

/// Offset, number of the attribute, width, and the field's name, which only the tests and the reader want.
#[rustfmt::skip]
const FIELDS: &[(usize, c_int, Width, &str)] = &[
    (296, 8, Size, "sharedMemPerBlock"),
    (304, 12, Int, "regsPerBlock"),
    (308, 10, Int, "warpSize"),
    (312, 11, Size, "memPitch"),
    (320, 1, Int, "maxThreadsPerBlock"),
    (324, 2, Int, "maxThreadsDim"),
    (328, 3, Int, "maxThreadsDim"),
    (332, 4, Int, "maxThreadsDim"),
    (336, 5, Int, "maxGridSize"),
    (340, 6, Int, "maxGridSize"),
    (344, 7, Int, "maxGridSize"),
    (348, 13, Int, "clockRate"),
    (352, 9, Size, "totalConstMem"),
    (360, 75, Int, "major"),
    (364, 76, Int, "minor"),
    (368, 14, Size, "textureAlignment"),
    (376, 51, Size, "texturePitchAlignment"),
    (384, 15, Int, "deviceOverlap"),
    (388, 16, Int, "multiProcessorCount"),
    (392, 17, Int, "kernelExecTimeoutEnabled"),
    (396, 18, Int, "integrated"),
    (400, 19, Int, "canMapHostMemory"),
    (404, 20, Int, "computeMode"),
    (408, 21, Int, "maxTexture1D"),
    (412, 77, Int, "maxTexture1DMipmap"),
    (416, 69, Int, "maxTexture1DLinear"),
    (420, 22, Int, "maxTexture2D"),
    (424, 23, Int, "maxTexture2D"),
    (428, 73, Int, "maxTexture2DMipmap"),
    (432, 74, Int, "maxTexture2DMipmap"),
    (436, 70, Int, "maxTexture2DLinear"),
    (440, 71, Int, "maxTexture2DLinear"),
    (444, 72, Int, "maxTexture2DLinear"),
    (448, 45, Int, "maxTexture2DGather"),
    (452, 46, Int, "maxTexture2DGather"),
    (456, 24, Int, "maxTexture3D"),
    (460, 25, Int, "maxTexture3D"),
    (464, 26, Int, "maxTexture3D"),
    (468, 47, Int, "maxTexture3DAlt"),
    (472, 48, Int, "maxTexture3DAlt"),
    (476, 49, Int, "maxTexture3DAlt"),
    (480, 52, Int, "maxTextureCubemap"),
    (484, 42, Int, "maxTexture1DLayered"),
    (488, 43, Int, "maxTexture1DLayered"),
    (492, 27, Int, "maxTexture2DLayered"),
    (496, 28, Int, "maxTexture2DLayered"),
    (500, 29, Int, "maxTexture2DLayered"),
    (504, 53, Int, "maxTextureCubemapLayered"),
    (508, 54, Int, "maxTextureCubemapLayered"),
    (512, 55, Int, "maxSurface1D"),
    (516, 56, Int, "maxSurface2D"),
    (520, 57, Int, "maxSurface2D"),
    (524, 58, Int, "maxSurface3D"),
    (528, 59, Int, "maxSurface3D"),
    (532, 60, Int, "maxSurface3D"),
    (536, 61, Int, "maxSurface1DLayered"),
    (540, 62, Int, "maxSurface1DLayered"),
    (544, 63, Int, "maxSurface2DLayered"),
    (548, 64, Int, "maxSurface2DLayered"),
    (552, 65, Int, "maxSurface2DLayered"),
    (556, 66, Int, "maxSurfaceCubemap"),
    (560, 67, Int, "maxSurfaceCubemapLayered"),
    (564, 68, Int, "maxSurfaceCubemapLayered"),
    (568, 30, Size, "surfaceAlignment"),
    (576, 31, Int, "concurrentKernels"),
    (580, 32, Int, "ECCEnabled"),
    (584, 33, Int, "pciBusID"),
    (588, 34, Int, "pciDeviceID"),
    (592, 50, Int, "pciDomainID"),
    (596, 35, Int, "tccDriver"),
    (600, 40, Int, "asyncEngineCount"),
    (604, 41, Int, "unifiedAddressing"),
    (608, 36, Int, "memoryClockRate"),
    (612, 37, Int, "memoryBusWidth"),
    (616, 38, Int, "l2CacheSize"),
    (620, 108, Int, "persistingL2CacheMaxSize"),
    (624, 39, Int, "maxThreadsPerMultiProcessor"),
    (628, 78, Int, "streamPrioritiesSupported"),
    (632, 79, Int, "globalL1CacheSupported"),
    (636, 80, Int, "localL1CacheSupported"),
    (640, 81, Size, "sharedMemPerMultiprocessor"),
    (648, 82, Int, "regsPerMultiprocessor"),
    (652, 83, Int, "managedMemory"),
    (656, 84, Int, "isMultiGpuBoard"),
    (660, 85, Int, "multiGpuBoardGroupID"),
    (664, 86, Int, "hostNativeAtomicSupported"),
    (668, 87, Int, "singleToDoublePrecisionPerfRatio"),
    (672, 88, Int, "pageableMemoryAccess"),
    (676, 89, Int, "concurrentManagedAccess"),
    (680, 90, Int, "computePreemptionSupported"),
    (684, 91, Int, "canUseHostPointerForRegisteredMem"),
    (688, 95, Int, "cooperativeLaunch"),
    (692, 96, Int, "cooperativeMultiDeviceLaunch"),
    (696, 97, Size, "sharedMemPerBlockOptin"),
    (704, 100, Int, "pageableMemoryAccessUsesHostPageTables"),
    (708, 101, Int, "directManagedMemAccessFromHost"),
    (712, 106, Int, "maxBlocksPerMultiProcessor"),
    (716, 109, Int, "accessPolicyMaxWindowSize"),
    (720, 111, Size, "reservedSharedMemPerBlock"),
    (728, 99, Int, "hostRegisterSupported"),
    (732, 112, Int, "sparseCudaArraySupported"),
    (736, 113, Int, "hostRegisterReadOnlySupported"),
    (740, 114, Int, "timelineSemaphoreInteropSupported"),
    (744, 115, Int, "memoryPoolsSupported"),
    (748, 116, Int, "gpuDirectRDMASupported"),
    (752, 117, Int, "gpuDirectRDMAFlushWritesOptions"),
    (756, 118, Int, "gpuDirectRDMAWritesOrdering"),
    (760, 119, Int, "memoryPoolSupportedHandleTypes"),
    (764, 121, Int, "deferredMappingCudaArraySupported"),
    (768, 125, Int, "ipcEventSupported"),
    (772, 120, Int, "clusterLaunch"),
    (776, 129, Int, "unifiedFunctionPointers"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_in_order_and_do_not_overlap() {
        for pair in FIELDS.windows(2) {
            let width = if pair[0].2 == Size { 8 } else { 4 };
            assert!(pair[0].0 + width <= pair[1].0, "{} overlaps {}", pair[0].3, pair[1].3);
            assert_eq!(pair[1].0 % if pair[1].2 == Size { 8 } else { 4 }, 0, "{}", pair[1].3);
        }
        assert!(FIELDS[0].0 > TOTAL_MEMORY_OFFSET);
        assert!(FIELDS.last().unwrap().0 < BYTES);
    }

    #[test]
    fn attributes_land_in_their_fields() {
        let mut properties = Properties::new(80 << 30);
        properties.fill(|number| (number == 75 || number == 97).then_some(number + 1000));
        let at = |offset: usize| {
            i32::from_ne_bytes(properties.0[offset..offset + 4].try_into().unwrap())
        };
        let field = |name: &str| FIELDS.iter().find(|field| field.3 == name).unwrap().0;
        assert_eq!((at(field("major")), at(field("minor"))), (1075, 0));
        assert_eq!(at(field("sharedMemPerBlockOptin")), 1097);
        assert_eq!(at(TOTAL_MEMORY_OFFSET + 4), 20);
    }
}
