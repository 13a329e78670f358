"""A benchmark on a GPU computes with the threads a training has on the CPU."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from yolo_rocm.bench.threads import threads_of_a_training


@pytest.fixture(autouse=True)
def three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    after = torch.get_num_threads()
    torch.set_num_threads(before)
    assert after == 3  # whatever a test has done


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


@pytest.mark.once
def test_ultralytics_still_asks_for_one(monkeypatch):
    """The fact that `threads_of_a_training` rests on."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    code = "import ultralytics.utils.torch_utils, torch; print(torch.get_num_threads())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == "1"
