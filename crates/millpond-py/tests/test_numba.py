"""Numba on a pool, over the stand-in driver."""

import pytest

PROGRAM = """
import numpy as np
from numba import cuda
import millpond.numba
{enable}

values = np.arange(100_000, dtype=np.float32)
on_device = cuda.to_device(values)
assert (on_device.copy_to_host() == values).all()
pool = millpond.numba.pool()
assert pool.usage()["live_bytes"] == values.nbytes, pool.usage()

streams = [cuda.stream() for _ in range(4)]
for turn in range(20):
    arrays = [cuda.to_device(values + turn + number, stream=stream) for number, stream in enumerate(streams)]
    for number, (array, stream) in enumerate(zip(arrays, streams)):
        assert (array.copy_to_host(stream=stream) == values + turn + number).all()
    del array, arrays
empty = cuda.device_array(0, dtype=np.int32)
pinned = cuda.pinned_array(1000, dtype=np.int32)
pinned[:] = 5
assert (cuda.to_device(pinned).copy_to_host() == 5).all()
free, total = cuda.current_context().get_memory_info()
assert 0 < free < total

@cuda.jit
def add_one(array):
    index = cuda.grid(1)
    if index < array.size:
        array[index] += 1

add_one[400, 256](on_device)
cuda.synchronize()
del on_device, empty
cuda.current_context().deallocations.clear()
assert pool.usage()["live_blocks"] == 0, pool.usage()
assert pool.stats()["allocation_count"] >= 80
# Each array's memory served the next.
assert pool.usage()["peak_reserved_bytes"] < 64 << 20, pool.usage()
try:
    cuda.device_array(100 << 30, dtype=np.int8)
except MemoryError as error:
    assert isinstance(error, millpond.OutOfMemory), error
else:
    raise AssertionError("so much there is not")
print("all is well")
"""


@pytest.mark.parametrize("simulated", ["", "order=adversarial,seed=7"])
def test_arrays_come_from_the_pool(on_stand_in, simulated):
    program = PROGRAM.format(enable="millpond.numba.enable(slack=0.05)\nassert millpond.numba.pool().config['slack'] == 0.05")
    assert on_stand_in(program, MILLPOND_SIM=simulated).endswith("all is well\n")


def test_a_program_need_not_be_changed(on_stand_in):
    program = PROGRAM.format(enable="")
    assert on_stand_in(program, NUMBA_CUDA_MEMORY_MANAGER="millpond.numba").endswith("all is well\n")


REUSED = """
import numpy as np
from numba import cuda
import millpond.numba
millpond.numba.enable()

ones, twos = (cuda.to_device(np.full(1 << 20, value, np.uint8)) for value in (1, 2))
first, second = cuda.stream(), cuda.stream()
for turn in range(50):
    before = cuda.device_array(1 << 20, np.uint8)
    address = before.device_ctypes_pointer.value
    before.copy_to_device(ones, stream=first)
    del before
    after = cuda.device_array(1 << 20, np.uint8)
    assert after.device_ctypes_pointer.value == address, "this is about memory that is used again"
    after.copy_to_device(twos, stream=second)
    cuda.synchronize()
    assert (after.copy_to_host() == 2).all(), f"turn {turn}: the copy before came after"
    del after
"""


@pytest.mark.parametrize("seed", range(1, 4))
def test_memory_used_again_on_another_stream_comes_after(on_stand_in, seed):
    """Without the byte that is written first, some fifteen of the fifty go wrong."""
    on_stand_in(REUSED, MILLPOND_SIM=f"order=adversarial,seed={seed}")
