"""Which way a convolution goes: a patch, and what it has found out about every call it has seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch

from ..errors import ConfigError, nearest
from .plan import Plan, Planner
from .problem import ConvProblem
from .report import ConvReport, Served

DISPATCH_KEYS: Final = {"cuda": "CUDA", "cpu": "CPU"}


class Route:
    """What a call needs to know on every pass, found out once: all the rest of a convolution's way is Python's time."""

    __slots__ = ("empty", "plan", "problem", "served", "whole")

    def __init__(self, problem: ConvProblem, plan: Plan, served: Served, budget: int) -> None:
        self.problem, self.plan, self.served = problem, plan, served
        self.empty = problem.empty
        algorithms = (plan.forward.algorithm, plan.grad_input.algorithm, plan.grad_weight.algorithm)
        # For each pass, where it need not be split to fit the budget.
        self.whole = tuple(
            a.bound(problem) if not self.empty and a.workspace_bytes(problem) <= budget else None for a in algorithms
        )


class Patch:
    """One request to serve the convolutions of some device types; several may be on at once, see `_choose`."""

    def __init__(self, devices: Sequence[str], planner: Planner) -> None:
        unknown = [d for d in devices if d not in DISPATCH_KEYS]
        if unknown or not devices or isinstance(devices, str):
            hint = nearest(unknown[0], DISPATCH_KEYS) if unknown else "."
            raise ConfigError(
                f"devices must be a list of device types, got {devices!r}{hint} "
                f"Allowed: {', '.join(DISPATCH_KEYS)} ('cuda' is also torch's name for an AMD GPU)."
            )
        self.devices = tuple(devices)
        self.planner = planner
        self.report = ConvReport(planner.budget)
        self._known: dict[tuple[Any, ...], Route | None] = {}
        self._generation = planner.generation

    def lookup(self, x: torch.Tensor, weight: torch.Tensor, geometry: tuple[Any, ...]) -> Route | None:
        """Return problem and plan of a call, or None where the native kernel has to answer.

        While torch.jit.trace records (TorchScript, ONNX), only the native kernel leaves a convolution in the graph. A
        call that is wrong in itself also goes there: torch's own message is the one users know.
        """
        if torch._C._get_tracing_state() is not None:
            return None
        stride, padding, dilation, transposed, output_padding, groups = geometry
        key = (
            x.shape,
            x.stride(),
            x.dtype,
            x.device,
            weight.shape,
            weight.stride(),
            weight.dtype,
            weight.device,
            *stride,
            *padding,
            *dilation,
            transposed,
            *output_padding,
            groups,
        )
        if self._generation != self.planner.generation:
            self._generation = self.planner.generation
            self._known = {}
        known = self._known
        try:
            return known[key]
        except KeyError:
            problem = ConvProblem.of(x, weight, *geometry)
        if x.dtype != weight.dtype or x.device != weight.device or problem.problems():
            known[key] = None
            return None
        plan = self.planner.plan(problem)
        route = known[key] = Route(problem, plan, self.report.entry(problem, plan), self.planner.budget)
        return route

    def renewed(self) -> Patch:
        """Return the same patch with an empty report; what has been planned stays planned."""
        return Patch(self.devices, self.planner)
