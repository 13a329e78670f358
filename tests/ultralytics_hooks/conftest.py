"""Fixtures for tests of blocks."""

from __future__ import annotations

import contextlib

import pytest
from torch import nn

from yolo_rocm import ultralytics_hooks as hooks
from yolo_rocm.conv.patch import Patch
from yolo_rocm.conv.plan import Planner
from yolo_rocm.conv.seam import installed as installed_convolutions
from yolo_rocm.norm.patch import NormPatch
from yolo_rocm.norm.plan import NormPlanner
from yolo_rocm.norm.seam import installed


@pytest.fixture(params=[True, False], ids=["with convolution", "alone"])
def whole(request):
    """Say whether convolutions are ours too, so that a block is one function."""
    return request.param


@pytest.fixture
def on(whole):
    """Put everything on, for the CPU."""
    patch = NormPatch(("cpu",), NormPlanner("gemm", remember=False))
    convolutions = Patch(("cpu",), Planner("gemm", remember=False))
    also = installed_convolutions(convolutions) if whole else contextlib.nullcontext()
    with installed(patch), hooks.fused_blocks(), also:
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
