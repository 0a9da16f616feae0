"""Numba, and an allocator plugged into it, over whatever libcuda is there."""

import sys
import warnings

import numpy as np
from cuda.bindings import driver
from numba import cuda
from numba.cuda import HostOnlyCUDAMemoryManager, MemoryPointer, MemoryInfo

warnings.simplefilter("ignore")


class Counting(HostOnlyCUDAMemoryManager):
    """Takes memory from the driver's pool, and counts what it hands out."""

    allocated = 0
    freed = 0

    @property
    def interface_version(self):
        return 1

    def initialize(self):
        pass

    def memalloc(self, size):
        error, pointer = driver.cuMemAllocAsync(size, 0)
        assert error == driver.CUresult.CUDA_SUCCESS, error
        Counting.allocated += 1

        def free():
            Counting.freed += 1
            assert driver.cuMemFreeAsync(pointer, 0)[0] == driver.CUresult.CUDA_SUCCESS

        return MemoryPointer(self.context, pointer, size, finalizer=free)

    def get_memory_info(self):
        error, free, total = driver.cuMemGetInfo()
        assert error == driver.CUresult.CUDA_SUCCESS
        return MemoryInfo(free=free, total=total)

    def get_ipc_handle(self, memory):
        raise NotImplementedError


if "--plugin" in sys.argv:
    cuda.set_memory_manager(Counting)

assert cuda.is_available()
values = np.arange(100_000, dtype=np.float32)
on_device = cuda.to_device(values)
assert (on_device.copy_to_host() == values).all()

stream = cuda.stream()
with stream.auto_synchronize():
    twice = cuda.to_device(values * 2, stream=stream)
assert (twice.copy_to_host() == values * 2).all()
start, end = cuda.event(), cuda.event()
start.record(stream)
twice.copy_to_device(on_device, stream=stream)
end.record(stream)
end.synchronize()
assert cuda.event_elapsed_time(start, end) > 0
assert (twice.copy_to_host() == values).all()

pinned = cuda.pinned_array(1000, dtype=np.int32)
pinned[:] = 5
assert (cuda.to_device(pinned).copy_to_host() == 5).all()
managed = cuda.managed_array(1000, dtype=np.int32)
managed[:] = 6
assert managed.sum() == 6000


@cuda.jit
def add_one(array):
    index = cuda.grid(1)
    if index < array.size:
        array[index] += 1


# It is compiled, loaded and launched; the stand-in does not execute it.
add_one[400, 256](on_device)
cuda.synchronize()

if "--plugin" in sys.argv:
    assert Counting.allocated >= 3, Counting.allocated
    del on_device, twice
    cuda.current_context().deallocations.clear()
    assert Counting.freed >= 2, Counting.freed
print("all is well")
