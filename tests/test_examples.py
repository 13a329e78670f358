"""The examples run as they stand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ([str(EXAMPLES / "train.py")], "mAP50-95"),
        ([str(EXAMPLES / "register.py")], "stay idle"),
        (["-m", "yolo_rocm", "train", str(EXAMPLES / "cfg.yaml")], "convolution layers"),
    ],
    ids=["train.py", "register.py", "cfg.yaml"],
)
def test_example(command, text, made_data, tmp_path):
    data = str(made_data())
    if "yolo_rocm" in command:
        data = f"data={data}"
    # Ultralytics writes elsewhere when it finds itself inside pytest; a user's process does not.
    environment = {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST"}
    environment.update(PYTHONPATH=str(EXAMPLES.parent), YOLO_CONFIG_DIR=str(tmp_path))
    done = subprocess.run(
        [sys.executable, *command, data],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    assert text in done.stdout
    assert list(tmp_path.rglob("best.pt"))


def test_every_example_is_tested():
    tested = Path(__file__).read_text()
    assert all(path.name in tested for path in EXAMPLES.iterdir() if path.is_file())
