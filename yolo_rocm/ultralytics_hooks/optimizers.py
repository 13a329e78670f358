"""SGD in one kernel for a group of parameters: torch's own, for which the host waits in no step.

With the optimizer that Ultralytics builds, GradScaler reads back in each step whether a gradient has overflowed, and
the device has nothing to do until the host has launched something again. A fused optimizer asks on the device.
Ultralytics 8.4.190 makes Adam and AdamW fused, not SGD. Momentum of torch's fused SGD begins in memory that nobody has
written to, which stays so where the first step overflows (usual under GradScaler). Here it begins with zeros, which
gives the same first step. Checkpoints are those of SGD that is not fused, both ways.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from ..utils.scoped_patch import attribute
from .probes import FUSED_OPTIMIZERS, missing

_DEVICES: Final = ("cuda",)  # what ROCm calls its devices too
# torch 2.3 is the first with fused SGD. Before 2.5 it refuses tensors whose strides differ where nothing is stepped
# over, as those of 1x1 convolutions do after a change of layout (pytorch PR 134546).
_OLDEST: Final = (2, 5)
_BUFFER: Final = "momentum_buffer"
_KERNEL_CHOICE: Final = ("foreach", "fused")  # of a group of parameters


@contextmanager
def fused_optimizers() -> Iterator[None]:
    """Let trainers on a GPU take fused SGD where they would take SGD, while the context is open."""
    if missing(FUSED_OPTIMIZERS):
        yield
        return
    with attribute("ultralytics.engine.trainer:BaseTrainer", "build_optimizer").on(_building_fused, "optimizers"):
        yield


def _building_fused(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def build_optimizer(*args: Any, **kwargs: Any) -> Any:
        return fused_sgd(original(*args, **kwargs))

    return build_optimizer


def fused_sgd(optimizer: Any) -> Any:
    """Return fused SGD for the parameters of a new optimizer, or the optimizer where it is not SGD on a GPU."""
    import torch

    if not _can_be_fused(optimizer):
        return optimizer
    groups = [{**group, "fused": True} for group in optimizer.param_groups]
    fused = torch.optim.SGD(groups, **{**optimizer.defaults, "fused": True})
    fused.register_step_pre_hook(_begin_with_zeros)
    fused.register_state_dict_post_hook(_as_built)
    fused.register_load_state_dict_post_hook(_stay_fused)
    return fused


def _can_be_fused(optimizer: Any) -> bool:
    import torch

    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if type(optimizer) is not torch.optim.SGD or version < _OLDEST:
        return False
    groups = optimizer.param_groups
    as_torch_chooses = all(group[name] is None for group in groups for name in _KERNEL_CHOICE)
    ordinary = not any(group["dampening"] or group["differentiable"] for group in groups)
    parameters = [each for group in groups for each in group["params"]]
    placed = all(each.is_floating_point() and each.device.type in _DEVICES for each in parameters)
    return as_torch_chooses and ordinary and placed and not optimizer.state


def _begin_with_zeros(optimizer: Any, *_: Any) -> None:
    """Give momentum to parameters that have none yet, as those that were frozen until now."""
    import torch

    for group in optimizer.param_groups:
        for each in group["params"] if group["momentum"] else ():
            if each.grad is not None and optimizer.state[each].get(_BUFFER) is None:
                optimizer.state[each][_BUFFER] = torch.zeros_like(each, memory_format=torch.preserve_format)


def _as_built(_: Any, state: dict[str, Any]) -> None:
    """Let what is saved be what the optimizer that Ultralytics builds would have saved."""
    for group in state["param_groups"]:
        group.update(dict.fromkeys(_KERNEL_CHOICE))


def _stay_fused(optimizer: Any) -> None:
    """Undo what loading a state has changed: who has saved it may have had another kernel, or another layout."""
    import torch

    for group in optimizer.param_groups:
        group.update(foreach=None, fused=True)
        for each in group["params"]:
            buffer = optimizer.state.get(each, {}).get(_BUFFER)
            if buffer is not None and buffer.stride() != each.stride():
                optimizer.state[each][_BUFFER] = torch.empty_like(each, requires_grad=False).copy_(buffer)
