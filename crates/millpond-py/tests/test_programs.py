"""Random programs of allocations and frees, beside a simple model."""

import threading

import pytest

import millpond

SIZES = [1, 255, 256, 300, 4096, 70_000, 1 << 20, 5 << 20]


@pytest.mark.parametrize("stack", ["pool", "pool:slack=0", "bestfit", "stats/track/pool"])
def test_blocks_never_overlap_and_keep_their_bytes(stack, rng):
    pool = millpond.open(f"sim:v100-16g/{stack}")
    streams = [None, pool.stream(), pool.stream()]
    live: list[tuple[millpond.Block, int]] = []
    for step in range(400):
        if live and rng.random() < 0.45:
            block, mark = live.pop(rng.randrange(len(live)))
            assert block.tobytes(nbytes=1)[0] == mark and block.tobytes(offset=len(block) - 1)[0] == mark
            block.free()
        else:
            mark = step % 251
            block = pool.allocate(rng.choice(SIZES) + rng.randrange(64), rng.choice(streams))
            block.fill(mark)
            live.append((block, mark))
        ranges = sorted((block.ptr, block.ptr + len(block)) for block, _ in live)
        assert all(end <= start for (_, end), (start, _) in zip(ranges, ranges[1:]))
        assert pool.usage()["live_bytes"] == sum(len(block) for block, _ in live)
    del block
    live.clear()
    assert pool.usage()["live_blocks"] == 0


def test_threads_share_a_pool(pool, rng):
    """Each frees what another has allocated."""
    seeds = [rng.random() for _ in range(4)]
    passed: list[millpond.Block] = []
    failures: list[BaseException] = []

    def work(seed: float) -> None:
        import random

        own = random.Random(seed)
        try:
            for _ in range(500):
                passed.append(pool.allocate(own.choice(SIZES)))
                if own.random() < 0.7:
                    passed.pop(0).free()
        except IndexError:
            pass  # Another was quicker.
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in seeds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    assert pool.usage()["live_blocks"] == len(passed)
    passed.clear()
    assert pool.usage()["live_bytes"] == 0
