"""The examples run as they are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .thinning import deep_but

pytestmark = pytest.mark.once

EXAMPLES = Path(__file__).parents[1] / "examples"

# Scripts one after the other, each as the main module and in a folder of its own: torch is imported once for all.
RUN_SCRIPTS = """
import json, os, runpy, sys, traceback
for name, script, words in json.loads(sys.argv[1]):
    os.makedirs(name)
    os.chdir(name)
    print("EXAMPLE", name, flush=True)
    sys.argv[1:] = words
    try:
        if script.endswith(".py"):
            runpy.run_path(script, run_name="__main__")
        else:
            runpy.run_module(script, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code:
            print("FAILED", end.code)
    except BaseException:
        print("FAILED", traceback.format_exc())
    os.chdir("..")
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
def user(tmp_path_factory):
    """Return the environment of a user."""
    # Ultralytics writes elsewhere when it finds itself inside pytest; a user's process does not.
    environment = {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST"}
    environment["PYTHONPATH"] = str(EXAMPLES.parent)
    # What `auto` is here: workers only for the examples that ask for them, since each one imports torch again.
    preset = tmp_path_factory.mktemp("preset") / "mine.yaml"
    preset.write_text("base: cpu\nloader: {workers: 0}\n")
    environment["YOLO_ROCM_PRESET"] = str(preset)
    environment["YOLO_CONFIG_DIR"] = str(write_here(tmp_path_factory.mktemp("settings")))
    return environment


@pytest.fixture(scope="module")
def run(user):
    """Return a function that runs Python like a user, in a folder, and returns what it printed."""

    def run(command: list[str], folder: Path) -> str:
        done = subprocess.run(
            [sys.executable, *command], capture_output=True, text=True, check=False, cwd=folder, env=user
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


TEXTS = {
    "train.py": "mAP50-95",
    "register.py": "GPU settings are ignored",
    "cfg.yaml": "convolution layers",
    "multi_gpu.py": "mAP50-95",
    "windows.py": "mAP50-95",
    "segment.py": "of masks",
    "pose.py": "of key points",
    "track.py": "4 frames",
}
# The others differ from these in a few words.
USUAL = ("train.py", "register.py", "cfg.yaml", "segment.py", "track.py")
# Those whose first argument is not a data set with boxes.
TASKS = {"segment.py": "segment", "pose.py": "pose"}
WITHOUT_TRAINING = ("track.py",)


def made_video(path: Path) -> Path:
    """Write four frames with a square that moves."""
    import cv2
    import numpy as np

    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"MJPG"), 5, (64, 64))
    for step in range(4):
        frame = np.zeros((64, 64, 3), dtype=np.uint8)
        frame[20:40, 10 + 4 * step : 30 + 4 * step] = 255
        writer.write(frame)
    writer.release()
    return path


@pytest.fixture(scope="module")
def printed(run, made_data, tmp_path_factory, request):
    """Return the folder of the examples that have run, and what each has printed."""
    asked = {item.callspec.params["name"] for item in request.session.items if item.name.startswith("test_example[")}
    folder, data = tmp_path_factory.mktemp("examples"), str(made_data())
    words = {name: [str(made_data(task))] for name, task in TASKS.items()}
    words["track.py"] = [str(made_video(folder / "street.avi")), "../train.py/runs/detect/train/weights/best.pt"]
    runs = [
        [name, str(EXAMPLES / name), words.get(name, [data])]
        for name in TEXTS
        if name in {*USUAL, *asked} and name.endswith(".py")
    ]
    runs.append(["cfg.yaml", "yolo_rocm", ["train", str(EXAMPLES / "cfg.yaml"), f"data={data}"]])
    parts = run(["-c", RUN_SCRIPTS, json.dumps(runs)], folder).split("EXAMPLE ")[1:]
    return folder, dict(part.split("\n", 1) for part in parts)


@pytest.mark.parametrize("name", deep_but(TEXTS, *USUAL))
def test_example(name, printed):
    folder, told = printed
    assert TEXTS[name] in told[name]
    assert "FAILED" not in told[name]
    assert name in WITHOUT_TRAINING or list((folder / name).rglob("best.pt"))


@pytest.mark.deep  # `yolo-rocm run` is in tests/launch
def test_own_script(run, made_data, tmp_path):
    """own_script.py, which does not import this package."""
    script = EXAMPLES / "own_script.py"
    assert "import yolo_rocm" not in script.read_text(encoding="utf-8")
    printed = run(["-m", "yolo_rocm", "run", str(script), str(made_data())], tmp_path)
    assert "yolo-rocm: " in printed
    assert "mAP50-95" in printed


@pytest.mark.deep
def test_the_notebook(user, made_data, tmp_path):
    """By Jupyter's own machinery, in a kernel: a process whose main module has no file."""
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(EXAMPLES / "notebook.ipynb", as_version=4)
    for cell in notebook.cells:
        cell.source = cell.source.replace("coco8.yaml", str(made_data()))
    client = nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}})
    client.execute(env=user)
    assert "mAP50-95" in json.dumps([cell.get("outputs") for cell in notebook.cells])
    assert list(tmp_path.rglob("best.pt"))


def test_any_loader(run, made_data, tmp_path):
    """The example any_loader.py learns something."""
    printed = run([str(EXAMPLES / "any_loader.py"), str(made_data())], tmp_path)
    losses = [float(line.rpartition(" ")[2]) for line in printed.splitlines() if line.startswith("epoch")]
    assert len(losses) == 10
    assert losses[-1] < losses[0] / 2


def test_every_example_is_tested_short_and_listed():
    tests = Path(__file__), Path(__file__).parent / "launch" / "test_clusters.py"
    tested = "".join(file.read_text(encoding="utf-8") for file in tests)
    listed = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    examples = [path for path in EXAMPLES.iterdir() if path.is_file() and path.name != "README.md"]
    assert len(examples) >= 7
    for path in examples:
        assert path.name in tested
        assert f"({path.name})" in listed
        if path.suffix == ".py":
            assert len(path.read_text(encoding="utf-8").splitlines()) < 60
