/* Every property of a device that is also an attribute is that attribute. Prints what is not. */
#include <cuda_runtime_api.h>
#include <stdio.h>

#define PROPERTIES(X) \
    X(sharedMemPerBlock, MaxSharedMemoryPerBlock) X(regsPerBlock, MaxRegistersPerBlock) X(warpSize, WarpSize) X(memPitch, MaxPitch) \
    X(maxThreadsPerBlock, MaxThreadsPerBlock) X(maxThreadsDim[0], MaxBlockDimX) X(maxThreadsDim[1], MaxBlockDimY) \
    X(maxThreadsDim[2], MaxBlockDimZ) X(maxGridSize[0], MaxGridDimX) X(maxGridSize[1], MaxGridDimY) X(maxGridSize[2], MaxGridDimZ) \
    X(clockRate, ClockRate) X(totalConstMem, TotalConstantMemory) X(major, ComputeCapabilityMajor) X(minor, ComputeCapabilityMinor) \
    X(textureAlignment, TextureAlignment) X(multiProcessorCount, MultiProcessorCount) X(integrated, Integrated) \
    X(canMapHostMemory, CanMapHostMemory) X(computeMode, ComputeMode) X(concurrentKernels, ConcurrentKernels) \
    X(ECCEnabled, EccEnabled) X(pciBusID, PciBusId) X(pciDeviceID, PciDeviceId) X(pciDomainID, PciDomainId) X(tccDriver, TccDriver) \
    X(asyncEngineCount, AsyncEngineCount) X(unifiedAddressing, UnifiedAddressing) X(memoryClockRate, MemoryClockRate) \
    X(memoryBusWidth, GlobalMemoryBusWidth) X(l2CacheSize, L2CacheSize) X(persistingL2CacheMaxSize, MaxPersistingL2CacheSize) \
    X(maxThreadsPerMultiProcessor, MaxThreadsPerMultiProcessor) X(streamPrioritiesSupported, StreamPrioritiesSupported) \
    X(globalL1CacheSupported, GlobalL1CacheSupported) X(localL1CacheSupported, LocalL1CacheSupported) \
    X(sharedMemPerMultiprocessor, MaxSharedMemoryPerMultiprocessor) X(regsPerMultiprocessor, MaxRegistersPerMultiprocessor) \
    X(managedMemory, ManagedMemory) X(isMultiGpuBoard, IsMultiGpuBoard) X(multiGpuBoardGroupID, MultiGpuBoardGroupID) \
    X(hostNativeAtomicSupported, HostNativeAtomicSupported) X(singleToDoublePrecisionPerfRatio, SingleToDoublePrecisionPerfRatio) \
    X(pageableMemoryAccess, PageableMemoryAccess) X(concurrentManagedAccess, ConcurrentManagedAccess) \
    X(computePreemptionSupported, ComputePreemptionSupported) X(cooperativeLaunch, CooperativeLaunch) \
    X(canUseHostPointerForRegisteredMem, CanUseHostPointerForRegisteredMem) X(sharedMemPerBlockOptin, MaxSharedMemoryPerBlockOptin) \
    X(pageableMemoryAccessUsesHostPageTables, PageableMemoryAccessUsesHostPageTables) \
    X(directManagedMemAccessFromHost, DirectManagedMemAccessFromHost) X(maxBlocksPerMultiProcessor, MaxBlocksPerMultiprocessor) \
    X(accessPolicyMaxWindowSize, MaxAccessPolicyWindowSize) X(reservedSharedMemPerBlock, ReservedSharedMemoryPerBlock) \
    X(hostRegisterSupported, HostRegisterSupported) X(sparseCudaArraySupported, SparseCudaArraySupported) \
    X(hostRegisterReadOnlySupported, HostRegisterReadOnlySupported) X(timelineSemaphoreInteropSupported, TimelineSemaphoreInteropSupported) \
    X(memoryPoolsSupported, MemoryPoolsSupported) X(gpuDirectRDMASupported, GPUDirectRDMASupported) \
    X(memoryPoolSupportedHandleTypes, MemoryPoolSupportedHandleTypes) X(clusterLaunch, ClusterLaunch) X(ipcEventSupported, IpcEventSupport)

int main(void) {
    struct cudaDeviceProp properties;
    int wrong = 0, value;
    if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess) return 1;
#define COMPARE(field, name) \
    value = -77; \
    if (cudaDeviceGetAttribute(&value, cudaDevAttr##name, 0) != cudaSuccess || (long long)properties.field != value) { \
        printf("%s is %lld, and the attribute %d\n", #field, (long long)properties.field, value); \
        wrong = 1; \
    }
    PROPERTIES(COMPARE)
    if (!properties.managedMemory || properties.regsPerMultiprocessor != 65536) wrong = 1;
    if (!wrong) puts("all is well");
    return wrong;
}
