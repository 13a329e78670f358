"""Fixtures for tests of blocks and losses."""

from __future__ import annotations

import contextlib

import pytest
from torch import nn

from yolo_rocm.conv.patch import Patch
from yolo_rocm.conv.plan import Planner
from yolo_rocm.conv.seam import installed as installed_convolutions
from yolo_rocm.engines.triton.available import missing_reason
from yolo_rocm.losses import boxes
from yolo_rocm.norm.patch import NormPatch
from yolo_rocm.norm.plan import NormPlanner
from yolo_rocm.norm.seam import installed
from yolo_rocm.ultralytics_hooks.fused_blocks import fused_blocks

from ..interpreted import interpreter


@pytest.fixture
def whole():
    """Say whether convolutions are ours too, so that a block is one function."""
    return True


@pytest.fixture
def on(whole):
    """Put everything on, for the CPU."""
    patch = NormPatch(("cpu",), NormPlanner("gemm", remember=False))
    convolutions = Patch(("cpu",), Planner("gemm", remember=False))
    also = installed_convolutions(convolutions) if whole else contextlib.nullcontext()
    with installed(patch), fused_blocks(), also:
        yield patch


@pytest.fixture
def called(monkeypatch):
    """Count the calls of BatchNorm modules."""
    calls = []
    for kind in (nn.BatchNorm2d, nn.SyncBatchNorm):
        forward = kind.forward
        monkeypatch.setattr(kind, "forward", lambda self, x, f=forward: calls.append(self) or f(self, x))
    return calls


@pytest.fixture
def convolved(monkeypatch):
    """Count the calls of convolution modules."""
    calls, forward = [], nn.Conv2d.forward
    monkeypatch.setattr(nn.Conv2d, "forward", lambda self, x: calls.append(self) or forward(self, x))
    return calls


@pytest.fixture
def interpreting():
    if missing_reason() is not None:
        pytest.skip(str(missing_reason()))
    with interpreter():
        yield


@pytest.fixture
def launched(monkeypatch):
    """The kernels that are launched."""
    found = []
    real = boxes._launch

    def noted(kernel, *rest):
        found.append(kernel)
        real(kernel, *rest)

    monkeypatch.setattr(boxes, "_launch", noted)
    return found
