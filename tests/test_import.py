"""Importing the package costs nothing and changes nothing: every spawned worker does it."""

from __future__ import annotations

import json
import subprocess
import sys

import yolo_rocm

MEASURE = """
import json, sys, time
before = set(sys.modules)
started = time.perf_counter()
import yolo_rocm
seconds = time.perf_counter() - started
print(json.dumps([seconds, sorted({m.split(".")[0] for m in set(sys.modules) - before})]))
"""


def test_import_is_light():
    runs = [
        json.loads(subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True).stdout)
        for _ in range(3)
    ]
    assert min(seconds for seconds, _ in runs) < 0.1
    for heavy in ("torch", "ultralytics", "pydantic", "yaml", "rich", "typer", "numpy"):
        assert heavy not in runs[0][1]


def test_every_public_name_is_there():
    for name in yolo_rocm.__all__:
        assert getattr(yolo_rocm, name) is not None
    assert set(yolo_rocm._HOMES) == set(yolo_rocm.__all__) - {"__version__"}


def test_no_module_shadows_a_public_name():
    """A module of the same name would replace the function on import."""
    from pathlib import Path

    modules = {path.stem for path in Path(yolo_rocm.__file__).parent.iterdir()}
    assert not modules & set(yolo_rocm.__all__)


def test_unknown_names_fail_as_usual():
    assert not hasattr(yolo_rocm, "no_such_name")
