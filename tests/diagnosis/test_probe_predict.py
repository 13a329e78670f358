"""Engines of prediction, asked in processes that may die: stand-ins that crash, and those that are installed."""

from __future__ import annotations

import importlib.util
import sys

import pytest

from tests.inference.test_ways import MIGRAPHX, machine
from yolo_rocm.diagnosis.outcome import Limits
from yolo_rocm.diagnosis.probe_predict import engine_states, predict_probes
from yolo_rocm.diagnosis.vulkan import VulkanDevice
from yolo_rocm.hardware import Machine, detect

pytestmark = pytest.mark.once
RADV = VulkanDevice(0, "AMD Radeon RX 5600 XT (RADV NAVI10)", "discrete GPU")
ALL = machine("ncnn", "pnnx", "onnx", "onnxruntime", "openvino", gfx="gfx1010")
# Computes right but for ncnn in fp16 on a GPU, where it does what a test asks for.
CHILD = """
import json, os, sys, time
for name in sys.argv[-1].split(","):
    print(json.dumps(dict(probe=name, begin=True)), flush=True)
    error = 0.0
    if name.startswith("predict/ncnn@vulkan") and name.endswith("fp16"):
        {act}
    print(json.dumps(dict(probe=name, error=error)), flush=True)
"""


def states(tmp_path, act):
    child = tmp_path / "child.py"
    child.write_text(CHILD.format(act=act))
    found = engine_states(
        ALL, command=[sys.executable, str(child)], devices=[RADV], limits=Limits(start=20, probe=2, total=60)
    )
    return {state.engine: state for state in found}


@pytest.mark.parametrize(
    ("act", "told"),
    [
        ("sys.stderr.write('LLVM ERROR: Cannot select'); sys.stderr.flush(); os.abort()", "abort, SIGABRT: LLVM ERROR"),
        ("os.kill(os.getpid(), 11)", "segfault, SIGSEGV"),
        ("time.sleep(600)", "hang, no answer within 2 s"),
        ("error = 0.3", "wrong, relative error 3.0e-01"),
        ("error = float('nan')", "nan"),
    ],
)
@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_fp16_that_fails_on_a_driver_leaves_fp32_usable(tmp_path, act, told):
    found = states(tmp_path, act)
    assert found["ncnn"].works == ("cpu fp32", "vulkan:0 fp32")
    (failed,) = found["ncnn"].failed
    assert failed.startswith("vulkan:0 fp16: ")
    assert told in failed
    assert found["ncnn"].usable
    assert found["onnx"].works == ("cpu fp32",)


def test_what_a_card_cannot_use_and_what_to_install(tmp_path):
    found = {state.engine: state for state in engine_states(machine(gfx="gfx1010"), probes=False)}
    assert not found["migraphx"].usable
    assert found["migraphx"].install == ""  # nothing that is installed would help
    assert not found["ncnn"].usable
    assert found["ncnn"].install.startswith("pip install --no-deps ncnn pnnx==")
    found = {state.engine: state for state in engine_states(machine(gfx="gfx1100"), probes=False)}
    if sys.version_info >= (3, 11):
        assert "onnxruntime-ep-migraphx" in found["migraphx"].install
    assert all(source.startswith("https://") for state in found.values() for _, source in state.faults)
    assert "7900 XTX" in found["compile"].faults[0][0]
    without = {state.engine: state for state in engine_states(Machine(system="linux"), probes=False)}
    assert without["compile"].faults == ()
    assert without["openvino"].faults


def test_what_is_asked():
    names = [probe.name for probe in predict_probes(ALL, [RADV])]
    assert names == [
        "predict/onnx@cpu/fp32",
        "predict/openvino@cpu/fp32",
        "predict/ncnn@cpu/fp32",
        "predict/ncnn@vulkan:0/fp32",
        "predict/ncnn@vulkan:0/fp16",
    ]
    if sys.version_info >= (3, 11):
        asked = [probe.name for probe in predict_probes(machine(*MIGRAPHX, gfx="gfx1100"))]
        assert "predict/migraphx@gpu:0/fp32" in asked


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
