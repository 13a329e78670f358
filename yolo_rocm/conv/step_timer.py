"""How long the convolutions of a few sampled steps took, by layer and pass.

Every other step pays one look at an attribute for each convolution. A sampled one gets a mark before and after each
pass: an event in the GPU's own stream, which is read after it has passed and never waited for, or the clock on a CPU.
The time between two events is the GPU's for the pass, gaps included in which it waits for Python to launch more.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from statistics import median
from typing import Any

import torch

from ..engines.names import Pass
from .names import PASSES
from .problem import ConvProblem

Mark = Any  # a torch.cuda.Event, which has no types, or seconds


def mark(device: torch.device) -> Mark:
    """Return this moment of a device."""
    if device.type != "cuda":
        return time.perf_counter()
    event: Mark = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record(torch.cuda.current_stream(device))
    return event


def passed(moment: Mark) -> bool:
    """Return whether a mark can be read without waiting."""
    return isinstance(moment, float) or bool(moment.query())


def milliseconds(start: Mark, stop: Mark) -> float:
    """Return the time between two marks that have passed."""
    return (stop - start) * 1e3 if isinstance(start, float) else float(start.elapsed_time(stop))


class StepTimer:
    """The marks of one step. The seam adds to it, from the threads of forward and backward.

    Args:
        number: Of the step, from 1.
        device: Where the training computes.
    """

    def __init__(self, number: int, device: torch.device) -> None:
        self.number, self._device = number, device
        self._spans: list[tuple[ConvProblem, str, str | None, Mark, Mark]] = []
        self._began = mark(device)
        self._ended: Mark = None

    def add(self, problem: ConvProblem, which: Pass, layer: str | None, began: Mark, device: torch.device) -> None:
        """Take a pass of a convolution that ends now; `layer` where its name is known."""
        self._spans.append((problem, which, layer, began, mark(device)))

    def end(self) -> None:
        """End the step."""
        self._ended = mark(self._device)

    def has_passed(self) -> bool:
        """Return whether all marks can be read without waiting."""
        return self._ended is not None and passed(self._ended) and all(passed(span[4]) for span in self._spans)

    def step_ms(self) -> float:
        """Return the time of the whole step."""
        return milliseconds(self._began, self._ended)

    def passes(self) -> list[tuple[ConvProblem, str, str | None, float]]:
        """Return problem, pass, layer where known, and milliseconds of each call."""
        return [(*span[:3], milliseconds(span[3], span[4])) for span in self._spans]


class LayerTimes:
    """What sampled steps have shown.

    Backward calls do not know their layer: autograd keeps only tensors. Their time is known by problem, the same for
    layers of the same shape, and divided among these as their forward calls were.

    Attributes:
        warm_from: Steps before this one are of the warm-up, and dropped once there are others.
    """

    def __init__(self) -> None:
        self.warm_from = 0
        self._waiting: list[StepTimer] = []
        self._steps: dict[int, float] = {}
        # (problem, pass, layer or None) -> step -> milliseconds
        self._times: dict[tuple[ConvProblem, str, str | None], dict[int, float]] = defaultdict(dict)
        self._calls: dict[ConvProblem, Counter[str | None]] = defaultdict(Counter)

    def take(self, timer: StepTimer) -> None:
        """Take a step that has been recorded; it is read when its marks have passed."""
        self._waiting.append(timer)
        self.collect()

    def collect(self) -> None:
        """Read what can be read without waiting."""
        while self._waiting and self._waiting[0].has_passed():
            timer = self._waiting.pop(0)
            self._steps[timer.number] = timer.step_ms()
            for problem, which, layer, taken in timer.passes():
                times = self._times[problem, which, layer]
                times[timer.number] = times.get(timer.number, 0.0) + taken
                if which == "forward":
                    self._calls[problem][layer] += 1
        if any(number >= self.warm_from for number in self._steps):
            for known in (self._steps, *self._times.values()):
                for number in [number for number in known if number < self.warm_from]:
                    del known[number]

    def step(self) -> dict[str, Any]:
        """Return the sampled steps: how many, which, and their median time."""
        self.collect()
        return {
            "sampled_steps": len(self._steps),
            "step_ms": round(median(self._steps.values()), 4) if self._steps else None,
            "steps": sorted(self._steps),
        }

    def of(self, problem: ConvProblem, layer: str, sharing: Iterable[str]) -> dict[str, float]:
        """Return the median time of each pass of a layer, in milliseconds a step; what was not measured is missing.

        Args:
            problem: What the layer computes.
            layer: Its name.
            sharing: Names of all layers known to compute the same, this one included.
        """
        found: dict[str, float] = {}
        for which in PASSES:
            own = self._times.get((problem, which, layer))
            if own:
                found[which] = median(own.values())
                continue
            together = self._times.get((problem, which, None))
            share = self._share(problem, layer, sharing)
            if together and share:
                found[which] = median(together.values()) * share
        return found

    def _share(self, problem: ConvProblem, layer: str, sharing: Iterable[str]) -> float:
        calls = self._calls.get(problem)
        if calls and set(calls) != {None}:
            return calls[layer] / sum(calls.values())
        return 1 / max(1, len(set(sharing)))  # no call had a name, as in a compiled model
