"""CuPy's arrays from a pool.

    import millpond.cupy
    millpond.cupy.enable()

A block belongs to the stream that is current when it is allocated, and is given back at that point of that stream, as with CuPy's own pool: work on
other streams has to be ordered before by whoever queues it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from . import _millpond


class Allocator:
    """What `cupy.cuda.PythonFunctionAllocator` calls for device memory."""

    def __init__(
        self,
        current_stream: Callable[[], object],
        stack: str = "pool",
        device: str = "cuda:{}",
        settings: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        """Blocks of a stack on each device that is asked for, whose name is `device` with the number in it."""
        self._current_stream = current_stream
        self._stack, self._device, self._settings = stack, device, settings
        self._pools: dict[int, _millpond.Pool] = {}
        # What is held keeps its stream alive.
        self._held: dict[tuple[int, int], tuple[int, object]] = {}

    def pool(self, device: int = 0) -> _millpond.Pool:
        """The pool of a device, for its statistics and settings; opened when it is first asked for."""
        if device not in self._pools:
            # Of two threads that ask at once, one has it.
            self._pools.setdefault(device, _millpond.Pool(self._device.format(device), self._stack, **self._settings))
        return self._pools[device]

    def malloc(self, size: int, device: int) -> int:
        """A block on the current stream."""
        stream = self._current_stream()
        ptr = self.pool(device).allocate_raw(size, stream)
        self._held[device, ptr] = size, stream
        return ptr

    def free(self, ptr: int, device: int) -> None:
        """Gives it back on the stream that it was allocated on. Null does nothing."""
        if ptr:
            size, stream = self._held.pop((device, ptr), (None, None))
            self.pool(device).free_raw(ptr, size, stream)


def enable(stack: str = "pool", **settings: object) -> Allocator:
    """Gives CuPy's device memory to a stack, such as `pool` or `limit:4GiB/pool`, from now on."""
    import cupy

    allocator = Allocator(cupy.cuda.get_current_stream, stack, settings=settings)
    cupy.cuda.set_allocator(cupy.cuda.PythonFunctionAllocator(allocator.malloc, allocator.free).malloc)
    return allocator
