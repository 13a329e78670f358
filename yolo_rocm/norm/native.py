"""torch's own kernels, below the seam: with the vendor library on, and with it off.

BatchNorm's operators have their kernels at the keys of the devices themselves, where the seam hides them. From 2.9 on
torch hands out what is hidden. Before, there is no way to them while the seam is on, and neither algorithm is a
candidate: a BatchNorm that ours does not serve is then computed in plain PyTorch.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from ..engines import dispatcher
from .activations import activated, gradient
from .base import NormAlgorithm, NormGrads, Parameters, Statistics, Wanted
from .problem import IDENTITY, NormProblem
from .pytorch import running


def saved_dtype(x: Tensor, *parameters: Tensor | None) -> torch.dtype:
    """Return the data type that torch saves statistics of a batch in: on a CPU it is that of the parameters."""
    if x.is_cuda:
        return torch.float64 if x.dtype == torch.float64 else torch.float32
    return next((each.dtype for each in parameters if each is not None), x.dtype)


def reserve_for(x: Tensor) -> Tensor:
    """Return memory as cuDNN's forward pass leaves it for its backward pass, which reads nothing of it here.

    The library keeps something in it only where it computes an activation too.
    """
    size = getattr(torch._C, "_get_cudnn_batch_norm_reserve_space_size", None)
    elements = size(x, True) if size is not None and x.is_cuda and torch.version.cuda else 0
    return torch.empty(elements, dtype=torch.uint8, device=x.device)


def _kernel(name: str, x: Tensor) -> Any:
    """Return torch's kernel of an operator as if the seam were not there."""
    return dispatcher.below(name, "CUDA" if x.is_cuda else "CPU") or getattr(torch.ops.aten, name).default


class Aten(NormAlgorithm):
    """torch's own kernels with the vendor library off."""

    name: ClassVar[str] = "aten"
    engine: ClassVar[str] = "aten"

    def not_supported_reasons(self, problem: NormProblem) -> list[str]:
        """Say where torch gives no way to its kernels; what torch cannot do otherwise, it says itself."""
        return [] if dispatcher.HANDS_OUT else [f"torch {torch.__version__} gives no way to its own BatchNorm"]

    def workspace_bytes(self, problem: NormProblem) -> int:
        """Return the normalised value and its gradient, which backward of an activation needs; torch's is unknown."""
        if problem.activation == IDENTITY:
            return 0
        return 2 * torch.finfo(problem.dtype).bits // 8 * problem.rows * problem.channels

    def forward(self, problem: NormProblem, x: Tensor, p: Parameters) -> tuple[Tensor, Statistics]:
        """Return the activation and the statistics; update the running ones in training."""
        y, mean, invstd = self._normalised(problem, x, p)
        if problem.training and p.batches is not None:
            p.batches.add_(1)
        dtype = problem.statistics_dtype
        # In eval mode some kernels return none.
        statistics = Statistics(mean.to(dtype), invstd.to(dtype)) if mean.numel() else running(problem, p)
        return activated(problem, y), statistics

    def activate(self, problem: NormProblem, x: Tensor, p: Parameters, statistics: Statistics) -> Tensor:
        """Return the activation once more."""
        return activated(problem, self._again(problem, x, p, statistics))

    def backward(
        self, problem: NormProblem, grad: Tensor, x: Tensor, p: Parameters, statistics: Statistics, wanted: Wanted
    ) -> NormGrads:
        """Return the gradients of input, weight and bias."""
        if problem.activation != IDENTITY:
            grad = gradient(problem, grad, self._again(problem, x, p, statistics))
        dtype = saved_dtype(x, p.weight, p.running_mean)
        saved = (p.weight, p.running_mean, p.running_var, *(each.to(dtype) for each in statistics))
        # The libraries have no backward for fixed statistics.
        library = self.library(x, p, problem.training) if problem.training else "native"
        kernel = _kernel(f"{library}_batch_norm_backward", x)
        if library == "native":
            return NormGrads(*kernel(grad, x, *saved, problem.training, p.eps, list(wanted)))
        grads = kernel(x, grad, *saved, p.eps, *((reserve_for(x),) if library == "cudnn" else ()))
        return NormGrads(*(each if want else None for each, want in zip(grads, wanted, strict=True)))

    def library(self, x: Tensor, p: Parameters, training: bool) -> str:
        """Return which of torch's kernels compute a call, by the beginning of their names."""
        return "native"

    def _normalised(self, problem: NormProblem, x: Tensor, p: Parameters) -> tuple[Tensor, Tensor, Tensor]:
        kernel = _kernel(f"{self.library(x, p, problem.training)}_batch_norm", x)
        y, mean, invstd, *_ = kernel(x, *p[:4], problem.training, p.momentum, p.eps)
        return y, mean, invstd

    def _again(self, problem: NormProblem, x: Tensor, p: Parameters, statistics: Statistics) -> Tensor:
        """Return the normalised value with the bits it had."""
        if x.is_cuda and self.library(x, p, problem.training) == "native":  # what `native_batch_norm` calls there
            again: Tensor = torch.batch_norm_elemt(x, p.weight, p.bias, *statistics, p.eps)
            return again
        if problem.training:  # the same sums once more
            mean, var = (None if each is None else each.clone() for each in (p.running_mean, p.running_var))
            if mean is None and p.weight is None:  # by their type torch decides in what precision it adds up
                mean, var = torch.zeros_like(statistics.mean), torch.ones_like(statistics.invstd)
            p = p._replace(running_mean=mean, running_var=var)
        return self._normalised(problem, x, p)[0]


class Vendor(Aten):
    """MIOpen on AMD, cuDNN on NVIDIA, where torch would take them; otherwise as `Aten`."""

    name: ClassVar[str] = "vendor"
    engine: ClassVar[str] = "vendor"

    def library(self, x: Tensor, p: Parameters, training: bool) -> str:
        """Return the vendor library that torch would take now, by its own rules."""
        weight, mean, var = p.weight, p.running_mean, p.running_var
        if not x.is_cuda or weight is None:
            return "native"
        # It wants tensors; all it asks of them is whether they exist, and both of two or none do.
        tracked = (weight, weight) if mean is None or var is None else (mean, var)
        choose: Any = torch._C._select_batch_norm_backend
        chosen = choose(x, weight, weight, *tracked, training, p.eps).name
        return {"Cudnn": "cudnn", "Miopen": "miopen"}.get(chosen, "native")
