"""The convolutions of a model as problems, and the threads a benchmark computes with."""

from __future__ import annotations

import pytest
import torch

from yolo_rocm.bench.layers import model_layers, threads_of_a_training

pytestmark = pytest.mark.once


def test_problems_are_those_of_the_batch_dtype_device_and_layout_asked_for():
    layers = model_layers("yolov8n.yaml", 64, 5, torch.float16, "cuda:0", True)
    assert {layer.problem.input_shape[0] for layer in layers} == {5}
    assert {layer.problem.dtype for layer in layers} == {torch.float16}
    assert {(layer.problem.device, layer.problem.channels_last) for layer in layers} == {("cuda:0", True)}
    assert [layer.names for layer in layers if not layer.needs_grad_input] == [("model.0.conv",)]
    assert sum(len(layer.names) for layer in layers) == 63  # the 64th, in DFL, runs in inference alone


@pytest.fixture
def three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    after = torch.get_num_threads()
    torch.set_num_threads(before)
    assert after == 3  # whatever a test has done


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize(
    ("device", "asked", "threads"), [("cuda:0", None, 1), ("cuda:0", "", 1), ("cuda:0", "3", 3), ("cpu", None, 3)]
)
def test_one_on_a_gpu_unless_the_user_has_asked_for_another_number(monkeypatch, device, asked, threads):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if asked is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", asked)
    with pytest.raises(KeyboardInterrupt), threads_of_a_training(device):
        assert torch.get_num_threads() == threads
        raise KeyboardInterrupt
