"""What the tests share."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

import millpond

ROOT = Path(__file__).parents[3]


@pytest.fixture
def root() -> Path:
    """The project's."""
    return ROOT


@pytest.fixture
def snapshot() -> Path:
    """A memory snapshot of PyTorch's: 2534 events of a small GPT's training."""
    return ROOT / "crates/millpond/tests/data/gpt_tiny.pickle.gz"


@pytest.fixture
def pool() -> millpond.Pool:
    """On a simulated device, with nothing that works by the clock."""
    return millpond.Pool("sim:a100-80g", enable_defrag=False)


@pytest.fixture
def rng() -> random.Random:
    """Prints its seed, and takes that of a failure again: MILLPOND_SEED."""
    seed = int(os.environ.get("MILLPOND_SEED") or random.SystemRandom().getrandbits(32))
    print(f"MILLPOND_SEED={seed}")
    return random.Random(seed)


@pytest.fixture
def on_stand_in():
    """Runs a program in a process whose CUDA driver is the stand-in."""
    directory = os.environ.get("MILLPOND_SIMCUDA") or str(ROOT / "target/simcuda")
    if not Path(directory, "libcuda.so.1").exists():
        pytest.skip(f"no stand-in driver in {directory}: cargo xtask simcuda makes it")

    def run(program: str, **variables: str) -> str:
        environment = {**os.environ, "LD_LIBRARY_PATH": directory, "PYTHONWARNINGS": "ignore", **variables}
        done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run
