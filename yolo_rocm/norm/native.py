"""torch's own kernels, below the seam: with the vendor library on, and with it off.

`aten::native_batch_norm` has its kernels at the keys of the devices themselves, where the seam hides them. From 2.9 on
torch hands out what is hidden. Before, another operator reaches the same kernels: `native_batch_norm.out` forward, and
backward the two steps of SyncBatchNorm on a GPU, or `batch_norm_backward` on a CPU, which the oldest do not have. What
no operator reaches is said among the reasons; the vendor library's kernels are among it before 2.9.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch

from ..engines import dispatcher
from ..engines.device_state import STATE
from .activations import activated, gradient
from .base import NormAlgorithm, NormGrads, Parameters, Statistics
from .problem import IDENTITY, NormProblem
from .pytorch import Torch, running

Three = tuple["torch.Tensor | None", "torch.Tensor | None", "torch.Tensor | None"]
_KEYS = {"cuda": "CUDA", "cpu": "CPU"}


@STATE.cached(16)
def _has(name: str, key: str) -> bool:
    try:
        return bool(torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", key))
    except RuntimeError:  # no such operator
        return False


@STATE.cached(4)
def reachable(device_type: str) -> bool:
    """Return whether torch's own kernels can be called while the seam is on; a device torch is not built for can."""
    key = _KEYS.get(device_type, "")
    if not _has("native_batch_norm", key):
        return True
    if dispatcher.HANDS_OUT:
        return True
    steps = "batch_norm_backward_reduce" if device_type == "cuda" else "batch_norm_backward"
    return _has("native_batch_norm.out", key) and _has(steps, key)


def native_batch_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Call `aten::native_batch_norm` as if the seam were not there."""
    key = "CUDA" if x.is_cuda else "CPU"
    arguments = (x, weight, bias, running_mean, running_var, training, momentum, eps)
    kernel = dispatcher.below("native_batch_norm", key)
    if kernel is None and not dispatcher.hides("native_batch_norm", key):
        kernel = torch.ops.aten.native_batch_norm.default
    result: Any
    if kernel is not None:
        result = kernel(*arguments)
    elif _has("native_batch_norm.out", key):
        y, saved = torch.empty_like(x), saved_dtype(x, weight, running_mean)
        size = x.shape[1] if training or x.is_cuda else 0  # a CPU saves nothing in eval mode
        mean, invstd = (torch.empty(size, dtype=saved, device=x.device) for _ in range(2))
        torch.ops.aten.native_batch_norm.out(*arguments, out=y, save_mean=mean, save_invstd=invstd)
        result = y, mean, invstd
    else:
        result = _instead(*arguments)
    y, mean, invstd = result
    return y, mean, invstd


def native_batch_norm_backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    mean: torch.Tensor | None,
    invstd: torch.Tensor | None,
    training: bool,
    eps: float,
    wanted: list[bool] | tuple[bool, bool, bool],
) -> Three:
    """Call `aten::native_batch_norm_backward` as if the seam were not there."""
    key = "CUDA" if x.is_cuda else "CPU"
    wanted = list(wanted)
    arguments = (grad, x, weight, running_mean, running_var, mean, invstd, training, eps, wanted)
    kernel = dispatcher.below("native_batch_norm_backward", key)
    if kernel is None and not dispatcher.hides("native_batch_norm_backward", key):
        kernel = torch.ops.aten.native_batch_norm_backward.default
    result: Any
    if kernel is not None:
        result = kernel(*arguments)
    elif key == "CPU" and _has("batch_norm_backward", key):
        like = next(each for each in (running_mean, mean, x) if each is not None)  # torch 2.4 takes no other data type
        filled = torch.ones(x.shape[1], dtype=like.dtype) if weight is None else weight
        reserve = torch.empty(0, dtype=torch.uint8)
        result = torch.ops.aten.batch_norm_backward.default(grad, x, filled, *arguments[3:], reserve)
    elif training and key == "CUDA" and _has("batch_norm_backward_reduce", key):
        result = _by_steps(grad, x, weight, mean, invstd, wanted)
    else:
        result = _instead_backward(*arguments)
    for_x, for_weight, for_bias = result
    return for_x, for_weight, for_bias


def saved_dtype(x: torch.Tensor, *parameters: torch.Tensor | None) -> torch.dtype:
    """Return the data type that torch saves statistics of a batch in: on a CPU it is that of the parameters."""
    if x.is_cuda:
        return torch.float64 if x.dtype == torch.float64 else torch.float32
    return next((each.dtype for each in parameters if each is not None), x.dtype)


def _by_steps(grad: Any, x: Any, weight: Any, mean: Any, invstd: Any, wanted: list[bool]) -> Three:
    """Compute backward of a batch's statistics by the two steps that SyncBatchNorm has for it."""
    torch_: Any = torch
    sums = torch_.batch_norm_backward_reduce(grad, x, mean, invstd, weight, *wanted)
    for_x = None
    if wanted[0]:
        count = torch.full((1,), x.numel() // x.shape[1], dtype=torch.int32, device=x.device)
        for_x = torch_.batch_norm_backward_elemt(grad, x, mean, invstd, weight, sums[0], sums[1], count)
    return for_x, sums[2] if wanted[1] else None, sums[3] if wanted[2] else None


def _instead(
    x: torch.Tensor, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool, *rest: Any
) -> tuple[torch.Tensor, ...]:
    """Compute in plain PyTorch what no operator of an old torch reaches."""
    if not x.is_floating_point():
        raise RuntimeError(f'"batch_norm" not implemented for {x.type().rpartition(".")[2].removesuffix("Tensor")!r}')
    problem = NormProblem(tuple(x.shape), x.dtype, str(x.device), training=training, affine=weight is not None)
    y, (mean, invstd) = Torch().forward(problem, x, Parameters(weight, bias, running_mean, running_var, *rest))
    dtype = saved_dtype(x, weight, running_mean)
    if training:
        return y, mean.to(dtype), invstd.to(dtype)
    return y, *(torch.empty(0, dtype=dtype, device=x.device) for _ in range(2))


def _instead_backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    weight: Any,
    running_mean: Any,
    running_var: Any,
    mean: Any,
    invstd: Any,
    *rest: Any,
) -> NormGrads:
    training, eps, wanted = rest
    problem = NormProblem(tuple(x.shape), x.dtype, str(x.device), training=training, affine=weight is not None)
    p = Parameters(weight, None, running_mean, running_var, 0.0, eps)
    dtype = problem.statistics_dtype
    statistics = Statistics(mean.to(dtype), invstd.to(dtype)) if training else running(problem, p)
    return Torch().backward(problem, grad, x, p, statistics, (wanted[0], wanted[1], wanted[2]))


class Aten(NormAlgorithm):
    """torch's own kernels with the vendor library off."""

    name: ClassVar[str] = "aten"
    engine: ClassVar[str] = "aten"

    def not_supported_reasons(self, problem: NormProblem) -> list[str]:
        """Say where torch gives no way to its kernels; what torch cannot do otherwise, it says itself."""
        kind = problem.device.partition(":")[0]
        return [] if reachable(kind) else [f"torch {torch.__version__} gives no way to its kernels for {kind}"]

    def workspace_bytes(self, problem: NormProblem) -> int:
        """Return the normalised value and its gradient, which backward of an activation needs; torch's is unknown."""
        if problem.activation == IDENTITY:
            return 0
        return 2 * torch.finfo(problem.dtype).bits // 8 * problem.rows * problem.channels

    def forward(self, problem: NormProblem, x: torch.Tensor, p: Parameters) -> tuple[torch.Tensor, Statistics]:
        """Return the activation and the statistics; update the running ones in training."""
        y, mean, invstd = self._normalised(problem, x, p)
        if problem.training and p.batches is not None:
            p.batches.add_(1)
        dtype = problem.statistics_dtype
        # In eval mode some kernels return none.
        statistics = Statistics(mean.to(dtype), invstd.to(dtype)) if mean.numel() else running(problem, p)
        return activated(problem, y), statistics

    def activate(self, problem: NormProblem, x: torch.Tensor, p: Parameters, statistics: Statistics) -> torch.Tensor:
        """Return the activation once more."""
        return activated(problem, self._again(problem, x, p, statistics))

    def backward(
        self,
        problem: NormProblem,
        grad: torch.Tensor,
        x: torch.Tensor,
        p: Parameters,
        statistics: Statistics,
        wanted: tuple[bool, bool, bool],
    ) -> NormGrads:
        """Return the gradients of input, weight and bias."""
        if problem.activation != IDENTITY:
            grad = gradient(problem, grad, self._again(problem, x, p, statistics))
        dtype = saved_dtype(x, p.weight, p.running_mean)
        saved = (statistics.mean.to(dtype), statistics.invstd.to(dtype))
        tracked, eps = (p.running_mean, p.running_var), p.eps
        if not problem.training and p.running_mean is None:
            tracked, eps = (saved[0], statistics.invstd.pow(-2).to(dtype)), 0.0
        arguments = (grad, x, p.weight, *tracked, *saved, problem.training, eps, wanted)
        return NormGrads(*self._backward(*arguments))

    def _normalised(
        self, problem: NormProblem, x: torch.Tensor, p: Parameters
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return native_batch_norm(x, *p[:4], problem.training, p.momentum, p.eps)

    def _again(self, problem: NormProblem, x: torch.Tensor, p: Parameters, statistics: Statistics) -> torch.Tensor:
        """Return the normalised value with the bits it had."""
        if x.is_cuda:  # what `native_batch_norm` calls there
            again: torch.Tensor = torch.batch_norm_elemt(x, p.weight, p.bias, *statistics, p.eps)
            return again
        if problem.training:  # the same sums once more
            mean, var = (None if each is None else each.clone() for each in (p.running_mean, p.running_var))
            if mean is None and p.weight is None:  # by their type torch decides in what precision it adds up
                mean, var = torch.zeros_like(statistics.mean), torch.ones_like(statistics.invstd)
            p = p._replace(running_mean=mean, running_var=var)
        return self._normalised(problem, x, p)[0]

    def _backward(self, *arguments: Any) -> Three:
        return native_batch_norm_backward(*arguments)


class Vendor(Aten):
    """MIOpen on AMD, cuDNN on NVIDIA, where torch would take them; otherwise as `Aten`."""

    name: ClassVar[str] = "vendor"
    engine: ClassVar[str] = "vendor"

    def not_supported_reasons(self, problem: NormProblem) -> list[str]:
        """Say where torch gives no way to the library's kernels; what torch cannot do otherwise, it says itself."""
        if problem.device.startswith("cuda") and not dispatcher.HANDS_OUT:
            return [f"torch {torch.__version__} gives no way to the vendor library's kernels"]
        return super().not_supported_reasons(problem)

    def _normalised(
        self, problem: NormProblem, x: torch.Tensor, p: Parameters
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        library = _library(x, p.weight, p.bias, p.running_mean, p.running_var, problem.training, p.eps)
        if library is None:
            return super()._normalised(problem, x, p)
        result = vendor_kernel(f"{library}_batch_norm")(x, *p[:4], problem.training, p.momentum, p.eps)
        return result[0], result[1], result[2]

    def _again(self, problem: NormProblem, x: torch.Tensor, p: Parameters, statistics: Statistics) -> torch.Tensor:
        library = _library(x, p.weight, p.bias, p.running_mean, p.running_var, problem.training, p.eps)
        if library is None:
            return super()._again(problem, x, p, statistics)
        if problem.training:
            mean, var = (None if each is None else each.clone() for each in (p.running_mean, p.running_var))
            p = p._replace(running_mean=mean, running_var=var)
        return self._normalised(problem, x, p)[0]

    def _backward(self, *arguments: Any) -> Three:
        grad, x, weight, running_mean, running_var, mean, invstd, training, eps, wanted = arguments
        library = _library(x, weight, weight, running_mean, running_var, training, eps) if training else None
        if library is None:  # the libraries have no backward for fixed statistics
            return super()._backward(*arguments)
        reserve = (reserve_for(x),) if library == "cudnn" else ()
        saved = (weight, running_mean, running_var, mean, invstd, eps)
        result = vendor_kernel(f"{library}_batch_norm_backward")(x, grad, *saved, *reserve)
        for_x, for_weight, for_bias = (each if want else None for each, want in zip(result, wanted, strict=True))
        return for_x, for_weight, for_bias


def vendor_kernel(name: str) -> Callable[..., Any]:
    """Return an operator of a vendor library as if the seam were not there."""
    return dispatcher.below(name, "CUDA") or getattr(torch.ops.aten, name).default


def reserve_for(x: torch.Tensor) -> torch.Tensor:
    """Return memory as cuDNN's forward pass leaves it for its backward pass, which reads nothing of it here.

    The library keeps something in it only where it computes an activation too.
    """
    size = getattr(torch._C, "_get_cudnn_batch_norm_reserve_space_size", None) if torch.version.cuda else None
    return torch.empty(0 if size is None else size(x, True), dtype=torch.uint8, device=x.device)


def _library(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    training: bool,
    eps: float,
) -> str | None:
    """Return the vendor library that torch would take now, by its own rules."""
    if not x.is_cuda or weight is None or bias is None:
        return None
    choose: Any = torch._C._select_batch_norm_backend
    # It wants tensors; all it asks of these is whether they exist, and both or none do.
    tracked = (weight, weight) if running_mean is None or running_var is None else (running_mean, running_var)
    chosen = choose(x, weight, bias, *tracked, training, eps).name
    return {"Cudnn": "cudnn", "Miopen": "miopen"}.get(chosen)
