"""The memory layout of a trainer's model: what it is, a change of it, and a batch to measure it with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from .models import is_compiled, plain_model
from .probes import LAYOUT, missing
from .trainers import in_place_of

# Where newer Ultralytics keeps the tensors of both models after the first update of the average (8.4.190 does).
_PAIRS: Final = "_pairs"


def why_layout_stays(trainer: Any) -> str:
    """Return why the layout of a trainer's model is not changed while it trains; nothing where it can be."""
    problems = missing(LAYOUT)
    if problems:
        return problems[0]
    if getattr(trainer, "world_size", 1) > 1:
        return "on several GPUs it is not measured"
    unknown = [name for name in _kept_by_average(trainer) if name != _PAIRS]
    if unknown:
        return f"the moving average of its weights keeps tensors in {', '.join(unknown)}"
    return "a compiled model would be compiled anew" if is_compiled(trainer.model) else ""


def _kept_by_average(trainer: Any) -> list[str]:
    """Return the attributes in which the averaged model's keeper holds tensors, other than the model."""
    import torch

    def holds(value: Any) -> bool:
        values = value.values() if isinstance(value, dict) else value
        return torch.is_tensor(value) or (isinstance(value, dict | list | tuple) and any(map(holds, values)))

    return [name for name, value in vars(getattr(trainer, "ema", None) or object).items() if holds(value)]


def layout_is_given(trainer: Any) -> bool:
    """Return whether Ultralytics' own argument says which layout to train in."""
    return getattr(trainer.args, "channels_last", None) is not None


def is_channels_last(module: Any) -> bool:
    """Return whether the weights of a module are in channels_last; those of 1x1 convolutions are in both."""
    import torch

    weights = (each for each in module.parameters() if each.dim() == 4 and not each.is_contiguous())
    return any(each.is_contiguous(memory_format=torch.channels_last) for each in weights)


def to_layout(module: Any, channels_last: bool) -> Any:
    """Change the layout of a module's weights in place, and return it; parameters stay the same objects."""
    import torch

    return module.to(memory_format=torch.channels_last if channels_last else torch.contiguous_format)


def train_in_layout(trainer: Any, channels_last: bool) -> None:
    """Go on training in a layout: weights, their gradients, what the optimizer keeps of them, and the averaged model.

    Only the places of values in memory change. The images follow the weights: a convolution's result has their layout.
    """
    import torch

    def laid_out_as(parameter: Any, value: Any) -> Any:
        # Strides that say nothing, of 1x1 convolutions, are the parameter's too: fused optimizers may compare them.
        return torch.empty_like(parameter, dtype=value.dtype, requires_grad=False).copy_(value)

    to_layout(plain_model(trainer.model), channels_last)
    if getattr(trainer, "ema", None) is not None:
        to_layout(trainer.ema.ema, channels_last)
        if getattr(trainer.ema, _PAIRS, None) is not None:
            setattr(trainer.ema, _PAIRS, None)  # it is made anew, of what the two models have now
    for parameter, state in trainer.optimizer.state.items():
        for name, value in state.items():
            if torch.is_tensor(value) and value.dim() == 4 and value.shape == parameter.shape:
                state[name] = laid_out_as(parameter, value)
    for parameter in plain_model(trainer.model).parameters():
        if parameter.grad is not None and parameter.grad.dim() == 4:
            parameter.grad = laid_out_as(parameter, parameter.grad)


def autocast_of(trainer: Any) -> dict[str, Any]:
    """Return the arguments of `torch.autocast` that a trainer runs its forward pass under."""
    import torch

    half = torch.float16
    if trainer.device.type == "cpu" or getattr(trainer.args, "amp", None) == "bf16":
        half = torch.bfloat16
    return {"device_type": trainer.device.type, "dtype": half, "enabled": bool(trainer.amp)}


@contextmanager
def first_batch_kept(trainer: Any) -> Iterator[Callable[[], dict[str, Any] | None]]:
    """Keep the first batch that a trainer prepares on its device; yields a function that returns it, once.

    Whoever has put a `preprocess_batch` of their own on the trainer keeps it.
    """
    kept: list[dict[str, Any]] = []
    original = trainer.preprocess_batch

    def preprocess(batch: Any) -> Any:
        prepared = original(batch)
        kept.append(dict(prepared))
        waiting.close()
        return prepared

    with ExitStack() as waiting:
        waiting.enter_context(in_place_of(trainer, "preprocess_batch", preprocess))
        yield lambda: kept.pop() if kept else None
