/* What a program is told of kernels, and what launches keep to; advice about managed memory; pools at their edges. It fails at the
 * first surprise. */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void expect(CUresult got, CUresult wanted, const char *what) {
    if (got == wanted) return;
    const char *name = "?", *right = "?";
    cuGetErrorName(got, &name);
    cuGetErrorName(wanted, &right);
    fprintf(stderr, "%s: %s, and not %s\n", what, name, right);
    exit(1);
}
#define OK(call) expect(call, CUDA_SUCCESS, #call)
#define REFUSED(call, code) expect(call, code, #call)
#define HOLDS(condition) do { if (!(condition)) { fprintf(stderr, "not so: %s\n", #condition); exit(1); } } while (0)

static const char CODE[] =
    ".version 7.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry bounded(.param .u64 a, .param .u32 b, .param .align 8 .b8 c[24])\n.maxntid 128, 1, 1\n{\n"
    "  .shared .align 4 .b8 tile[4096];\n  ret;\n}\n"
    ".visible .entry exact()\n.reqntid 64\n{ ret; }\n"
    ".visible .entry plain()\n{ ret; }\n";

static CUresult launch(CUfunction function, unsigned threads, unsigned shared) {
    unsigned long long a = 0;
    unsigned b = 0;
    char c[24] = {0};
    void *parameters[] = {&a, &b, c};
    return cuLaunchKernel(function, 1, 1, 1, threads, 1, 1, shared, NULL, parameters, NULL);
}

static int attribute(CUfunction function, CUfunction_attribute which) {
    int value;
    OK(cuFuncGetAttribute(&value, which, function));
    return value;
}

static void launches_keep_to_what_the_code_says(void) {
    CUmodule module;
    CUfunction bounded, exact, plain;
    OK(cuModuleLoadData(&module, CODE));
    OK(cuModuleGetFunction(&bounded, module, "bounded"));
    OK(cuModuleGetFunction(&exact, module, "exact"));
    OK(cuModuleGetFunction(&plain, module, "plain"));

    OK(launch(bounded, 128, 0));
    REFUSED(launch(bounded, 129, 0), CUDA_ERROR_INVALID_VALUE);
    OK(launch(exact, 64, 0));
    REFUSED(launch(exact, 32, 0), CUDA_ERROR_INVALID_VALUE);
    OK(launch(plain, 1024, 0));
    REFUSED(launch(plain, 1025, 0), CUDA_ERROR_INVALID_VALUE);
    REFUSED(cuLaunchKernel(plain, 1, 65536, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    REFUSED(cuLaunchKernel(plain, 1, 1, 1, 1, 1, 65, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    HOLDS(attribute(bounded, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK) == 128);
    HOLDS(attribute(bounded, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES) == 4096);
    HOLDS(attribute(plain, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK) == 1024);

    /* More than 48 KiB of shared memory has to be asked for. */
    OK(launch(plain, 32, 48 << 10));
    REFUSED(launch(plain, 32, (48 << 10) + 1), CUDA_ERROR_INVALID_VALUE);
    REFUSED(launch(bounded, 32, 48 << 10), CUDA_ERROR_INVALID_VALUE);
    int most;
    OK(cuDeviceGetAttribute(&most, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 0));
    REFUSED(cuFuncSetAttribute(plain, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, most + 1), CUDA_ERROR_INVALID_VALUE);
    OK(cuFuncSetAttribute(plain, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, most));
    HOLDS(attribute(plain, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) == most);
    OK(launch(plain, 32, most));
    REFUSED(cuFuncSetAttribute(plain, CU_FUNC_ATTRIBUTE_NUM_REGS, 1), CUDA_ERROR_INVALID_VALUE);

    /* The more blocks share a multiprocessor, the less each has. */
    size_t one, four;
    OK(cuOccupancyAvailableDynamicSMemPerBlock(&one, plain, 1, 32));
    OK(cuOccupancyAvailableDynamicSMemPerBlock(&four, plain, 4, 32));
    int all;
    OK(cuDeviceGetAttribute(&all, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 0));
    size_t usual;
    OK(cuOccupancyAvailableDynamicSMemPerBlock(&usual, bounded, 1, 32));
    HOLDS(usual == (48 << 10) - 4096);
    HOLDS(one == (size_t)most && four > 0 && 4 * four <= (size_t)all);
    int blocks, fewer;
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, plain, 32, 0));
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&fewer, plain, 32, 16 << 10));
    HOLDS(blocks > fewer && fewer > 0 && fewer * (16 << 10) <= all);

    const char *name;
    OK(cuFuncGetName(&name, bounded));
    HOLDS(strcmp(name, "bounded") == 0);
    REFUSED(cuFuncGetName(&name, NULL), CUDA_ERROR_INVALID_VALUE);
    size_t offset, size;
    OK(cuFuncGetParamInfo(bounded, 2, &offset, &size));
    HOLDS(offset == 16 && size == 24);
    REFUSED(cuFuncGetParamInfo(bounded, 3, &offset, &size), CUDA_ERROR_INVALID_VALUE);
    CUfunction functions[8];
    OK(cuModuleEnumerateFunctions(functions, 2, module));
    HOLDS(functions[0] == bounded && functions[1] == exact);
    OK(cuModuleUnload(module));

    CUlibrary library;
    CUkernel kernel, kernels[3];
    OK(cuLibraryLoadData(&library, CODE, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetKernel(&kernel, library, "bounded"));
    OK(cuKernelGetName(&name, kernel));
    HOLDS(strcmp(name, "bounded") == 0);
    OK(cuKernelGetParamInfo(kernel, 1, &offset, &size));
    HOLDS(offset == 8 && size == 4);
    OK(cuLibraryEnumerateKernels(kernels, 3, library));
    HOLDS(kernels[0] == kernel);
    OK(cuLibraryUnload(library));
}

static int range_attribute(CUmem_range_attribute which, CUdeviceptr ptr, size_t bytes) {
    int value = -7;
    OK(cuMemRangeGetAttribute(&value, sizeof value, which, ptr, bytes));
    return value;
}

static void advice_about_ranges_is_kept(void) {
    const size_t bytes = 1 << 20;
    CUdeviceptr ptr;
    OK(cuMemAllocManaged(&ptr, bytes, CU_MEM_ATTACH_GLOBAL));
    HOLDS(range_attribute(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, ptr, bytes) == 0);
    HOLDS(range_attribute(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, ptr, bytes) == CU_DEVICE_INVALID);
    HOLDS(range_attribute(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, ptr, bytes) == CU_DEVICE_INVALID);
    OK(cuMemPrefetchAsync(ptr, bytes, 0, NULL));
    HOLDS(range_attribute(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, ptr, bytes) == 0);
    OK(cuMemPrefetchAsync(ptr, bytes / 2, CU_DEVICE_CPU, NULL));
    HOLDS(range_attribute(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, ptr, bytes / 2) == CU_DEVICE_CPU);
    HOLDS(range_attribute(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, ptr + bytes / 2, bytes / 2) == 0);
    HOLDS(range_attribute(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, ptr, bytes) == CU_DEVICE_INVALID);
    OK(cuMemAdvise(ptr, bytes, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
    OK(cuMemAdvise(ptr, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_DEVICE_CPU));
    OK(cuMemAdvise(ptr, bytes, CU_MEM_ADVISE_SET_ACCESSED_BY, 0));
    OK(cuMemAdvise(ptr, bytes, CU_MEM_ADVISE_SET_ACCESSED_BY, CU_DEVICE_CPU));
    int mostly, preferred, accessed[3], kind;
    void *data[] = {&mostly, &preferred, accessed, &kind};
    size_t sizes[] = {4, 4, sizeof accessed, 4};
    CUmem_range_attribute which[] = {CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION,
                                     CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE};
    OK(cuMemRangeGetAttributes(data, sizes, which, 4, ptr, bytes));
    HOLDS(mostly == 1 && preferred == CU_DEVICE_CPU && kind == CU_MEM_LOCATION_TYPE_HOST);
    HOLDS(accessed[0] == 0 && accessed[1] == CU_DEVICE_CPU && accessed[2] == CU_DEVICE_INVALID);
    OK(cuMemAdvise(ptr, bytes, CU_MEM_ADVISE_UNSET_READ_MOSTLY, 0));
    OK(cuMemAdvise(ptr, bytes, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, 0));
    HOLDS(range_attribute(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, ptr, bytes) == 0);
    HOLDS(range_attribute(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, ptr, bytes) == CU_DEVICE_INVALID);
    int value;
    REFUSED(cuMemRangeGetAttribute(&value, 3, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, ptr, bytes), CUDA_ERROR_INVALID_VALUE);
    REFUSED(cuMemRangeGetAttribute(&value, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, ptr, bytes + 1), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree(ptr));
    CUdeviceptr plain;
    OK(cuMemAlloc(&plain, bytes));
    REFUSED(cuMemRangeGetAttribute(&value, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, plain, bytes), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree(plain));
    /* New memory at the same addresses has nothing said about it. */
    OK(cuMemAllocManaged(&ptr, bytes, CU_MEM_ATTACH_GLOBAL));
    HOLDS(range_attribute(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, ptr, bytes) == CU_DEVICE_INVALID);
    OK(cuMemFree(ptr));
}

static void pools_at_their_edges(void) {
    CUdeviceptr ptr = 1;
    OK(cuMemAllocAsync(&ptr, 0, NULL));
    HOLDS(ptr == 0);
    OK(cuMemFreeAsync(ptr, NULL));
    CUmemPoolProps properties = {0};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.maxSize = 2048;
    CUmemoryPool pool;
    OK(cuMemPoolCreate(&pool, &properties));
    OK(cuMemAllocFromPoolAsync(&ptr, 1024, pool, NULL));
    OK(cuMemFreeAsync(ptr, NULL));
    REFUSED(cuMemAllocFromPoolAsync(&ptr, 64 << 20, pool, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemPoolDestroy(pool));
    REFUSED(cuMemAllocFromPoolAsync(&ptr, 0, pool, NULL), CUDA_ERROR_INVALID_VALUE);
}

int main(void) {
    CUcontext context;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    launches_keep_to_what_the_code_says();
    advice_about_ranges_is_kept();
    pools_at_their_edges();
    OK(cuDevicePrimaryCtxRelease(0));
    puts("all is well");
    return 0;
}
