"""Streams, in whatever form they come."""

import ctypes

import pytest

import millpond


class OfProtocol:
    def __init__(self, handle):
        self.handle_of_protocol = handle

    def __cuda_stream__(self):
        return (0, self.handle_of_protocol)


class OfCuPy:
    def __init__(self, handle):
        self.ptr = handle


class OfTorch:
    def __init__(self, handle):
        self.cuda_stream = handle


class OfNumba:
    def __init__(self, handle):
        self.handle = ctypes.c_void_p(handle)


def test_a_stream_is_taken_in_every_form(pool):
    stream = pool.stream()
    assert stream.__cuda_stream__() == (0, stream.ptr)
    for form in [stream, stream.ptr, *(kind(stream.ptr) for kind in (OfProtocol, OfCuPy, OfTorch, OfNumba))]:
        with pool.allocate(1000, form) as block:
            block.fill(5)
            assert block.__cuda_array_interface__["stream"] == stream.ptr
    for default in [None, 0, 1, 2, OfNumba(0), OfNumba(None), OfCuPy(0)]:
        pool.allocate(1000, default).free()
    with pytest.raises(TypeError, match="str is no stream"):
        pool.allocate(1000, "stream")


def test_what_is_no_stream_is_refused_by_the_device(pool):
    with pytest.raises(millpond.DriverError):
        pool.allocate(1 << 20, 0xDEAD0000)
    assert pool.usage()["live_blocks"] == 0


def test_a_stream_lives_as_long_as_its_blocks(pool):
    block = pool.allocate(1 << 20, pool.stream())
    block.fill(3)
    assert block.tobytes(nbytes=1) == b"\x03"
    block.free()


def test_work_is_waited_for(pool):
    stream = pool.stream()
    pool.allocate(64 << 20, stream).fill(1)
    stream.synchronize()
    assert stream.done
    pool.synchronize()


def test_a_block_used_on_another_stream_waits_for_it(pool):
    """Its memory goes to nobody before the other stream has passed, so the next one gets other memory."""
    one, other = pool.stream(), pool.stream()
    block = pool.allocate(64 << 20, one)
    first = block.ptr
    block.record_stream(other)
    block.fill(1, stream=other)
    block.free()
    following = pool.allocate(64 << 20, one)
    following.fill(2)
    assert set(following.tobytes(nbytes=100)) == {2}
    assert following.ptr != first or pool.stats()["cross_stream_waits"] > 0


def test_record_stream_wants_a_pool():
    direct = millpond.Pool("sim:a100-80g", "direct")
    with pytest.raises(millpond.NotSupported):
        direct.allocate(16).record_stream(direct.stream())
