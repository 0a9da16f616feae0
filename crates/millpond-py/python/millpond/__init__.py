"""Device memory at the speed of malloc: pools, every other allocator, and replays of recorded jobs, with or without a GPU.

    import millpond

    pool = millpond.Pool("sim:a100-80g")          # or "cuda:0"
    with pool.allocate(1 << 20) as block:
        block.copy_from(b"hello")
        print(block.tobytes(nbytes=5), pool.stats()["current_usage"])

    print(millpond.replay("snapshot.pickle", ["pool", "torch"]))

What plugs into others is imported when it is wanted: `millpond.torch`, `millpond.numba`, `millpond.cupy`.
"""

from ._millpond import Block, Pool, Stream, __version__, open
from .chart import Chart, plot
from .errors import (
    BadFree,
    Closed,
    DriverError,
    Error,
    FileError,
    Forked,
    InvalidArgument,
    NotSupported,
    OutOfMemory,
    OutOfRange,
    TorchError,
    UnknownDevice,
    WouldWait,
)
from .table import Table, replay
from .trace import Event, Trace, load_trace

__all__ = [
    "BadFree",
    "Block",
    "Chart",
    "Closed",
    "DriverError",
    "Error",
    "Event",
    "FileError",
    "Forked",
    "InvalidArgument",
    "NotSupported",
    "OutOfMemory",
    "OutOfRange",
    "Pool",
    "Stream",
    "Table",
    "TorchError",
    "Trace",
    "UnknownDevice",
    "WouldWait",
    "__version__",
    "load_trace",
    "open",
    "plot",
    "replay",
]
