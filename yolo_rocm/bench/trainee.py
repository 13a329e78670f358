"""One model that is trained step by step, as the trainer does it: what `bench train` times."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import torch

from ..graphs import network
from ..ultralytics_hooks import optimizers, train_steps
from . import busy
from .way import Way

SEED: Final = 0
# GradScaler begins so high that first steps overflow and are left out, by chance in one way and not in another.
_FIRST_SCALE: Final = 2.0**8
_SGD: Final = {"lr": 0.001, "momentum": 0.937, "weight_decay": 5e-4, "nesterov": True}
_LARGEST_GRADIENT: Final = 10.0


class Trainee:
    """A model and what trains it."""

    def __init__(
        self, module: torch.nn.Module, batch: dict[str, Any], amp: bool, device: torch.device, way: Way
    ) -> None:
        self.module, self._batch, self._compiled = module, batch, way.compiled
        self._forward = train_steps.compiled(module, device) if way.compiled else module
        optimizer = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], **_SGD)  # type: ignore[arg-type]
        self._optimizer = optimizers.fused_sgd(optimizer) if way.is_ours else optimizer
        self._scaler = _scaler(amp and device.type == "cuda")
        dtype = torch.float16 if device.type == "cuda" else torch.bfloat16
        self._autocast: dict[str, Any] = {"device_type": device.type, "dtype": dtype, "enabled": amp}

    def step(self, ranges: bool = False) -> torch.Tensor:
        """Take one step and return its loss, which nobody has waited for.

        Args:
            ranges: Mark loss and optimizer for the profiler.
        """
        around = torch.profiler.record_function if ranges else _unmarked
        with torch.autocast(**self._autocast):
            if self._compiled or ranges:  # apart, as the trainer does where it compiles
                predicted = self._forward(self._batch["img"])
                with around(busy.LOSS_RANGE):
                    loss: torch.Tensor = train_steps.loss_of_predicted(self.module, self._batch, predicted)
                del predicted
            else:
                loss = train_steps.loss_of(self.module, self._batch)
        self._scaler.scale(loss).backward()
        with around(busy.OPTIMIZER_RANGE):
            self._scaler.unscale_(self._optimizer)
            torch.nn.utils.clip_grad_norm_(self.module.parameters(), _LARGEST_GRADIENT)
            self._scaler.step(self._optimizer)
            self._scaler.update()
            self._optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def begin_again(self, first: torch.nn.Module) -> None:
        """Take the weights of another model, in the memory of its own, and forget all steps."""
        torch.manual_seed(SEED)
        self.module.load_state_dict(first.state_dict())
        self._optimizer.state.clear()

    @property
    def is_recorded(self) -> bool:
        """Whether the network's passes are replayed."""
        known = network.of(self.module)
        return known is not None and known.recorded > 0

    def overflows(self) -> int:
        """Return how many steps were left out: each has halved the scale."""
        scale = float(self._scaler.get_scale())
        return round(math.log2(_FIRST_SCALE / scale)) if self._scaler.is_enabled() else 0

    def let_go(self) -> None:
        """Drop everything, also where a traceback holds this object, or what was compiled holds the model."""
        if self.__dict__.pop("_compiled", False):
            train_steps.forget_compiled()
        self.__dict__.clear()


def _unmarked(name: str) -> AbstractContextManager[None]:
    return nullcontext()


def _scaler(on: bool) -> Any:
    """Return a GradScaler of a GPU; it passes everything through where it is off."""
    if hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler("cuda", enabled=on, init_scale=_FIRST_SCALE)
    return torch.cuda.amp.GradScaler(enabled=on, init_scale=_FIRST_SCALE)  # torch < 2.3
