"""The examples of docs/python.md, run in their order."""

import re
import shutil


def blocks(root, kind):
    page = (root / "docs/python.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{kind}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


def test_the_examples_run(root, snapshot, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shutil.copy(snapshot, "snapshot.pickle.gz")
    examples = blocks(root, "python")
    assert len(examples) >= 3
    names: dict[str, object] = {}
    for example in examples:
        exec(compile(example, "docs/python.md", "exec"), names)
    said = capsys.readouterr().out.splitlines()
    # What the page says is printed is printed, but for what is measured.
    for shown in blocks(root, "text"):
        for line in shown.splitlines():
            assert line in said, f"{line!r} is not printed:\n" + "\n".join(said)


def test_numbas_example_runs(root, on_stand_in):
    (example,) = blocks(root, "python numba")
    on_stand_in(example)


def test_cupys_example_is_python(root):
    """It is not run: CuPy needs NVIDIA's own libraries."""
    (example,) = blocks(root, "python cupy")
    compile(example, "docs/python.md", "exec")
