"""The generator of pages, for every test of them."""

from __future__ import annotations

import importlib.util
import sys

import pytest

from ..pages import PROJECT


@pytest.fixture(scope="module")
def generate():
    """The generator, imported as a script imports its neighbours."""
    spec = importlib.util.spec_from_file_location("generate", PROJECT / "docs" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    before, dont = list(sys.path), sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    spec.loader.exec_module(module)
    yield module
    sys.path[:], sys.dont_write_bytecode = before, dont
    for name in [name for name in sys.modules if name == "making" or name.startswith("making.")]:
        del sys.modules[name]
