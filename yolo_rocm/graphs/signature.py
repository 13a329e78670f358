"""What a recorded pass depends on besides its input: where parameters are, who is frozen, and who watches modules."""

from __future__ import annotations

from typing import Any

from torch import nn

_GLOBAL = tuple(
    getattr(nn.modules.module, f"_global_{kind}_hooks", {})
    for kind in ("forward_pre", "forward", "backward", "backward_pre")
)
_OWN = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


def signature(model: nn.Module) -> list[Any] | None:
    """Return what changes when a recorded pass of a model is not its pass any more.

    Called before every step, so it walks the tree by hand. Structure and modes of modules, and of every tensor of the
    model where it is and whether it wants a gradient: a recorded pass has addresses in it.

    Returns:
        Something to compare; None where hooks want to see each call of a module, which a recorded pass does not make.
    """
    if any(_GLOBAL):
        return None
    found: list[Any] = []
    waiting: list[nn.Module | None] = [model]
    while waiting:
        module = waiting.pop()
        if module is None:
            continue
        own = module.__dict__
        if any(own.get(name) for name in _OWN):
            return None
        found += (id(module), own["training"])
        for tensors in (own["_parameters"], own["_buffers"]):
            for tensor in tensors.values():
                if tensor is not None:
                    found += (tensor.data_ptr(), tensor.requires_grad)
        waiting.extend(own["_modules"].values())
    return found
