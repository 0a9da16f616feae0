"""What can go wrong. Each says in one line what is wrong and what to do about it."""

from __future__ import annotations

from os import PathLike


class Error(Exception):
    """Something that Millpond refused, or that was refused to it. A call that fails has changed nothing."""


class InvalidArgument(Error, ValueError):
    """A name or a setting makes no sense."""


class OutOfRange(InvalidArgument, OverflowError):
    """A number is negative, or larger than any that could be meant."""


class UnknownDevice(InvalidArgument, KeyError):
    """Nothing was recorded of such a device."""

    # A key is shown as Python writes it; this is a sentence.
    __str__ = Exception.__str__


class OutOfMemory(Error, MemoryError):
    """Memory is out, or a limit is reached."""


class BadFree(Error, ValueError):
    """The address is not of this pool, inside a block, free already, or of another size."""


class WouldWait(Error):
    """The request must not wait, and cannot be served at once."""


class Forked(Error):
    """The process is a forked child of the one that opened the pool."""


class NotSupported(Error, NotImplementedError):
    """What this stack stands on cannot do that."""


class DriverError(Error, RuntimeError):
    """The device's driver refused, or there is no such device."""


class TorchError(Error, RuntimeError):
    """What PyTorch's pools refused, or what was asked of them too early or too late."""


class FileError(Error, OSError):
    """A file could not be read or written, or is no trace."""


class Closed(Error, ValueError):
    """The pool has been closed."""


def unwritable(path: str | PathLike[str], error: OSError | ValueError) -> FileError:
    """What is raised for a file that could not be written. Its name is shown as Python writes it, so that all is one line."""
    reason = error.strerror if isinstance(error, OSError) else error
    return FileError(f"cannot write {str(path)!r}: {reason}; name a file in a directory that is there and may be written")
