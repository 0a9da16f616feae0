"""Device memory at the speed of malloc: pools, every other allocator, and replays of recorded jobs, with or without a GPU.

    import millpond

    pool = millpond.Pool("sim:a100-80g")          # or "cuda:0"
    with pool.allocate(1 << 20) as block:
        block.copy_from(b"hello")
        print(block.tobytes(nbytes=5), pool.stats()["current_usage"])

    print(millpond.replay("snapshot.pickle", ["pool", "torch"]))

What plugs into others is imported when it is wanted: `millpond.torch`, `millpond.numba`, `millpond.cupy`.
"""

import os as _os
from typing import TYPE_CHECKING, Any

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

try:
    from ._millpond import Block, Pool, Stream, __version__, open
    from .chart import Chart, plot
    from .table import Table, replay
    from .trace import Event, Trace, load_trace
except ModuleNotFoundError as _error:
    if _error.name != f"{__name__}._millpond":
        raise
    # In the sources the extension is missing. Whoever names a library has all that `millpond.torch` needs.
    if not _os.environ.get("MILLPOND_LIBRARY"):
        raise ImportError(
            "millpond has no extension here: pip install crates/millpond-py builds it; for millpond.torch alone set MILLPOND_LIBRARY to "
            "libmillpond.so of cargo xtask dist"
        ) from _error

    # Type checkers would believe that there is every name.
    if not TYPE_CHECKING:

        def __getattr__(name: str) -> Any:
            if name in __all__:
                raise AttributeError(f"millpond.{name} needs the extension: pip install crates/millpond-py; without it there is millpond.torch")
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

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
