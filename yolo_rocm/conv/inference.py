"""The convolutions of a network that a run computes without training, with their activations: `act(conv(x))` as one.

It serves inside of that network's forward pass alone, in its thread: not what a user computes between two items of a
stream, in a callback or in another thread, and no weight that is trained. `blocks` gives it tensors of modules, and
`seam` the convolutions that come by the dispatcher. Weights are read at each pass, packed and folded where a kernel
wants that; nothing made of them outlives a pass. So no write to them can be missed, whether torch counts it or not,
none is handed from one stream to another, and a recorded pass packs them again at each replay.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ClassVar

import torch

from ..engines.activations import IDENTITY
from ..engines.names import Pass
from ..engines.planner import Plan
from .names import PASSES
from .patch import Patch, Route
from .problem import laid_out
from .report import ConvReport, InferenceReport


class InferencePatch(Patch):
    """One request to compute convolutions with activations on some device types."""

    reports: ClassVar[type[ConvReport]] = InferenceReport

    def route(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: bool,
        geometry: tuple[Any, ...],
        activation: str = IDENTITY,
        slope: float = 0.0,
    ) -> Route | None:
        """Return how calls of a kind are computed; None for those that are left to torch.

        Args:
            x: Input; only its shape, strides, data type and device count.
            weight: Of the convolution, likewise.
            bias: Whether there is one.
            geometry: Stride, padding, dilation and groups, of two dimensions.
            activation: What follows, one of `ACTIVATIONS`.
            slope: Of a leaky ReLU below zero.
        """
        if x.dim() != 4 or weight.dim() != 4 or not x.is_floating_point():
            return None
        stride, padding, dilation, groups = geometry
        return self.lookup(x, weight, (stride, padding, dilation, False, (0, 0), groups), bias, activation, slope)

    def convolution(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        geometry: tuple[Any, ...],
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
        if transposed or is_trained(weight) or any(len(each) > 2 for each in (stride, padding, dilation)):
            return None
        if bias is not None and (bias.dtype, bias.device, bias.shape) != (x.dtype, x.device, weight.shape[:1]):
            return None
        route = self.route(x, weight, bias is not None, (stride, padding, dilation, groups))
        if route is None:
            return None
        self.count(route, report)
        return laid_out(route.forward(x, weight, bias), route.problem.channels_last)

    def count(self, route: Route, convolutions: ConvReport | None) -> None:
        """Note a call, also in the report of convolutions, where a reader looks for it.

        There all passes are shown by the algorithm of the only one that runs.
        """
        route.served.forward_calls += 1
        if convolutions is None:
            return
        plain = route.problem.plain
        stats = convolutions.served.get(plain)
        if stats is None:
            stats = convolutions.entry(plain, Plan(dict.fromkeys(PASSES, route.served.plan[Pass.FORWARD])))
        stats.forward_calls += 1


_computing: ContextVar[InferencePatch | None] = ContextVar("yolo_rocm_inference", default=None)


def serving(device_type: str) -> InferencePatch | None:
    """Return the patch that the network computes by which is at work in this thread; None outside of one."""
    patch = _computing.get()
    return patch if patch is not None and device_type in patch.devices else None


@contextmanager
def computing(patch: InferencePatch) -> Iterator[None]:
    """Compute by a patch what is in this context, in this thread: a network's forward pass."""
    token = _computing.set(patch)
    try:
        yield
    finally:
        _computing.reset(token)


def is_trained(weight: torch.Tensor) -> bool:
    """Return whether a weight is one that a training changes, which has plans of its own, or needs a gradient now."""
    return weight.requires_grad or torch.is_grad_enabled()
