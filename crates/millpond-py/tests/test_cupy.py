"""CuPy's side of it cannot run without its CUDA libraries; ours is what `cupy.cuda.PythonFunctionAllocator` calls."""

import pytest

import millpond
import millpond.cupy


def test_blocks_belong_to_the_stream_that_was_current():
    current: list[object] = [0]
    allocator = millpond.cupy.Allocator(lambda: current[0], device="sim:a100-80g", settings={"slack": 0.05})
    pool = allocator.pool(0)
    assert pool.config["slack"] == 0.05
    one, other = pool.stream(), pool.stream()
    current[0] = one
    ptr = allocator.malloc(1 << 20, 0)
    current[0] = other
    # Freed on its own stream, where it can be had again at once, and not on the current one.
    allocator.free(ptr, 0)
    current[0] = one
    assert allocator.malloc(1 << 20, 0) == ptr
    allocator.free(ptr, 0)
    assert pool.usage()["live_blocks"] == 0
    with pytest.raises(millpond.BadFree):
        allocator.free(ptr, 0)
    allocator.free(0, 0)
    with pytest.raises(MemoryError):
        allocator.malloc(100 << 30, 0)


def test_each_device_has_its_own_pool():
    allocator = millpond.cupy.Allocator(lambda: None, "limit:1MiB/pool", device="sim:a100-80g")
    first, second = allocator.malloc(1 << 20, 0), allocator.malloc(1 << 20, 1)
    with pytest.raises(millpond.OutOfMemory, match="limit"):
        allocator.malloc(1, 1)
    allocator.free(second, 1)
    allocator.free(first, 0)
