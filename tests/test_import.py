"""Importing the package costs nothing and changes nothing: every spawned worker does it."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import yolo_rocm

IMPORTED = """
import json, sys
before = set(sys.modules)
import yolo_rocm
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def test_import_is_light():
    """Two small modules of its own and nothing that is not Python's: that is what an import costs, on any machine."""
    done = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True)
    imported = json.loads(done.stdout)
    assert {name for name in imported if name.partition(".")[0] not in sys.stdlib_module_names} == {
        "yolo_rocm",
        "yolo_rocm._version",
    }
    assert len(imported) < 45


def test_every_public_name_is_there_also_for_type_checkers():
    for name in yolo_rocm.__all__:
        assert getattr(yolo_rocm, name) is not None
        assert name in dir(yolo_rocm)
    (typed,) = [
        node for node in ast.parse(Path(yolo_rocm.__file__).read_text(encoding="utf-8")).body
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name)
    ]  # fmt: skip
    imported = {alias.name for node in typed.body for alias in node.names}
    assert imported == set(yolo_rocm.__all__) - {"__version__"}


def test_no_module_shadows_a_public_name():
    """A module of the same name would replace the function on import."""
    modules = {path.stem for path in Path(yolo_rocm.__file__).parent.iterdir()}
    assert not modules & set(yolo_rocm.__all__)


def test_unknown_names_fail_as_usual():
    assert not hasattr(yolo_rocm, "no_such_name")
