"""A patch: which normalisations go through our code, and what it has found out about every call it has seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..engines.layout import is_channels_last, laid_out
from ..engines.names import NATIVE, Pass
from ..engines.seam import checked_devices
from .algorithms import ALGORITHMS
from .plan import NormPlan, NormPlanner
from .problem import NormProblem
from .report import NormReport, NormStats


class NormRoute:
    """What a problem needs on every pass, found out once.

    Attributes:
        problem: The problem.
        served: Its entry in the report.
        forward: Takes input and parameters; returns the activation and its statistics.
        activate: Takes input, parameters and statistics; returns the same activation. The algorithm is forward's.
        backward: Takes gradient, input, parameters, statistics and which gradients are wanted.
        engines: Of forward and backward.
    """

    __slots__ = ("activate", "backward", "engines", "forward", "problem", "served")

    def __init__(self, problem: NormProblem, plan: NormPlan, served: NormStats) -> None:
        self.problem, self.served = problem, served
        one, other = plan[Pass.FORWARD].algorithm, plan[Pass.BACKWARD].algorithm
        self.engines = (one.engine, other.engine)
        self.forward, self.activate, _ = one.bound(problem)
        self.backward = other.bound(problem).backward


class NormCall:
    """A call of the dispatcher: its route, and how its tensors get into the layout of the problem.

    Attributes:
        route: The route.
        contiguous: Whether the input is laid out as the problem says.
        kept: Whether torch's own kernel gives its result the strides of such an input.
        dense: Whether parameters and running statistics have no gaps. Algorithms take none that have.
    """

    __slots__ = ("contiguous", "dense", "kept", "route")

    def __init__(self, route: NormRoute, x: torch.Tensor, given: Sequence[torch.Tensor | None]) -> None:
        self.route = route
        self.dense = all(each is None or each.is_contiguous() for each in given)
        self.contiguous = laid_out(x, route.problem.channels_last) is x
        self.kept = not self.contiguous and x.is_cuda

    def laid_out(self, x: torch.Tensor) -> torch.Tensor:
        """Return a tensor in the layout of the problem."""
        return laid_out(x, self.route.problem.channels_last)

    def result(self, y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Return the result of forward as torch's own kernel lays it out."""
        return torch.empty_like(x).copy_(y) if self.kept else y


class NormPatch:
    """One request to compute the normalisations of some device types; of several that are on the newest decides.

    Attributes:
        devices: Device types.
        planner: Chooses the algorithms.
        report: What was computed how.
    """

    def __init__(self, devices: Sequence[str], planner: NormPlanner) -> None:
        self.devices = checked_devices(devices)
        self.planner = planner
        self.report = NormReport()
        self._routes: dict[NormProblem, NormRoute] = {}
        self._calls: dict[tuple[Any, ...], NormCall | None] = {}
        self._caches: dict[str, dict[tuple[Any, ...], Any]] = {}
        self._generation = planner.generation

    @property
    def reachable(self) -> bool:
        """Whether anything that the planner may choose can be called below the seam.

        Otherwise the engine is torch's own and torch hands out no kernels: it is left alone.
        """
        for device in self.devices:
            example = NormProblem((2, 2), torch.float32, device)
            allowed = (a for a in ALGORITHMS if a.engine in self.planner.engines)
            if any(a.engine not in NATIVE or not a.not_supported_reasons(example) for a in allowed):
                return True
        return False

    def route(self, problem: NormProblem) -> NormRoute:
        """Return the route of a problem, made on first sight and again when plans have changed.

        Raises:
            EngineError: No algorithm of the requested engine supports the problem; the message gives every reason.
        """
        self._forget_old_plans()
        route = self._routes.get(problem)
        if route is None:
            plan = self.planner.plan(problem)
            route = self._routes[problem] = NormRoute(problem, plan, self.report.entry(problem, plan))
        return route

    def lookup(
        self,
        x: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        mean: torch.Tensor | None,
        var: torch.Tensor | None,
        training: bool,
    ) -> NormCall | None:
        """Return what is known of a call of the dispatcher, or None for the native kernel.

        A call that is wrong in itself goes there, torch's own message being the one users know, and one without
        elements, for which torch computes nothing. What torch.jit.trace records is written above the dispatcher's key:
        a BatchNorm stays one.

        Args:
            x: The input.
            weight: The weight, if there is one.
            bias: The bias, if there is one; in backward nobody knows.
            mean: The running mean, if there is one.
            var: The running variance, if there is one.
            training: Whether the statistics are the batch's.
        """
        if self._generation != self.planner.generation:
            self._forget_old_plans()
        key = (x.shape, x.stride(), x.dtype, x.device, training, _kind(weight), _kind(bias), _kind(mean), _kind(var))
        try:
            return self._calls[key]
        except KeyError:
            pass
        call, given = None, (weight, bias, mean, var)
        if not _wrong(x, given, training):
            affine = weight is not None or bias is not None
            layout = is_channels_last(x)
            problem = NormProblem(tuple(x.shape), x.dtype, str(x.device), layout, training, affine)
            call = NormCall(self.route(problem), x, given)
        self._calls[key] = call
        return call

    def cache(self, owner: str) -> dict[tuple[Any, ...], Any]:
        """Return the cache of one kind of fused calls, which nobody else writes to; empty when plans have changed."""
        if self._generation != self.planner.generation:
            self._forget_old_plans()
        cache = self._caches.get(owner)
        return self._caches.setdefault(owner, {}) if cache is None else cache

    def renewed(self) -> NormPatch:
        """Return the same patch with an empty report; what has been planned stays planned."""
        return NormPatch(self.devices, self.planner)

    def _forget_old_plans(self) -> None:
        if self._generation != self.planner.generation:
            self._generation = self.planner.generation
            self._routes, self._calls, self._caches = {}, {}, {}


def _kind(tensor: torch.Tensor | None) -> Any:
    return None if tensor is None else (tensor.dtype, tensor.shape, tensor.stride(), tensor.device)


def _wrong(x: torch.Tensor, given: Sequence[torch.Tensor | None], training: bool) -> bool:
    """Return whether torch would refuse a call, or compute nothing."""
    if x.dim() < 2 or not x.is_floating_point() or x.numel() == 0:
        return True
    if (given[2] is None) != (given[3] is None) or (given[2] is None and not training):
        return True
    if training and any(each is not None and each.numel() > 1 and 0 in each.stride() for each in given[2:]):
        return True  # one number that stands for several cannot be updated
    allowed = (x.dtype, torch.float32) if x.dtype in (torch.float16, torch.bfloat16) else (x.dtype,)
    return any(
        each.shape != x.shape[1:2] or each.dtype not in allowed or each.device != x.device
        for each in given
        if each is not None
    )
