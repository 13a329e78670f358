"""What was chosen is remembered until model, devices or software change; broken files cost nothing else."""

from __future__ import annotations

import pytest

from tests.inference.test_ways import machine
from yolo_rocm.inference import choices as module
from yolo_rocm.inference.choices import Choices, key_of
from yolo_rocm.inference.ways import Way

pytestmark = pytest.mark.once
ASKED = {"engine": "auto", "imgsz": 640, "batch": 1}


def full(*packages, **more):
    found = machine(*packages, **more)
    found.cores, found.torch, found.ultralytics = 2, "2.10.0", "8.4.190"
    return found


def test_a_choice_is_remembered_and_forgotten(tmp_path):
    store = Choices(tmp_path)
    assert store.get("a") is None
    store.put("a", Way("ncnn", "vulkan:0", "fp16"), "12.3 ms")
    assert Choices(tmp_path).get("a") == (Way("ncnn", "vulkan:0", "fp16"), "12.3 ms")
    store.forget("a")
    assert Choices(tmp_path).get("a") is None


@pytest.mark.parametrize("text", ["", "[]", '{"a": 1}', '{"a": {"way": {"engine": "x", "speed": 1}}}'])
def test_a_file_that_makes_no_sense_is_measured_again(tmp_path, text):
    (tmp_path / "predict.json").write_text(text)
    store = Choices(tmp_path)
    assert store.get("a") is None
    store.put("a", Way("onnx"), "1 ms")
    assert store.get("a") == (Way("onnx"), "1 ms")


def test_a_folder_that_cannot_be_written_costs_a_line(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    Choices(tmp_path / "file").put("a", Way("onnx"), "1 ms")
    assert "cannot be kept" in caplog.text


def test_what_a_choice_depends_on(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "vulkan_devices", lambda: ())
    weights, copy, other = (tmp_path / name for name in ("a.pt", "b.pt", "c.pt"))
    weights.write_bytes(b"weights")
    copy.write_bytes(b"weights")
    other.write_bytes(b"other")
    key = key_of(full("ncnn"), weights, "rx5600xt", ASKED)
    assert key == key_of(full("ncnn"), copy, "rx5600xt", ASKED)
    changed = {
        key_of(full("ncnn"), other, "rx5600xt", ASKED),
        key_of(full("ncnn", gfx="gfx1010"), weights, "rx5600xt", ASKED),
        key_of(full("ncnn", "openvino"), weights, "rx5600xt", ASKED),
        key_of(full("ncnn"), weights, "cpu", ASKED),
        key_of(full("ncnn"), weights, "rx5600xt", {**ASKED, "imgsz": 320}),
    }
    assert len(changed | {key}) == 6
