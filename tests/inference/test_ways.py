"""Which ways a machine has: packages, cards, systems and devices decide."""

from __future__ import annotations

import pytest

from yolo_rocm.diagnosis.predict_engines import PREDICT_ENGINES
from yolo_rocm.diagnosis.vulkan import VulkanDevice
from yolo_rocm.errors import ConfigError, EngineError
from yolo_rocm.inference import ways as module
from yolo_rocm.inference.ways import BASE, Way, candidates, check_engine, ways

from .conftest import machine

pytestmark = pytest.mark.once
RADEON = VulkanDevice(0, "AMD Radeon RX 5600 XT", "discrete GPU")


@pytest.fixture(autouse=True)
def devices(monkeypatch):
    monkeypatch.setattr(module, "vulkan_devices", lambda: (RADEON,))
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    monkeypatch.setattr("yolo_rocm.ultralytics_hooks.predicting.takes_vulkan", lambda: True)


@pytest.mark.parametrize(
    ("engine", "device", "expected"),
    [
        ("auto", "cpu", ["torch cpu fp32", "ncnn cpu fp32"]),
        ("auto", "vulkan", ["ncnn vulkan:0 fp32", "ncnn vulkan:0 fp16"]),
        ("auto", None, ["torch cpu fp32", "torch cuda:0 fp32", "torch cuda:0 fp16", "ncnn cpu fp32"]),
        ("auto", [0], ["torch cuda:0 fp32", "torch cuda:0 fp16"]),
        ("torch", "1", []),
        ("onnx", None, ["onnx cpu fp32"]),
        ("onnx", 0, []),
    ],
)
def test_what_an_engine_is_chosen_from(monkeypatch, engine, device, expected):
    """Only of the preset's engines, on the device that was asked for; drivers that compute on the CPU if named."""
    monkeypatch.setattr(module, "vulkan_devices", lambda: (VulkanDevice(0, "llvmpipe", "CPU"),))
    here = machine("ncnn", "pnnx", "onnx", "onnxruntime")
    assert [way.name for way in candidates(here, engine, ["ncnn"], device)] == expected


def test_what_a_card_adds_and_what_ultralytics_is_given():
    names = [way.name for way in ways(machine("ncnn", "pnnx"), ["ncnn"])]
    assert names == ["torch cpu fp32", "ncnn cpu fp32", "ncnn vulkan:0 fp32", "ncnn vulkan:0 fp16"]
    assert ways(machine("onnx"), ["onnx"]) == [BASE]
    assert Way("ncnn", "vulkan:0", "fp16").arguments() == {"device": "vulkan:0"}
    assert Way("torch", "cuda:0", "fp16").arguments() == {"device": "0", "half": True}


def test_what_cannot_be_used_is_refused_with_what_to_do():
    with pytest.raises(ConfigError, match="did you mean 'ncnn'"):
        check_engine("ncn", machine())
    with pytest.raises(EngineError, match=r"engine=ncnn needs pnnx\. To install it: pip install --no-deps ncnn pnnx=="):
        check_engine("ncnn", machine("ncnn"))


def test_no_install_line_can_replace_torch():
    """Neither torch itself nor what requires it may be asked of pip with its dependencies."""
    lines = [engine.install_line(system) for engine in PREDICT_ENGINES.values() for system in ("linux", "windows")]
    assert all("--no-deps" in line for line in lines if "pnnx" in line)
    assert not any(f" {name} " in f"{line} " for line in lines for name in ("torch", "torchvision", "ultralytics"))
