"""Sessions: what an active preset changes in the process, and that it is undone."""

from __future__ import annotations

import logging
import os
import re

import pytest
import torch
from ultralytics import YOLO

import yolo_rocm
from yolo_rocm.conv import seam as conv_seam
from yolo_rocm.engines import dispatcher
from yolo_rocm.norm import seam as norm_seam
from yolo_rocm.session.run import Run
from yolo_rocm.session.session import Session
from yolo_rocm.telemetry.bottleneck import Bottleneck
from yolo_rocm.ultralytics_hooks.log import PREFIX

from ..small_model import small_model
from .test_training import OURS, QUICK, an_image

ONE = {**QUICK, "epochs": 1, "val": False}


def test_the_report_of_a_run_is_of_that_run_alone(yolo, made_data):
    handle = yolo_rocm.register(yolo, "cpu", OURS)
    reports = []
    for size in (64, 96):
        yolo.predict(an_image(made_data()), imgsz=size, device="cpu", verbose=False)
        reports.append(handle.report)
    assert reports[0] is not reports[1]
    first = [[problem for problem in report.served if problem.input_shape[1] == 3] for report in reports]
    assert [{problem.input_shape[-1] for problem in problems} for problems in first] == [{64}, {96}]
    session, layer = Session("cpu", OURS), torch.nn.Conv2d(3, 4, 3)
    with Run(session, {}).applied():
        layer(torch.rand(1, 3, 8, 8))
        session.restart_reports()
        layer(torch.rand(1, 3, 8, 8))
    assert [each.forward_calls for each in session.report.served.values()] == [1]


@pytest.mark.once
def test_the_log_of_a_training_contradicts_itself_nowhere_and_says_nothing_twice(made_data, tmp_path, log, monkeypatch):
    """With a cache that cannot be written; the package's own logger speaks where Ultralytics' does, while it trains."""
    from yolo_rocm.telemetry import wait_meter

    (tmp_path / "file").touch()
    monkeypatch.setenv("YOLO_ROCM_CACHE", str(tmp_path / "file" / "cache"))
    verdicts = iter(["data-bound", "data-bound", "other", "data-bound"])
    monkeypatch.setattr(wait_meter, "judge", lambda *_: Bottleneck("data", next(verdicts), "", "try this"))
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # of the test runner: a user has none
    own, yolo = logging.getLogger("yolo_rocm"), YOLO(small_model("classify"))
    yolo_rocm.register(yolo, "cpu", {"conv": {"engine": "gemm", "devices": ["cpu"], "tune": "on"}})
    yolo.add_callback("on_train_start", lambda trainer: own.info("kernels are compiled"))
    yolo.train(data=str(made_data("classify")), project=str(tmp_path), **{**ONE, "imgsz": 32, "epochs": 4})
    assert own.handlers == []
    lines = [re.sub(r"\x1b\[\d*m", "", record.getMessage()).partition(PREFIX)[2] for record in log.records]
    assert lines.count("kernels are compiled") == 1
    assert [line for line in lines if "cannot be kept" in line and line.endswith("the next run measures again")]
    assert [line for line in lines if line.startswith("measured ")]
    assert not any("kept for later" in line for line in lines)
    epochs = [line.partition("images/s")[2] for line in lines if re.match(r"epoch \d: waited", line)]
    assert epochs == [". data-bound: try this", "", ". other: try this", ". data-bound: try this"]


@pytest.mark.once
def test_the_off_switch_means_stock(yolo, made_data, tmp_path, monkeypatch, log):
    monkeypatch.setenv("YOLO_ROCM", "0")
    handle = yolo_rocm.register(yolo, {"base": "cpu", **OURS, "train": {"batch": 2}})
    yolo.train(data=str(made_data()), project=str(tmp_path), **{k: v for k, v in ONE.items() if k != "batch"})
    assert yolo.trainer.batch_size == 16
    assert handle.report is None
    assert "yolo-rocm: " not in log.text


@pytest.mark.once
def test_variables_and_the_vendor_library_are_switched_for_the_run_alone(yolo, made_data, tmp_path):
    """MIOpen serves BatchNorm too, so it is off in every part of a run, not only in convolutions."""
    seen, enabled = {}, []
    conv = {"engine": "gemm", "devices": ["cpu", "cuda"], "vendor": "off"}
    rocm = {**OURS, "conv": conv, "env": {"MIOPEN_LOG_LEVEL": {"value": 3}, "YOLO_OFFLINE": {"value": "nowhere"}}}
    yolo_rocm.register(yolo, "cpu", rocm)
    yolo.add_callback("on_train_start", lambda _: seen.update(os.environ))
    for event in ("on_train_batch_start", "on_train_batch_end", "on_val_batch_end", "on_train_end"):
        yolo.add_callback(event, lambda _: enabled.append(torch.backends.cudnn.enabled))
    yolo.train(data=str(made_data()), project=str(tmp_path), **{**ONE, "val": True})
    assert len(enabled) > 4
    assert not any(enabled)
    assert torch.backends.cudnn.enabled
    assert seen["MIOPEN_LOG_LEVEL"] == "3"
    assert seen["YOLO_OFFLINE"] == "true"  # what the user has set wins
    assert "MIOPEN_LOG_LEVEL" not in os.environ


@pytest.mark.parametrize(("engine", "telemetry", "stays"), [("vendor", False, 1), ("aten", True, 8)])
def test_nothing_is_in_the_way_of_a_vendor_library_that_computes_everything(
    yolo, made_data, tmp_path, engine, telemetry, stays
):
    rocm = {"conv": {"engine": engine, "vendor": "on", "devices": ["cpu"]}, "report": {"telemetry": telemetry}}
    handle = yolo_rocm.register(yolo, "cpu", rocm)
    convolutions, norms = [], []
    yolo.add_callback("on_train_batch_start", lambda _: convolutions.append(bool(conv_seam.active_devices())))
    yolo.add_callback("on_train_batch_start", lambda _: norms.append(norm_seam.serving("cpu") is not None))
    for turn in (1, 2) if stays == 1 else (1,):  # each run begins anew
        yolo.train(data=str(made_data()), project=str(tmp_path), **{**ONE, "batch": 1})
        assert convolutions == ([True] * stays + [False] * (8 - stays)) * turn
        assert handle.report.engines()[engine] >= 19  # of 20 layers: the last may be one of validation alone
    # BatchNorm's seam is on where torch's own kernels stay reachable below it, which torch 1.13 does not offer.
    assert set(norms) == {engine != "vendor" and dispatcher.HANDS_OUT}
