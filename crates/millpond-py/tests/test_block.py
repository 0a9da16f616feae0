"""Blocks: their bytes, their end, and how others see them."""

import array
import threading

import numpy as np
import pytest

import millpond


def test_bytes_come_and_go_through_any_buffer(pool):
    block = pool.allocate(4000)
    values = np.arange(1000, dtype=np.float32)
    block.copy_from(values)
    assert (np.frombuffer(block.tobytes(), np.float32) == values).all()
    back = np.empty_like(values)
    block.copy_to(back)
    assert (back == values).all()
    block.copy_from(values[::2])
    assert (np.frombuffer(block.tobytes(nbytes=2000), np.float32) == values[::2]).all()
    block.copy_from(memoryview(b"xyz"), offset=1)
    block.copy_from(array.array("B", [7]), offset=0)
    part = bytearray(4)
    block.copy_to(part)
    assert part == b"\x07xyz"
    block.fill(9)
    assert set(block.tobytes()) == {9}


def test_nothing_is_written_outside(pool):
    block = pool.allocate(16)
    for call in [
        lambda: block.copy_from(bytes(17)),
        lambda: block.copy_from(b"a", offset=16),
        lambda: block.copy_to(bytearray(17)),
        lambda: block.tobytes(offset=1, nbytes=16),
        lambda: block.tobytes(offset=2**63, nbytes=2**63),
    ]:
        with pytest.raises(millpond.InvalidArgument, match="more than the block's 16"):
            call()
    with pytest.raises(TypeError):
        block.copy_to(bytes(16))
    with pytest.raises(TypeError):
        block.copy_from("text")


def test_a_block_ends_once(pool):
    with pool.allocate(16) as block:
        assert not block.freed
    assert block.freed and "freed" in repr(block)
    with pytest.raises(millpond.BadFree, match="free already"):
        block.free()
    for use in [lambda: block.ptr, block.tobytes, lambda: block.fill(0), lambda: block.record_stream(0),
                lambda: block.__cuda_array_interface__]:
        with pytest.raises(millpond.InvalidArgument, match="given back"):
            use()
    with pool.allocate(16) as block:
        block.free()
    assert pool.usage()["live_blocks"] == 0


def test_no_stream_is_the_default_stream(pool):
    block = pool.allocate(16)
    block.record_stream(None)
    block.free(None)
    other = pool.allocate(16)
    pool.free_raw(other.ptr)
    with pytest.raises(millpond.BadFree, match="^record_stream of 0x"):
        other.record_stream(pool.stream())


def test_an_exception_passes_through_and_the_block_ends(pool):
    with pytest.raises(KeyError), pool.allocate(16) as block:
        raise KeyError
    assert block.freed


def test_a_block_is_freed_even_if_it_was_in_a_cycle(pool):
    import gc

    cycle = [pool.allocate(16)]
    cycle.append(cycle)
    del cycle
    gc.collect()
    assert pool.usage()["live_blocks"] == 0


def test_others_see_an_array_of_bytes(pool):
    stream = pool.stream()
    block = pool.allocate(1000, stream)
    array = block.__cuda_array_interface__
    assert array["data"] == (block.ptr, False) and array["shape"] == (1000,)
    assert (array["typestr"], array["version"], array["stream"]) == ("|u1", 3, stream.ptr)
    # There 0 would be ambiguous.
    assert pool.allocate(1).__cuda_array_interface__["stream"] == 1


def test_a_block_of_a_threads_own_stream_may_end_in_another(pool):
    """The per-thread stream has another meaning there."""
    per_thread = 2
    block = pool.allocate(1 << 20, per_thread)
    block.fill(1)
    thread = threading.Thread(target=block.free)
    thread.start()
    thread.join()
    assert block.freed and pool.usage()["live_blocks"] == 0
