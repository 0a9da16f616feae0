//! Error codes of the runtime. Where the driver has the same error it has the same number, so a driver's answer is a runtime's.

use std::ffi::{CStr, c_int};

/// A `cudaError_t` that is not success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(c_int);

impl Code {
    pub(crate) const INVALID_VALUE: Code = Code(1);
    pub(crate) const INVALID_PITCH: Code = Code(12);
    pub(crate) const INVALID_SYMBOL: Code = Code(13);
    pub(crate) const INVALID_COPY_DIRECTION: Code = Code(21);
    pub(crate) const INSUFFICIENT_DRIVER: Code = Code(35);
    pub(crate) const MISSING_CONFIGURATION: Code = Code(52);
    pub(crate) const INVALID_DEVICE_FUNCTION: Code = Code(98);
    pub(crate) const NO_DEVICE: Code = Code(100);
    pub(crate) const INVALID_DEVICE: Code = Code(101);
    pub(crate) const SYMBOL_NOT_FOUND: Code = Code(500);
    pub(crate) const NOT_SUPPORTED: Code = Code(801);
    pub(crate) const UNKNOWN: Code = Code(999);

    /// What a driver's function answered.
    pub(crate) fn check(answer: c_int) -> Result<(), Code> {
        if answer == 0 { Ok(()) } else { Err(Code(answer)) }
    }

    pub(crate) fn number(self) -> c_int {
        self.0
    }
}

/// The name of a code, if it is one of the runtime's.
pub(crate) fn name(number: c_int) -> Option<&'static CStr> {
    let found = NAMES.binary_search_by_key(&number, |&(known, _)| known).ok()?;
    Some(NAMES[found].1)
}

/// The text of a code that the driver does not have, or that must be told where there is no driver.
pub(crate) fn text(number: c_int) -> Option<&'static CStr> {
    let found = TEXTS.binary_search_by_key(&number, |&(known, _)| known).ok()?;
    Some(TEXTS[found].1)
}

#[rustfmt::skip]
const NAMES: &[(c_int, &CStr)] = &[
    (0, c"cudaSuccess"),
    (1, c"cudaErrorInvalidValue"),
    (2, c"cudaErrorMemoryAllocation"),
    (3, c"cudaErrorInitializationError"),
    (4, c"cudaErrorCudartUnloading"),
    (5, c"cudaErrorProfilerDisabled"),
    (6, c"cudaErrorProfilerNotInitialized"),
    (7, c"cudaErrorProfilerAlreadyStarted"),
    (8, c"cudaErrorProfilerAlreadyStopped"),
    (9, c"cudaErrorInvalidConfiguration"),
    (12, c"cudaErrorInvalidPitchValue"),
    (13, c"cudaErrorInvalidSymbol"),
    (16, c"cudaErrorInvalidHostPointer"),
    (17, c"cudaErrorInvalidDevicePointer"),
    (18, c"cudaErrorInvalidTexture"),
    (19, c"cudaErrorInvalidTextureBinding"),
    (20, c"cudaErrorInvalidChannelDescriptor"),
    (21, c"cudaErrorInvalidMemcpyDirection"),
    (22, c"cudaErrorAddressOfConstant"),
    (23, c"cudaErrorTextureFetchFailed"),
    (24, c"cudaErrorTextureNotBound"),
    (25, c"cudaErrorSynchronizationError"),
    (26, c"cudaErrorInvalidFilterSetting"),
    (27, c"cudaErrorInvalidNormSetting"),
    (28, c"cudaErrorMixedDeviceExecution"),
    (31, c"cudaErrorNotYetImplemented"),
    (32, c"cudaErrorMemoryValueTooLarge"),
    (34, c"cudaErrorStubLibrary"),
    (35, c"cudaErrorInsufficientDriver"),
    (36, c"cudaErrorCallRequiresNewerDriver"),
    (37, c"cudaErrorInvalidSurface"),
    (43, c"cudaErrorDuplicateVariableName"),
    (44, c"cudaErrorDuplicateTextureName"),
    (45, c"cudaErrorDuplicateSurfaceName"),
    (46, c"cudaErrorDevicesUnavailable"),
    (49, c"cudaErrorIncompatibleDriverContext"),
    (52, c"cudaErrorMissingConfiguration"),
    (53, c"cudaErrorPriorLaunchFailure"),
    (65, c"cudaErrorLaunchMaxDepthExceeded"),
    (66, c"cudaErrorLaunchFileScopedTex"),
    (67, c"cudaErrorLaunchFileScopedSurf"),
    (68, c"cudaErrorSyncDepthExceeded"),
    (69, c"cudaErrorLaunchPendingCountExceeded"),
    (98, c"cudaErrorInvalidDeviceFunction"),
    (100, c"cudaErrorNoDevice"),
    (101, c"cudaErrorInvalidDevice"),
    (102, c"cudaErrorDeviceNotLicensed"),
    (103, c"cudaErrorSoftwareValidityNotEstablished"),
    (127, c"cudaErrorStartupFailure"),
    (200, c"cudaErrorInvalidKernelImage"),
    (201, c"cudaErrorDeviceUninitialized"),
    (205, c"cudaErrorMapBufferObjectFailed"),
    (206, c"cudaErrorUnmapBufferObjectFailed"),
    (207, c"cudaErrorArrayIsMapped"),
    (208, c"cudaErrorAlreadyMapped"),
    (209, c"cudaErrorNoKernelImageForDevice"),
    (210, c"cudaErrorAlreadyAcquired"),
    (211, c"cudaErrorNotMapped"),
    (212, c"cudaErrorNotMappedAsArray"),
    (213, c"cudaErrorNotMappedAsPointer"),
    (214, c"cudaErrorECCUncorrectable"),
    (215, c"cudaErrorUnsupportedLimit"),
    (216, c"cudaErrorDeviceAlreadyInUse"),
    (217, c"cudaErrorPeerAccessUnsupported"),
    (218, c"cudaErrorInvalidPtx"),
    (219, c"cudaErrorInvalidGraphicsContext"),
    (220, c"cudaErrorNvlinkUncorrectable"),
    (221, c"cudaErrorJitCompilerNotFound"),
    (222, c"cudaErrorUnsupportedPtxVersion"),
    (223, c"cudaErrorJitCompilationDisabled"),
    (224, c"cudaErrorUnsupportedExecAffinity"),
    (225, c"cudaErrorUnsupportedDevSideSync"),
    (226, c"cudaErrorContained"),
    (300, c"cudaErrorInvalidSource"),
    (301, c"cudaErrorFileNotFound"),
    (302, c"cudaErrorSharedObjectSymbolNotFound"),
    (303, c"cudaErrorSharedObjectInitFailed"),
    (304, c"cudaErrorOperatingSystem"),
    (400, c"cudaErrorInvalidResourceHandle"),
    (401, c"cudaErrorIllegalState"),
    (402, c"cudaErrorLossyQuery"),
    (500, c"cudaErrorSymbolNotFound"),
    (600, c"cudaErrorNotReady"),
    (700, c"cudaErrorIllegalAddress"),
    (701, c"cudaErrorLaunchOutOfResources"),
    (702, c"cudaErrorLaunchTimeout"),
    (703, c"cudaErrorLaunchIncompatibleTexturing"),
    (704, c"cudaErrorPeerAccessAlreadyEnabled"),
    (705, c"cudaErrorPeerAccessNotEnabled"),
    (708, c"cudaErrorSetOnActiveProcess"),
    (709, c"cudaErrorContextIsDestroyed"),
    (710, c"cudaErrorAssert"),
    (711, c"cudaErrorTooManyPeers"),
    (712, c"cudaErrorHostMemoryAlreadyRegistered"),
    (713, c"cudaErrorHostMemoryNotRegistered"),
    (714, c"cudaErrorHardwareStackError"),
    (715, c"cudaErrorIllegalInstruction"),
    (716, c"cudaErrorMisalignedAddress"),
    (717, c"cudaErrorInvalidAddressSpace"),
    (718, c"cudaErrorInvalidPc"),
    (719, c"cudaErrorLaunchFailure"),
    (720, c"cudaErrorCooperativeLaunchTooLarge"),
    (721, c"cudaErrorTensorMemoryLeak"),
    (800, c"cudaErrorNotPermitted"),
    (801, c"cudaErrorNotSupported"),
    (802, c"cudaErrorSystemNotReady"),
    (803, c"cudaErrorSystemDriverMismatch"),
    (804, c"cudaErrorCompatNotSupportedOnDevice"),
    (805, c"cudaErrorMpsConnectionFailed"),
    (806, c"cudaErrorMpsRpcFailure"),
    (807, c"cudaErrorMpsServerNotReady"),
    (808, c"cudaErrorMpsMaxClientsReached"),
    (809, c"cudaErrorMpsMaxConnectionsReached"),
    (810, c"cudaErrorMpsClientTerminated"),
    (811, c"cudaErrorCdpNotSupported"),
    (812, c"cudaErrorCdpVersionMismatch"),
    (900, c"cudaErrorStreamCaptureUnsupported"),
    (901, c"cudaErrorStreamCaptureInvalidated"),
    (902, c"cudaErrorStreamCaptureMerge"),
    (903, c"cudaErrorStreamCaptureUnmatched"),
    (904, c"cudaErrorStreamCaptureUnjoined"),
    (905, c"cudaErrorStreamCaptureIsolation"),
    (906, c"cudaErrorStreamCaptureImplicit"),
    (907, c"cudaErrorCapturedEvent"),
    (908, c"cudaErrorStreamCaptureWrongThread"),
    (909, c"cudaErrorTimeout"),
    (910, c"cudaErrorGraphExecUpdateFailure"),
    (911, c"cudaErrorExternalDevice"),
    (912, c"cudaErrorInvalidClusterSize"),
    (913, c"cudaErrorFunctionNotLoaded"),
    (914, c"cudaErrorInvalidResourceType"),
    (915, c"cudaErrorInvalidResourceConfiguration"),
    (916, c"cudaErrorKeyRotation"),
    (999, c"cudaErrorUnknown"),
    (10000, c"cudaErrorApiFailureBase"),
];

#[rustfmt::skip]
const TEXTS: &[(c_int, &CStr)] = &[
    (0, c"no error"),
    (9, c"invalid configuration argument"),
    (12, c"invalid pitch argument"),
    (13, c"invalid device symbol"),
    (16, c"invalid host pointer"),
    (17, c"invalid device pointer"),
    (18, c"invalid texture reference"),
    (19, c"texture is not bound to a pointer"),
    (20, c"invalid channel descriptor"),
    (21, c"invalid copy direction for memcpy"),
    (22, c"address of constant taken"),
    (23, c"texture fetch failed"),
    (24, c"texture is not bound"),
    (25, c"synchronization failed"),
    (26, c"invalid texture filter setting"),
    (27, c"invalid texture normalization setting"),
    (28, c"device execution mixed with emulation"),
    (31, c"not yet implemented"),
    (32, c"memory value too large"),
    (35, c"CUDA driver version is insufficient for CUDA runtime version"),
    (36, c"the call requires a newer driver"),
    (37, c"invalid surface reference"),
    (43, c"duplicate global variable name"),
    (44, c"duplicate texture name"),
    (45, c"duplicate surface name"),
    (49, c"incompatible driver context"),
    (52, c"launch configuration is missing"),
    (53, c"an earlier launch failed"),
    (65, c"launches are nested too deeply"),
    (66, c"launch with file-scoped texture"),
    (67, c"launch with file-scoped surface"),
    (68, c"synchronization is nested too deeply"),
    (69, c"too many pending launches"),
    (98, c"invalid device function"),
    (103, c"integrity checks were not run"),
    (127, c"startup of the runtime failed"),
    (10000, c"failure of an older API"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_sorted_and_the_codes_used_here_have_names() {
        assert!(NAMES.is_sorted_by_key(|&(number, _)| number));
        assert!(TEXTS.is_sorted_by_key(|&(number, _)| number));
        assert!(TEXTS.iter().all(|&(number, _)| name(number).is_some()));
        assert_eq!(name(Code::NOT_SUPPORTED.number()), Some(c"cudaErrorNotSupported"));
        assert_eq!(name(0), Some(c"cudaSuccess"));
        assert_eq!(name(-1), None);
        assert_eq!(text(35), Some(c"CUDA driver version is insufficient for CUDA runtime version"));
    }
}
