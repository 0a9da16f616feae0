"""The package as it stands in the sources, where nobody has built its extension."""

import os
import subprocess
import sys

import pytest

# PyTorch is large, and nothing is asked of it before it is enabled.
STAND_IN = """
import sys, types
torch = sys.modules["torch"] = types.ModuleType("torch")
torch.device = int
torch.cuda = types.SimpleNamespace(memory=types.SimpleNamespace(CUDAPluggableAllocator=None))
"""


@pytest.fixture
def in_sources(root):
    """Runs a program with the sources' package; says what it prints, and its last complaint."""
    sources = root / "crates/millpond-py/python"
    if list((sources / "millpond").glob("_millpond*.so")):
        pytest.skip("somebody has built the extension into the sources")

    def run(program: str, library: str) -> tuple[str, str]:
        environment = {**os.environ, "PYTHONPATH": str(sources), "PYTHONDONTWRITEBYTECODE": "1", "MILLPOND_LIBRARY": library}
        done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
        return done.stdout, (done.stderr.splitlines() or [""])[-1]

    return run


def test_a_named_library_is_enough_for_pytorch(in_sources):
    program = f"{STAND_IN}import millpond.torch\nprint(millpond.torch.is_enabled(), millpond.Error.__module__)"
    assert in_sources(program, "libmillpond.so") == ("False millpond.errors\n", "")


def test_who_wants_more_is_told_what_is_missing(in_sources):
    _, said = in_sources("import millpond; millpond.Pool()", "libmillpond.so")
    assert said.startswith("AttributeError: millpond.Pool needs the extension: pip install crates/millpond-py"), said
    _, said = in_sources("import millpond; millpond.Pol", "libmillpond.so")
    assert said == "AttributeError: module 'millpond' has no attribute 'Pol'"
    _, said = in_sources("import millpond", "")
    assert said.startswith("ImportError: millpond has no extension here: pip install crates/millpond-py builds it"), said
