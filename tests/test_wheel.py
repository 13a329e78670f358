"""What a user installs: the wheel carries the presets, and nothing in it can make pip touch torch."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import zipfile
from email import message_from_string
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import yolo_rocm

pytestmark = pytest.mark.once

PROJECT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=PROJECT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


def test_an_installed_wheel_finds_its_presets(wheel, tmp_path):
    """Unpacked like pip does, imported from there and not from the checkout."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    code = (
        "import yolo_rocm, sys; print(yolo_rocm.__file__); print(','.join(yolo_rocm.presets())); "
        "print(yolo_rocm.load_preset('rx5600xt').conv.engine)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "PATH": ""},
    )
    place, names, engine = done.stdout.split()
    assert place.startswith(str(tmp_path))
    assert names.split(",") == yolo_rocm.presets()
    assert engine == "gemm"


def test_what_the_doctor_knows_is_in_the_wheel(wheel):
    with zipfile.ZipFile(wheel) as archive:
        assert "yolo_rocm/diagnosis/known_failures.yaml" in archive.namelist()


def test_the_template_of_the_report_is_in_the_wheel(wheel):
    with zipfile.ZipFile(wheel) as archive:
        for name in ("page.html", "page.css", "page.js"):
            assert f"yolo_rocm/report/templates/{name}" in archive.namelist()


def test_what_run_puts_on_the_path_is_in_the_wheel(wheel):
    with zipfile.ZipFile(wheel) as archive:
        assert [name for name in archive.namelist() if "/startup/" in name] == [
            "yolo_rocm/launch/startup/sitecustomize.py"
        ]


def test_the_entry_point(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith("entry_points.txt")]
        assert "yolo-rocm = yolo_rocm.cli.main:main" in archive.read(name).decode()


def test_no_dependency_reaches_torch(wheel):
    """With a ROCm torch and no torchvision, pip would answer a requirement of either with a CUDA torch from PyPI."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith("METADATA")]
        metadata = message_from_string(archive.read(name).decode())
    waiting = [Requirement(text) for text in metadata.get_all("Requires-Dist") or []]
    reached: set[str] = set()
    while waiting:
        requirement = waiting.pop()
        if requirement.name in reached or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        reached.add(requirement.name)
        waiting += [Requirement(text) for text in importlib.metadata.requires(requirement.name) or []]
    assert {"pydantic", "typer"} <= reached
    assert not reached & {"torch", "torchvision", "ultralytics", "triton"}
