"""A patch: the network that a run computes without training goes through our kernels, as plans say.

It serves inside of that network's forward pass alone, in its thread: not what a user computes between two items of a
stream, in a callback or in another thread, and no weight that is trained. Weights are read at each pass, packed and
folded where a kernel wants that; nothing made of them outlives a pass. So no write to them can be missed, whether torch
counts it or not, none is handed from one stream to another, and a recorded pass packs them again at each replay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ClassVar

import torch

from ...engines.planner import PassChoice, Plan
from ...engines.report import ProblemStats, SeamReport
from ...engines.seam import checked_devices
from ..names import PASSES
from ..problem import ConvProblem
from ..report import ConvReport
from ..triton.calls import Epilogue
from .base import FusedAlgorithm
from .plan import FORWARD, FusedPlanner, supports
from .problem import FusedProblem

FusedServed = ProblemStats[FusedProblem, FusedAlgorithm]
Geometry = tuple[Any, ...]


class FusedReport(SeamReport[FusedProblem, FusedAlgorithm]):
    """Filled while a patch serves."""

    noun = "inference convolution"
    kinds: ClassVar[tuple[type[torch.nn.Module], ...]] = (torch.nn.modules.conv._ConvNd,)

    def table(self) -> str:
        """Return every problem as text, a line each: how often it was computed, by what, and why."""
        rows = [
            (str(served.problem), f"{served.forward_calls}x", choice.algorithm.name, choice.reason)
            for served in list(self.served.values())
            for choice in served.plan.values()
        ]
        widths = [max(len(row[i]) for row in rows) for i in range(3)] if rows else []
        return "\n".join(
            "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]) for row in rows
        )


class FusedRoute:
    """What calls of a kind need, found out once.

    Attributes:
        problem: The problem.
        served: Its entry in the report.
        algorithm: What computes it.
        forward: Takes input, weight and bias.
    """

    __slots__ = ("algorithm", "forward", "problem", "served")

    def __init__(
        self,
        problem: FusedProblem,
        algorithm: FusedAlgorithm,
        served: ProblemStats[FusedProblem, FusedAlgorithm],
        budget: int,
    ) -> None:
        self.problem, self.served, self.algorithm = problem, served, algorithm
        self.forward = algorithm.bound(problem, budget)


class FusedPatch:
    """One request to compute convolutions with activations on some device types.

    Attributes:
        devices: Device types.
        planner: Chooses the algorithms.
        report: What was computed how.
    """

    def __init__(self, devices: Sequence[str], planner: FusedPlanner) -> None:
        self.devices, self.planner = checked_devices(devices), planner
        self.report = FusedReport()
        self._known: dict[tuple[Any, ...], FusedRoute | None] = {}
        self._generation = planner.generation

    def renewed(self) -> FusedPatch:
        """Return the same patch with an empty report; what has been planned stays planned."""
        return FusedPatch(self.devices, self.planner)

    def route(
        self, x: torch.Tensor, weight: torch.Tensor, bias: bool, geometry: Geometry, epilogue: Epilogue
    ) -> FusedRoute | None:
        """Return how calls of a kind are computed; None for those that are left to torch.

        Args:
            x: Input; only its shape, strides, data type and device count.
            weight: Of the convolution, likewise.
            bias: Whether there is one.
            geometry: Stride, padding, dilation and groups.
            epilogue: The activation.
        """
        if self._generation != self.planner.generation:
            self._generation, self._known = self.planner.generation, {}
        key = (x.shape, x.stride(), x.dtype, x.device, weight.shape, weight.stride(), bias, geometry, epilogue)
        try:
            return self._known[key]
        except KeyError:
            found = self._known[key] = self._find(x, weight, bias, geometry, epilogue)
            return found

    def convolution(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        geometry: Geometry,
        report: ConvReport | None = None,
    ) -> torch.Tensor | None:
        """Compute a convolution of the dispatcher without an activation; None where it is left to others.

        Args:
            x: Input.
            weight: Weight.
            bias: Bias.
            geometry: As `aten::convolution` has it.
            report: Where else the call is counted.
        """
        stride, padding, dilation, transposed, _, groups = geometry
        dtypes = (weight.dtype, x.dtype if bias is None else bias.dtype)
        if transposed or x.dim() != 4 or dtypes != (x.dtype, x.dtype) or is_trained(weight):
            return None
        if torch._C._get_tracing_state() is not None:
            return None
        if bias is not None and (bias.shape != weight.shape[:1] or bias.device != x.device):
            return None
        sizes = (tuple(stride), tuple(padding), tuple(dilation))
        if any(len(each) != 2 for each in sizes) or weight.device != x.device:
            return None
        route = self.route(x, weight, bias is not None, (*sizes, groups), Epilogue())
        if route is None:
            return None
        self.count(route, report)
        return route.forward(x, weight, bias)

    def count(self, route: FusedRoute, convolutions: ConvReport | None) -> None:
        """Note a call, also in the report of convolutions, where a reader looks for it.

        There all passes are shown by the algorithm of the only one that runs.
        """
        route.served.forward_calls += 1
        if convolutions is None:
            return
        conv = route.problem.conv
        known = convolutions.served.get(conv)
        if known is None:
            choice = PassChoice(route.algorithm.inner, route.served.plan[FORWARD].reason)
            known = convolutions.entry(conv, Plan(dict.fromkeys(PASSES, choice)))
        known.forward_calls += 1

    def _find(
        self, x: torch.Tensor, weight: torch.Tensor, bias: bool, geometry: Geometry, epilogue: Epilogue
    ) -> FusedRoute | None:
        stride, padding, dilation, groups = geometry
        if x.dim() != 4 or weight.dim() != 4 or not x.is_floating_point():
            return None
        conv = ConvProblem.of(x, weight, stride, padding, dilation, False, (0, 0), groups)
        if not supports(conv):
            return None
        problem = FusedProblem(conv, bias, epilogue)
        plan = self.planner.plan(problem)
        served = self.report.entry(problem, plan)
        return FusedRoute(problem, plan[FORWARD].algorithm, served, self.planner.budget)


_computing: ContextVar[FusedPatch | None] = ContextVar("yolo_rocm_inference", default=None)


def serving(device_type: str) -> FusedPatch | None:
    """Return the patch that the network computes by which is at work in this thread; None outside of one."""
    patch = _computing.get()
    return patch if patch is not None and device_type in patch.devices else None


@contextmanager
def computing(patch: FusedPatch) -> Iterator[None]:
    """Compute by a patch what is in this context, in this thread: a network's forward pass."""
    token = _computing.set(patch)
    try:
        yield
    finally:
        _computing.reset(token)


def is_trained(weight: torch.Tensor) -> bool:
    """Return whether a weight is one that a training changes, which has plans of its own, or needs a gradient now."""
    return weight.requires_grad or torch.is_grad_enabled()
