/* What careless programs do to a driver, and what it must answer. */
#include <cuda.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static void expect(CUresult got, CUresult wanted, const char *what) {
    if (got == wanted) return;
    fprintf(stderr, "%s: %d, and not %d\n", what, got, wanted);
    exit(1);
}
#define OK(call) expect(call, CUDA_SUCCESS, #call)
#define REFUSED(call, code) expect(call, code, #call)
#define HOLDS(condition) do { if (!(condition)) { fprintf(stderr, "not so: %s\n", #condition); exit(1); } } while (0)

static CUdevice device;
static const char PTX[] =
    ".version 7.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry millpond_fill(.param .u64 dst, .param .u32 value, .param .u64 count) { ret; }\n";

static void sizes_and_places(void) {
    CUmemAllocationProp properties = {0};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    size_t page = 2 << 20;
    CUdeviceptr mapped;
    CUmemGenericAllocationHandle memory;
    OK(cuMemAddressReserve(&mapped, 4 * page, 0, 0, 0));
    OK(cuMemCreate(&memory, page, &properties, 0));
    OK(cuMemMap(mapped, page, 0, memory, 0));
    OK(cuMemSetAccess(mapped, page, &access, 1));
    char bytes[64];
    REFUSED(cuMemcpyDtoH(bytes, mapped, (size_t)1 << 50), CUDA_ERROR_INVALID_VALUE);
    REFUSED(cuMemcpyDtoH(bytes, mapped, page + 1), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemcpyDtoH(bytes, mapped + page - 64, 64));
    /* Into constants, and into memory that is not there. */
    REFUSED(cuMemcpyDtoH((void *)"a constant", mapped, 4), CUDA_ERROR_INVALID_VALUE);
    REFUSED(cuMemAlloc((CUdeviceptr *)(size_t)(((size_t)PTX + 7) & ~(size_t)7), 256), CUDA_ERROR_INVALID_VALUE);
    void *nothing = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REFUSED(cuMemAlloc(nothing, 256), CUDA_ERROR_INVALID_VALUE);
    REFUSED(cuMemHostRegister((void *)0x500000000000, 4096, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemUnmap(mapped, page));
    OK(cuMemRelease(memory));
    OK(cuMemAddressFree(mapped, 4 * page));
    puts("sizes and places");
}

static void contexts_that_come_and_go(void) {
    CUcontext one, other;
    CUdeviceptr memory, again;
    OK(cuCtxCreate(&one, 0, device));
    OK(cuMemAlloc(&memory, 4 << 20));
    OK(cuCtxCreate(&other, 0, device));
    OK(cuMemFree(memory));
    OK(cuMemAlloc(&again, 4 << 20));
    OK(cuCtxDestroy(one));
    unsigned word;
    OK(cuMemcpyDtoH(&word, again, 4)); /* of the other context, whatever its address was before */
    /* Work that touches what is not there costs the context, and the next one is as new. */
    CUmodule module;
    CUfunction fill;
    OK(cuModuleLoadData(&module, PTX));
    OK(cuModuleGetFunction(&fill, module, "millpond_fill"));
    OK(cuMemFree(again));
    unsigned value = 1;
    size_t count = 1;
    OK(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&again, &value, &count}, NULL));
    REFUSED(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    OK(cuCtxDestroy(other));
    OK(cuCtxCreate(&one, 0, device));
    OK(cuMemAlloc(&memory, 4 << 20));
    OK(cuCtxDestroy(one));
    puts("contexts that come and go");
}

static volatile int called;
static void CUDA_CB slow(void *unused) {
    (void)unused;
    usleep(50000);
    called = 1;
}

static void functions_of_the_host(void) {
    CUstream stream;
    CUdeviceptr memory;
    OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    OK(cuMemAlloc(&memory, 4096));
    OK(cuLaunchHostFunc(NULL, slow, NULL));
    OK(cuMemsetD8Async(memory, 1, 4096, stream)); /* a stream that waits for the legacy one */
    OK(cuStreamSynchronize(stream));
    HOLDS(called);
    OK(cuMemFree(memory));
    OK(cuStreamDestroy(stream));
    puts("functions of the host");
}

static void *on_a_small_stack(void *context) {
    CUdeviceptr memory;
    size_t free_bytes, total;
    OK(cuCtxSetCurrent(context));
    OK(cuMemAlloc(&memory, 4 << 20));
    OK(cuMemGetInfo(&free_bytes, &total));
    OK(cuMemFree(memory));
    return NULL;
}

static CUdeviceptr freed_last;
static void at_exit(void) {
    OK(cuMemFree(freed_last));
    puts("all is well");
}

int main(void) {
    CUcontext context;
    OK(cuInit(0));
    OK(cuDeviceGet(&device, 0));
    contexts_that_come_and_go();
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    sizes_and_places();
    functions_of_the_host();
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 32 << 10);
    pthread_create(&thread, &attributes, on_a_small_stack, context);
    pthread_join(thread, NULL);
    puts("a small stack");
    /* Memory is freed without a context, and when the program ends. */
    CUdeviceptr memory;
    OK(cuMemAlloc(&memory, 256));
    OK(cuMemAlloc(&freed_last, 256));
    OK(cuCtxSetCurrent(NULL));
    OK(cuMemFree(memory));
    atexit(at_exit);
    return 0;
}
