"""A picture of what replays showed, which notebooks show by themselves."""

from __future__ import annotations

import html
from collections.abc import Iterator
from os import PathLike
from typing import TYPE_CHECKING, Any

from .errors import unwritable

if TYPE_CHECKING:
    from .table import Table

WIDTH = 760
LEFT, RIGHT = 150, 90
BAR, GAP = 18, 8
PLOT_HEIGHT = 220
POINTS = 600
"""More than there are pixels would not be seen."""
LIVE, RESERVED, INK, FAINT = "#b9c4ce", "#2a6f97", "#22303c", "#d8dee4"
COLOURS = ["#2a6f97", "#c8553d", "#588157", "#8e5a9e", "#c9a227", "#3c6e71", "#a44a3f", "#5f6caf", "#7f7f7f", "#1b998b"]


class Chart:
    """A picture as SVG."""

    svg: str

    def __init__(self, svg: str) -> None:
        self.svg = svg

    def save(self, path: str | PathLike[str]) -> None:
        """Writes it into a file."""
        try:
            with open(path, "w", encoding="utf-8") as file:
                file.write(self.svg)
        except (OSError, ValueError) as error:
            raise unwritable(path, error) from error

    def _repr_svg_(self) -> str:
        return self.svg


def plot(table: Table) -> Chart:
    """A chart of what `replay` gave: what was live and reserved over the events if `timeline` was asked for, else a bar for each allocator.

    Pinned and managed memory is not the device's, and not in it.
    """
    on_device = [row for row in table if row["peak_reserved_bytes"] is not None]
    traces = list(dict.fromkeys(row["trace"] for row in on_device))
    parts: list[str] = []
    top = 0
    for trace in traces:
        rows = [row for row in on_device if row["trace"] == trace]
        with_time = [row for row in rows if (trace, row["allocator"]) in table.timelines]
        drawn, height = _lines(table, trace, with_time, top) if with_time else _bars(trace, rows, top)
        parts += drawn
        top += height
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {max(top, 1)}" width="{WIDTH}" height="{max(top, 1)}" '
            f'font-family="system-ui, sans-serif" font-size="12" fill="{INK}" role="img">')
    return Chart("\n".join([head, f'<rect width="{WIDTH}" height="{max(top, 1)}" fill="white"/>', *parts, "</svg>"]))


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}"{more}>{html.escape(text)}</text>'


def _mib(nbytes: float) -> str:
    return f"{nbytes / 2**20:,.0f} MiB"


def _bars(trace: str, rows: list[dict[str, Any]], top: int) -> tuple[list[str], int]:
    """A bar for what each allocator reserved, over a mark for what was live."""
    live = rows[0]["peak_live_bytes"]
    most = max(live, *(row["peak_reserved_bytes"] for row in rows), 1)
    # Names of stacks can be long.
    left = min(max(LEFT, 7 * max(len(row["allocator"]) for row in rows) + 16), WIDTH // 2)
    scale = (WIDTH - left - RIGHT) / most
    parts = [_text(left, top + 20, f"{trace}: reserved at the most; {_mib(live)} were live", ' font-weight="600"')]
    y = top + 34
    for row in sorted(rows, key=lambda row: (row["oom"] is not None, row["peak_reserved_bytes"])):
        width = row["peak_reserved_bytes"] * scale
        figure = "out of memory" if row["oom"] else _mib(row["peak_reserved_bytes"])
        title = html.escape(f"{row['allocator']}: {row['peak_reserved_bytes']} bytes. {row['oom'] or ''}")
        parts += [
            _text(left - 8, y + 13, row["allocator"], ' text-anchor="end"'),
            f'<rect x="{left}" y="{y}" width="{width:.1f}" height="{BAR}" rx="2" fill="{FAINT if row["oom"] else RESERVED}">'
            f"<title>{title}</title></rect>",
            _text(left + width + 6, y + 13, figure),
        ]
        y += BAR + GAP
    x = left + live * scale
    parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top + 30}" y2="{y - GAP + 4}" stroke="{INK}" stroke-dasharray="3 3"/>')
    return parts, y + 10 - top


def _lines(table: Table, trace: str, rows: list[dict[str, Any]], top: int) -> tuple[list[str], int]:
    """What was reserved over the events, a line for each allocator, over what was live."""
    timelines = [table.timelines[trace, row["allocator"]] for row in rows]
    most = max(max(timeline["reserved_bytes"], default=0) for timeline in timelines)
    most = max(most, rows[0]["peak_live_bytes"], 1)
    longest = max(len(timeline["live_bytes"]) * timeline["width_events"] for timeline in timelines)
    floor = top + 34 + PLOT_HEIGHT

    def points(numbers: list[int], width_events: int) -> Iterator[str]:
        step = -(-len(numbers) // POINTS)
        for start in range(0, len(numbers), step):
            x = LEFT + start * width_events / longest * (WIDTH - LEFT - RIGHT)
            yield f"{x:.1f},{floor - max(numbers[start:start + step]) / most * PLOT_HEIGHT:.1f}"

    parts = [_text(LEFT, top + 20, f"{trace}: reserved over {longest:,} events; shaded: live", ' font-weight="600"')]
    for share in (0, 0.5, 1):
        y = floor - share * PLOT_HEIGHT
        parts += [f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}" stroke="{FAINT}"/>',
                  _text(LEFT - 8, y + 4, _mib(share * most), ' text-anchor="end"')]
    whole = max(timelines, key=lambda timeline: len(timeline["live_bytes"]) * timeline["width_events"])
    live = list(points(whole["live_bytes"], whole["width_events"]))
    end = live[-1].split(",")[0]
    parts.append(f'<polygon points="{LEFT},{floor} {" ".join(live)} {end},{floor}" fill="{LIVE}"/>')
    y = floor + 20
    for number, (row, timeline) in enumerate(zip(rows, timelines, strict=True)):
        colour = COLOURS[number % len(COLOURS)]
        line = " ".join(points(timeline["reserved_bytes"], timeline["width_events"]))
        parts += [f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5"/>',
                  f'<rect x="{LEFT}" y="{y - 9}" width="14" height="4" fill="{colour}"/>',
                  _text(LEFT + 20, y - 3, f"{row['allocator']}, at most {_mib(row['peak_reserved_bytes'])}"
                        + (", out of memory" if row["oom"] else ""))]
        y += 16
    return parts, y + 10 - top
