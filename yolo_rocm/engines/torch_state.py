"""What torch is doing around a call: compiling, tracing, transforming, calling hooks.

Asked on every call, because any of it can change between two: nothing of it is kept, and all of it is a few look-ups.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import nn
from torch.autograd import forward_ad

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


def is_plain_eager(x: torch.Tensor) -> bool:
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


def foreign_global_hook() -> bool:
    """Return whether others have hooks on all modules. Ours only name layers."""
    return any_global_hook() and any(
        str(getattr(hook, "__module__", "")).partition(".")[0] != _OURS
        for hooks in (_PRE, _POST, _BACK, _PRE_BACK)
        for hook in hooks.values()
    )


def has_hooks(own: dict[str, Any]) -> object:
    """Return whether hooks see the calls of the module with these attributes, or its `forward` has been replaced."""
    return (
        own["_forward_pre_hooks"]
        or own["_forward_hooks"]
        or own["_backward_hooks"]
        or own.get("_backward_pre_hooks")
        or "forward" in own
    )
