"""The script that types our commands on a clean system: what it types is what the pages say, and how pip is reached."""

from __future__ import annotations

import importlib.util
import re
import sys
from importlib.machinery import SourceFileLoader

import pytest
import yaml

from yolo_rocm.hardware.libraries import OPENCV_PACKAGES, missing_library

from .pages import PROJECT

pytestmark = [pytest.mark.once, pytest.mark.skipif(sys.platform == "win32", reason="a Debian in a folder")]


@pytest.fixture(scope="module")
def script():
    """The script `.ci/clean`, imported."""
    loader = SourceFileLoader("clean", str(PROJECT / ".ci" / "clean"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("clean", loader))
    dont, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    loader.exec_module(module)
    sys.dont_write_bytecode = dont
    return module


def test_it_types_the_two_commands_of_the_readme(script):
    assert script.readme(".venv").endswith("yolo-rocm demo")
    assert " -m pytest " in script.readme(".venv-test")


def test_message_readme_and_install_page_name_the_same_packages(script):
    """It installs what they say, so what they say has to be enough and to be understood."""
    lacking = missing_library(ImportError("libxcb.so.1: cannot open shared object file: No such file or directory"))
    texts = [f"error: {lacking.what}. {lacking.remedy}."]
    texts += [(PROJECT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/install.md")]
    assert [script.libraries(text) for text in texts] == [list(OPENCV_PACKAGES)] * 3
    assert script.libraries("error: something else is missing") == []


def test_every_way_to_use_it_is_run_every_week(script):
    (job,) = yaml.safe_load((PROJECT / ".github/workflows/clean.yml").read_text(encoding="utf-8"))["jobs"].values()
    ways = set(re.findall(r"^    \.ci/clean FOLDER (\w+)", script.__doc__, re.MULTILINE))
    assert set(job["strategy"]["matrix"]["what"]) == ways == {"demo", "tests", "pages", "image"}
