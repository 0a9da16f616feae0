"""PyTorch on Millpond: every tensor on a GPU comes from a pool of Millpond's.

    import millpond.torch
    millpond.torch.enable()

before CUDA is used. Each device has a pool of its own, with the settings of ``MILLPOND_CONF``. See docs/pytorch.md.

PyTorch cannot say how much memory an allocator that it does not know has: its functions for that raise. Here are functions of the
same names that answer, and ``enable()`` puts them in the place of PyTorch's.
"""

from __future__ import annotations

import csv
import ctypes
import os
import pickle
import tempfile
from typing import Any, Optional, Union

import torch as _torch

from millpond.errors import InvalidArgument, TorchError, unwritable

__all__ = [
    "configure",
    "dump_snapshot",
    "empty_cache",
    "enable",
    "is_enabled",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_summary",
    "pool",
    "record_memory_history",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "snapshot",
    "start_trace",
    "stop_trace",
]

Device = Union[int, str, "_torch.device", None]

_STATS = (
    "total_allocated total_freed current_usage peak_usage fragmentation_bytes allocation_count free_count cache_hits "
    "cache_misses global_hits reserve_hits reuse_hits device_allocations reserved_bytes captured_bytes pages_created "
    "pages_released page_moves cross_stream_waits late_double_frees driver_calls"
).split()
_USAGE = "live_bytes live_blocks reserved_bytes peak_live_bytes peak_reserved_bytes largest_free_bytes".split()


class _Stats(ctypes.Structure):
    """``millpond_stats`` of millpond.h."""

    _fields_ = [("struct_bytes", ctypes.c_size_t)] + [(name, ctypes.c_uint64) for name in _STATS]


class _Usage(ctypes.Structure):
    """``millpond_usage`` of millpond.h."""

    _fields_ = [("struct_bytes", ctypes.c_size_t)] + [(name, ctypes.c_size_t) for name in _USAGE]


# What PyTorch is told of besides malloc and free: the name of its setter, and of our function.
_HOOKS = {
    "set_init_fn": "millpond_torch_init",
    "set_reset_fn": "millpond_torch_reset",
    "set_memory_fraction_fn": "millpond_torch_memory_fraction",
    "set_base_alloc_fn": "millpond_torch_base_alloc",
    "set_record_stream_fn": "millpond_torch_record_stream",
    "set_begin_allocate_to_pool": "millpond_torch_begin_allocate_to_pool",
    "set_end_allocate_to_pool_fn": "millpond_torch_end_allocate_to_pool",
    "set_release_pool": "millpond_torch_release_pool",
}

_library: Optional[ctypes.CDLL] = None
_allocator: Optional[_torch.cuda.memory.CUDAPluggableAllocator] = None


def _path() -> str:
    """The library: ``MILLPOND_LIBRARY``, or the package's own extension, which has the same functions."""
    named = os.environ.get("MILLPOND_LIBRARY")
    if named:
        return named
    from millpond import _millpond

    return _millpond.__file__


def _millpond_library() -> ctypes.CDLL:
    global _library
    if _library is None:
        library = ctypes.CDLL(_path())
        pointer, size = ctypes.c_void_p, ctypes.c_size_t
        library.millpond_last_error.restype = ctypes.c_char_p
        for name, arguments in {
            "millpond_torch_pool": [ctypes.c_int, ctypes.POINTER(pointer)],
            "millpond_torch_has_pool": [ctypes.c_int],
            "millpond_torch_peak_bytes": [ctypes.c_int, ctypes.POINTER(size)],
            "millpond_torch_reset_peak": [ctypes.c_int],
            "millpond_get_stats": [pointer, ctypes.POINTER(_Stats)],
            "millpond_get_usage": [pointer, ctypes.POINTER(_Usage)],
            "millpond_reset_stats": [pointer],
            "millpond_stats_text": [pointer, ctypes.c_char_p, size, ctypes.POINTER(size)],
            "millpond_configure": [pointer, ctypes.c_char_p],
            "millpond_snapshot": [pointer, ctypes.c_char_p],
            "millpond_trace_start": [pointer, ctypes.c_char_p],
            "millpond_trace_stop": [pointer],
        }.items():
            getattr(library, name).argtypes = arguments
        _library = library
    return _library


def _call(name: str, *arguments: Any) -> None:
    library = _millpond_library()
    if getattr(library, name)(*arguments) != 0:
        raise TorchError(f"Millpond: {library.millpond_last_error().decode()}")


def enable(torch_statistics: bool = True) -> None:
    """Makes PyTorch allocate from Millpond, from its first tensor on a GPU to its last. Twice is as good as once.

    With ``torch_statistics`` the functions of ``torch.cuda`` that say how much memory is used, which raise with any allocator that is
    not PyTorch's own, are those of this module from now on.

    Raises RuntimeError if CUDA has been used already: PyTorch's own allocator has memory then.
    """
    global _allocator
    if _allocator is not None:
        return
    too_late = (
        "millpond.torch.enable() comes too late, CUDA has been used already: call it right after the imports, before the first tensor "
        "on a GPU and before torch.cuda is asked for anything"
    )
    if _torch.cuda.is_initialized():
        raise TorchError(too_late)
    library = _millpond_library()
    plugged = _torch.cuda.memory.CUDAPluggableAllocator(_path(), "millpond_torch_malloc", "millpond_torch_free")
    for setter, function in _HOOKS.items():
        address = ctypes.cast(getattr(library, function), ctypes.c_void_p).value
        getattr(plugged.allocator(), setter)(address)
    try:
        _torch.cuda.memory.change_current_allocator(plugged)
    except RuntimeError as error:
        raise TorchError(too_late) from error
    _allocator = plugged
    if torch_statistics:
        _answer_for_torch()


def is_enabled() -> bool:
    """Whether PyTorch allocates from Millpond."""
    return _allocator is not None


def _answer_for_torch() -> None:
    """Puts this module's functions in the place of those of PyTorch's that would raise."""
    for name in (
        "max_memory_allocated",
        "max_memory_reserved",
        "memory_allocated",
        "memory_reserved",
        "memory_snapshot",
        "memory_stats",
        "memory_summary",
        "reset_accumulated_memory_stats",
        "reset_peak_memory_stats",
    ):
        for module in (_torch.cuda, _torch.cuda.memory):
            setattr(module, name, globals()[name])
    _torch.cuda.memory._snapshot = lambda *_arguments, **_named: snapshot()
    _torch.cuda.memory._dump_snapshot = dump_snapshot
    _torch.cuda.memory._record_memory_history = record_memory_history


def _index(device: Device) -> int:
    if isinstance(device, int):
        return device
    named: Any = _torch.device("cuda" if device is None else device)
    if named.type != "cuda":
        raise InvalidArgument(f"{named} is no GPU: give a number, 'cuda:1', or nothing for the current one")
    return int(_torch.cuda.current_device() if named.index is None else named.index)


def _check_enabled() -> None:
    if _allocator is None:
        raise TorchError("PyTorch does not allocate from Millpond: call millpond.torch.enable() first")


def pool(device: Device = None) -> ctypes.c_void_p:
    """The ``millpond_pool *`` of a device, for the functions of millpond.h."""
    _check_enabled()
    handle = ctypes.c_void_p()
    _call("millpond_torch_pool", _index(device), ctypes.byref(handle))
    return handle


def _stats(device: Device) -> _Stats:
    stats = _Stats(struct_bytes=ctypes.sizeof(_Stats))
    # PyTorch's functions answer without making a context, too.
    if _torch.cuda.is_initialized():
        _call("millpond_get_stats", pool(device), ctypes.byref(stats))
    return stats


def _usage(device: Device) -> _Usage:
    usage = _Usage(struct_bytes=ctypes.sizeof(_Usage))
    if _torch.cuda.is_initialized():
        _call("millpond_get_usage", pool(device), ctypes.byref(usage))
    return usage


def memory_allocated(device: Device = None) -> int:
    """Bytes that tensors hold, as they were asked for: PyTorch's own allocator counts them rounded to 512."""
    return int(_usage(device).live_bytes)


def max_memory_allocated(device: Device = None) -> int:
    """The most that tensors held since ``reset_peak_memory_stats()``."""
    peak = ctypes.c_size_t()
    if _torch.cuda.is_initialized():
        _check_enabled()
        _call("millpond_torch_peak_bytes", _index(device), ctypes.byref(peak))
    return peak.value


def memory_reserved(device: Device = None) -> int:
    """Bytes taken from the device."""
    return int(_usage(device).reserved_bytes)


def max_memory_reserved(device: Device = None) -> int:
    """The most that was taken from the device, since the beginning."""
    return int(_usage(device).peak_reserved_bytes)


def memory_stats(device: Device = None) -> dict[str, Any]:
    """What PyTorch's function of this name says, as far as Millpond knows it, and under ``millpond.…`` all that Millpond knows."""
    stats, usage = _stats(device), _usage(device)
    in_use = {
        "current": usage.live_bytes,
        "peak": max_memory_allocated(device),
        "allocated": stats.total_allocated,
        "freed": stats.total_freed,
    }
    answer: dict[str, Any] = {}
    for kind in ("allocated_bytes", "active_bytes", "requested_bytes"):
        answer.update({f"{kind}.all.{name}": value for name, value in in_use.items()})
    answer["allocation.all.current"] = usage.live_blocks
    answer["allocation.all.allocated"] = stats.allocation_count
    answer["allocation.all.freed"] = stats.free_count
    answer["reserved_bytes.all.current"] = usage.reserved_bytes
    answer["reserved_bytes.all.peak"] = usage.peak_reserved_bytes
    answer.update({f"millpond.{name}": getattr(stats, name) for name in _STATS})
    answer["millpond.largest_free_bytes"] = usage.largest_free_bytes
    return answer


def memory_summary(device: Device = None, abbreviated: bool = False) -> str:
    """The pool's statistics as text. ``abbreviated`` is taken because PyTorch's function has it; there is one form."""
    handle, needed = pool(device), ctypes.c_size_t()
    _call("millpond_stats_text", handle, None, 0, ctypes.byref(needed))
    # Numbers grow while others allocate.
    buffer = ctypes.create_string_buffer(needed.value + 256)
    _call("millpond_stats_text", handle, buffer, len(buffer), None)
    return f"Millpond on cuda:{_index(device)}\n{buffer.value.decode()}"


def reset_peak_memory_stats(device: Device = None) -> None:
    """Forgets ``max_memory_allocated()``; what was reserved at the most stays."""
    if _torch.cuda.is_initialized():
        _check_enabled()
        _call("millpond_torch_reset_peak", _index(device))


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """Counts allocations, frees and all else of ``memory_stats()`` anew from here."""
    if _torch.cuda.is_initialized():
        _call("millpond_reset_stats", pool(device))


def empty_cache() -> None:
    """Gives everything back that no tensor holds: ``torch.cuda.empty_cache()``."""
    _torch.cuda.empty_cache()


def configure(settings: str, device: Device = None) -> None:
    """Changes settings of a device's pool while it runs, in the style of ``MILLPOND_CONF``: ``"slack:0.05,defrag_interval_ms:1000"``."""
    _call("millpond_configure", pool(device), settings.encode(errors="surrogatepass"))


class _History:
    """What was allocated and freed on one device since it is being recorded."""

    def __init__(self, device: int) -> None:
        self.device = device
        self.entries: list[dict[str, Any]] = []
        self._directory = tempfile.TemporaryDirectory(prefix="millpond-")
        self._path = os.path.join(self._directory.name, "trace.csv")
        start_trace(self._path, device)

    def stop(self) -> None:
        """Ends the recording, for good or for another one."""
        stop_trace(self.device)
        with open(self._path, newline="") as file:
            for row in csv.DictReader(file):
                self.entries += _entries(row)

    def so_far(self) -> list[dict[str, Any]]:
        """What happens in other threads between the two calls is not recorded."""
        self.stop()
        start_trace(self._path, self.device)
        return list(self.entries)


def _entries(row: dict[str, str]) -> list[dict[str, Any]]:
    """A line of RMM's log as PyTorch would have recorded it: a free is requested, and completed at once."""
    actions = {"allocate": ["alloc"], "free": ["free_requested", "free_completed"], "allocate failure": ["oom"]}
    hours, minutes, seconds = row["Time"].split(":")
    # A pool that says that memory is out has taken what the device had.
    where = {"device_free": 0} if row["Action"] == "allocate failure" else {"addr": int(row["Pointer"], 16)}
    what = {
        **where,
        "size": int(row["Size"]),
        "stream": int(row["Stream"], 16),
        "time_us": round((int(hours) * 3600 + int(minutes) * 60 + float(seconds)) * 1e6),
        "frames": [],
    }
    return [{"action": action, **what} for action in actions[row["Action"]]]


_histories: dict[int, _History] = {}


def record_memory_history(enabled: Optional[str] = "all", *_arguments: Any, device: Device = None, **_named: Any) -> None:
    """Records allocations, frees and what failed from now on, for ``snapshot()``; ``None`` ends it. Of one device, or if none is named of
    those that are in use and the current one.

    Other arguments of PyTorch's function are taken and have no effect: stacks are not recorded. What a graph allocates while it is
    captured is not recorded either.
    """
    has_pool = _millpond_library().millpond_torch_has_pool
    named = [_index(device)]
    if device is None:
        named += [number for number in range(_torch.cuda.device_count()) if has_pool(number) or number in _histories]
    for number in sorted(set(named)):
        history = _histories.pop(number, None)
        if history is not None:
            history.stop()
        if enabled:
            _histories[number] = _History(number)


def snapshot() -> dict[str, Any]:
    """What stands in the memory of all devices now, and what was recorded, in the form of PyTorch's memory snapshots."""
    library, whole = _millpond_library(), {}
    traces: list[list[dict[str, Any]]] = [[] for _ in range(_torch.cuda.device_count())]
    segments: list[dict[str, Any]] = []
    for number, trace in enumerate(traces):
        # To ask for a pool is to make one, and a context with it.
        if not library.millpond_torch_has_pool(number):
            continue
        with tempfile.TemporaryDirectory(prefix="millpond-") as directory:
            path = os.path.join(directory, "snapshot.pickle")
            _call("millpond_snapshot", pool(number), os.fsencode(path))
            with open(path, "rb") as file:
                whole = pickle.load(file)
        for segment in whole["segments"]:
            segment["device"] = number
        segments += whole["segments"]
        if number in _histories:
            trace += _histories[number].so_far()
    return {**whole, "segments": segments, "device_traces": traces}


def memory_snapshot(*_arguments: Any, **_named: Any) -> list[dict[str, Any]]:
    """The segments of ``snapshot()``: what stands in the memory of all devices now. Arguments of PyTorch's function are taken and have no
    effect: they name pools of PyTorch's own allocator."""
    segments: list[dict[str, Any]] = snapshot()["segments"]
    return segments


def dump_snapshot(filename: str = "dump_snapshot.pickle", *_arguments: Any, **_named: Any) -> None:
    """Writes ``snapshot()`` to a file: for pytorch.org/memory_viz, and after ``record_memory_history()`` for ``millpond replay``."""
    taken = snapshot()
    try:
        with open(filename, "wb") as file:
            # The newest that the viewer reads.
            pickle.dump(taken, file, protocol=4)
    except (OSError, ValueError) as error:
        raise unwritable(filename, error) from error


def start_trace(path: str, device: Device = None) -> None:
    """Writes every allocation and free of a device into a file from now on: ``millpond replay`` reads it. What a graph allocates while
    it is captured is not in it."""
    try:
        encoded = os.fsencode(path)
    except UnicodeError as error:
        raise InvalidArgument(f"{str(path)!r} has what is no character, such as half of a pair of surrogates: leave it out") from error
    _call("millpond_trace_start", pool(device), encoded)


def stop_trace(device: Device = None) -> None:
    """Ends the trace. Everything is in the file then."""
    _call("millpond_trace_stop", pool(device))
