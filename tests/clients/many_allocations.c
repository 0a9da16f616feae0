/* 100,000 allocations of every kind, all there at once: first of one byte each, which are more than a small device could have pages
 * for, then gone again. It says how much of the device was free at the fullest, and fails at the first surprise. */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define COUNT 100000

static CUdeviceptr pointers[COUNT];
static CUmemGenericAllocationHandle handles[COUNT];
static CUarray arrays[COUNT];

static void expect(CUresult got, const char *what, int index) {
    if (got == CUDA_SUCCESS) return;
    const char *name = "?";
    size_t free_bytes = 0, total = 0;
    cuGetErrorName(got, &name);
    cuMemGetInfo(&free_bytes, &total);
    fprintf(stderr, "%s: %s at %d, with %zu of %zu bytes free\n", what, name, index, free_bytes, total);
    exit(1);
}
#define EACH(call) for (int i = 0; i < COUNT; i++) expect(call, #call, i)
#define OK(call) expect(call, #call, -1)

static CUmemoryPool new_pool(void) {
    CUmemPoolProps properties = {0};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemoryPool pool;
    OK(cuMemPoolCreate(&pool, &properties));
    return pool;
}

/* Every kind of physical memory comes in whole pages of 2 MiB: this wants a device of 200 GiB. */
static void mapped(void) {
    CUmemAllocationProp properties = {0};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    size_t page;
    CUdeviceptr base;
    OK(cuMemGetAllocationGranularity(&page, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    OK(cuMemAddressReserve(&base, COUNT * page, 0, 0, 0));
    EACH(cuMemCreate(&handles[i], page, &properties, 0));
    EACH(cuMemMap(base + i * page, page, 0, handles[i], 0));
    EACH(cuMemSetAccess(base + i * page, page, &access, 1));
    EACH(cuMemUnmap(base + i * page, page));
    EACH(cuMemRelease(handles[i]));
    OK(cuMemAddressFree(base, COUNT * page));
}

int main(int count, char **arguments) {
    CUcontext context;
    size_t pitch, before, after, total;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuMemGetInfo(&before, &total));

    EACH(cuMemAlloc(&pointers[i], 1));
    EACH(cuMemFree(pointers[i]));
    EACH(cuMemAllocPitch(&pointers[i], &pitch, 4, 1, 4));
    EACH(cuMemFree(pointers[i]));
    EACH(cuMemAllocManaged(&pointers[i], 1, CU_MEM_ATTACH_GLOBAL));
    EACH(cuMemFree(pointers[i]));
    EACH(cuMemHostAlloc((void **)&pointers[i], 1, 0));
    EACH(cuMemFreeHost((void *)pointers[i]));
    CUDA_ARRAY_DESCRIPTOR line = {.Width = 1, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
    EACH(cuArrayCreate(&arrays[i], &line));
    EACH(cuArrayDestroy(arrays[i]));
    EACH(cuMemAllocAsync(&pointers[i], 1, NULL));
    EACH(cuMemFreeAsync(pointers[i], NULL));
    CUmemoryPool pool = new_pool();
    EACH(cuMemAllocFromPoolAsync(&pointers[i], 1, pool, NULL));
    EACH(cuMemFreeAsync(pointers[i], NULL));
    OK(cuMemPoolDestroy(pool));
    if (count > 1 && arguments[1][0] == 'm') mapped();

    OK(cuCtxSynchronize());
    /* Where programs share the device, what is free is measured about once a second. */
    for (int tries = 0; tries < 600; tries++) {
        OK(cuMemGetInfo(&after, &total));
        if (after == before) break;
        usleep(100000);
    }
    if (after != before) {
        fprintf(stderr, "%zu bytes were free, and %zu are\n", before, after);
        return 1;
    }
    puts("all is well");
    return 0;
}
