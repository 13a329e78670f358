"""ncnn through Vulkan, where there is a device; `.ci/vulkan` brings one that computes on the processor."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest

from yolo_rocm.diagnosis.vulkan import vulkan_devices
from yolo_rocm.inference.measure import survey
from yolo_rocm.inference.ways import BASE, Way
from yolo_rocm.ultralytics_hooks import predicting

FP32, FP16 = Way("ncnn", "vulkan:0"), Way("ncnn", "vulkan:0", "fp16")


@pytest.fixture(autouse=True)
def device():
    for name in ("ncnn", "pnnx"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    if not predicting.takes_vulkan():
        pytest.skip("this Ultralytics does not let ncnn use a GPU")
    if not vulkan_devices():
        pytest.skip("no Vulkan device: `.ci/vulkan FOLDER COMMAND` runs a command with one")


pytestmark = [pytest.mark.once, pytest.mark.usefixtures("cache")]


@pytest.fixture(scope="module")
def weights(busy_weights, tmp_path_factory):
    """One folder for all: what one test exports, the next one finds."""
    return shutil.copy(busy_weights, tmp_path_factory.mktemp("vulkan"))


def test_fp32_finds_what_torch_finds_and_fp16_does_or_ends_in_its_own_process(weights, photos):
    images = predicting.first_images(str(photos), 2)
    found = survey(Path(weights), "detect", images, [BASE, FP32, FP16], imgsz=64)
    rows = {row.way: row for row in found}
    assert rows[FP32].error == ""
    assert rows[FP32].agrees, rows[FP32].agreement
    assert rows[FP32].objects >= 8
    # LLVM cannot compile fp16 for every processor, and aborts. Wrong boxes would be neither.
    assert rows[FP16].error.startswith("the process ended by") or rows[FP16].agrees, rows[FP16]
