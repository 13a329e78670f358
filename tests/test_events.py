"""What happens inside a training without anybody being told: memory that runs out, NaN, mosaics that end, a clock."""

from __future__ import annotations

import csv
import logging
import socket

import pytest
import torch

import yolo_rocm
from yolo_rocm import ultralytics_hooks as hooks
from yolo_rocm.ultralytics_hooks import amp_check, memory_errors

from .sick_vendor import sick_vendor
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
    assert len([text for text in log.messages if "epoch 2 gave NaN" in text and "doctor" in text]) == 1
    with open(tmp_path / "train" / "results.csv") as file:
        assert [row["epoch"] for row in csv.DictReader(file)] == ["1", "2", "3"]


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


@pytest.mark.parametrize("here", [True, False])
def test_the_test_of_mixed_precision_waits_for_no_download(here, tmp_path, monkeypatch, log):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ultralytics.utils.ONLINE", True)  # a name server answers, and nothing else does

    def no_way(*args, **kwargs):
        raise TimeoutError

    monkeypatch.setattr(socket, "create_connection", no_way)
    if here:
        (tmp_path / "yolo99x.pt").touch()
    assert amp_check._patient(stand_in_check)(OnGpu()) is not here
    assert bool([text for text in log.messages if "yolo99x.pt" in text]) is not here


def test_the_installed_test_of_mixed_precision_names_its_weights():
    from ultralytics.utils.checks import check_amp

    assert (amp_check._weights_of(check_amp) or "").endswith("n.pt")
