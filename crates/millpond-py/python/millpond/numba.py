"""Numba's device arrays from a pool.

    import millpond.numba
    millpond.numba.enable()                       # before anything touches the device

or, for a program that is not to be changed, `NUMBA_CUDA_MEMORY_MANAGER=millpond.numba`.

Numba allocates and frees without saying on which stream. So blocks are the default stream's, and each begins with a write of one byte there:
streams that wait for the default stream, as Numba's own do, then come after whatever had the memory before. A stream that was made elsewhere
not to wait for it has to be ordered by whoever uses it.
"""

from __future__ import annotations

from typing import Any

from numba import cuda
from numba.cuda import HostOnlyCUDAMemoryManager, MemoryInfo, MemoryPointer

from . import _millpond
from .errors import NotSupported

_stack = "pool"
_settings: dict[str, object] = {}
_pools: dict[int, _millpond.Pool] = {}


def pool(device: int = 0) -> _millpond.Pool:
    """The pool of a device, for its statistics and settings; opened when it is first asked for."""
    if device not in _pools:
        # Of two threads that ask at once, one has it.
        _pools.setdefault(device, _millpond.Pool(f"cuda:{device}", _stack, **_settings))
    return _pools[device]


class MemoryManager(HostOnlyCUDAMemoryManager):  # type: ignore[misc]
    """What Numba calls for device memory. Host memory is Numba's own."""

    @property
    def interface_version(self) -> int:
        return 1

    def initialize(self) -> None:
        pool(self.context.device.id)

    def memalloc(self, size: int) -> Any:
        blocks = pool(self.context.device.id)
        # Numba takes no null for an answer.
        nbytes = max(size, 1)
        ptr = blocks.allocate_raw(nbytes)
        blocks._touch_raw(ptr)
        return MemoryPointer(self.context, ptr, size, finalizer=lambda: blocks.free_raw(ptr, nbytes))

    def get_memory_info(self) -> Any:
        free, total = pool(self.context.device.id).memory_info()
        return MemoryInfo(free=free, total=total)

    def get_ipc_handle(self, memory: Any) -> Any:
        raise NotSupported("memory of a pool cannot be given to another process: use Numba's own memory manager for that")


_numba_memory_manager = MemoryManager


def enable(stack: str = "pool", **settings: object) -> None:
    """Gives Numba's device memory to a stack, such as `pool` or `limit:4GiB/pool`, before anything touches the device."""
    global _stack, _settings
    _stack, _settings = stack, settings
    cuda.set_memory_manager(MemoryManager)
