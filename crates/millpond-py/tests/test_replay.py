"""Replays: the table, and how it is ended early."""

import json
import os
import signal
import threading

import pandas
import pytest

import millpond


def test_a_row_for_each_trace_and_allocator(snapshot):
    table = millpond.replay([snapshot, millpond.load_trace(snapshot)], ["pool", "torch"])
    assert [row["allocator"] for row in table] == ["pool", "torch"] * 2
    pool, torch = table[:2]
    assert pool["trace"] == "gpt_tiny" and pool["events"] == 2534 and pool["oom"] is None
    # As PyTorch itself has reserved it.
    assert torch["peak_reserved_bytes"] == torch["recorded_peak_reserved_bytes"]
    assert 1 <= pool["ratio"] < torch["ratio"]
    assert pool["modelled_ms"] > 0 and pool["measured_ms"] is None
    for name in ["peak_live_bytes", "peak_reserved_bytes", "driver_calls"]:
        assert table[2][name] == pool[name]


def test_all_that_can_be_compared_unless_named(snapshot):
    names = [row["allocator"] for row in millpond.replay(snapshot)]
    assert "pool" in names and "torch" in names and "pinned" not in names and len(names) >= 10


def test_memory_of_the_host_reserves_nothing_of_the_device(snapshot):
    table = millpond.replay(snapshot, ["pinned", "pool"])
    assert [table[0][name] for name in ["peak_reserved_bytes", "ratio", "mean_ratio"]] == [None] * 3
    assert "pinned" not in table.plot().svg and ">pool</text>" in table.plot().svg


def test_pandas_takes_it_as_it_is(snapshot):
    table = millpond.replay(snapshot, ["pool", "direct"])
    frame = pandas.DataFrame(table)
    assert list(frame.columns) == table.columns and (frame == table.to_pandas()).equals(frame == frame)
    assert frame.set_index("allocator").loc["pool", "peak_live_bytes"] == table[0]["peak_live_bytes"]
    assert json.loads(json.dumps(table)) == table
    assert list(millpond.Table().to_pandas().columns) == []


def test_people_can_read_it(snapshot):
    table = millpond.replay(snapshot, "pool:slack=0")
    head, row = str(table).splitlines()
    assert head.split()[:2] == ["trace", "allocator"] and row.split()[:2] == ["gpt_tiny", "pool:slack=0"]
    assert table._repr_html_().count("<td>") == len(head.split())


def test_memory_that_runs_out_is_a_result(snapshot):
    (row,) = millpond.replay(snapshot, "torch", capacity="1GiB", device="sim:v100-16g")
    assert row["oom"].startswith("event ") and row["min_capacity_bytes"] is None
    assert row == {**millpond.replay(snapshot, "torch", capacity=1 << 30)[0], **{
        name: row[name] for name in ["ns_per_op", "modelled_ms"]}}


def test_the_smallest_device_is_found(snapshot):
    (row,) = millpond.replay(snapshot, "pool", fit=True)
    assert row["peak_live_bytes"] <= row["min_capacity_bytes"] <= row["peak_reserved_bytes"] * 1.01
    (again,) = millpond.replay(snapshot, "pool", capacity=row["min_capacity_bytes"])
    assert again["oom"] is None


def test_what_makes_no_sense_is_named(snapshot):
    with pytest.raises(millpond.InvalidArgument, match="did you mean 'pool'"):
        millpond.replay(snapshot, "pol")
    with pytest.raises(millpond.InvalidArgument, match="'much' is no size"):
        millpond.replay(snapshot, "pool", capacity="much")
    with pytest.raises(millpond.InvalidArgument, match="names no device"):
        millpond.replay(snapshot, "pool", device="gpu0")
    with pytest.raises(TypeError):
        millpond.replay([1], "pool")
    for capacity, text in [(-1, "-1 is out of range"), ("99999999999999999999GiB", "is no size"), ("1MiB", "must be a multiple of 2MiB")]:
        with pytest.raises(millpond.InvalidArgument, match=text) as raised:
            millpond.replay(snapshot, "pool", capacity=capacity)
        assert "\n" not in str(raised.value)
    with pytest.raises(millpond.InvalidArgument, match="out of range"):
        millpond.replay(snapshot, "pool", lag=-1)
    with pytest.raises(TypeError, match="float is no size"):
        millpond.replay(snapshot, "pool", capacity=1.5)


def test_a_part_of_a_table_is_a_table(snapshot):
    table = millpond.replay(snapshot, ["pool", "torch", "direct"], timeline=True)
    part = table[:2]
    assert isinstance(part, millpond.Table) and part == list(table)[:2] and table[1] == part[1]
    assert set(part.timelines) == {("gpt_tiny", "pool"), ("gpt_tiny", "torch")}
    assert part.plot().svg and part[:1].plot().svg != part.plot().svg
    both = part + table[2:]
    assert isinstance(both, millpond.Table) and both == table and both.timelines == table.timelines
    assert table.copy() == table and table.copy().timelines == table.timelines


@pytest.fixture
def heeds_ctrl_c():
    """A shell has what it starts in the background ignore Ctrl-C, and these tests with it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_ends_it(heeds_ctrl_c, snapshot, tmp_path):
    """The trace comes through a pipe, and Ctrl-C before it: no replay is begun, though there would be a thousand."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def interrupt() -> None:
        with open(pipe, "wb") as trace:
            os.kill(os.getpid(), signal.SIGINT)
            trace.write(snapshot.read_bytes())

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        millpond.replay(pipe, [f"pool:slack={slack / 1000}" for slack in range(1000)], fit=True)
    thread.join()
