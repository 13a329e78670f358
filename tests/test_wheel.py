"""What a user installs: the wheel carries the presets, and nothing in it can make pip touch torch."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import venv
import zipfile
from email import message_from_string
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import yolo_rocm

pytestmark = pytest.mark.once

PROJECT = Path(__file__).parents[1]
# What users write, with the types they may expect.
USER_SCRIPT = """
from pathlib import Path

import yolo_rocm


def main(data: Path) -> list[str]:
    preset: yolo_rocm.Preset = yolo_rocm.load_preset("rx5600xt")
    engine: str = preset.conv.engine
    yolo_rocm.train("yolo11n.pt", data=str(data), preset="auto", rocm={"conv": {"engine": engine}}, epochs=1)
    yolo_rocm.seed_everything(0)
    with yolo_rocm.patched(devices=("cuda",), engine="gemm") as report:
        table: str = report.table()
    handle: yolo_rocm.Registration = yolo_rocm.register(object())
    handle.remove()
    try:
        found: yolo_rocm.Diagnosis = yolo_rocm.doctor()
    except yolo_rocm.YoloRocmError as error:
        return [str(error)]
    return [table, *yolo_rocm.presets(), *(str(finding) for finding in found.findings)]
"""
# Each of these lines is a mistake, and the only one of its line.
MISTAKES = """
import yolo_rocm

yolo_rocm.trian("yolo11n.pt")
yolo_rocm.seed_everything("zero")
yolo_rocm.presets("rx5600xt")
number: int = yolo_rocm.load_preset("rx5600xt").conv.engine
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=PROJECT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def metadata(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith("METADATA")]
        return message_from_string(archive.read(name).decode())


def test_what_the_code_reads_is_in_the_wheel(wheel):
    """Sources of kernels, what the doctor knows, the template of the report, and of the path only what `run` puts."""
    found = (path for end in ("*.h", "*.cpp") for path in (PROJECT / "yolo_rocm").rglob(end))
    sources = {path.relative_to(PROJECT / "yolo_rocm").as_posix() for path in found}
    assert "engines/hip/prelude.h" in sources
    sources |= {"diagnosis/known_failures.yaml", *(f"report/templates/page.{end}" for end in ("html", "css", "js"))}
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (entry,) = [name for name in names if name.endswith("entry_points.txt")]
        assert "yolo-rocm = yolo_rocm.cli.main:main" in archive.read(entry).decode()
    assert {f"yolo_rocm/{name}" for name in sources} <= set(names)
    startup = [name for name in names if "/startup/" in name]
    assert startup == ["yolo_rocm/launch/startup/sitecustomize.py"]


def test_an_installed_wheel_finds_its_presets(wheel, tmp_path):
    """Unpacked like pip does, imported from there and not from the checkout."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    code = (
        "import yolo_rocm, sys; print(yolo_rocm.__file__); print(','.join(yolo_rocm.presets())); "
        "print(yolo_rocm.load_preset('rx5600xt').conv.engine); "
        "print('certified' in yolo_rocm.load_preset('cpu').evidence)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "PATH": ""},
    )
    place, names, engine, evidence = done.stdout.split()
    assert place.startswith(str(tmp_path))
    assert names.split(",") == yolo_rocm.presets()
    assert (engine, evidence) == ("gemm+hip", "True")


@pytest.fixture(scope="module")
def check_types(wheel, tmp_path_factory):
    """Return a function that type-checks a script in an environment that has the wheel and nothing else."""
    folder = tmp_path_factory.mktemp("typed")
    venv.create(folder / "env", with_pip=False, symlinks=os.name != "nt")
    python = folder / "env" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    asked = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    place = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place)

    def check(script: str) -> list[str]:
        (folder / "script.py").write_text(script, encoding="utf-8")
        command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(python), "script.py"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
        assert done.returncode in (0, 1), done.stderr
        return [line for line in done.stdout.splitlines() if ": error: " in line]

    return check


def test_a_typed_script_of_a_user_passes(check_types):
    assert check_types(USER_SCRIPT) == []


def test_wrong_use_is_reported_line_by_line(check_types):
    lines = [int(re.match(r"script\.py:(\d+): error", line)[1]) for line in check_types(MISTAKES)]
    assert lines == [number for number, line in enumerate(MISTAKES.splitlines(), 1) if line and "import" not in line]


def test_the_licence_is_named_and_enclosed(wheel, metadata):
    with zipfile.ZipFile(wheel) as archive:
        (licence,) = [n for n in archive.namelist() if n.endswith("licenses/LICENSE")]
        text = " ".join(archive.read(licence).decode().split())
    assert metadata["License-Expression"] == "AGPL-3.0-only"
    assert text.startswith("GNU AFFERO GENERAL PUBLIC LICENSE Version 3, 19 November 2007")
    assert not [line for line in metadata.get_all("Classifier") if line.startswith("License")]


def test_no_dependency_reaches_torch(metadata):
    """With a ROCm torch and no torchvision, pip would answer a requirement of either with a CUDA torch from PyPI."""
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
