"""A program that starts itself again: once, with the variables, and with its own arguments."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from yolo_rocm.preset import moments, restart

from ..fake_trees import write

pytestmark = pytest.mark.once

# A program as `yolo-rocm` is one: says what it sees, after it has made sure of its variables.
PROGRAM = """
import json, os, sys
{before}
from yolo_rocm.preset.restart import RESTARTED_VARIABLE, restart_if_late
preset = {{"base": "cpu", "env": {{"MALLOC_YOLO_TEST": {{"value": "1", "why": "shows"}}, "{name}": {{"value": "2"}}}}}}
decisions = restart_if_late(preset)
seen = [os.environ.get(name) for name in ("MALLOC_YOLO_TEST", "{name}")]
print(json.dumps({{"seen": seen, "restarted": os.environ.get(RESTARTED_VARIABLE), "arguments": sys.argv[1:]}}))
"""


def run(path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(path), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, **environment},
    )


def test_a_variable_of_the_process_start_restarts_it_once(tmp_path):
    path = write(tmp_path / "program.py", PROGRAM.format(before="", name="HSA_YOLO_ROCM_TEST"))
    done = run(path, "a b", "c=*")
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()  # the first start has printed nothing
    said = json.loads(line)
    assert said["seen"] == ["1", None]  # the other one is in time, and is set where it is used
    assert said["restarted"] == "MALLOC_YOLO_TEST"
    assert said["arguments"] == ["a b", "c=*"]
    for environment, seen in (({"MALLOC_YOLO_TEST": "9"}, ["9", None]), ({"YOLO_ROCM": "0"}, [None, None])):
        said = json.loads(run(path, **environment).stdout)
        assert (said["seen"], said["restarted"]) == (seen, None)


def test_a_torch_that_is_always_imported_first_cannot_make_it_loop(tmp_path):
    """A made torch whose runtime has started before our code runs: late in every start."""
    write(tmp_path / "torch/__init__.py", "from . import cuda\n")
    write(tmp_path / "torch/cuda.py", "def is_initialized():\n    return True\n")
    write(tmp_path / "torch/version.py", "__version__ = '1.0'\nhip = '5.2'\n")
    path = write(tmp_path / "program.py", PROGRAM.format(before="import torch", name="HSA_YOLO_ROCM_TEST"))
    done = run(path)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["seen"] == ["1", "2"]
    assert said["restarted"] == "HSA_YOLO_ROCM_TEST,MALLOC_YOLO_TEST"


def test_windows_waits_for_the_new_process_and_takes_its_exit_code(monkeypatch):
    monkeypatch.setattr(restart.os, "name", "nt")
    with pytest.raises(SystemExit) as end:
        restart.become([sys.executable, "-c", "raise SystemExit(7)"], dict(os.environ))
    monkeypatch.undo()
    assert end.value.code == 7


def test_variables_are_held_for_programs_without_a_training(monkeypatch):
    monkeypatch.setenv("YOLO_ROCM_PRESET", "renoir")
    monkeypatch.delenv("HSA_ENABLE_SDMA", raising=False)
    monkeypatch.setattr(moments, "runtime_started", lambda: False)
    with restart.in_time():
        assert os.environ["HSA_ENABLE_SDMA"] == "0"
    assert "HSA_ENABLE_SDMA" not in os.environ
