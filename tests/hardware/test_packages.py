"""Installed packages and whether they fit each other, without importing any of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.fake_trees import add_package, write
from yolo_rocm.hardware import Machine, detect
from yolo_rocm.hardware.packages import Packages

pytestmark = pytest.mark.once

OF_NUMPY_1 = b"\x7fELF numpy.core._multiarray_umath\x00"
OF_NUMPY_2 = b"\x7fELF numpy._core._multiarray_umath\x00numpy.core._multiarray_umath\x00"


def packages(site: Path, torch: str | None, numpy: str | None = "2.2.6", system: str = "linux") -> Packages:
    if numpy is not None:
        add_package(site, "numpy", numpy)
    return Packages(torch, site / "torch", system, site)


@pytest.mark.parametrize(
    ("torch", "numpy", "system", "fits"),
    [
        ("1.13.1", "2.2.6", "linux", False),
        ("1.13.1", None, "linux", True),
        (None, "2.2.6", "linux", True),
        ("2.3.0", "2.0.0", "linux", True),
        ("2.4.0", "2.0.0", "windows", False),
        ("2.4.1", "2.0.0", "windows", True),
        ("1.13.1", "unknown", "linux", True),
    ],
)
def test_which_torch_can_use_numpy_2(tmp_path, torch, numpy, system, fits):
    assert (packages(tmp_path, torch, numpy, system).numpy_misfit() is None) == fits


@pytest.mark.parametrize("name", ["libtorch_python.so", "torch_python.dll"])
def test_what_torch_was_really_built_with_goes_before_its_number(tmp_path, name):
    old, new = packages(tmp_path / "old", "2.6.0"), packages(tmp_path / "new", "2.2.0")
    write(tmp_path / "old/torch/lib" / name, OF_NUMPY_1)
    write(tmp_path / "new/torch/lib" / name, OF_NUMPY_2)
    assert "torch 2.6.0 was built for NumPy 1" in old.numpy_misfit().what
    assert new.numpy_misfit() is None


INSISTS = ('numpy<2.0; python_version < "3.9"', 'numpy>=2; python_version >= "3.9"')


@pytest.mark.parametrize(
    ("opencv", "command"),
    [
        ((), 'pip install "numpy<2"'),
        ((("opencv-python", "4.11.0.86", 'numpy>=1.21.2; python_version >= "3.10"'),), 'pip install "numpy<2"'),
        ((("opencv-python", "5.0.0.93", *INSISTS),), 'pip install "numpy<2" "opencv-python<4.12"'),
        (
            (("opencv-contrib-python-headless", "4.12.0.88", "numpy<2.3.0,>=2"),),
            'pip install "numpy<2" "opencv-contrib-python-headless<4.12"',
        ),
        ((("opencv-python", "4.11.0.86", "numpy>=2; extra == 'new'", "not a requirement!"),), 'pip install "numpy<2"'),
    ],
    ids=["none", "any numpy", "numpy 2", "another name", "extras"],
)
def test_the_command_brings_an_opencv_that_takes_numpy_1(tmp_path, opencv, command):
    found = packages(tmp_path, "1.13.1")
    for package in opencv:
        add_package(tmp_path, *package)
    assert found.numpy_misfit().remedy == command


def test_opencv_is_judged_by_its_library_and_then_by_its_number(tmp_path):
    found = packages(tmp_path, "2.10.0")
    assert found.opencv_misfit() is None  # there is none
    add_package(tmp_path, "opencv-python", "4.12.0.88")
    assert found.opencv_misfit() is None
    write(tmp_path / "cv2/cv2.abi3.so", OF_NUMPY_1)
    misfit = found.opencv_misfit()
    assert misfit.what == "opencv-python 4.12.0.88 was built for NumPy 1 and cannot use the installed NumPy 2.2.6"
    assert misfit.remedy == "pip install -U opencv-python"
    write(tmp_path / "cv2/cv2.abi3.so", OF_NUMPY_2)
    assert found.opencv_misfit() is None
    old = packages(tmp_path / "old", "1.13.1")
    add_package(tmp_path / "old", "opencv-python-headless", "4.8.1.78")
    assert old.opencv_misfit().remedy == 'pip install "numpy<2"'
    assert old.versions() == {"numpy": "2.2.6", "opencv-python-headless": "4.8.1.78"}


def test_what_torchvision_was_built_for(tmp_path):
    found = packages(tmp_path, "2.10.0")
    assert found.torchvision_wants() is None
    add_package(tmp_path, "torchvision", "0.25.0", "numpy", "torch (==2.10.0)", "pillow (!=8.3.*,>=5.3.0)")
    assert found.torchvision_wants() == "2.10.0"
    source = packages(tmp_path / "source", "2.10.0")
    add_package(tmp_path / "source", "torchvision", "0.25.0", "numpy==2.0.0", "torch>=2.9")
    assert source.torchvision_wants() is None


def test_by_default_they_are_those_python_would_import(tmp_path, monkeypatch):
    add_package(tmp_path, "numpy", "2.99.0")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert detect().packages.version("numpy") == "2.99.0"
    assert Machine(torch="1.13.1").packages.numpy_misfit() is not None


def test_the_packages_of_these_tests_fit():
    import torch

    here = detect().packages
    assert (here.numpy_misfit(), here.opencv_misfit()) == (None, None)
    assert here.torchvision_wants() in (None, torch.__version__.partition("+")[0])  # some wheels do not say
    assert {"numpy", "torchvision", "pillow"} <= set(here.versions())
