"""Which BatchNorm and activation modules may be computed as one: those where nobody can tell the difference.

Looked at on every call, because any of it can change between two: a BatchNorm frozen by `eval()`, a hook, another
module in its place. So nothing of it is kept, and all of it is a few look-ups.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import nn
from torch.autograd import forward_ad

from .problem import IDENTITY, LEAKY_RELU, RELU, SILU

ACTIVATION_MODULES: Final[dict[type[nn.Module], str]] = {
    nn.SiLU: SILU,
    nn.ReLU: RELU,
    nn.LeakyReLU: LEAKY_RELU,
    nn.Identity: IDENTITY,
}
_OURS: Final = __name__.partition(".")[0]
# Hooks on all modules of the process. torch changes these dictionaries in place; an older one lacks the last.
_PRE, _POST, _BACK, _PRE_BACK = (
    getattr(nn.modules.module, f"_global_{kind}_hooks", {})
    for kind in ("forward_pre", "forward", "backward", "backward_pre")
)


# torch 2.0 to 2.2 do not say whether they compile; their compilers leave the graph for what they do not know.
is_compiling: Final[Callable[[], bool]] = getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)
# A transform of functorch that is going on; torch < 2.0 says so only of its tensors.
transform: Final[Callable[[], object]] = getattr(torch._C._functorch, "peek_interpreter_stack", lambda: None)
is_transformed: Final[Callable[[torch.Tensor], bool]] = torch._C._functorch.is_functorch_wrapped_tensor
# A gradient that stands for many, of `is_grads_batched`; torch < 2.0 does not tell.
is_batched: Final[Callable[[torch.Tensor], bool]] = getattr(
    torch._C._functorch, "is_legacy_batchedtensor", lambda tensor: False
)
_tracing: Final[Callable[[], object]] = torch._C._get_tracing_state
_modes: Final[Callable[[], int]] = torch._C._len_torch_dispatch_stack
_function_modes: Final[Callable[[], int]] = torch._C._len_torch_function_stack


def fusible(norm: Any, act: Any) -> bool:
    """Return whether `act(norm(x))` may be computed as one, as far as the modules decide.

    An activation that works in place, or that many layers share, makes no difference: nobody but the activation sees
    what the BatchNorm returns.
    """
    if type(norm) is not nn.BatchNorm2d or type(act) not in ACTIVATION_MODULES:  # no subclass, nothing parametrised
        return False
    if not norm.training or not norm.track_running_stats or norm.momentum is None or not norm.eps > 0:
        return False
    if (_PRE or _POST or _BACK or _PRE_BACK) and _foreign():
        return False
    return not watched(norm.__dict__) and not watched(act.__dict__)


def ordinary(x: torch.Tensor) -> bool:
    """Return whether a call with this input is nothing but a call: not traced, transformed, or seen by a mode.

    Nor differentiated forward, which functions of ours are not made for, nor with a sign that is still to be applied,
    as the imaginary part of a conjugate has it: our kernels read what is in memory.
    """
    return (
        type(x) is torch.Tensor
        and getattr(forward_ad, "_current_level", -1) < 0
        and _tracing() is None
        and not _modes()
        and not _function_modes()
        and transform() is None
        and not is_transformed(x)
        and not x.is_neg()
    )


def any_global_hook() -> bool:
    """Return whether anybody, we included, has hooks on all modules of the process."""
    return bool(_PRE or _POST or _BACK or _PRE_BACK)


def watched(own: dict[str, Any]) -> object:
    """Return whether somebody sees the calls of the module with these attributes, or has replaced what they do."""
    return (
        own["_forward_pre_hooks"]
        or own["_forward_hooks"]
        or own["_backward_hooks"]
        or own.get("_backward_pre_hooks")
        or "forward" in own
    )


def _foreign() -> bool:
    """Return whether others have hooks on all modules. Ours only name layers."""
    return any(
        str(getattr(hook, "__module__", "")).partition(".")[0] != _OURS
        for hooks in (_PRE, _POST, _BACK, _PRE_BACK)
        for hook in hooks.values()
    )
