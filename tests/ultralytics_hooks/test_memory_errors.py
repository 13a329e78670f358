"""Memory errors of AMD's libraries: recognised, and nothing of the failed step kept."""

from __future__ import annotations

import json
import logging
import weakref
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

import yolo_rocm
from yolo_rocm.session.failures import says_out_of_memory
from yolo_rocm.ultralytics_hooks import memory_errors

from ..session.test_training import OURS
from ..sick_vendor import sick_vendor
from ..tables import each_row

pytestmark = pytest.mark.once
QUICK = {"imgsz": 32, "batch": 4, "plots": False, "device": "cpu", "seed": 0, "verbose": False, "workers": 0}
HIPBLAS = "CUDA error: HIPBLAS_STATUS_ALLOC_FAILED when calling `hipblasCreate(handle)`"


@pytest.fixture
def log(caplog):
    logger = logging.getLogger("ultralytics")
    logger.addHandler(caplog.handler)
    yield caplog
    logger.removeHandler(caplog.handler)


def registered(model="yolov8n.yaml"):
    from ultralytics import YOLO

    yolo = YOLO(model)
    yolo_rocm.register(yolo, "cpu", OURS)
    return yolo


def retries_with_a_smaller_batch() -> bool:
    from ultralytics.engine.trainer import BaseTrainer

    return hasattr(BaseTrainer, "_build_train_pipeline")


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


def test_words_that_ultralytics_knows_are_left_alone():
    assert (
        memory_errors.translated(RuntimeError("HIP out of memory. Tried to allocate 2 GiB"), says_out_of_memory) is None
    )
    assert memory_errors.translated(KeyboardInterrupt(HIPBLAS), says_out_of_memory) is None
    assert memory_errors.HEARD in str(memory_errors.translated(RuntimeError(HIPBLAS), says_out_of_memory))


class Held:
    """Stands for the activations of a step that failed."""


def out_of_memory(text: str, seen: list) -> None:
    activations = Held()
    seen.append(weakref.ref(activations))
    raise RuntimeError(text)


def test_the_activations_of_a_step_that_did_not_fit_are_given_up_before_the_retry():
    seen, said = [], []
    try:
        with memory_errors._Listening(nullcontext(), says_out_of_memory):
            out_of_memory(HIPBLAS, seen)
    except RuntimeError as error:  # the retry begins in here
        said += [memory_errors.HEARD in str(error), seen[0]() is None]
    assert said == [True, True]


class Scaler:
    """Scales like torch's, which makes a new tensor, or returns the loss itself where it is switched off."""

    def __init__(self, enabled: bool) -> None:
        self.enabled = enabled

    def scale(self, loss):
        """Scale."""
        return loss * 2.0 if self.enabled else loss


@pytest.fixture
def no_collector():
    import gc

    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("fails", [None, "rocblas_status_memory_error", "another error"])
def test_the_graph_of_a_step_goes_with_the_step(enabled, fails):
    """Without waiting for the garbage collector: on a GPU it is most of the memory."""

    class Graph(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.activations = Held()
            seen.append(weakref.ref(ctx.activations))
            return x.sum()

        @staticmethod
        def backward(ctx, grad):
            if fails:
                raise RuntimeError(fails)
            return grad.expand(2)

    seen, trainer = [], SimpleNamespace(scaler=Scaler(enabled))
    memory_errors.recognise_in_backward(trainer, says_out_of_memory)
    memory_errors.recognise_in_backward(trainer, says_out_of_memory)  # once is enough
    weight = torch.ones(2, requires_grad=True)
    trainer.loss = Graph.apply(weight)
    try:
        trainer.scaler.scale(trainer.loss).backward()
    except RuntimeError as error:
        trainer.loss = None
        text, given_up = str(error), seen[0]() is None  # the retry begins in here
    if fails:
        assert fails in text
        assert (memory_errors.HEARD in text) == ("memory" in fails)
        assert given_up or "memory" not in fails
    else:
        assert weight.grad.tolist() == ([2.0, 2.0] if enabled else [1.0, 1.0])
    trainer.loss = None
    assert seen[0]() is None


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("enabled", [True, False])
def test_the_graph_of_a_loss_that_nobody_calls_goes_with_the_next(enabled):
    """As where a trainer asks for gradients by `torch.autograd.grad`, or leaves a batch out."""
    trainer = SimpleNamespace(scaler=Scaler(enabled))
    memory_errors.recognise_in_backward(trainer, says_out_of_memory)
    weight, seen = torch.ones(2, requires_grad=True), []
    for _ in range(3):
        scaled = trainer.scaler.scale((weight * weight).sum())
        seen.append(weakref.ref(scaled))
        del scaled
    assert [each() is None for each in seen] == [True, True, False]
    first, second = (trainer.scaler.scale((weight * weight).sum()) for _ in range(2))
    first.backward()
    second.backward()
    assert weight.grad.tolist() == ([8.0, 8.0] if enabled else [4.0, 4.0])


@pytest.mark.skipif(not retries_with_a_smaller_batch(), reason="this Ultralytics does not halve the batch")
def test_memory_that_runs_out_in_amd_words_halves_the_batch(made_data, tmp_path, log):
    """Once in the forward and once in the backward pass; the rest of the run is an ordinary one under the preset."""
    yolo, failing = registered(), {"forward": 1, "backward": 1}

    def fail(way: str, text: str) -> None:
        if failing[way]:
            failing[way] -= 1
            raise RuntimeError(text)

    def prepare(trainer) -> None:
        layer = trainer.model.model[0].conv
        layer.register_forward_pre_hook(lambda *_: fail("forward", HIPBLAS))
        layer.weight.register_hook(lambda _: fail("backward", "rocblas_status_memory_error"))

    yolo.add_callback("on_train_start", prepare)
    from ultralytics.data import build

    with sick_vendor():
        stock = build.InfiniteDataLoader
        yolo.train(data=str(made_data()), project=str(tmp_path), epochs=1, **{**QUICK, "batch": 8})
    assert failing == {"forward": 0, "backward": 0}
    assert yolo.trainer.batch_size == 2
    facts = json.loads((yolo.trainer.save_dir / "rocm.json").read_text())
    assert facts["batch"] == {"asked": 8, "used": 2}  # the report names it
    assert type(yolo.trainer.train_loader).__name__ == "PolicyDataLoader"
    assert len(yolo.trainer.train_loader) == 4
    assert [text for text in log.messages if "Reducing to batch=4" in text]
    assert [text for text in log.messages if "Reducing to batch=2" in text]
    assert build.InfiniteDataLoader is stock
    from ultralytics.engine import trainer
    from ultralytics.utils.torch_utils import autocast

    assert trainer.autocast is autocast
