"""The extension is a library of the C ABI, too."""

import ctypes
import re
import subprocess

import millpond
from millpond import _millpond


def test_every_function_of_the_header_is_exported(root):
    header = (root / "crates/millpond-capi/include/millpond.h").read_text()
    declared = set(re.findall(r"^[a-z].*?\b(millpond_\w+)\(", header, re.MULTILINE))
    assert "millpond_alloc" in declared and len(declared) > 20
    listed = subprocess.run(["nm", "-D", "--defined-only", _millpond.__file__], capture_output=True, text=True, check=True)
    exported = set(re.findall(r" T (millpond_\w+)", listed.stdout))
    assert declared - exported == set()


def test_it_can_be_called_by_name():
    library = ctypes.CDLL(_millpond.__file__)
    library.millpond_version.restype = ctypes.c_char_p
    assert library.millpond_version().decode() == millpond.__version__
    library.millpond_last_error.restype = ctypes.c_char_p
    pool, block = ctypes.c_void_p(), ctypes.c_void_p()
    assert library.millpond_pool_open(b"sim:a100-80g/pol", ctypes.byref(pool)) != 0
    assert b"did you mean 'pool'" in library.millpond_last_error()
    assert library.millpond_pool_open(b"sim:a100-80g", ctypes.byref(pool)) == 0
    assert library.millpond_alloc(pool, ctypes.c_size_t(5000), None, ctypes.byref(block)) == 0
    assert block.value and block.value % 256 == 0
    assert library.millpond_free(pool, block, ctypes.c_size_t(5000), None) == 0
    assert library.millpond_pool_close(pool) == 0
