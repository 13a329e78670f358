"""A patch: which convolutions go through our kernels, and what it has found out about every call it has seen."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from ..engines.names import Pass
from ..engines.seam import checked_devices
from . import chunking
from .base import Bound, Grads, Wanted
from .names import PASSES
from .plan import ConvPlan, Planner
from .problem import ConvProblem
from .report import ConvReport, ConvStats

if TYPE_CHECKING:
    from typing_extensions import Self


class Route:
    """What a call needs on every pass, found out once: all the rest of a convolution's way is Python's time.

    Attributes:
        problem: The problem.
        served: Its entry in the report.
        forward: The forward pass, as in `Bound`.
        backward: The gradients, as in `Bound`; where two algorithms compute them, one after the other. Where only the
            forward pass is planned, nothing calls it.
        weight_layout: What a weight that is converted had best be laid out as; otherwise passes copy it once more.
    """

    __slots__ = ("backward", "forward", "problem", "served", "weight_layout")

    def __init__(self, problem: ConvProblem, plan: ConvPlan, served: ConvStats, budget: int) -> None:
        self.problem, self.served = problem, served
        fitted = {choice.algorithm: chunking.fitted(choice.algorithm, problem, budget) for choice in plan.values()}
        forward, for_input, for_weight = (fitted[plan.get(which, plan[Pass.FORWARD]).algorithm] for which in PASSES)
        self.forward, self.backward = forward.forward, for_input.backward
        if for_input is not for_weight:
            self.backward = partial(_by_two, for_input, for_weight)
        layouts = {
            choice.algorithm.weight_layout(problem) for which, choice in plan.items() if which != Pass.GRAD_WEIGHT
        }
        self.weight_layout = layouts.pop() if len(layouts) == 1 else torch.preserve_format


def _by_two(
    for_input: Bound,
    for_weight: Bound,
    grad: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    wanted: Wanted,
) -> Grads:
    # The weight's first: see `Algorithm.backward`.
    grad_weight = for_weight.backward(grad, x, weight, (False, *wanted[1:]))[1] if wanted[1] else None
    return for_input.backward(grad, x, weight, (True, False))[0] if wanted[0] else None, grad_weight


class Patch:
    """One request to compute the convolutions of some device types; several may be on, the newest of them decides."""

    reports: ClassVar[type[ConvReport]] = ConvReport

    def __init__(self, devices: Sequence[str], planner: Planner) -> None:
        self.devices = checked_devices(devices)
        self.planner = planner
        self.report = self.reports(planner.budget)
        self._known: dict[tuple[Any, ...], Route | None] = {}
        self._generation = planner.generation

    def lookup(self, x: torch.Tensor, weight: torch.Tensor, geometry: tuple[Any, ...], *epilogue: Any) -> Route | None:
        """Return the route of a call, or None for the native kernel.

        While torch.jit.trace records (TorchScript, ONNX), only the native kernel leaves a convolution in the graph. A
        call that is wrong in itself also goes there, torch's own message being the one users know, and one without
        elements, for which torch computes nothing.

        Args:
            x: Input; only its shape, strides, data type and device count.
            weight: Weight, likewise.
            geometry: As `aten::convolution` has it.
            epilogue: Bias, activation and slope of the problem, of inference.
        """
        if torch._C._get_tracing_state() is not None:
            return None
        stride, padding, dilation, transposed, output_padding, groups = geometry
        key = (
            x.shape, x.stride(), x.dtype, x.device, weight.shape, weight.stride(), weight.dtype, weight.device,
            *stride, *padding, *dilation, transposed, *output_padding, groups, *epilogue,
        )  # fmt: skip
        if self._generation != self.planner.generation:
            self._generation = self.planner.generation
            self._known = {}
        known = self._known
        try:
            return known[key]
        except KeyError:
            problem = ConvProblem.of(x, weight, *geometry, *epilogue)
        if x.dtype != weight.dtype or x.device != weight.device or problem.problems() or problem.empty:
            known[key] = None
            return None
        plan = self.planner.plan(problem)
        route = known[key] = Route(problem, plan, self.report.entry(problem, plan), self.planner.budget)
        return route

    def renewed(self) -> Self:
        """Return the same patch with an empty report; what has been planned stays planned."""
        return type(self)(self.devices, self.planner)
