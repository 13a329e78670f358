"""Engines of prediction, asked in processes that may die: stand-ins that crash, and those that are installed."""

from __future__ import annotations

import importlib.util

import pytest

from tests.inference.test_ways import machine
from yolo_rocm.diagnosis import probe_predict as module
from yolo_rocm.diagnosis.probe_predict import engine_states
from yolo_rocm.diagnosis.vulkan import VulkanDevice
from yolo_rocm.hardware import Machine, detect
from yolo_rocm.utils.child_process import ChildResult

pytestmark = pytest.mark.once
RADV = VulkanDevice(0, "AMD Radeon RX 5600 XT (RADV NAVI10)", "discrete GPU")
ALL = machine("ncnn", "pnnx", "onnx", "onnxruntime", "openvino", gfx="gfx1010")


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (ChildResult(error="the process ended by SIGSEGV"), "SIGSEGV"),
        (ChildResult({"error": 0.3}), "wrong, relative error 3.0e-01"),
        (ChildResult({"error": float("nan")}), "wrong, relative error nan"),
    ],
)
def test_fp16_that_fails_on_a_driver_leaves_fp32_usable(result, told, monkeypatch):
    asked = []

    def child(name, given, limit_s):
        asked.append((given["engine"], given["device"], given["fp16"]))
        return result if given["fp16"] else ChildResult({"error": 1e-6})

    monkeypatch.setattr(module, "run_module", child)
    states = {state.engine: state for state in engine_states(ALL, devices=[RADV])}
    assert states["ncnn"].works == ("cpu fp32", "vulkan:0 fp32")
    assert states["ncnn"].failed == (f"vulkan:0 fp16: {told if 'SIG' not in told else 'the process ended by SIGSEGV'}",)
    assert states["ncnn"].usable
    assert states["onnx"].works == ("cpu fp32",)
    ncnn = [("ncnn", "cpu", False), ("ncnn", "vulkan:0", False), ("ncnn", "vulkan:0", True)]
    assert asked == [("onnx", "cpu", False), ("openvino", "cpu", False), *ncnn]


def test_what_to_install_and_what_is_known_to_be_wrong():
    states = {state.engine: state for state in engine_states(machine(gfx="gfx1010"), probes=False)}
    assert not states["ncnn"].usable
    assert states["ncnn"].install.startswith("pip install --no-deps ncnn pnnx==")
    assert states["torch"].usable
    assert all(source.startswith("https://") for state in states.values() for _, source in state.faults)
    without = {state.engine: state for state in engine_states(Machine(system="linux"), probes=False)}
    assert len(without["ncnn"].faults) < len(states["ncnn"].faults)  # those of GPUs
    assert without["openvino"].faults


@pytest.mark.deep  # tests/inference has a real runtime
def test_the_engines_that_are_installed_compute_right():
    """With Mesa's lavapipe as a Vulkan driver this is also ncnn on a GPU's path, in fp32 and fp16."""
    here = [name for name in ("ncnn", "onnxruntime", "openvino") if importlib.util.find_spec(name) is not None]
    if not here or importlib.util.find_spec("onnx") is None:
        pytest.skip("no runtime of prediction is installed")
    found = {state.engine: state for state in engine_states(detect())}
    names = {"onnxruntime": "onnx"}
    for name in here:
        state = found[names.get(name, name)]
        assert "cpu fp32" in state.works, state.failed
