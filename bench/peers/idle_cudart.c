/* A CUDA runtime that does nothing, at once: what allocators over it take is their own time. Addresses are made up, and nothing is behind
 * them; events have always passed. Only what RMM and PyTorch's caching allocator call. */
#include <cuda_runtime_api.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

static _Thread_local int device;
static _Atomic uint64_t next_address = (uint64_t)1 << 45, next_handle = 64;

static void *address(size_t bytes) {
  const uint64_t page = 2 << 20;
  return (void *)atomic_fetch_add(&next_address, (bytes + page - 1) / page * page);
}
static void *handle(void) { return (void *)atomic_fetch_add(&next_handle, 64); }

#define DOES(name, arguments, ...) \
  cudaError_t CUDARTAPI name arguments { __VA_ARGS__; return cudaSuccess; }

DOES(cudaMalloc, (void **out, size_t bytes), *out = address(bytes))
DOES(cudaFree, (void *ptr), (void)ptr)
DOES(cudaMallocAsync, (void **out, size_t bytes, cudaStream_t s), (void)s; *out = address(bytes))
DOES(cudaFreeAsync, (void *ptr, cudaStream_t s), (void)ptr; (void)s)
DOES(cudaMemGetInfo, (size_t *left, size_t *total), *left = *total = (size_t)80 << 30)

DOES(cudaStreamCreateWithFlags, (cudaStream_t *out, unsigned flags), (void)flags; *out = handle())
DOES(cudaStreamCreateWithPriority, (cudaStream_t *out, unsigned flags, int priority), (void)flags; (void)priority; *out = handle())
DOES(cudaStreamDestroy, (cudaStream_t s), (void)s)
DOES(cudaStreamSynchronize, (cudaStream_t s), (void)s)
DOES(cudaStreamQuery, (cudaStream_t s), (void)s)
DOES(cudaStreamWaitEvent, (cudaStream_t s, cudaEvent_t e, unsigned flags), (void)s; (void)e; (void)flags)
DOES(cudaStreamIsCapturing, (cudaStream_t s, enum cudaStreamCaptureStatus *out), (void)s; *out = cudaStreamCaptureStatusNone)
DOES(cudaStreamGetCaptureInfo_v2,
     (cudaStream_t s, enum cudaStreamCaptureStatus *out, unsigned long long *id, cudaGraph_t *graph, const cudaGraphNode_t **nodes, size_t *count),
     (void)s; (void)id; (void)graph; (void)nodes; (void)count; *out = cudaStreamCaptureStatusNone)
DOES(cudaThreadExchangeStreamCaptureMode, (enum cudaStreamCaptureMode *mode), (void)mode)

DOES(cudaEventCreateWithFlags, (cudaEvent_t *out, unsigned flags), (void)flags; *out = handle())
DOES(cudaEventDestroy, (cudaEvent_t e), (void)e)
DOES(cudaEventRecord, (cudaEvent_t e, cudaStream_t s), (void)e; (void)s)
DOES(cudaEventQuery, (cudaEvent_t e), (void)e)
DOES(cudaEventSynchronize, (cudaEvent_t e), (void)e)
DOES(cudaEventElapsedTime, (float *out, cudaEvent_t a, cudaEvent_t b), (void)a; (void)b; *out = 0)

DOES(cudaGetDevice, (int *out), *out = device)
DOES(cudaSetDevice, (int number), device = number)
DOES(cudaGetDeviceCount, (int *out), *out = 1)
DOES(cudaDeviceSynchronize, (void))
DOES(cudaDriverGetVersion, (int *out), *out = 12090)
DOES(cudaRuntimeGetVersion, (int *out), *out = 12090)
DOES(cudaDeviceGetStreamPriorityRange, (int *least, int *greatest), *least = 0; *greatest = -5)
DOES(cudaDeviceGetAttribute, (int *out, enum cudaDeviceAttr what, int number), (void)what; (void)number; *out = 1)
DOES(cudaGetDeviceProperties_v2, (struct cudaDeviceProp *out, int number), (void)number; memset(out, 0, sizeof *out);
     out->major = 8; out->totalGlobalMem = (size_t)80 << 30; out->multiProcessorCount = 108)
DOES(cudaGetLastError, (void))
DOES(cudaPeekAtLastError, (void))
const char *CUDARTAPI cudaGetErrorString(cudaError_t error) { (void)error; return "an error"; }
const char *CUDARTAPI cudaGetErrorName(cudaError_t error) { (void)error; return "cudaError"; }

#define REFUSES(name, arguments) \
  cudaError_t CUDARTAPI name arguments { return cudaErrorNotSupported; }
#pragma GCC diagnostic ignored "-Wunused-parameter"
REFUSES(cudaDeviceEnablePeerAccess, (int number, unsigned flags))
REFUSES(cudaDeviceGetDefaultMemPool, (cudaMemPool_t * out, int number))
REFUSES(cudaMemPoolCreate, (cudaMemPool_t * out, const struct cudaMemPoolProps *of))
REFUSES(cudaMemPoolDestroy, (cudaMemPool_t pool))
REFUSES(cudaMemPoolGetAttribute, (cudaMemPool_t pool, enum cudaMemPoolAttr what, void *out))
REFUSES(cudaMemPoolSetAttribute, (cudaMemPool_t pool, enum cudaMemPoolAttr what, void *value))
REFUSES(cudaMemPoolSetAccess, (cudaMemPool_t pool, const struct cudaMemAccessDesc *access, size_t count))
REFUSES(cudaMemPoolTrimTo, (cudaMemPool_t pool, size_t bytes))
REFUSES(cudaGetDriverEntryPoint, (const char *name, void **out, unsigned long long flags, enum cudaDriverEntryPointQueryResult *how))
REFUSES(cudaGetDriverEntryPointByVersion,
        (const char *name, void **out, unsigned version, unsigned long long flags, enum cudaDriverEntryPointQueryResult *how))
REFUSES(cudaGraphNodeGetDependencies, (cudaGraphNode_t node, cudaGraphNode_t *out, size_t *count))
REFUSES(cudaIpcCloseMemHandle, (void *ptr))
REFUSES(cudaIpcGetMemHandle, (cudaIpcMemHandle_t * out, void *ptr))
REFUSES(cudaIpcOpenMemHandle, (void **out, cudaIpcMemHandle_t of, unsigned flags))
REFUSES(cudaMemcpy, (void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind))
REFUSES(cudaMemcpyAsync, (void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream))
REFUSES(cudaMemcpyPeerAsync, (void *to, int number, const void *from, int other, size_t bytes, cudaStream_t stream))
