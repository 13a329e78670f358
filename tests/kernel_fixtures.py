"""Fixtures for algorithms."""

from __future__ import annotations

import importlib

import pytest
import torch

from yolo_rocm.engines.device_state import STATE
from yolo_rocm.engines.precision import without_tf32


@pytest.fixture(scope="module", params=["triton", "hip"])
def engine(request):
    """Each engine whose kernels are compiled on the spot, where it compiles for the GPU."""
    module = importlib.import_module(f"yolo_rocm.engines.{request.param}.available")
    why = module.device_reason("cuda:0") if torch.cuda.is_available() else "no GPU"
    if why is not None:
        pytest.skip(why)
    return request.param


@pytest.fixture
def ieee():
    """Compare like with like: no TF32 on either side."""
    with without_tf32():
        yield


@pytest.fixture
def poisoned(monkeypatch):
    """Memory that an algorithm asks for uninitialised is full of NaN, so that an element nobody writes shows."""

    def poison(make):
        def poisoning(*args, **kwargs):
            tensor = make(*args, **kwargs)
            return tensor.fill_(float("nan")) if tensor.is_floating_point() else tensor

        return poisoning

    monkeypatch.setattr(torch, "empty", poison(torch.empty))
    monkeypatch.setattr(torch, "empty_like", poison(torch.empty_like))
    monkeypatch.setattr(torch.Tensor, "new_empty", poison(torch.Tensor.new_empty))
    monkeypatch.setattr(torch.Tensor, "new_empty_strided", poison(torch.Tensor.new_empty_strided))


@pytest.fixture
def fresh():
    """Nothing is remembered of this machine, nor left behind of another one."""
    with STATE.replaced():
        yield
