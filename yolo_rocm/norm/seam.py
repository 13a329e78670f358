"""The seam: every BatchNorm of the process passes through here while a patch is on.

`aten::native_batch_norm`, the vendor libraries' own operators and their backward get Python kernels at the dispatch key
of a device type. They save for backward what torch's kernels save, so that a graph may have its forward pass on one
side of a patch's end and its backward pass on the other. Autograd and `nn.Module` sit above and see an ordinary
BatchNorm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from ..engines import dispatcher
from ..engines.device_state import STATE
from ..engines.seam import DISPATCH_KEYS, Seam
from .base import Parameters, Statistics
from .native import reserve_for, saved_dtype
from .patch import NormPatch, plain_call


def serving(device_type: str) -> NormPatch | None:
    """Return the patch that decides for a device type now."""
    return _seam.serving.get(device_type)


def installed(patch: NormPatch) -> AbstractContextManager[None]:
    """Put a patch on that was made before, which keeps its plans and its report from one time to the next.

    Nothing happens where it asks for torch's own kernels alone, and torch gives no way to them below a seam.
    """
    return _seam.installed(patch) if patch.reachable else nullcontext()


class BatchNormCall(NamedTuple):
    """What torch's operators are called with: each of them with some of it, in an order of its own.

    Attributes:
        x: The input.
        weight: The weight, if there is one.
        bias: The bias, if there is one.
        mean: The running mean, if there is one.
        var: The running variance, if there is one.
        training: Whether the statistics are the batch's; where an operator does not say so, they are.
        momentum: Share of the batch in the running statistics.
        eps: Added to the variance.
        grad: In backward, the gradient of the output.
        saved_mean: In backward, what forward has returned.
        saved_invstd: Likewise.
        mask: Which gradients are wanted; where an operator does not say so, all are.
        reserve: In backward, what the forward pass of cuDNN has left; ours does not read it.
    """

    x: Tensor
    weight: Tensor | None = None
    bias: Tensor | None = None
    mean: Tensor | None = None
    var: Tensor | None = None
    training: bool = True
    momentum: float = 0.0
    eps: float = 0.0
    grad: Tensor | None = None
    saved_mean: Tensor | None = None
    saved_invstd: Tensor | None = None
    mask: Sequence[bool] = (True, True, True)
    reserve: Tensor | None = None


_FIELDS: Final = "x weight bias mean var training momentum eps"
_BACK_FIELDS: Final = "weight mean var saved_mean saved_invstd"
# The arguments of each operator, in order. Kernels of the libraries' own are at the key of GPUs alone.
_FORWARD: Final = {
    "native_batch_norm": _FIELDS,
    "_native_batch_norm_legit": _FIELDS,
    "_native_batch_norm_legit.no_stats": "x weight bias training momentum eps",
    "_batch_norm_with_update": "x weight bias mean var momentum eps",
    "cudnn_batch_norm": _FIELDS,
    "miopen_batch_norm": _FIELDS,
}
_BACKWARD: Final = {
    "native_batch_norm_backward": f"grad x {_BACK_FIELDS} training eps mask",
    "batch_norm_backward": f"grad x {_BACK_FIELDS} training eps mask reserve",
    "cudnn_batch_norm_backward": f"x grad {_BACK_FIELDS} eps reserve",
    "miopen_batch_norm_backward": f"x grad {_BACK_FIELDS} eps",
}
_LIBRARIES: Final = ("cudnn", "miopen")
_LEAVING_RESERVE: Final = ("cudnn_batch_norm", "_batch_norm_with_update")


@STATE.cached(4)
def _kernels(key: str) -> Mapping[str, Callable[..., Any]]:
    every: dict[str, Callable[..., Any]] = {}
    every |= {name: partial(_forward, name, fields.split()) for name, fields in _FORWARD.items()}
    every |= {name: partial(_backward, name, fields.split()) for name, fields in _BACKWARD.items()}
    return {
        name: kernel
        for name, kernel in every.items()
        if hasattr(torch.ops.aten, name.partition(".")[0]) and (key == "CUDA" or not name.startswith(_LIBRARIES))
    }


_seam: Seam[NormPatch] = Seam(_kernels)


def _forward(operator: str, fields: Sequence[str], *arguments: Any) -> tuple[Tensor, ...]:
    """Compute a forward pass: return the output, and what the operator saves for backward."""
    if not dispatcher.HANDS_OUT:
        dispatcher.note_caller()
    given = BatchNormCall(**dict(zip(fields, arguments, strict=True)))
    x, weight, bias, *_ = given
    held, training = given[1:5], given.training
    patch = _seam.serving.get(x.device.type)
    call = None if patch is None else patch.lookup(x, held, training)
    if patch is not None and call is not None:
        patch.report.count_forward(call.route.served)
    if call is None or call.route.engines[0] == "vendor":
        below = dispatcher.below(operator, DISPATCH_KEYS[x.device.type])
        if below is not None:
            return below(*arguments)  # type: ignore[no-any-return]
    if weight is None and bias is not None:
        weight = torch.ones_like(bias)
    elif weight is not None and bias is None:
        bias = torch.zeros_like(weight)
    p = Parameters(weight, bias, given.mean, given.var, given.momentum, given.eps)
    y, statistics = (call or plain_call(x, held, training)).forward(x, p)
    return y, *_saved(operator, given, statistics)


def _saved(operator: str, given: BatchNormCall, statistics: Statistics) -> Iterator[Tensor]:
    """Yield what torch's own kernel of an operator saves for backward."""
    x, dtype, training = given.x, saved_dtype(*given[:5]), given.training
    if training or (x.is_cuda and not operator.startswith(_LIBRARIES)):
        # In eval mode the mean may be the running one itself, which no result may share memory with.
        yield statistics.mean.to(dtype) if training else statistics.mean.to(dtype).clone()
        yield statistics.invstd.to(dtype)
    else:
        yield from (x.new_empty(0, dtype=dtype), x.new_empty(0, dtype=dtype))
    if operator in _LEAVING_RESERVE:
        yield reserve_for(x) if training else x.new_empty(0, dtype=torch.uint8)


def _backward(operator: str, fields: Sequence[str], *arguments: Any) -> tuple[Tensor | None, ...]:
    """Compute a backward pass: return the gradients of input, weight and bias that are wanted."""
    given = BatchNormCall(**dict(zip(fields, arguments, strict=True)))
    x, weight, _, mean, var, training, _, eps, grad, saved_mean, saved_invstd, mask, _ = given
    if weight is None and mask[2]:  # a bias without a weight
        like = saved_mean if mean is None else mean
        assert like is not None  # or torch refuses the call
        weight = torch.ones(x.shape[1], dtype=like.dtype, device=x.device)
    patch = _seam.serving.get(x.device.type)
    held = (weight, None, mean, var)
    call = None if patch is None else patch.lookup(x, held, training)
    if call is not None:
        call.route.served.backward_calls += 1
    if call is None or call.route.engines[1] == "vendor":
        below = dispatcher.below(operator, DISPATCH_KEYS[x.device.type])
        if below is not None:
            return tuple(below(*arguments))
    call = call or plain_call(x, held, training)
    assert grad is not None  # every operator of backward has all of them
    assert saved_mean is not None
    assert saved_invstd is not None
    p, saved = Parameters(weight, None, mean, var, 0.0, eps), Statistics(saved_mean, saved_invstd)
    return tuple(call.backward(grad, x, p, saved, (mask[0], mask[1], mask[2])))
