"""The examples run as they are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

EXAMPLES = Path(__file__).parents[1] / "examples"

# Cells in order in one namespace, by IPython where it is installed; the main module has no file, as in a notebook.
RUN_CELLS = """
import json, sys
cells = [c for c in json.load(open(sys.argv[1], encoding="utf-8"))["cells"] if c["cell_type"] == "code"]
sources = ["".join(cell["source"]).replace("coco8.yaml", sys.argv[2]) for cell in cells]
try:
    from IPython.core.interactiveshell import InteractiveShell
except ImportError:
    for source in sources:
        exec(source, globals())
else:
    for source in sources:
        InteractiveShell.instance().run_cell(source).raise_error()
"""


def write_here(folder: Path) -> Path:
    """Make settings that write runs and weights where a script is run.

    An environment inside a clone makes Ultralytics take the clone for its own and put them there.
    """
    from ultralytics.utils import SETTINGS

    file = folder / Path(SETTINGS.file).relative_to(os.environ["YOLO_CONFIG_DIR"])
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({**SETTINGS, "runs_dir": "runs", "weights_dir": "weights"}), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return a function that runs Python like a user, in a folder, and returns what it printed."""
    # Ultralytics writes elsewhere when it finds itself inside pytest; a user's process does not.
    environment = {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST"}
    environment["PYTHONPATH"] = str(EXAMPLES.parent)
    environment["YOLO_CONFIG_DIR"] = str(write_here(tmp_path_factory.mktemp("settings")))

    def run(command: list[str], folder: Path) -> str:
        done = subprocess.run(
            [sys.executable, *command], capture_output=True, text=True, check=False, cwd=folder, env=environment
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ([str(EXAMPLES / "train.py")], "mAP50-95"),
        ([str(EXAMPLES / "register.py")], "GPU settings are ignored"),
        (["-m", "yolo_rocm", "train", str(EXAMPLES / "cfg.yaml")], "convolution layers"),
        (["-c", RUN_CELLS, str(EXAMPLES / "notebook.ipynb")], "mAP50-95"),
        ([str(EXAMPLES / "multi_gpu.py")], "mAP50-95"),
        ([str(EXAMPLES / "windows.py")], "mAP50-95"),
    ],
    ids=["train.py", "register.py", "cfg.yaml", "notebook.ipynb", "multi_gpu.py", "windows.py"],
)
def test_example(command, text, run, made_data, tmp_path):
    data = str(made_data())
    if "yolo_rocm" in command:
        data = f"data={data}"
    printed = run([*command, data], tmp_path)
    assert text in printed
    assert list(tmp_path.rglob("best.pt"))


def test_any_loader(run, made_data, tmp_path):
    """The example any_loader.py learns something."""
    printed = run([str(EXAMPLES / "any_loader.py"), str(made_data())], tmp_path)
    losses = [float(line.rpartition(" ")[2]) for line in printed.splitlines() if line.startswith("epoch")]
    assert len(losses) == 10
    assert losses[-1] < losses[0] / 2


def test_the_notebook_is_clean():
    """What nbformat asks of version 4.5, and no output or count of an earlier run."""
    notebook = json.loads((EXAMPLES / "notebook.ipynb").read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert set(notebook) == {"cells", "metadata", "nbformat", "nbformat_minor"}
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids) > 5
    for cell in notebook["cells"]:
        wanted = {"id", "cell_type", "metadata", "source"}
        if cell["cell_type"] == "code":
            wanted |= {"execution_count", "outputs"}
            assert (cell["execution_count"], cell["outputs"]) == (None, [])
        assert cell["cell_type"] in ("code", "markdown")
        assert set(cell) == wanted
        assert all(isinstance(line, str) for line in cell["source"])


def test_every_example_is_tested_short_and_listed():
    tested, listed = Path(__file__).read_text(encoding="utf-8"), (EXAMPLES / "README.md").read_text(encoding="utf-8")
    examples = [path for path in EXAMPLES.iterdir() if path.is_file() and path.name != "README.md"]
    assert len(examples) >= 7
    for path in examples:
        assert path.name in tested
        assert f"({path.name})" in listed
        if path.suffix == ".py":
            assert len(path.read_text(encoding="utf-8").splitlines()) < 60
