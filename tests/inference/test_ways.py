"""Which ways a machine has: packages, cards, systems and devices decide."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from yolo_rocm.diagnosis.predict_engines import NOT_OFFERED, PREDICT_ENGINES
from yolo_rocm.diagnosis.vulkan import VulkanDevice
from yolo_rocm.errors import ConfigError
from yolo_rocm.hardware import Gpu
from yolo_rocm.inference import ways as module
from yolo_rocm.inference.ways import BASE, Way, candidates, check_engine, on_device, ways

pytestmark = pytest.mark.once


def machine(*packages, gfx=None, system="linux"):
    gpus = () if gfx is None else (Gpu("amd", gfx=gfx),)
    return SimpleNamespace(
        system=system, gpus=gpus, packages=SimpleNamespace(version=lambda name: "1" if name in packages else None)
    )


@pytest.fixture(autouse=True)
def devices(monkeypatch):
    monkeypatch.setattr(module, "vulkan_devices", lambda: (VulkanDevice(0, "AMD Radeon RX 5600 XT", "discrete GPU"),))
    monkeypatch.setattr(module, "_torch_gpus", lambda: [])
    monkeypatch.setattr("yolo_rocm.ultralytics_hooks.predicting.takes_vulkan", lambda: True)


def test_torch_on_the_cpu_is_always_the_first():
    assert ways(machine(), ["onnx"]) == [BASE]
    assert ways(machine("onnx", "onnxruntime"), ["onnx"], device=0) == [BASE]


def test_ncnn_has_two_data_types_on_every_vulkan_device():
    found = ways(machine("ncnn", "pnnx", gfx="gfx1010"), ["ncnn"])
    assert [way.name for way in found[1:]] == ["ncnn cpu fp32", "ncnn vulkan:0 fp32", "ncnn vulkan:0 fp16"]
    assert found[3].arguments() == {"device": "vulkan:0"}


def test_a_driver_that_computes_on_the_cpu_is_for_those_who_ask(monkeypatch):
    monkeypatch.setattr(module, "vulkan_devices", lambda: (VulkanDevice(0, "llvmpipe", "CPU"),))
    here = machine("ncnn", "pnnx")
    assert len(ways(here, ["ncnn"])) == 4
    assert ways(here, ["ncnn"], software=False) == [BASE, Way("ncnn")]


def test_torch_on_a_gpu(monkeypatch):
    monkeypatch.setattr(module, "_torch_gpus", lambda: ["cuda:0"])
    found = ways(machine(gfx="gfx1100"), ["torch"])
    assert found[1:] == [Way("torch", "cuda:0"), Way("torch", "cuda:0", "fp16")]
    assert found[2].arguments() == {"device": "0", "half": True}


def test_what_is_missing_is_named():
    assert PREDICT_ENGINES["ncnn"].reasons_against(machine("ncnn")) == ["pnnx is not installed"]
    assert PREDICT_ENGINES["ncnn"].not_installed(machine("ncnn"), exports=False) == []
    assert "mesa-vulkan-drivers" in PREDICT_ENGINES["ncnn"].install_line("linux")
    assert "mesa" not in PREDICT_ENGINES["ncnn"].install_line("windows")


def test_no_install_line_can_replace_torch():
    """Neither torch itself nor what requires it may be asked of pip with its dependencies."""
    lines = [engine.install_line(system) for engine in PREDICT_ENGINES.values() for system in ("linux", "windows")]
    lines = [line for line in lines if line]
    assert lines
    assert all("--no-deps" in line for line in lines if "pnnx" in line)
    assert not any(f" {name} " in f"{line} " for line in lines for name in ("torch", "torchvision", "ultralytics"))


@pytest.mark.parametrize(
    ("asked", "way", "fits"),
    [
        (None, Way("ncnn", "vulkan:0"), True),
        ("cpu", Way("onnx"), True),
        ("cpu", Way("ncnn", "vulkan:0"), False),
        (0, Way("torch", "cuda:0"), True),
        ("0", Way("torch", "cuda:1"), False),
        ("vulkan:0", Way("ncnn", "vulkan:0", "fp16"), True),
        ([0], Way("torch", "cuda:0"), True),
    ],
)
def test_a_device_leaves_the_ways_on_it(asked, way, fits):
    assert on_device(way, asked) is fits


def test_an_unknown_engine_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'ncnn'"):
        check_engine("ncn", machine())
    for name, remedy in NOT_OFFERED.items():
        with pytest.raises(ConfigError, match=f"engine={name} is not offered: {remedy}"):
            check_engine(name, machine())


@pytest.mark.parametrize(
    ("engine", "device", "expected"),
    [
        ("auto", None, ["torch cpu fp32", "ncnn cpu fp32"]),
        ("auto", "cpu", ["torch cpu fp32", "ncnn cpu fp32"]),
        ("auto", "vulkan:0", ["ncnn vulkan:0 fp32", "ncnn vulkan:0 fp16"]),
        ("onnx", None, ["onnx cpu fp32"]),
        ("onnx", 0, []),
    ],
)
def test_what_an_engine_is_chosen_from(monkeypatch, engine, device, expected):
    """Only of the preset's engines, on the device that was asked for; drivers that compute on the CPU if named."""
    monkeypatch.setattr(module, "vulkan_devices", lambda: (VulkanDevice(0, "llvmpipe", "CPU"),))
    here = machine("ncnn", "pnnx", "onnx", "onnxruntime")
    assert [way.name for way in candidates(here, engine, ["ncnn"], device)] == expected
