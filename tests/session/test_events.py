"""What happens inside a training without anybody being told: memory that runs out, NaN, mosaics that end, a clock."""

from __future__ import annotations

import csv
import logging
import socket
import weakref
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

import yolo_rocm
from yolo_rocm import ultralytics_hooks as hooks
from yolo_rocm.session.training import TrainingRun
from yolo_rocm.ultralytics_hooks import amp_check, memory_errors

from ..sick_vendor import sick_vendor
from .test_training import OURS

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


@pytest.mark.parametrize(
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
    assert hooks.is_memory_error(text, free) is expected


def test_words_that_ultralytics_knows_are_left_alone():
    assert memory_errors.translated(RuntimeError("HIP out of memory. Tried to allocate 2 GiB")) is None
    assert memory_errors.translated(KeyboardInterrupt(HIPBLAS)) is None
    assert memory_errors.HEARD in str(memory_errors.translated(RuntimeError(HIPBLAS)))


class Held:
    """Stands for the activations of a step that failed."""


def out_of_memory(text: str, seen: list) -> None:
    activations = Held()
    seen.append(weakref.ref(activations))
    raise RuntimeError(text)


def test_the_activations_of_a_step_that_did_not_fit_are_given_up_before_the_retry():
    seen, said = [], []
    try:
        with memory_errors._Listening(nullcontext()):
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
    hooks.recognise_in_backward(trainer)
    hooks.recognise_in_backward(trainer)  # once is enough
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
    assert type(yolo.trainer.train_loader).__name__ == "PolicyDataLoader"
    assert len(yolo.trainer.train_loader) == 4
    assert [text for text in log.messages if "Reducing to batch=4" in text]
    assert [text for text in log.messages if "Reducing to batch=2" in text]
    assert build.InfiniteDataLoader is stock
    from ultralytics.engine import trainer
    from ultralytics.utils.torch_utils import autocast

    assert trainer.autocast is autocast


def test_a_memory_error_that_no_retry_cures_is_raised_with_its_cause(made_data, tmp_path):
    yolo = registered()

    def fail(trainer) -> None:
        trainer.model.model[0].conv.register_forward_pre_hook(lambda *_: (_ for _ in ()).throw(RuntimeError(HIPBLAS)))

    yolo.add_callback("on_train_start", fail)
    with pytest.raises(RuntimeError, match="GPU out of memory") as caught:
        yolo.train(data=str(made_data()), project=str(tmp_path), epochs=1, **{**QUICK, "imgsz": 64, "batch": 2})
    assert HIPBLAS in str(caught.value.__cause__)


@pytest.mark.skipif(not hooks.recovers_from_nan(), reason="this Ultralytics does not recover from NaN")
def test_a_recovery_from_nan_is_not_passed_over(made_data, tmp_path, log):
    yolo, spoilt = registered(), []

    def spoil(trainer) -> None:
        if trainer.epoch == 1 and not spoilt:
            spoilt.append(trainer.epoch)
            trainer.loss = torch.tensor(float("nan"))

    yolo.add_callback("on_train_epoch_end", spoil)
    with sick_vendor():
        yolo.train(data=str(made_data()), project=str(tmp_path), epochs=3, **QUICK)
    (said,) = [text for text in log.messages if "epoch 2 gave NaN" in text and "doctor" in text]
    assert "amp=False" not in said  # a CPU trains without it
    with open(tmp_path / "train" / "results.csv") as file:
        assert [row["epoch"] for row in csv.DictReader(file)] == ["1", "2", "3"]


@pytest.mark.parametrize("amp", [True, False])
def test_advice_on_nan_names_mixed_precision_where_it_is_used(amp):
    advice = TrainingRun._about_nan(None, SimpleNamespace(amp=amp))
    assert ("try amp=False" in advice) is amp
    assert "yolo-rocm doctor" in advice


class Recorded:
    """Augmentations that a worker has drawn and left to the device."""

    def apply(self, images):
        """Stand for colours and flips."""
        return images + 1


def test_what_workers_left_to_the_device_is_applied_there_and_only_there():
    trainer = SimpleNamespace(device=torch.device("cpu"), preprocess_batch=lambda batch: {**batch, "done": True})
    hooks.augment_on_device(trainer, "drawn")
    batch = trainer.preprocess_batch({"img": torch.zeros(2), "drawn": Recorded()})
    assert (batch["img"].tolist(), batch["done"], "drawn" in batch) == ([1.0, 1.0], True, False)
    batch = trainer.preprocess_batch({"img": torch.zeros(2)})
    assert (batch["img"].tolist(), batch["done"]) == ([0.0, 0.0], True)


def table(yolo, data, folder, **arguments) -> tuple[list[dict[str, float]], dict[str, torch.Tensor]]:
    """Train; return results.csv without its clock, and the final weights."""
    yolo.train(data=str(data), project=str(folder), name="run", **{**QUICK, **arguments})
    with open(folder / "run" / "results.csv") as file:
        rows = [{k.strip(): float(v) for k, v in row.items() if k.strip() != "time"} for row in csv.DictReader(file)]
    return rows, yolo.trainer.ema.ema.state_dict()


def test_freeze_close_mosaic_and_early_stopping_do_what_they_do_in_stock(made_data, tmp_path):
    """The same decisions at the same moments, and the same numbers."""
    from ultralytics import YOLO

    # Nothing is learnt at this rate, so that patience runs out: both must stop after the same epoch.
    arguments = {"epochs": 4, "freeze": 10, "close_mosaic": 2, "patience": 1, "optimizer": "SGD", "lr0": 1e-6}
    stock, ours, before = YOLO("yolov8n.yaml"), registered(), []
    ours.add_callback("on_train_start", lambda t: before.append(t.model.model[0].conv.weight.detach().clone()))
    wanted, _ = table(stock, made_data(), tmp_path / "stock", **arguments)
    with sick_vendor():
        got, weights = table(ours, made_data(), tmp_path / "ours", **arguments)
    assert len(got) == len(wanted)
    for mine, theirs in zip(got, wanted, strict=True):
        assert mine == pytest.approx(theirs, rel=2e-3, abs=2e-3)
    assert torch.equal(weights["model.0.conv.weight"], before[0])


def test_a_time_limit_ends_the_training(made_data, tmp_path):
    yolo = registered()
    with sick_vendor():
        rows, _ = table(yolo, made_data(), tmp_path, epochs=50, time=1e-4, val=False)
    assert 1 <= len(rows) < 50


@pytest.mark.skipif(not hooks.knows_argument("distill_model"), reason="this Ultralytics does not distil")
def test_distillation_runs_teacher_and_student_under_the_preset(made_data, tmp_path):
    from ultralytics import YOLO

    teacher = tmp_path / "teacher.pt"
    YOLO("yolov8n.yaml").save(teacher)
    yolo = registered()
    with sick_vendor():
        rows, _ = table(yolo, made_data(), tmp_path, epochs=1, distill_model=str(teacher))
    assert any("dis" in name for name in rows[0])


class OnGpu(torch.nn.Module):
    """A model that says it is on a device which is neither CPU nor MPS."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(1, device="meta"))


def stand_in_check(model) -> bool:
    """Test mixed precision with yolo99x.pt as Ultralytics does with its own."""
    return False


@pytest.mark.parametrize(("here", "online"), [(True, False), (False, False), (False, True)])
def test_the_test_of_mixed_precision_opens_no_connection(here, online, tmp_path, monkeypatch, log):
    """Where Ultralytics has found a network it may download its weights, as without this package."""
    opened = []

    def refuse(self, address):
        opened.append(address)
        raise TimeoutError

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ultralytics.utils.ONLINE", online)
    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: refuse(None, args))
    if here:
        (tmp_path / "yolo99x.pt").touch()
    skipped = not here and not online
    assert amp_check._patient(stand_in_check)(OnGpu()) is skipped
    assert bool([text for text in log.messages if "yolo99x.pt" in text]) is skipped
    assert opened == []


def test_a_cpu_has_no_test_of_mixed_precision_to_skip(log):
    assert amp_check._patient(stand_in_check)(torch.nn.Linear(1, 1)) is False
    assert "yolo99x.pt" not in log.text


def test_the_installed_test_of_mixed_precision_names_its_weights():
    from ultralytics.utils.checks import check_amp

    assert (amp_check._weights_of(check_amp) or "").endswith("n.pt")
