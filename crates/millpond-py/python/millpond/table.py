"""What was recorded, done again by other allocators."""

from __future__ import annotations

import html
from collections.abc import Iterable
from os import PathLike
from typing import TYPE_CHECKING, Any, SupportsIndex, TypedDict, overload

from . import _millpond
from .chart import Chart, plot

if TYPE_CHECKING:
    import pandas

    TraceLike = str | PathLike[str] | _millpond.Trace


class Timeline(TypedDict):
    """What was live and reserved at the most, over the events of one replay."""

    width_events: int
    """How many events each number stands for."""
    live_bytes: list[int]
    reserved_bytes: list[int]


class Table(list[dict[str, Any]]):
    """One row for each trace and allocator, as a dict: `pandas.DataFrame(table)` works, and nobody needs pandas."""

    timelines: dict[tuple[str, str], Timeline]
    """What was live and reserved over the events, by trace and allocator, if that was asked for."""

    def __init__(self, rows: Iterable[dict[str, Any]] = ()) -> None:
        super().__init__(rows)
        self.timelines = {}
        for row in self:
            timeline = row.pop("timeline", None)
            if timeline is not None:
                self.timelines[row["trace"], row["allocator"]] = timeline

    def _with(self, rows: Iterable[dict[str, Any]]) -> Table:
        """Other rows, with the timelines of those that are among them."""
        table = Table(rows)
        names = {(row.get("trace"), row.get("allocator")) for row in table}
        table.timelines = {of: timeline for of, timeline in self.timelines.items() if of in names}
        return table

    @overload
    def __getitem__(self, which: SupportsIndex) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, which: slice) -> Table: ...

    def __getitem__(self, which: SupportsIndex | slice) -> dict[str, Any] | Table:
        """A row, or a table of some of them."""
        return self._with(super().__getitem__(which)) if isinstance(which, slice) else super().__getitem__(which)

    def __add__(self, others: list[Any]) -> Table:  # type: ignore[override]
        """The rows of both."""
        table = self._with([*self, *others])
        if isinstance(others, Table):
            table.timelines = {**others.timelines, **table.timelines}
        return table

    def copy(self) -> Table:
        """The same rows once more."""
        return self._with(self)

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self[0]) if self else []

    def to_pandas(self) -> pandas.DataFrame:
        """The same as pandas has it."""
        import pandas

        return pandas.DataFrame(list(self), columns=self.columns)

    def plot(self) -> Chart:
        """The same as a picture."""
        return plot(self)

    def __str__(self) -> str:
        cells = [SHOWN, *([_shown(row, name) for name in SHOWN] for row in self)]
        widths = [max(len(row[column]) for row in cells) for column in range(len(SHOWN))]

        def line(row: list[str]) -> str:
            padded = [cell.ljust(width) if number < 2 else cell.rjust(width)
                      for number, (cell, width) in enumerate(zip(row, widths, strict=True))]
            return "  ".join(padded).rstrip()

        return "\n".join(map(line, cells))

    def _repr_html_(self) -> str:
        """As notebooks show it."""
        def row_of(cells: list[str], tag: str) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

        rows = [row_of(SHOWN, "th"), *(row_of([_shown(row, name) for name in SHOWN], "td") for row in self)]
        return f"<table>{''.join(rows)}</table>"


SHOWN = ["trace", "allocator", "peak_reserved_bytes", "ratio", "mean_ratio", "min_capacity_bytes",
         "ns_per_op", "driver_calls", "page_moves", "oom"]
"""The columns that people are shown; a row has more."""


def _shown(row: dict[str, Any], name: str) -> str:
    match row.get(name):
        case None:
            return "–"
        case float(number):
            return f"{number:.3f}" if name.endswith("ratio") else f"{number:.1f}"
        case value:
            return str(value)


def replay(
    traces: TraceLike | Iterable[TraceLike],
    allocators: str | Iterable[str] | None = None,
    capacity: int | str | None = None,
    device: str | None = None,
    lag: int = 2000,
    *,
    fit: bool = False,
    timeline: bool = False,
) -> Table:
    """Replays each trace with each allocator: what it would have reserved, and where it would have died.

    `traces` are paths, or what `load_trace` gave. `allocators` are stacks such as `pool:slack=0.05`; none means all that can be compared.
    `capacity` is the device's memory, in bytes or as `4GiB`; `device` is `sim:PROFILE` or `cuda:N`; a simulated one runs `lag` events behind
    the host. With `fit`, `min_capacity_bytes` is the smallest device on which it runs to the end, which takes some ten replays each. With
    `timeline`, what was live and reserved over the events is kept for `plot`.

    Other threads go on meanwhile, and Ctrl-C ends it after the replay that is under way.
    """
    if isinstance(traces, (str, PathLike, _millpond.Trace)):
        traces = [traces]
    if isinstance(allocators, str):
        allocators = [allocators]
    chosen = None if allocators is None else list(allocators)
    return Table(_millpond._replay(list(traces), chosen, capacity, device, lag, fit, timeline))
