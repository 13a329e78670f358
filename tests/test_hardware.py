"""Hardware facts from made sysfs trees."""

from __future__ import annotations

from pathlib import Path

import pytest

from yolo_rocm.hardware import detect, gfx_name, torch_build


def kfd_node(root: Path, number: int, target: int, vram_gb: float, vendor: int = 4098) -> None:
    node = root / "sys/class/kfd/kfd/topology/nodes" / str(number)
    (node / "mem_banks/0").mkdir(parents=True)
    (node / "properties").write_text(f"simd_count 72\ngfx_target_version {target}\nvendor_id {vendor}\n")
    (node / "mem_banks/0/properties").write_text(f"heap_type 1\nsize_in_bytes {int(vram_gb * 2**30)}\n")


@pytest.mark.parametrize(
    ("target", "name"),
    [
        (100100, "gfx1010"),
        (100300, "gfx1030"),
        (110001, "gfx1101"),
        (120001, "gfx1201"),
        (90010, "gfx90a"),
        (90402, "gfx942"),
    ],
)
def test_gfx_names(target, name):
    assert gfx_name(target) == name


def test_the_true_target_and_the_larger_card_first(tmp_path, monkeypatch):
    monkeypatch.setenv("HSA_OVERRIDE_GFX_VERSION", "10.3.0")
    kfd_node(tmp_path, 0, 0, 0)  # the CPU is a node too
    kfd_node(tmp_path, 1, 100306, 0.5)
    kfd_node(tmp_path, 2, 100100, 6)
    gpus = detect(tmp_path).gpus
    assert [(gpu.gfx, gpu.vram_gb) for gpu in gpus] == [("gfx1010", 6.0), ("gfx1036", 0.5)]
    assert str(gpus[0]) == "AMD GPU gfx1010, 6 GB"


def test_no_gpu(tmp_path):
    machine = detect(tmp_path)
    assert machine.gpus == ()
    assert machine.gpu is None
    assert machine.no_gpu_reason == "no GPU found"


def test_unreadable_rubbish_is_no_gpu(tmp_path):
    node = tmp_path / "sys/class/kfd/kfd/topology/nodes/1"
    node.mkdir(parents=True)
    (node / "properties").write_bytes(b"\xff\xfe gfx_target_version\nnot numbers at all\n")
    assert detect(tmp_path).gpus == ()


def test_wsl_and_container(tmp_path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/version").write_text("Linux version 5.15.90.1-microsoft-standard-WSL2")
    (tmp_path / ".dockerenv").touch()
    assert set(detect(tmp_path).overlays) >= {"wsl", "container"}


def test_nvidia(tmp_path):
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").touch()
    assert [gpu.vendor for gpu in detect(tmp_path).gpus] == ["nvidia"]


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
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text("raise ImportError('must not be imported')")
    (tmp_path / "torch/version.py").write_text(text)
    spec = type("Spec", (), {"origin": str(tmp_path / "torch/__init__.py")})
    monkeypatch.setattr("importlib.util.find_spec", lambda name: spec)
    assert torch_build() == expected


def test_this_torch():
    import torch

    version, build, _ = torch_build()
    assert torch.__version__.startswith(version)
    assert (build == "hip") == (torch.version.hip is not None)
