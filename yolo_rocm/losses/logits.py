"""Binary cross entropy of logits, value by value, in one kernel that keeps what it is given and nothing else.

torch computes it by several operations on whole tensors, and mixed precision first makes copies of both in fp32, which
are kept. With many classes these are large enough that a training step takes the most memory at this place: of yolov8n
in lean memory and mixed precision a fifth (counted on a CPU).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch.nn import functional

from ..engines.autocast import autocast_dtype
from ..engines.torch_state import is_compiling
from ..utils.scoped_patch import attribute
from . import proof
from .launches import launch as _launch
from .plain import is_plain
from .proof import State, Use

LOSSES, GRADIENTS = "logit_losses", "logit_gradients"
_PLACE: Final = ("torch.nn.functional", "binary_cross_entropy_with_logits")
# What losses and both gradients may differ by, by the data type of the logits: they are rounded to it.
_ALLOWED: Final = {
    torch.float32: (1e-5, 1e-5, 1e-5),
    torch.float16: (1e-5, 2e-3, 2e-3),
    torch.bfloat16: (1e-5, 1e-2, 1e-2),
}
# How many values the kernels prove themselves by, the last of which do not fill a program, and the largest logit of
# them, for which 1 + exp(-logit) is 1 in fp32: that is a branch of its own. They are not those of a batch: where its
# images show nothing, all losses are small, and torch's own in fp32 are off by more than is allowed, as it computes
# each as the difference of two numbers of the size of the logit. So it does in fp64: 30 could not be compared.
_COMPARED, _LARGEST = 2**14 + 7, 20.0


def logit_losses(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the loss of each logit, in fp32.

    Args:
        logits: Contiguous, in fp32 or half precision.
        targets: Probabilities, as many, contiguous; they get no gradient.
    """
    return _LogitLosses.apply(logits, targets)  # type: ignore[no-any-return, no-untyped-call]


class _LogitLosses(torch.autograd.Function):
    """The losses, as a function of the logits."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        losses = torch.empty(logits.shape, dtype=torch.float32, device=logits.device)
        _launch(LOSSES, (logits.numel(),), (logits, targets, losses))
        ctx.save_for_backward(logits, targets)
        return losses

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        logits, targets = ctx.saved_tensors
        if torch.is_grad_enabled():  # somebody wants to differentiate the gradients
            return (grad * (logits.float().sigmoid() - targets)).to(logits.dtype), None
        same = not any(grad.stride())  # of a sum
        grad = grad.resolve_neg()
        grad = grad.as_strided((1,), (1,)) if same else grad.contiguous()
        found = torch.empty_like(logits)
        _launch(GRADIENTS, (logits.numel(), same), (grad, logits, targets, found))
        return found, None


@contextmanager
def fused_logit_losses() -> Iterator[None]:
    """Compute them so in all of the process while the context is open, where there is Triton for the device.

    Nested and concurrent use counts. Where somebody has put something else in the place of torch's function, or does so
    later, that is what is computed.
    """
    with attribute(*_PLACE).on(_in_one, "losses"):
        yield


def _in_one(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    if getattr(original, "__globals__", None) is not vars(functional):  # somebody else's
        return original

    @functools.wraps(original)
    def binary_cross_entropy_with_logits(
        input: Any,
        target: Any,
        weight: Any = None,
        size_average: Any = None,
        reduce: Any = None,
        reduction: str = "mean",
        pos_weight: Any = None,
    ) -> torch.Tensor:
        others = (weight, size_average, reduce, pos_weight)
        # Asked before what follows, which a compiler cannot always trace.
        is_plain_call = reduction == "none" and all(each is None for each in others) and not is_compiling()
        # Whoever has kept this function may call it when nothing is replaced any more.
        if is_plain_call and attribute(*_PLACE).in_use and _serves(input, target) and _may(input, target, original):
            return logit_losses(input, target)
        return original(input, target, weight, size_average, reduce, reduction, pos_weight)

    # TorchScript would read the source of the original by the names of this module.
    vars(binary_cross_entropy_with_logits)["__prepare_scriptable__"] = lambda: original
    return binary_cross_entropy_with_logits


def _serves(logits: Any, targets: Any) -> bool:
    """Return whether the kernels are made for this: torch would give fp32, and what they read is laid out alike."""
    return (
        is_plain(logits, targets)
        and logits.device.type in ("cuda", "cpu")
        and logits.dtype in _ALLOWED
        and targets.dtype in _ALLOWED
        and (logits.dtype == targets.dtype == torch.float32 or autocast_dtype(logits.device.type) is not None)
        and logits.shape == targets.shape
        and logits.numel() > 0
        and logits.is_contiguous()
        and targets.is_contiguous()
        and not targets.requires_grad
    )


def _may(logits: torch.Tensor, targets: torch.Tensor, original: Callable[..., torch.Tensor]) -> bool:
    """Return whether the kernels have proven themselves, or do so now."""
    use = Use(LOSSES, logits.device, logits.dtype, targets.dtype)
    state = proof.state(use)
    if state is not State.UNPROVEN or torch.is_inference_mode_enabled():  # where there are no gradients to compare
        return state is State.PROVEN

    def right(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return original(logits.double(), targets.double(), reduction="none")

    kinds = logits.device, logits.dtype, targets.dtype
    ours, exact = (functools.partial(_in_units, each, *kinds) for each in (logit_losses, right))
    return proof.prove(use, ours, exact, _ALLOWED[logits.dtype])


def _in_units(
    function: Callable[..., torch.Tensor], device: torch.device, dtype: torch.dtype, of_targets: torch.dtype
) -> list[torch.Tensor]:
    """Return losses and their gradients in units of what each is the sum of: small ones count as much as large ones.

    Args:
        function: Computes the losses of logits and targets.
        device: Where.
        dtype: Of the logits.
        of_targets: Of the targets.
    """
    x = torch.linspace(-_LARGEST, _LARGEST, _COMPARED, dtype=torch.float32, device=device).to(dtype)
    targets = (torch.arange(_COMPARED, device=device) % 5 / 4).to(of_targets)  # 0, 1, and between
    by = torch.linspace(0.5, 2.0, _COMPARED, dtype=torch.float32, device=device)
    with torch.enable_grad():
        leaf = x.clone().requires_grad_()
        losses = function(leaf, targets)
        both = losses.sum(), (losses * by).sum()  # one gradient for all losses, and one for each
        grads = [torch.autograd.grad(each, leaf, retain_graph=True)[0] for each in both]
    logits, wanted = x.double(), targets.double()
    of_loss = logits.clamp(min=0.0) - logits * wanted + torch.log1p(torch.exp(-logits.abs()))
    of_grad = logits.sigmoid() + wanted
    return [losses.detach() / of_loss, grads[0] / of_grad, grads[1] / (of_grad * by)]
