"""Traces: what is in them, and what is none."""

import os
import threading

import pandas
import pytest

import millpond


def test_a_snapshot_is_read(snapshot):
    trace = millpond.load_trace(snapshot)
    assert (trace.name, len(trace), trace.devices) == ("gpt_tiny", 2534, [0])
    summary = trace.summary()
    assert summary == trace.summary(0)
    assert summary["events"] == 2534 and summary["recorded_peak_reserved_bytes"] >> 20 == 2688


def test_events_come_one_by_one_or_by_columns(snapshot):
    trace = millpond.load_trace(str(snapshot))
    events = list(trace)
    assert len(events) == 2534
    live = peak = 0
    held = {}
    for event in events:
        if event.kind == "alloc":
            held[event.addr] = event.nbytes
            live += event.nbytes
        elif event.kind == "free_completed":
            live -= held.pop(event.addr, 0)
        peak = max(peak, live)
    assert peak == trace.summary()["peak_live_bytes"]
    frame = pandas.DataFrame(trace.columns())
    assert list(frame.columns) == ["kind", "time_us", "addr", "nbytes", "stream"]
    assert [tuple(row) for row in frame.itertuples(index=False)] == [tuple(event) for event in events]
    with pytest.raises(millpond.Error):
        trace.summary(-1)
    with pytest.raises(KeyError, match="^nothing was recorded of device 3"):
        trace.columns(3)


def test_what_is_no_trace_is_named(tmp_path):
    with pytest.raises(millpond.FileError, match="no/such.pickle"):
        millpond.load_trace("no/such.pickle")
    path = tmp_path / "text.pickle"
    path.write_text("not a trace")
    with pytest.raises(OSError, match="text.pickle: "):
        millpond.load_trace(path)
    with pytest.raises(millpond.FileError):
        millpond.replay([path], "pool")


def test_other_threads_go_on_while_a_trace_is_read(snapshot, tmp_path):
    """The bytes come from another thread of Python, through a pipe: if that could not run, this would never end."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(snapshot.read_bytes()))
    writer.start()
    assert len(millpond.load_trace(pipe)) == 2534
    writer.join()
