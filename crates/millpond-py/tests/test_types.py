"""The types: of the package itself, and of the stubs beside the extension."""

import subprocess
import sys


def run(*arguments: object) -> None:
    done = subprocess.run([sys.executable, "-m", *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_package_is_strictly_typed(root, tmp_path):
    configuration = root / "crates/millpond-py/pyproject.toml"
    run("mypy", "--config-file", configuration, "--cache-dir", tmp_path, "-p", "millpond")


def test_a_user_is_told_the_types(tmp_path):
    user = tmp_path / "user.py"
    user.write_text("import millpond\nblock = millpond.Pool().allocate(16)\nname: str = block.nbytes\n")
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), str(user)], capture_output=True, text=True)
    assert 'expression has type "int", variable has type "str"' in done.stdout and "Found 1 error" in done.stdout, done.stdout


def test_the_stubs_are_of_what_there_is(root, tmp_path):
    configuration = root / "crates/millpond-py/pyproject.toml"
    run("mypy.stubtest", "--mypy-config-file", configuration, "millpond._millpond")
