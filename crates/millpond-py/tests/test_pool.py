"""Pools and other stacks: what they give, count and keep."""

import os
import pickle
import threading

import pytest

import millpond

MIB = 1 << 20


def test_a_block_is_aligned_counted_and_gives_itself_back(pool):
    block = pool.allocate(3000)
    assert block.ptr % 256 == 0 and block.nbytes == len(block) == 3000
    assert pool.usage()["live_bytes"] == pool.stats()["current_usage"] == 3000
    del block
    assert pool.usage()["live_blocks"] == 0
    assert pool.stats()["allocation_count"] == pool.stats()["free_count"] == 1


def test_any_stack_on_any_device():
    for stack in ["pool", "direct", "async", "bestfit", "arena", "bfc", "buddy", "binning", "torch", "stats/limit:1GiB/pool"]:
        with millpond.open(f"sim:v100-16g/{stack}") as pool, pool.allocate(MIB) as block:
            block.copy_from(b"abc")
            assert block.tobytes(nbytes=3) == b"abc"
            assert pool.usage()["live_bytes"] == MIB, stack


def test_the_device_is_the_one_that_was_named():
    assert millpond.Pool("sim:v100-16g").memory_info()[1] < millpond.Pool("sim:a100-80g").memory_info()[1]


def test_what_is_not_named_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("MILLPOND_DEVICE", "sim:p100-16g")
    monkeypatch.setenv("MILLPOND_CONF", "slack:0.5")
    pool = millpond.Pool()
    assert pool.memory_info()[1] < 17 << 30
    assert pool.config["slack"] == 0.5


def test_settings_are_read_and_changed(pool):
    assert pool.config["slack"] == 0.08 and pool.config["enable_defrag"] is False
    pool.configure(slack=0.05, enable_stats=False, direct_above_bytes=MIB)
    assert pool.config["slack"] == 0.05 and pool.config["enable_stats"] is False
    assert pool.config["direct_above_bytes"] == MIB
    pool.configure(direct_above_bytes=None)
    assert pool.config["direct_above_bytes"] is None
    with pytest.raises(millpond.InvalidArgument, match="slak = 0.1: no such setting, did you mean slack?"):
        pool.configure(slak=0.1, alignment=512)
    assert pool.config["alignment"] == 256


def test_statistics_are_reset_and_shown(pool):
    pool.allocate(MIB).free()
    assert pool.stats()["total_allocated"] == MIB
    assert "allocations" in pool.stats_text()
    pool.reset_stats()
    assert pool.stats()["total_allocated"] == 0


def test_upkeep(pool):
    pool.preallocate(64 * MIB, 2)
    assert pool.usage()["reserved_bytes"] >= 128 * MIB
    held = pool.allocate(64 * MIB)
    assert pool.stats()["reserve_hits"] == 1
    pool.trim_cache()
    assert pool.defragment() >= 0
    assert pool.release_all() >= 64 * MIB
    assert pool.stats()["allocation_count"] == 0
    held.free()
    assert pool.trim() >= 64 * MIB
    assert pool.usage()["reserved_bytes"] == 0


def test_memory_that_is_out_is_a_memory_error(pool):
    with pytest.raises(MemoryError) as caught:
        pool.allocate(200 << 30)
    assert isinstance(caught.value, millpond.OutOfMemory) and isinstance(caught.value, millpond.Error)
    assert "bytes asked for" in str(caught.value) and "\n" not in str(caught.value)
    limited = millpond.Pool("sim:a100-80g", "limit:1MiB/pool")
    held = limited.allocate(MIB)
    with pytest.raises(millpond.OutOfMemory, match="raise the limit"):
        limited.allocate(1)
    assert held.nbytes == limited.usage()["live_bytes"]


def test_a_bad_free_is_an_error_and_changes_nothing(pool):
    ptr = pool.allocate_raw(3000)
    for bad in [(ptr, 4000), (ptr + 256, 3000), (ptr + 256,), (12345, 16)]:
        with pytest.raises(millpond.BadFree, match="bad free of"):
            pool.free_raw(*bad)
    assert pool.usage()["live_blocks"] == 1
    pool.free_raw(ptr)
    with pytest.raises(millpond.BadFree):
        pool.free_raw(ptr, 3000)
    pool.free_raw(0)


def test_nothing_is_null(pool):
    assert pool.allocate_raw(0) == 0
    with pool.allocate(0) as block:
        assert block.ptr == 0 and block.tobytes() == b""


def test_names_that_make_no_sense_are_named():
    with pytest.raises(millpond.InvalidArgument, match="did you mean 'pool'"):
        millpond.open("sim:a100-80g/pol")
    with pytest.raises(millpond.InvalidArgument, match="'gpu0' names no device"):
        millpond.Pool("gpu0")
    with pytest.raises(ValueError, match="a100"):
        millpond.Pool("sim:a101")
    with pytest.raises(millpond.NotSupported, match="only a pool can do that"):
        millpond.Pool("sim:a100-80g", "direct").preallocate(1, 1)
    with pytest.raises(millpond.NotSupported):
        millpond.Pool("sim:a100-80g", "direct", slack=0.1)
    with pytest.raises(OverflowError):
        millpond.Pool().allocate(-1)


def test_every_number_that_makes_no_sense_is_an_error_of_millponds(pool):
    block = pool.allocate(16)
    for call in [
        lambda: pool.allocate(-1),
        lambda: pool.allocate(2**64),
        lambda: pool.allocate(16, -1),
        lambda: pool.allocate_raw(-1),
        lambda: pool.free_raw(-1),
        lambda: pool.free_raw(256, -1),
        lambda: pool.preallocate(-1, 1),
        lambda: pool.preallocate(1, 2**64),
        lambda: block.fill(256),
        lambda: block.fill(-1),
        lambda: block.tobytes(-1),
        lambda: block.tobytes(0, -1),
        lambda: block.copy_from(b"", -1),
    ]:
        with pytest.raises(millpond.InvalidArgument, match="is out of range: give 0 to") as raised:
            call()
        assert isinstance(raised.value, (OverflowError, ValueError)) and "\n" not in str(raised.value)
    with pytest.raises(TypeError):
        pool.allocate(1.5)


def test_a_closed_pool_keeps_what_is_held(pool):
    block = pool.allocate(16)
    with pool:
        pass
    assert pool.closed and "closed" in repr(pool)
    with pytest.raises(millpond.Closed):
        pool.allocate(16)
    block.copy_from(b"still there")
    assert block.tobytes(nbytes=11) == b"still there"
    block.free()


def test_a_trace_can_be_replayed(pool, tmp_path):
    path = tmp_path / "log.csv"
    pool.trace_start(path)
    blocks = [pool.allocate(MIB) for _ in range(10)]
    blocks.clear()
    pool.trace_stop()
    pool.allocate(MIB)
    trace = millpond.load_trace(path)
    assert trace.summary()["peak_live_bytes"] == 10 * MIB
    assert sum(event.kind == "alloc" for event in trace) == 10
    assert millpond.replay(trace, "direct")[0]["peak_reserved_bytes"] >= 10 * MIB
    with pytest.raises(millpond.InvalidArgument, match="no trace is being written"):
        pool.trace_stop()
    with pytest.raises(OSError):
        pool.trace_start(tmp_path / "no" / "such.csv")


def test_what_is_no_name_is_refused_as_such(tmp_path):
    with pytest.raises(millpond.InvalidArgument, match=r"unknown allocator 'gpu'.*those are sim:PROFILE \(such as sim:a100-80g\) and cuda:N$"):
        millpond.open("gpu:0")
    right = r"millpond.open\('sim:a100-80g/limit:4GiB/pool'\) or millpond.Pool\('sim:a100-80g', 'limit:4GiB/pool'\)"
    with pytest.raises(millpond.InvalidArgument, match=right):
        millpond.Pool("sim:a100-80g/limit:4GiB/pool")
    with pytest.raises(millpond.InvalidArgument, match="millpond.Pool\\('cuda:0', 'pool'\\)"):
        millpond.Pool("cuda:0/pool")
    with pytest.raises(millpond.InvalidArgument, match=r"^unknown allocator 'a\\nb'"):
        millpond.open("a\nb")
    with pytest.raises(millpond.Error, match=r"a\\nb: No such file"):
        millpond.load_trace(tmp_path / "a\nb")


@pytest.mark.parametrize("text", ["\ud800", "sim:\ud800", "a\udfffb"])
def test_what_is_no_text_is_refused_as_such(pool, snapshot, text):
    calls = [
        lambda: millpond.open(text),
        lambda: millpond.Pool(text),
        lambda: millpond.Pool("sim:a100-80g", text),
        lambda: pool.configure(oom_snapshot=text),
        lambda: pool.snapshot(text),
        lambda: pool.trace_start(text),
        lambda: millpond.load_trace(text),
        lambda: millpond.replay(text, "pool"),
        lambda: millpond.replay(snapshot, text),
        lambda: millpond.replay(snapshot, "pool", device=text),
        lambda: millpond.replay(snapshot, "pool", capacity=text),
    ]
    for call in calls:
        with pytest.raises(millpond.Error):
            call()
    for wrong in [lambda: millpond.open(5), lambda: millpond.Pool(5), lambda: millpond.Pool(stack=None)]:
        with pytest.raises(TypeError):
            wrong()


def test_a_wrong_setting_of_the_environment_is_said_of_it(monkeypatch):
    monkeypatch.setenv("MILLPOND_CONF", "slak:0.5")
    with pytest.raises(millpond.InvalidArgument, match=r"did you mean slack\? \(in the environment variable MILLPOND_CONF\)"):
        millpond.Pool()


def test_only_blocks_are_touched(pool):
    for ptr in [5, 1 << 40]:
        with pytest.raises(millpond.BadFree, match="give a live block's address"):
            pool._touch_raw(ptr)
    ptr = pool.allocate_raw(MIB)
    with pytest.raises(millpond.BadFree, match="inside the block"):
        pool._touch_raw(ptr + 256)
    pool._touch_raw(ptr)
    pool.synchronize()
    pool.free_raw(ptr, MIB)
    assert not hasattr(pool, "touch_raw")


def test_a_trace_has_a_path(pool):
    with pytest.raises(millpond.InvalidArgument, match="^the trace has no path: name the file to write$"):
        pool.trace_start("")


def test_a_snapshot_is_in_pytorchs_form(pool, tmp_path):
    held = pool.allocate(5 * MIB)
    pool.snapshot(tmp_path / "now.pickle")
    written = pickle.loads((tmp_path / "now.pickle").read_bytes())
    active = [b for s in written["segments"] for b in s["blocks"] if b["state"] == "active_allocated"]
    assert [block["requested_size"] for block in active] == [held.nbytes]
    with pytest.raises(millpond.FileError, match="a trace is what can be replayed.* let a pool of Millpond's write a trace"):
        millpond.replay(tmp_path / "now.pickle", "pool")


def test_what_a_forked_child_drops_is_its_parents():
    pool = millpond.Pool("sim:a100-80g")
    stacked = millpond.Pool("sim:a100-80g", "limit:1GiB/bestfit")
    held = [pool.allocate(MIB), stacked.allocate(MIB)]
    stream = pool.stream()
    stop = threading.Event()

    def change():
        while not stop.is_set():
            pool.allocate(5 * MIB).free()
            stacked.allocate(5 * MIB).free()
            pool.trim()

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(50):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    for call in [pool.stream, pool.stats, lambda: pool.trace_start("x.csv"), held[0].tobytes]:
                        try:
                            call()
                            code = 2
                        except millpond.Forked:
                            pass
                    del stream
                    held.clear()
                    pool.close()
                    stacked.close()
                    code = 0 if code == 1 else code
                finally:
                    os._exit(code)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        stop.set()
        thread.join()
    assert pool.usage()["live_bytes"] == stacked.usage()["live_bytes"] == MIB


def test_a_forked_child_has_to_open_its_own(pool):
    held = pool.allocate(MIB)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            pool.allocate(256 * MIB)
        except millpond.Forked:
            held.free()
            with millpond.Pool("sim:a100-80g").allocate(16) as own:
                code = 0 if own.ptr else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert pool.usage()["live_bytes"] == MIB
