"""NVIDIA's own Python bindings of the driver API, over whatever libcuda is there."""

import ctypes
import sys

from cuda.bindings import driver as cuda


def ok(result):
    """What a call returned besides its success."""
    error, *rest = result
    if error != cuda.CUresult.CUDA_SUCCESS:
        raise AssertionError(f"{error}: {cuda.cuGetErrorString(error)[1].decode()}")
    return rest[0] if len(rest) == 1 else rest


def refused(result, code):
    assert result[0] == code, f"{result[0]}, and not {code}"


ERRORS = cuda.CUresult
# Under the hook memory of pools is not the pools', and what a program has is counted when it allocates it.
shared = "--shared" in sys.argv
ok(cuda.cuInit(0))
device = ok(cuda.cuDeviceGet(0))
assert b"simulated" in ok(cuda.cuDeviceGetName(128, device))
context = ok(cuda.cuDevicePrimaryCtxRetain(device))
ok(cuda.cuCtxSetCurrent(context))
stream = ok(cuda.cuStreamCreate(cuda.CUstream_flags.CU_STREAM_NON_BLOCKING))


def plain_memory_and_copies():
    free, total = ok(cuda.cuMemGetInfo())
    memory = ok(cuda.cuMemAlloc(4 << 20))
    assert ok(cuda.cuMemGetInfo())[0] == free - (4 << 20)
    sent = bytes(range(256)) * 64
    ok(cuda.cuMemcpyHtoD(memory, sent, len(sent)))
    got = bytearray(len(sent))
    ok(cuda.cuMemcpyDtoH(got, memory, len(sent)))
    assert got == sent
    ok(cuda.cuMemsetD16Async(memory, 0x1234, 5, stream))
    ok(cuda.cuMemcpyDtoHAsync(got, memory, 12, stream))
    ok(cuda.cuStreamSynchronize(stream))
    assert got[:12].hex() == "34123412341234123412" + "0a0b"
    refused(cuda.cuMemAlloc(total * 2), ERRORS.CUDA_ERROR_OUT_OF_MEMORY)
    refused(cuda.cuMemFree(int(memory) + 8), ERRORS.CUDA_ERROR_INVALID_VALUE)
    ok(cuda.cuMemFree(memory))
    kinds = [
        cuda.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        cuda.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
    ]
    of_host = ctypes.create_string_buffer(16)
    assert ok(cuda.cuPointerGetAttributes(2, kinds, ctypes.addressof(of_host))) == [0, -2]


def events_and_streams():
    start, end = (ok(cuda.cuEventCreate(0)) for _ in range(2))
    memory = ok(cuda.cuMemAlloc(64 << 20))
    ok(cuda.cuEventRecord(start, stream))
    ok(cuda.cuMemsetD32Async(memory, 7, 16 << 20, stream))
    ok(cuda.cuEventRecord(end, stream))
    ok(cuda.cuEventSynchronize(end))
    assert ok(cuda.cuEventElapsedTime(start, end)) > 0.01
    first, second = (ok(cuda.cuStreamGetId(s)) for s in (stream, ok(cuda.cuStreamCreate(0))))
    assert int(first) != int(second)
    ok(cuda.cuMemFree(memory))


def pools():
    pool = ok(cuda.cuDeviceGetDefaultMemPool(device))
    used = cuda.CUmemPool_attribute.CU_MEMPOOL_ATTR_USED_MEM_CURRENT
    threshold = cuda.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
    before = int(ok(cuda.cuMemPoolGetAttribute(pool, used)))
    memory = ok(cuda.cuMemAllocAsync(1 << 20, stream))
    assert shared or int(ok(cuda.cuMemPoolGetAttribute(pool, used))) == before + (1 << 20)
    ok(cuda.cuMemFreeAsync(memory, stream))
    ok(cuda.cuMemPoolSetAttribute(pool, threshold, cuda.cuuint64_t(1 << 30)))
    assert int(ok(cuda.cuMemPoolGetAttribute(pool, threshold))) == 1 << 30
    properties = cuda.CUmemPoolProps()
    properties.allocType = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    own = ok(cuda.cuMemPoolCreate(properties))
    memory = ok(cuda.cuMemAllocFromPoolAsync(4096, own, stream))
    ok(cuda.cuMemFreeAsync(memory, stream))
    ok(cuda.cuMemPoolDestroy(own))


def aliased_pages():
    properties = cuda.CUmemAllocationProp()
    properties.type = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    least = cuda.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
    page = ok(cuda.cuMemGetAllocationGranularity(properties, least))
    addresses = ok(cuda.cuMemAddressReserve(2 * page, 0, 0, 0))
    memory = ok(cuda.cuMemCreate(page, properties, 0))
    ok(cuda.cuMemMap(addresses, page, 0, memory, 0))
    ok(cuda.cuMemMap(int(addresses) + page, page, 0, memory, 0))
    access = cuda.CUmemAccessDesc()
    access.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    access.flags = cuda.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    ok(cuda.cuMemSetAccess(addresses, 2 * page, [access], 1))
    ok(cuda.cuMemcpyHtoD(addresses, b"one memory", 10))
    got = bytearray(10)
    ok(cuda.cuMemcpyDtoH(got, int(addresses) + page, 10))
    assert got == b"one memory"
    ok(cuda.cuMemUnmap(addresses, 2 * page))
    ok(cuda.cuMemRelease(memory))
    ok(cuda.cuMemAddressFree(addresses, 2 * page))


def managed_memory():
    memory = ok(cuda.cuMemAllocManaged(8 << 20, cuda.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL.value))
    view = (ctypes.c_uint32 * 4).from_address(int(memory))
    view[0] = 77
    free, _ = ok(cuda.cuMemGetInfo())
    ok(cuda.cuMemPrefetchAsync(memory, 8 << 20, device, stream))
    ok(cuda.cuStreamSynchronize(stream))
    assert shared or ok(cuda.cuMemGetInfo())[0] <= free - (8 << 20), "it is on the device now"
    got = bytearray(4)
    ok(cuda.cuMemcpyDtoHAsync(got, memory, 4, stream))
    ok(cuda.cuStreamSynchronize(stream))
    assert int.from_bytes(got, "little") == 77
    ok(cuda.cuMemFree(memory))


def graphs():
    memory = ok(cuda.cuMemAlloc(4096))
    ok(cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
    ok(cuda.cuMemsetD8Async(memory, 9, 4096, stream))
    graph = ok(cuda.cuStreamEndCapture(stream))
    executable = ok(cuda.cuGraphInstantiate(graph, 0))
    ok(cuda.cuGraphLaunch(executable, stream))
    ok(cuda.cuStreamSynchronize(stream))
    got = bytearray(4096)
    ok(cuda.cuMemcpyDtoH(got, memory, 4096))
    assert got == bytes([9]) * 4096
    ok(cuda.cuGraphExecDestroy(executable))
    ok(cuda.cuGraphDestroy(graph))
    ok(cuda.cuMemFree(memory))


for check in (plain_memory_and_copies, events_and_streams, pools, aliased_pages, managed_memory, graphs):
    check()
    print(check.__name__)
print("all is well")
