"""torch's own kernels, below the seam: with the vendor library on, and with it off."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, ClassVar

import torch

from ..engines.backend_flags import vendor_off
from ..engines.layout import usual_strides
from .base import Algorithm, Grads, Wanted
from .problem import ConvProblem


@lru_cache(maxsize=1)
def _below() -> tuple[Callable[..., Any], Callable[..., Any]]:
    key, aten = torch._C.DispatchKey.CompositeExplicitAutograd, torch.ops.aten
    calls = (op.default._op_dk for op in (aten.convolution, aten.convolution_backward))
    forward, backward = (partial(call, key) for call in calls)
    return forward, backward


def _below_autograd(call: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Call as if the seam were not there; a block calls it above autograd, which oneDNN minds."""
    guard = torch._C._AutoDispatchBelowAutograd()  # no context manager before torch 2.0
    try:
        return call(*args)
    finally:
        del guard


def native_convolution(*args: Any) -> torch.Tensor:
    """Call `aten::convolution` as if the seam were not there."""
    result: torch.Tensor = _below_autograd(_below()[0], args)
    return result


def native_convolution_backward(*args: Any) -> tuple[torch.Tensor | None, ...]:
    """Call `aten::convolution_backward` as if the seam were not there."""
    result: tuple[torch.Tensor | None, ...] = _below_autograd(_below()[1], args)
    return result


class VendorConvolution(Algorithm):
    """MIOpen on AMD, cuDNN on NVIDIA, oneDNN on a CPU: what torch would have done."""

    name: ClassVar[str] = "vendor"
    engine: ClassVar[str] = "vendor"

    def not_supported_reasons(self, problem: ConvProblem) -> list[str]:
        """Nothing is refused: what torch cannot do, torch says itself."""
        return []

    def workspace_bytes(self, problem: ConvProblem) -> int:
        """Unknown from outside; the vendor library allocates its own workspace."""
        return 0

    def forward(
        self, problem: ConvProblem, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        """Compute the output."""
        p = problem
        return native_convolution(
            x, weight, bias, p.stride, p.padding, p.dilation, p.transposed, p.output_padding, p.groups
        )

    def backward(
        self, problem: ConvProblem, grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, wanted: Wanted
    ) -> Grads:
        """Compute both gradients with one native call."""
        p = problem
        # torch's kernels without a vendor library refuse others, such as those of `array.permute(2, 0, 1)[None]`, or
        # compute a wrong gradient of a grouped weight.
        x, weight = usual_strides(x, p.channels_last), usual_strides(weight, p.channels_last)
        mask = [wanted[0], wanted[1], False]
        shape = (p.stride, p.padding, p.dilation, p.transposed, p.output_padding, p.groups, mask)
        grads = native_convolution_backward(grad, x, weight, None, *shape)
        return grads[0], grads[1]


class AtenConvolution(VendorConvolution):
    """torch's own kernels with the vendor library off, in forward and in backward.

    The backend is chosen again from the global flag when backward runs, so both passes are wrapped.
    """

    name: ClassVar[str] = "aten"
    engine: ClassVar[str] = "aten"

    def forward(
        self, problem: ConvProblem, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        """Compute the output."""
        with vendor_off(problem.device):
            return super().forward(problem, x, weight, bias)

    def backward(
        self, problem: ConvProblem, grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, wanted: Wanted
    ) -> Grads:
        """Compute both gradients with one native call."""
        with vendor_off(problem.device):
            return super().backward(problem, grad, x, weight, wanted)
