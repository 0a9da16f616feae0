"""The picture."""

from xml.etree import ElementTree

import pytest

import millpond

SVG = "{http://www.w3.org/2000/svg}"


def drawn(chart):
    return ElementTree.fromstring(chart._repr_svg_())


def test_a_bar_for_each_allocator(snapshot, tmp_path):
    table = millpond.replay(snapshot, ["pool", "torch", "direct"])
    svg = drawn(millpond.plot(table))
    bars = [rect for rect in svg.iter(f"{SVG}rect") if rect.find(f"{SVG}title") is not None]
    assert len(bars) == 3
    widths = {bar.find(f"{SVG}title").text.split(":")[0]: float(bar.get("width")) for bar in bars}
    reserved = {row["allocator"]: row["peak_reserved_bytes"] for row in table}
    for name, width in widths.items():
        assert abs(width / widths["torch"] - reserved[name] / reserved["torch"]) < 0.01
    table.plot().save(tmp_path / "chart.svg")
    assert (tmp_path / "chart.svg").read_text(encoding="utf-8") == table.plot().svg


def test_lines_over_the_events(snapshot):
    table = millpond.replay(snapshot, ["pool", "torch"], timeline=True)
    assert set(table.timelines) == {("gpt_tiny", "pool"), ("gpt_tiny", "torch")} and "timeline" not in table[0]
    for row in table:
        timeline = table.timelines[row["trace"], row["allocator"]]
        assert max(timeline["reserved_bytes"]) == row["peak_reserved_bytes"]
        assert max(timeline["live_bytes"]) == row["peak_live_bytes"]
    svg = drawn(table.plot())
    lines = [line.get("points").split() for line in svg.iter(f"{SVG}polyline")]
    assert len(lines) == 2
    # However it is thinned out, the highest point is the peak: torch's reaches the top.
    heights = [min(float(point.split(",")[1]) for point in line) for line in lines]
    assert heights[1] == 34 < heights[0]


def test_names_are_escaped_and_nothing_is_something(snapshot):
    table = millpond.replay(snapshot, "pool")
    table[0]["trace"] = "<a & b>"
    assert "&lt;a &amp; b&gt;" in millpond.plot(table).svg and drawn(millpond.plot(table)) is not None
    assert drawn(millpond.plot(millpond.Table())) is not None


@pytest.mark.parametrize("name", ["missing/x.svg", "", "a\nb/x.svg", "\ud800", "a\0b"])
def test_a_file_that_cannot_be_written_is_named(tmp_path, name):
    path = f"{tmp_path}/{name}"
    with pytest.raises(millpond.FileError, match="^cannot write '.*; name a file in a directory that is there and may be written$") as raised:
        millpond.Chart("<svg/>").save(path)
    assert isinstance(raised.value, OSError) and "\n" not in str(raised.value)


def test_an_allocator_that_ran_out_says_so(snapshot):
    table = millpond.replay(snapshot, ["torch", "pool"], capacity="2300MiB", timeline=True)
    assert [row["oom"] is None for row in table] == [False, True]
    assert "out of memory" in table.plot().svg
    table.timelines.clear()
    assert "out of memory" in table.plot().svg
