"""What was recorded of a program."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator
from os import PathLike
from typing import NamedTuple

from . import _millpond


class Event(NamedTuple):
    """One thing that happened on a device."""

    kind: str
    """As PyTorch names it: `alloc`, `free_completed`, `segment_alloc`, …"""
    time_us: int
    """When, in microseconds of the recorder's clock; 0 where it kept none."""
    addr: int
    """The block's or segment's address."""
    nbytes: int
    """For blocks what was asked for, before any rounding."""
    stream: int
    """The stream's handle, as recorded."""


class Trace(_millpond.Trace):
    """A recorded sequence of allocations and frees: a PyTorch memory snapshot, RMM's log, or Millpond's own file."""

    def columns(self, device: int | None = None) -> dict[str, list[str] | array[int]]:
        """What happened on the device, or on one of several, by columns: what `pandas.DataFrame` takes."""
        columns: dict[str, list[str] | array[int]] = {"kind": self._kinds(device)}
        for name, numbers in self._numbers(device).items():
            column = array("Q")
            column.frombytes(numbers)
            if sys.byteorder == "big":
                column.byteswap()
            columns[name] = column
        return columns

    def events(self, device: int | None = None) -> Iterator[Event]:
        """What happened on the device, or on one of several, one thing after another."""
        return map(Event._make, zip(*self.columns(device).values(), strict=True))

    def __iter__(self) -> Iterator[Event]:
        """The events of all devices, device by device."""
        for device in self.devices:
            yield from self.events(device)


def load_trace(path: str | PathLike[str]) -> Trace:
    """Reads a PyTorch memory snapshot, RMM's log (CSV) or Millpond's own file, plain or compressed."""
    return Trace(path)
