"""A machine by decree, for tests of the triton engine without Triton."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from yolo_rocm.conv.plan import Planner
from yolo_rocm.conv.problem import ConvProblem
from yolo_rocm.engines.triton import available
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


class TwoCards:
    """An integrated GPU as number 0, which is the current one, and a card as number 1.

    Attributes:
        current: The current device.
        happened: What was done, each with the device it was done on.
        asked: Devices whose properties were asked for.
    """

    gfx = ("gfx1036", "gfx1100")
    processors = (2, 96)

    def __init__(self, monkeypatch) -> None:
        self.current = 0
        self.happened: list[tuple[str, int]] = []
        self.asked: set[int] = set()
        cards = self

        class Guard:
            def __init__(self, device) -> None:
                self._number = cards.number(device)

            def __enter__(self) -> None:
                self._before, cards.current = cards.current, self._number

            def __exit__(self, *error: object) -> None:
                cards.current = self._before

        class Event:
            def __init__(self, enable_timing: bool = False) -> None:
                pass

            def record(self, stream=None) -> None:
                cards.note("record", stream)

            def synchronize(self) -> None:
                pass

            def elapsed_time(self, other) -> float:
                return 1.0

        card(monkeypatch, gfx="decided below")
        monkeypatch.setattr(torch.cuda, "get_device_properties", self._properties)
        monkeypatch.setattr(torch.cuda, "device", Guard)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: self.current)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: self.number(device))
        monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: self.note("synchronize", device))
        monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: self.note("sleep"), raising=False)
        monkeypatch.setattr(torch.cuda, "Event", Event)

    def number(self, device) -> int:
        """Return a device's number; that of the current one where it has none."""
        if isinstance(device, int):
            return device
        index = None if device is None else torch.device(device).index
        return self.current if index is None else index

    def note(self, what: str, device=None) -> None:
        """Take down what is done, on the current device unless another is named."""
        self.happened.append((what, self.number(device)))

    def _properties(self, device):
        self.asked.add(self.number(device))
        number = self.number(device)
        return SimpleNamespace(gcnArchName=self.gfx[number], multi_processor_count=self.processors[number])
