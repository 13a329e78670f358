"""Memory errors of AMD's libraries: recognised, and nothing of the failed step kept."""

from __future__ import annotations

import gc
import json
import weakref

import pytest
import torch
from ultralytics import YOLO
from ultralytics.data import build
from ultralytics.engine import trainer

import yolo_rocm
from yolo_rocm.session.failures import says_out_of_memory
from yolo_rocm.ultralytics_hooks import memory_errors

from ..session.test_training import OURS
from ..sick_vendor import sick_vendor
from ..small_model import small_model
from ..tables import each_row

pytestmark = pytest.mark.once
QUICK = {"imgsz": 32, "batch": 4, "plots": False, "device": "cpu", "seed": 0, "verbose": False, "workers": 0}
HIPBLAS = "CUDA error: HIPBLAS_STATUS_ALLOC_FAILED when calling `hipblasCreate(handle)`"


@each_row(
    ("text", "free", "expected"),
    [
        (HIPBLAS, None, True),
        ("rocblas_status_memory_error", None, True),
        ("miopenStatusAllocFailed", None, True),
        ("miopenStatusUnknownError", 0.01, True),
        ("miopenStatusUnknownError", 0.5, False),
        ("miopenStatusUnknownError", None, False),
        ("HIP error: invalid device function", 0.01, False),
    ],
)
def test_what_counts_as_a_memory_error(text, free, expected):
    assert memory_errors.is_memory_error(text, says_out_of_memory, free) is expected


class Held:
    """Stands for the activations of a step that failed."""


def out_of_memory(text: str, seen: list) -> None:
    activations = Held()
    seen.append(weakref.ref(activations))
    raise RuntimeError(text)


class Graph(torch.autograd.Function):
    """A step that keeps activations, and may fail in its backward pass."""

    @staticmethod
    def forward(ctx, x, seen, fails):
        ctx.activations, ctx.fails = Held(), fails
        seen.append(weakref.ref(ctx.activations))
        return x.sum()

    @staticmethod
    def backward(ctx, grad):
        if ctx.fails:
            raise RuntimeError(ctx.fails)
        return grad.expand(2), None, None


@pytest.fixture
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize(
    ("backward", "text", "known"),
    [
        (False, HIPBLAS, True),
        (True, HIPBLAS, True),
        (True, "HIP out of memory. Tried to allocate 2 GiB", True),
        (True, "another error", False),
    ],
)
def test_a_step_that_does_not_fit_says_so_and_is_given_up_before_the_retry(backward, text, known):
    """Without waiting for the garbage collector: on a GPU it is most of the memory."""
    seen, weight = [], torch.ones(2, requires_grad=True)
    with memory_errors.memory_errors_recognised(says_out_of_memory):
        try:
            if backward:
                (Graph.apply(weight, seen, text) * 2).backward()
            else:
                with trainer.autocast(False):
                    out_of_memory(text, seen)
        except RuntimeError as error:
            message, given_up = str(error), seen[0]() is None  # the retry begins in here
    assert text in message
    assert (memory_errors.HEARD in message) is known
    assert given_up or text != HIPBLAS
    assert seen[0]() is None


def test_a_step_that_fits_is_torchs_own():
    weight, original = torch.ones(2, requires_grad=True), torch.Tensor.backward
    with memory_errors.memory_errors_recognised(says_out_of_memory):
        Graph.apply(weight, [], "").backward()
    assert weight.grad.tolist() == [1, 1]
    assert torch.Tensor.backward is original


@pytest.mark.skipif(not hasattr(trainer.BaseTrainer, "_build_train_pipeline"), reason="it does not halve the batch")
def test_memory_that_runs_out_in_amd_words_halves_the_batch(made_data, tmp_path):
    """Once in the forward and once in the backward pass; the rest of the run is an ordinary one under the preset."""
    yolo, failing = YOLO(small_model()), {"forward": 1, "backward": 1}
    handle = yolo_rocm.register(yolo, "cpu", OURS)

    def fail(way: str, text: str) -> None:
        if failing[way]:
            failing[way] -= 1
            raise RuntimeError(text)

    def prepare(trainer) -> None:
        layer = trainer.model.model[0].conv
        layer.register_forward_pre_hook(lambda *_: fail("forward", HIPBLAS))
        layer.weight.register_hook(lambda _: fail("backward", "rocblas_status_memory_error"))

    yolo.add_callback("on_train_start", prepare)
    with sick_vendor():
        yolo.train(data=str(made_data()), project=str(tmp_path), epochs=1, **{**QUICK, "batch": 8})
    assert failing == {"forward": 0, "backward": 0}
    facts = json.loads((yolo.trainer.save_dir / "rocm.json").read_text())
    assert facts["batch"] == {"asked": 8, "used": 2}  # the report names it
    assert type(yolo.trainer.train_loader).__name__ == "PolicyDataLoader"
    assert len(yolo.trainer.train_loader) == 4
    handle.remove()
    assert build.InfiniteDataLoader.__module__ == "ultralytics.data.build"
