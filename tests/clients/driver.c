/* A client of the driver API, as a C programmer would write one. Built twice: linked to libcuda (default), and finding every
 * function by dlopen and cuGetProcAddress (-DBY_NAME). It prints what it has checked, and fails at the first surprise. */
#include <cuda.h>
#include <cudaTypedefs.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef BY_NAME
#include <dlfcn.h>
#define FUNCTIONS(F) \
    F(cuInit, 2000) F(cuDriverGetVersion, 2020) F(cuDeviceGet, 2000) F(cuDeviceGetCount, 2000) F(cuDeviceGetName, 2000) \
    F(cuDeviceGetAttribute, 2000) F(cuDevicePrimaryCtxRetain, 7000) F(cuCtxSetCurrent, 4000) F(cuMemGetInfo, 3020) \
    F(cuMemAlloc, 3020) F(cuMemFree, 3020) F(cuMemcpyHtoD, 3020) F(cuMemcpyDtoH, 3020) F(cuMemcpyDtoDAsync, 3020) \
    F(cuMemsetD32Async, 3020) F(cuStreamCreate, 2000) F(cuStreamDestroy, 4000) F(cuStreamSynchronize, 2000) \
    F(cuStreamWaitEvent, 3020) F(cuEventCreate, 2000) F(cuEventRecord, 2000) F(cuEventElapsedTime, 2000) \
    F(cuEventSynchronize, 2000) F(cuMemAddressReserve, 10020) F(cuMemCreate, 10020) F(cuMemMap, 10020) \
    F(cuMemSetAccess, 10020) F(cuMemUnmap, 10020) F(cuMemRelease, 10020) F(cuMemAddressFree, 10020) \
    F(cuMemExportToShareableHandle, 10020) F(cuMemImportFromShareableHandle, 10020) F(cuMemAllocAsync, 11020) \
    F(cuMemFreeAsync, 11020) F(cuMemAllocManaged, 6000) F(cuMemPrefetchAsync, 8000) F(cuMemHostAlloc, 2020) \
    F(cuMemFreeHost, 2000) F(cuPointerGetAttribute, 4000) F(cuModuleLoadData, 2000) F(cuModuleGetFunction, 2000) \
    F(cuModuleUnload, 2000) F(cuLaunchKernel, 4000) F(cuLaunchHostFunc, 10000) F(cuStreamBeginCapture, 10010) \
    F(cuStreamEndCapture, 10000) F(cuGraphInstantiateWithFlags, 11040) F(cuGraphLaunch, 10000) F(cuGraphDestroy, 10000) \
    F(cuGraphExecDestroy, 10000) F(cuGetErrorName, 6000) F(cuCtxSynchronize, 2000) F(cuMemcpy2D, 3020) \
    F(cuMemAllocPitch, 3020) F(cuDevicePrimaryCtxReset, 11000)
#define SLOT(name, version) static PFN_##name##_v##version p_##name;
FUNCTIONS(SLOT)
static void load(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) { fprintf(stderr, "%s\n", dlerror()); exit(1); }
    PFN_cuGetProcAddress_v12000 find = (PFN_cuGetProcAddress_v12000)dlsym(library, "cuGetProcAddress_v2");
    CUdriverProcAddressQueryResult found;
    void *function;
#define FIND(name, version) \
    if (find(#name, &function, version, 0, &found) != CUDA_SUCCESS || found != CU_GET_PROC_ADDRESS_SUCCESS || !function) { \
        fprintf(stderr, "%s is missing\n", #name); exit(1); } \
    p_##name = (PFN_##name##_v##version)function;
    FUNCTIONS(FIND)
    if (find("cuNoSuchThing", &function, 12000, 0, &found) != CUDA_SUCCESS || function || found != CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND) exit(1);
    if (find("cuMemAlloc", &function, 99999, 0, &found) != CUDA_ERROR_INVALID_VALUE) exit(1);
}
#define CALL(name) p_##name
#else
static void load(void) {}
#define CALL(name) name
#endif

static void expect(CUresult got, CUresult wanted, const char *what) {
    if (got == wanted) return;
    const char *name = "?", *right = "?";
    CALL(cuGetErrorName)(got, &name);
    CALL(cuGetErrorName)(wanted, &right);
    fprintf(stderr, "%s: %s, and not %s\n", what, name, right);
    exit(1);
}
#define OK(call) expect(call, CUDA_SUCCESS, #call)
#define REFUSED(call, code) expect(call, code, #call)
#define HOLDS(condition) do { if (!(condition)) { fprintf(stderr, "not so: %s\n", #condition); exit(1); } } while (0)

static const char PTX[] =
    ".version 7.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry millpond_fill(.param .u64 dst, .param .u32 value, .param .u64 count) { ret; }\n"
    ".visible .entry millpond_add(.param .u64 dst, .param .u64 a, .param .u64 b, .param .u64 count) { ret; }\n"
    ".visible .entry millpond_chase(.param .u64 table, .param .u64 entries, .param .u64 out) { ret; }\n"
    ".visible .entry millpond_checksum(.param .u64 src, .param .u64 bytes, .param .u64 out) { ret; }\n"
    ".visible .entry stranger(.param .u64 a, .param .f32 x) { ret; }\n";

static CUstream stream;
static CUmodule module;

static CUfunction kernel(const char *name) {
    CUfunction function;
    OK(CALL(cuModuleGetFunction)(&function, module, name));
    return function;
}

static void launch(CUfunction function, void **parameters) {
    OK(CALL(cuLaunchKernel)(function, 1, 1, 1, 32, 1, 1, 0, stream, parameters, NULL));
}

static void plain_memory(void) {
    size_t free_before, free_now, total;
    OK(CALL(cuMemGetInfo)(&free_before, &total));
    CUdeviceptr a, b;
    OK(CALL(cuMemAlloc)(&a, 8 << 20));
    OK(CALL(cuMemAlloc)(&b, 8 << 20));
    OK(CALL(cuMemGetInfo)(&free_now, &total));
    HOLDS(free_before - free_now == 16 << 20);
    unsigned char out[4096], in[4096];
    for (int i = 0; i < 4096; i++) out[i] = (unsigned char)(i * 7);
    OK(CALL(cuMemcpyHtoD)(a, out, sizeof out));
    OK(CALL(cuMemcpyDtoDAsync)(b, a, sizeof out, stream));
    OK(CALL(cuStreamSynchronize)(stream));
    OK(CALL(cuMemcpyDtoH)(in, b, sizeof in));
    HOLDS(memcmp(in, out, sizeof in) == 0);
    REFUSED(CALL(cuMemFree)(a + 256), CUDA_ERROR_INVALID_VALUE);
    OK(CALL(cuMemFree)(a));
    REFUSED(CALL(cuMemFree)(a), CUDA_ERROR_INVALID_VALUE);
    REFUSED(CALL(cuMemcpyDtoH)(in, a, 16), CUDA_ERROR_INVALID_VALUE);
    REFUSED(CALL(cuMemcpyHtoD)(b, (void *)16, 16), CUDA_ERROR_INVALID_VALUE);
    REFUSED(CALL(cuMemcpyDtoH)((void *)0x123456789000, b, 16), CUDA_ERROR_INVALID_VALUE);
    REFUSED(CALL(cuMemAlloc)(&a, (size_t)1 << 50), CUDA_ERROR_OUT_OF_MEMORY);
    REFUSED(CALL(cuMemAlloc)(NULL, 256), CUDA_ERROR_INVALID_VALUE);
    REFUSED(CALL(cuMemAlloc)(&a, 0), CUDA_ERROR_INVALID_VALUE);
    OK(CALL(cuMemFree)(b));
    OK(CALL(cuMemFree)(0));
    size_t pitch;
    OK(CALL(cuMemAllocPitch)(&a, &pitch, 100, 10, 4));
    HOLDS(pitch >= 100 && pitch % 512 == 0);
    CUDA_MEMCPY2D rows = {0};
    rows.srcMemoryType = CU_MEMORYTYPE_HOST; rows.srcHost = out; rows.srcPitch = 100;
    rows.dstMemoryType = CU_MEMORYTYPE_DEVICE; rows.dstDevice = a; rows.dstPitch = pitch;
    rows.WidthInBytes = 100; rows.Height = 10;
    OK(CALL(cuMemcpy2D)(&rows));
    OK(CALL(cuMemcpyDtoH)(in, a + 3 * pitch, 100));
    HOLDS(memcmp(in, out + 300, 100) == 0);
    OK(CALL(cuMemFree)(a));
    puts("plain memory");
}

static void pinned_memory(void) {
    unsigned *host;
    CUdeviceptr device;
    OK(CALL(cuMemHostAlloc)((void **)&host, 4096, 0));
    OK(CALL(cuMemAlloc)(&device, 4096));
    OK(CALL(cuMemsetD32Async)(device, 42, 1024, stream));
    OK(CALL(cuMemcpyDtoDAsync)((CUdeviceptr)host, device, 4096, stream));
    OK(CALL(cuStreamSynchronize)(stream));
    HOLDS(host[0] == 42 && host[1023] == 42);
    unsigned kind = 0;
    OK(CALL(cuPointerGetAttribute)(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)host));
    HOLDS(kind == CU_MEMORYTYPE_HOST);
    OK(CALL(cuPointerGetAttribute)(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device));
    HOLDS(kind == CU_MEMORYTYPE_DEVICE);
    OK(CALL(cuMemFreeHost)(host));
    OK(CALL(cuMemFree)(device));
    puts("pinned memory");
}

static void managed_memory(void) {
    unsigned *both;
    OK(CALL(cuMemAllocManaged)((CUdeviceptr *)&both, 4 << 20, CU_MEM_ATTACH_GLOBAL));
    both[7] = 3;
    OK(CALL(cuMemPrefetchAsync)((CUdeviceptr)both, 4 << 20, 0, stream));
    CUdeviceptr start = (CUdeviceptr)both;
    unsigned value = 11;
    size_t count = 5;
    launch(kernel("millpond_fill"), (void *[]){&start, &value, &count});
    OK(CALL(cuStreamSynchronize)(stream));
    HOLDS(both[0] == 11 && both[4] == 11 && both[7] == 3);
    OK(CALL(cuMemFree)((CUdeviceptr)both));
    /* A kernel that nobody here knows touches what its parameters name. */
    size_t before, after, total;
    OK(CALL(cuMemAllocManaged)((CUdeviceptr *)&both, 8 << 20, CU_MEM_ATTACH_GLOBAL));
    OK(CALL(cuMemGetInfo)(&before, &total));
    start = (CUdeviceptr)both + 1000;
    float x = 1;
    launch(kernel("stranger"), (void *[]){&start, &x});
    OK(CALL(cuStreamSynchronize)(stream));
    OK(CALL(cuMemGetInfo)(&after, &total));
#ifndef SHARED /* What a program under the hook has is counted when it allocates it. */
    HOLDS(before - after == 8 << 20);
#endif
    OK(CALL(cuMemFree)((CUdeviceptr)both));
    puts("managed memory");
}

static void virtual_memory(void) {
    size_t page = 2 << 20;
    CUmemAllocationProp properties = {0};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUdeviceptr twice;
    CUmemGenericAllocationHandle memory, again;
    OK(CALL(cuMemAddressReserve)(&twice, 2 * page, 0, 0, 0));
    OK(CALL(cuMemCreate)(&memory, page, &properties, 0));
    int descriptor;
    OK(CALL(cuMemExportToShareableHandle)(&descriptor, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    OK(CALL(cuMemImportFromShareableHandle)(&again, (void *)(size_t)descriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    OK(CALL(cuMemMap)(twice, page, 0, memory, 0));
    OK(CALL(cuMemMap)(twice + page, page, 0, again, 0));
    REFUSED(CALL(cuMemMap)(twice, page, 0, memory, 0), CUDA_ERROR_INVALID_VALUE);
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    OK(CALL(cuMemSetAccess)(twice, 2 * page, &access, 1));
    char text[6] = "";
    OK(CALL(cuMemcpyHtoD)(twice + 100, "alias", 6));
    OK(CALL(cuMemcpyDtoH)(text, twice + page + 100, 6));
    HOLDS(strcmp(text, "alias") == 0);
    OK(CALL(cuMemRelease)(memory));
    OK(CALL(cuMemRelease)(again));
    REFUSED(CALL(cuMemAddressFree)(twice, 2 * page), CUDA_ERROR_INVALID_VALUE);
    OK(CALL(cuMemUnmap)(twice, 2 * page));
    OK(CALL(cuMemAddressFree)(twice, 2 * page));
    REFUSED(CALL(cuMemRelease)(memory), CUDA_ERROR_INVALID_VALUE);
    puts("virtual memory");
}

static void stream_ordered_memory(void) {
    CUdeviceptr a, b;
    OK(CALL(cuMemAllocAsync)(&a, 1 << 20, stream));
    OK(CALL(cuMemFreeAsync)(a, stream));
    OK(CALL(cuMemAllocAsync)(&b, 1 << 20, stream));
    HOLDS(a == b);
    OK(CALL(cuMemFreeAsync)(b, stream));
    REFUSED(CALL(cuMemFreeAsync)(b, stream), CUDA_ERROR_INVALID_VALUE);
    puts("stream-ordered memory");
}

static void kernels(void) {
    CUdeviceptr memory;
    OK(CALL(cuMemAlloc)(&memory, 1 << 20));
    CUdeviceptr a = memory, b = memory + 4096, sum = memory + 8192, table = memory + 12288, out = memory + 16384;
    unsigned one = 1, two = 2, result[4];
    size_t count = 1024, bytes = 4096, entries = 2;
    launch(kernel("millpond_fill"), (void *[]){&a, &one, &count});
    launch(kernel("millpond_fill"), (void *[]){&b, &two, &count});
    launch(kernel("millpond_add"), (void *[]){&sum, &a, &b, &count});
    launch(kernel("millpond_checksum"), (void *[]){&sum, &bytes, &out});
    OK(CALL(cuStreamSynchronize)(stream));
    OK(CALL(cuMemcpyDtoH)(result, out, 8));
    HOLDS(result[0] == 3 * 1024);
    CUdeviceptr addresses[2] = {a, b};
    OK(CALL(cuMemcpyHtoD)(table, addresses, sizeof addresses));
    launch(kernel("millpond_chase"), (void *[]){&table, &entries, &out});
    OK(CALL(cuStreamSynchronize)(stream));
    OK(CALL(cuMemcpyDtoH)(result, out, 8));
    HOLDS(result[0] == 3 && result[1] == 3);
    float x = 1;
    launch(kernel("stranger"), (void *[]){&a, &x});
    OK(CALL(cuStreamSynchronize)(stream));
    CUfunction function;
    REFUSED(CALL(cuModuleGetFunction)(&function, module, "nobody"), CUDA_ERROR_NOT_FOUND);
    REFUSED(CALL(cuLaunchKernel)(kernel("stranger"), 0, 1, 1, 1, 1, 1, 0, stream, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    OK(CALL(cuMemFree)(memory));
    puts("kernels");
}

static int called;
static void CUDA_CB count_up(void *by) { called += *(int *)by; }

static void order(void) {
    CUevent start, end;
    CUstream other;
    OK(CALL(cuStreamCreate)(&other, CU_STREAM_NON_BLOCKING));
    OK(CALL(cuEventCreate)(&start, CU_EVENT_DEFAULT));
    OK(CALL(cuEventCreate)(&end, CU_EVENT_DEFAULT));
    CUdeviceptr memory;
    OK(CALL(cuMemAlloc)(&memory, 64 << 20));
    OK(CALL(cuEventRecord)(start, stream));
    OK(CALL(cuMemsetD32Async)(memory, 5, 16 << 20, stream));
    OK(CALL(cuEventRecord)(end, stream));
    OK(CALL(cuStreamWaitEvent)(other, end, 0));
    unsigned value;
    OK(CALL(cuMemcpyDtoDAsync)(memory, memory + 1024, 4, other));
    OK(CALL(cuStreamSynchronize)(other));
    float milliseconds;
    OK(CALL(cuEventElapsedTime)(&milliseconds, start, end));
    HOLDS(milliseconds > 0.01f);
    int by = 2;
    OK(CALL(cuLaunchHostFunc)(stream, count_up, &by));
    OK(CALL(cuLaunchHostFunc)(stream, count_up, &by));
    OK(CALL(cuStreamSynchronize)(stream));
    HOLDS(called == 4);
    OK(CALL(cuMemcpyDtoH)(&value, memory, 4));
    HOLDS(value == 5);
    OK(CALL(cuMemFree)(memory));
    OK(CALL(cuStreamDestroy)(other));
    REFUSED(CALL(cuStreamSynchronize)(other), CUDA_ERROR_INVALID_HANDLE);
    puts("streams, events, functions of the host");
}

static void graphs(void) {
    CUdeviceptr memory;
    unsigned value;
    OK(CALL(cuMemAlloc)(&memory, 4096));
    OK(CALL(cuMemsetD32Async)(memory, 1, 1024, stream));
    OK(CALL(cuStreamSynchronize)(stream));
    CUgraph graph;
    CUgraphExec executable;
    OK(CALL(cuStreamBeginCapture)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(CALL(cuMemsetD32Async)(memory, 9, 1024, stream));
    CUdeviceptr sum = memory;
    size_t count = 1024;
    launch(kernel("millpond_add"), (void *[]){&sum, &sum, &sum, &count});
    OK(CALL(cuStreamEndCapture)(stream, &graph));
    OK(CALL(cuGraphInstantiateWithFlags)(&executable, graph, 0));
    OK(CALL(cuGraphDestroy)(graph));
    OK(CALL(cuMemcpyDtoH)(&value, memory, 4));
    HOLDS(value == 1);
    OK(CALL(cuGraphLaunch)(executable, stream));
    OK(CALL(cuStreamSynchronize)(stream));
    OK(CALL(cuMemcpyDtoH)(&value, memory, 4));
    HOLDS(value == 18);
    OK(CALL(cuGraphExecDestroy)(executable));
    REFUSED(CALL(cuGraphLaunch)(executable, stream), CUDA_ERROR_INVALID_VALUE);
    OK(CALL(cuMemFree)(memory));
    puts("captures and graphs");
}

static CUcontext context;
static void *allocate_and_free(void *unused) {
    (void)unused;
    CUdeviceptr memory;
    REFUSED(CALL(cuMemAlloc)(&memory, 256), CUDA_ERROR_INVALID_CONTEXT);
    OK(CALL(cuCtxSetCurrent)(context));
    for (int i = 0; i < 1000; i++) {
        OK(CALL(cuMemAlloc)(&memory, 1 + i * 100));
        OK(CALL(cuMemsetD32Async)(memory, 1, (1 + i * 100) / 4, CU_STREAM_PER_THREAD));
        OK(CALL(cuMemFree)(memory));
    }
    return NULL;
}

static void threads(void) {
    pthread_t all[8];
    for (int i = 0; i < 8; i++) pthread_create(&all[i], NULL, allocate_and_free, NULL);
    for (int i = 0; i < 8; i++) pthread_join(all[i], NULL);
    puts("threads");
}

int main(void) {
    load();
    int version, count, value;
    CUdevice device;
    char name[100];
    OK(CALL(cuDriverGetVersion)(&version));
    HOLDS(version >= 12000);
    REFUSED(CALL(cuDeviceGetCount)(&count), CUDA_ERROR_NOT_INITIALIZED);
    REFUSED(CALL(cuInit)(1), CUDA_ERROR_INVALID_VALUE);
    OK(CALL(cuInit)(0));
    OK(CALL(cuDeviceGetCount)(&count));
    HOLDS(count == 1);
    REFUSED(CALL(cuDeviceGet)(&device, 1), CUDA_ERROR_INVALID_DEVICE);
    OK(CALL(cuDeviceGet)(&device, 0));
    OK(CALL(cuDeviceGetName)(name, sizeof name, device));
    HOLDS(strstr(name, "simulated"));
    OK(CALL(cuDeviceGetAttribute)(&value, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device));
    HOLDS(value == 1);
    REFUSED(CALL(cuCtxSynchronize)(), CUDA_ERROR_INVALID_CONTEXT);
    OK(CALL(cuDevicePrimaryCtxRetain)(&context, device));
    OK(CALL(cuCtxSetCurrent)(context));
    OK(CALL(cuStreamCreate)(&stream, CU_STREAM_DEFAULT));
    OK(CALL(cuModuleLoadData)(&module, PTX));
    plain_memory();
    pinned_memory();
    managed_memory();
    virtual_memory();
    stream_ordered_memory();
    kernels();
    order();
    graphs();
    threads();
    OK(CALL(cuModuleUnload)(module));
    /* Last, for the device is lost by it: a kernel that touches what is not there. */
    CUdeviceptr gone;
    OK(CALL(cuModuleLoadData)(&module, PTX));
    OK(CALL(cuMemAlloc)(&gone, 4 << 20));
    OK(CALL(cuMemFree)(gone));
    unsigned one = 1;
    size_t words = 4;
    launch(kernel("millpond_fill"), (void *[]){&gone, &one, &words});
    REFUSED(CALL(cuStreamSynchronize)(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    REFUSED(CALL(cuMemAlloc)(&gone, 256), CUDA_ERROR_ILLEGAL_ADDRESS);
    /* The end of its primary context brings the device back. */
    OK(CALL(cuDevicePrimaryCtxReset)(device));
    REFUSED(CALL(cuMemAlloc)(&gone, 256), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    OK(CALL(cuDevicePrimaryCtxRetain)(&context, device));
    OK(CALL(cuCtxSetCurrent)(context));
    REFUSED(CALL(cuStreamSynchronize)(stream), CUDA_ERROR_INVALID_HANDLE);
    OK(CALL(cuStreamCreate)(&stream, CU_STREAM_DEFAULT));
    OK(CALL(cuModuleLoadData)(&module, PTX));
    OK(CALL(cuMemAlloc)(&gone, 4 << 20));
    OK(CALL(cuMemFree)(gone));
    float y = 1;
    launch(kernel("stranger"), (void *[]){&gone, &y}); /* who knows whether it looks there */
    OK(CALL(cuStreamSynchronize)(stream));
    launch(kernel("millpond_fill"), (void *[]){&gone, &one, &words});
    REFUSED(CALL(cuStreamSynchronize)(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    puts("illegal addresses");
    puts("all is well");
    return 0;
}
