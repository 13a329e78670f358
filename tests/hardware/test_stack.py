"""Installed software from its files, without importing any of it."""

from __future__ import annotations

import pytest

from yolo_rocm.hardware import detect
from yolo_rocm.hardware.stack import package_version, rocblas_archs, rocm_version, torch_archs, torch_build

from ..fake_trees import PYTORCH_ORG_ARCHS, make_torch, make_tree, old_torch, write


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("__version__ = '1.13.1+rocm5.2'\ncuda = None\nhip = '5.2.21151-afdc89f8'\n", ("1.13.1", "hip", "5.2.21151")),
        ("__version__ = '2.10.0'\ncuda: Optional[str] = '12.8'\nhip: Optional[str] = None\n", ("2.10.0", "cuda", None)),
        (
            "__version__ = '2.10.0+cpu'\ncuda: Optional[str] = None\nhip: Optional[str] = None\n",
            ("2.10.0", "cpu", None),
        ),
    ],
)
def test_torch_builds_are_read_without_importing_torch(tmp_path, monkeypatch, text, expected):
    write(tmp_path / "torch/__init__.py", "raise ImportError('must not be imported')")
    write(tmp_path / "torch/version.py", text)
    spec = type("Spec", (), {"origin": str(tmp_path / "torch/__init__.py")})
    monkeypatch.setattr("importlib.util.find_spec", lambda name: spec)
    assert torch_build() == expected


def test_no_torch(monkeypatch, tmp_path):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    machine = detect(tmp_path, os_name="linux")
    assert (machine.torch, machine.build, machine.hip, machine.archs, machine.rocblas_archs) == (None,) * 3 + ((), ())


def test_targets_of_a_wheel(tmp_path):
    machine = detect(make_tree(tmp_path / "root"), os_name="linux", torch_folder=make_torch(tmp_path))
    assert machine.archs == tuple(sorted(PYTORCH_ORG_ARCHS))
    assert machine.rocblas_archs == machine.archs
    assert "gfx1010" not in detect(tmp_path, torch_folder=old_torch(tmp_path / "old")).archs


def test_device_code_installed_as_packages_of_its_own(tmp_path):
    """The host part of a split wheel names every target it was built for; the kernels are in the packages."""
    folder = make_torch(tmp_path, archs=["gfx1010", "gfx1012", "gfx1030", "gfx1100"])
    (tmp_path / "rocm_sdk_device_gfx1034-7.14.dist-info").mkdir()
    (tmp_path / "amd_torch_device_gfx11-2.11.0.dist-info").mkdir()  # attention kernels of a whole family
    assert len(torch_archs(folder)) == 4
    (tmp_path / "amd_torch_device_gfx1010-2.11.0+rocm7.14.dist-info").mkdir()
    assert torch_archs(folder) == ("gfx1010",)


def test_targets_that_are_not_known(tmp_path):
    folder = make_torch(tmp_path / "one", archs=["gfx1010"])
    assert torch_archs(folder) == ()  # other names stand in the library too, so which one is the list is not known
    write(folder / "lib/libtorch_python.so", b"\x00gfx1010\x00")
    assert torch_archs(folder) == ("gfx1010",)
    assert torch_archs(None) == ()
    assert torch_archs(tmp_path) == ()
    write(tmp_path / "lib/libtorch_python.so", b"")
    assert torch_archs(tmp_path) == ()


def test_rocblas_from_the_first_place_that_has_kernels(tmp_path):
    site, root = tmp_path / "site", tmp_path / "root"
    write(root / "opt/rocm/lib/rocblas/library/TensileLibrary_gfx906.co", "")
    assert rocblas_archs(site / "torch", root) == ("gfx906",)
    write(site / "_rocm_sdk_libraries_gfx1010/lib/rocblas/library/gfx1010/TensileLibrary_lazy_gfx1010.dat", "")
    assert rocblas_archs(site / "torch", root) == ("gfx1010",)
    write(site / "torch/lib/rocblas/library/TensileLibrary_Type_HH_Contraction_l_Ailk_Bjlk_Cijk_Dijk_gfx90a.co", "")
    assert rocblas_archs(site / "torch", root) == ("gfx90a",)
    assert rocblas_archs(None, tmp_path / "nowhere") == ()


def test_the_rocm_of_the_system_and_versions_of_packages(tmp_path, monkeypatch):
    assert rocm_version(tmp_path) is None
    write(tmp_path / "opt/rocm/.info/version", "6.2.0-66\n")
    assert rocm_version(tmp_path) == "6.2.0"
    assert package_version("ultralytics").startswith("8.")
    assert package_version("no_such_package_here") is None
    write(tmp_path / "no_such_package_here/__init__.py", '__version__ = "8.3.1"\nraise ImportError("never imported")\n')
    monkeypatch.syspath_prepend(tmp_path)
    assert package_version("no_such_package_here") == "8.3.1"  # a checkout
