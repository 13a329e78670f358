"""A patch: which normalisations go through our code, and what it has found out about every call it has seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor

from ..engines import dispatcher
from ..engines.layout import is_channels_last, laid_out
from ..engines.names import NATIVE, Pass
from ..engines.planner import PassChoice, Plan
from ..engines.report import ProblemStats
from ..engines.seam import checked_devices
from .algorithms import BY_NAME
from .base import NormGrads, Parameters, Statistics, Wanted
from .plan import PASSES, NormPlan, NormPlanner
from .problem import NormProblem
from .pytorch import running
from .report import NormReport, NormStats

# What a BatchNorm holds: weight, bias, running mean and variance.
Held = tuple["Tensor | None", "Tensor | None", "Tensor | None", "Tensor | None"]
_LAYOUTS: Final = (torch.contiguous_format, torch.channels_last)


class NormRoute:
    """What a problem needs on every pass, found out once.

    Attributes:
        problem: The problem.
        served: Its entry in the report.
        forward: Takes input and parameters; returns the activation and its statistics.
        activate: Takes input, parameters and statistics; returns the same activation. The algorithm is forward's.
        backward: Takes gradient, input, parameters, statistics and which gradients are wanted.
        engines: Of forward and backward.
        layout: Of the problem's tensors, where there are four dimensions.
    """

    __slots__ = ("activate", "backward", "engines", "forward", "layout", "problem", "served")

    def __init__(self, problem: NormProblem, plan: NormPlan, served: NormStats) -> None:
        self.problem, self.served = problem, served
        self.layout = _LAYOUTS[problem.channels_last]
        one, other = plan[Pass.FORWARD].algorithm, plan[Pass.BACKWARD].algorithm
        self.engines = (one.engine, other.engine)
        self.forward, self.activate, _ = one.bound(problem)
        self.backward = other.bound(problem).backward


class NormCall:
    """A call of the dispatcher: its route, and how its tensors get into the layout of the problem.

    Attributes:
        route: The route.
    """

    __slots__ = ("_is_dense", "_is_kept", "_is_laid_out", "route")

    def __init__(self, route: NormRoute, x: Tensor, held: Held) -> None:
        self.route = route
        # Whether parameters and running statistics have no gaps: algorithms take none that have.
        self._is_dense = all(each is None or each.is_contiguous() for each in held)
        self._is_laid_out = self._laid_out(x) is x
        # Whether torch's own kernel gives its result the strides of such an input.
        self._is_kept = not self._is_laid_out and x.is_cuda

    def forward(self, x: Tensor, p: Parameters) -> tuple[Tensor, Statistics]:
        """Compute a forward pass."""
        own = p if self._is_dense else _without_gaps(p)
        y, statistics = self.route.forward(x if self._is_laid_out else self._laid_out(x), own)
        if self.route.problem.training and own is not p:
            for mine, updated in ((p.running_mean, own.running_mean), (p.running_var, own.running_var)):
                if mine is not None and updated is not None and mine is not updated:
                    mine.copy_(updated)
        return (torch.empty_like(x).copy_(y) if self._is_kept else y), statistics

    def backward(self, grad: Tensor, x: Tensor, p: Parameters, saved: Statistics, wanted: Wanted) -> NormGrads:
        """Compute a backward pass, from what forward has saved of a batch, or from the running statistics."""
        problem, own = self.route.problem, p if self._is_dense else _without_gaps(p)
        dtype = problem.statistics_dtype
        statistics = Statistics(*(each.to(dtype) for each in saved)) if problem.training else running(problem, own)
        x = x if self._is_laid_out else self._laid_out(x)
        return self.route.backward(self._laid_out(grad), x, own, statistics, wanted)

    def _laid_out(self, x: Tensor) -> Tensor:
        return laid_out(x, self.route.problem.channels_last)


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
        self._caches: dict[str, dict[Any, Any]] = {}
        self._generation = planner.generation

    @property
    def reachable(self) -> bool:
        """Whether anything that the planner may choose can be called below the seam.

        Otherwise the engine is torch's own and torch hands out no kernels: it is left alone.
        """
        return dispatcher.HANDS_OUT or any(engine not in NATIVE for engine in self.planner.engines)

    def route(self, problem: NormProblem) -> NormRoute:
        """Return the route of a problem, made on first sight and again when plans have changed.

        Raises:
            EngineError: No algorithm of the requested engine supports the problem; the message gives every reason.
        """
        routes: dict[NormProblem, NormRoute] = self.cache("routes")
        if problem not in routes:
            plan = self.planner.plan(problem)
            routes[problem] = NormRoute(problem, plan, self.report.entry(problem, plan))
        return routes[problem]

    def lookup(self, x: Tensor, held: Held, training: bool) -> NormCall | None:
        """Return what is known of a call of the dispatcher, or None for the native kernel.

        A call that is wrong in itself goes there, torch's own message being the one users know, and one without
        elements, for which torch computes nothing. What torch.jit.trace records is written above the dispatcher's key:
        a BatchNorm stays one.

        Args:
            x: The input.
            held: Weight, bias, running mean and variance, each if there is one; in backward nobody knows the bias.
            training: Whether the statistics are the batch's.
        """
        calls: dict[tuple[Any, ...], NormCall | None] = self.cache("calls")
        key = (x.shape, x.stride(), x.dtype, x.device, training, *map(_kind, held))
        try:
            return calls[key]
        except KeyError:
            pass
        call = None
        if not _wrong(x, held, training):
            call = NormCall(self.route(_problem_of(x, held, training)), x, held)
        calls[key] = call
        return call

    def cache(self, owner: str) -> dict[Any, Any]:
        """Return the cache of one kind of calls, which nobody else writes to; empty when plans have changed."""
        if self._generation != self.planner.generation:
            self._generation, self._caches = self.planner.generation, {}
        return self._caches.setdefault(owner, {})

    def renewed(self) -> NormPatch:
        """Return the same patch with an empty report; what has been planned stays planned."""
        return NormPatch(self.devices, self.planner)


def plain_call(x: Tensor, held: Held, training: bool) -> NormCall:
    """Return a call in plain PyTorch, for one that no patch serves while torch hands out nothing that could."""
    problem = _problem_of(x, held, training)
    plan = Plan(dict.fromkeys(PASSES, PassChoice(BY_NAME["torch"], "torch hands out no kernels")))
    return NormCall(NormRoute(problem, plan, ProblemStats(problem, plan)), x, held)


def _problem_of(x: Tensor, held: Held, training: bool) -> NormProblem:
    affine = held[0] is not None or held[1] is not None
    return NormProblem(tuple(x.shape), x.dtype, str(x.device), is_channels_last(x), training, affine)


def _without_gaps(p: Parameters) -> Parameters:
    return Parameters(*(each.contiguous() if isinstance(each, Tensor) else each for each in p))  # type: ignore[arg-type]


def _kind(tensor: Tensor | None) -> Any:
    return None if tensor is None else (tensor.dtype, tensor.shape, tensor.stride(), tensor.device)


def _wrong(x: Tensor, given: Held, training: bool) -> bool:
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
