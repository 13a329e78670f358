"""A machine by decree, for tests of the triton engine without Triton."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from yolo_rocm.conv.plan import Planner
from yolo_rocm.conv.problem import ConvProblem
from yolo_rocm.conv.triton_engine import available
from yolo_rocm.errors import EngineError


def refusal(problem: ConvProblem) -> str:
    with pytest.raises(EngineError) as caught:
        Planner("triton", remember=False).plan(problem)
    return str(caught.value)


def card(monkeypatch, *, gfx: str | None = None, capability: tuple[int, int] = (9, 0)) -> None:
    """Pretend that there is Triton, and a GPU of AMD or NVIDIA."""
    monkeypatch.setattr(available, "missing_reason", lambda: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.version, "hip", "6.2" if gfx else None)
    properties = SimpleNamespace(gcnArchName=f"{gfx}:sramecc+:xnack-", multi_processor_count=60)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
