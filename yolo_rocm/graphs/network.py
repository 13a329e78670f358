"""Whether a model's passes are recorded: for each shape of its input, by measurement, said in one line."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch

from ..utils.switch import Switch
from .attributes import tensors_of
from .captured import Captured, Gradient, Passes, Run, autocast_of_now, gradients, kept
from .leaves import fresh_leaves
from .pool import GraphPool
from .recorder import (
    CLEARLY,
    LARGEST_DEPARTURE,
    MOST_SHAPES,
    HostEffects,
    Recorder,
    UndecidedError,
    recordable,
    shape_text,
)
from .seen import Seen
from .signature import TrainingSignature
from .tree import flattened
from .trial import departure_of, finite, timed

_MOST_TIMES: Final = 2  # that a shape is recorded, where its loss changes which outputs it uses
# A shape that comes more rarely, as an epoch's last batch, has not paid for its recording after dozens of epochs.
_NEAR: Final = 4
# The host takes this part of the time, or more, to launch what the device computes: the device waits for it.
_HOST_BOUND: Final = 0.7

_known: weakref.WeakKeyDictionary[torch.nn.Module, NetworkGraphs] = weakref.WeakKeyDictionary()


def of(model: torch.nn.Module) -> NetworkGraphs | None:
    """Return what is recorded of a model; None where nobody has asked for it."""
    return _known.get(model)


class NetworkGraphs(Recorder):
    """The recorded passes of one model.

    Args:
        model: The model; nothing of it is held.
        mode: `auto` measures whether it is worth it; `on` records whatever can be recorded.
        say: Called with each decision.
    """

    def __init__(self, model: torch.nn.Module, mode: Switch, say: Callable[[str], object]) -> None:
        super().__init__("step.graph", TrainingSignature)
        self._mode, self._say = mode, say
        self._shapes: dict[Any, Captured | Seen | None] = {}
        self._times: Counter[Any] = Counter()
        self._calls = 0
        self._taken = 0  # bytes of the pool
        _known[model] = self

    @property
    def recorded(self) -> int:
        """How many shapes are recorded."""
        return sum(isinstance(each, Captured) for each in self._shapes.values())

    def forget(self) -> None:
        """Let go of every graph and its memory."""
        super().forget()
        self._shapes.clear()
        self._taken = 0

    def close(self) -> None:
        """Forget everything, and leave the model to itself from now on."""
        self.forget()
        for model in [model for model, graphs in _known.items() if graphs is self]:
            del _known[model]

    def __call__(self, model: torch.nn.Module, run: Run, x: torch.Tensor) -> Any:
        """Return what the model's forward pass `run` returns, recorded or not."""
        if x.requires_grad or not recordable(x.device) or not self.is_ready(model):
            return run(x)
        key = x.shape, x.stride(), x.dtype, x.device, autocast_of_now()
        self._calls += 1
        self._forget_rare()
        known = self._seen(key)
        if isinstance(known, Seen):
            known.call = self._calls
            if known.grads is not None:
                known = self._shapes[key] = self._decided(model, run, x, known.grads)
                self._settle()
        if isinstance(known, Captured):
            return known(partial(self._computed, run), x)
        result = self._computed(run, x)
        if known is not None:
            try:
                return known.watched(result)
            except TypeError as error:
                self.end(str(error))
        return result

    def is_ready(self, model: torch.nn.Module) -> bool:
        """Return whether this call could be replayed: not while another one's backward pass is to come."""
        return (self._pool is None or not self._pool.is_busy) and super().is_ready(model)

    def is_outdated(self) -> bool:
        """Return whether the model is not what passes were recorded with."""
        return super().is_outdated() or not (self._signature is not None and self._signature.is_same)

    def _computed(self, run: Run, x: torch.Tensor) -> Any:
        """Compute a pass that is not replayed; what it has changed in modules is how they are from now on."""
        result = run(x)
        self._settle()
        return result

    def _settle(self) -> None:
        if self._signature is not None:
            self._signature.settle()

    def _seen(self, key: Any) -> Captured | Seen | None:
        known = self._shapes.get(key)
        if isinstance(known, Captured) and known.is_outgrown:
            del self._shapes[key]
            self._let_go_of_pool()
            if self._times[key] >= _MOST_TIMES:
                self._shapes[key] = None
                self._say(
                    f"device graph off for {shape_text(key[0])}: the loss does not use the same outputs each time"
                )
        if key not in self._shapes and len(self._shapes) < MOST_SHAPES:
            self._shapes[key] = Seen(self._calls)
        return self._shapes.get(key)

    def _forget_rare(self) -> None:
        """Keep no gradients of shapes that have not come for some calls: with `auto` these begin anew."""
        if self._mode == Switch.AUTO:
            for each in self._shapes.values():
                if isinstance(each, Seen) and self._calls - each.call > _NEAR:
                    each.grads = None

    def _let_go_of_pool(self) -> None:
        """Take another pool for what comes after the last graph of this one.

        Torch lets go of a pool with its last graph, pinned memory of the host included, and refuses its handle then.
        """
        if not self.recorded:
            self._pool, self._taken = None, 0

    def end(self, why: str) -> None:
        """Record nothing more of this model, and say why."""
        super().end(why)
        self._say(f"device graph off: {why}")

    def _decided(
        self, model: torch.nn.Module, run: Run, x: torch.Tensor, grads: list[Gradient]
    ) -> Captured | Seen | None:
        """Record the passes for a shape, where that is worth it; None leaves them as they are."""
        try:
            captured, why, succeeded = self.attempt(
                model, x.device, lambda: self._tried(model, run, x, grads), lambda captured: True
            )
        except UndecidedError:
            return Seen(self._calls)
        if not succeeded:  # the generator of random numbers is not the one that earlier graphs know
            self.end(f"{shape_text(x.shape)} could not be recorded: {why}")
            return None
        if captured is None:
            self._let_go_of_pool()
            torch.cuda.empty_cache()
        else:
            self._times[x.shape, x.stride(), x.dtype, x.device, autocast_of_now()] += 1
        self._say(f"device graph {'on' if captured else 'off'} for {shape_text(x.shape)}: {why}")
        return captured

    def _tried(
        self, model: torch.nn.Module, run: Run, x: torch.Tensor, grads: list[Gradient]
    ) -> tuple[Captured | None, str]:
        parameters = [p for p in model.parameters() if p.requires_grad]
        plain = tensors_of(module.__dict__ for module in model.modules())
        state = [*model.buffers(), *(each for each in plain if each.is_leaf and not each.is_inference())]

        def eager() -> Passes:
            torch.clear_autocast_cache()  # each step casts its weights
            outputs = flattened(run(x))[0]
            return [each.detach() for each in outputs], gradients(outputs, parameters, grads)

        with kept(state, x.device):
            effects = HostEffects(model)
            if not finite(eager()):  # GradScaler begins with a scale that is too high
                raise UndecidedError
            effects.settle()
            host_ms, eager_ms, expected = timed(eager, x.device)
            reason = effects.reason()
        if reason is not None:
            return None, reason
        said = f"forward and backward take {eager_ms:.1f} ms, the host {host_ms:.1f} ms of it to launch them"
        if self._mode == Switch.AUTO and host_ms < _HOST_BOUND * eager_ms:
            return None, said
        torch.cuda.empty_cache()
        before = torch.cuda.memory_reserved(x.device)
        self._pool = self._pool or GraphPool(x.device)
        with fresh_leaves(model) as leaves:
            captured = Captured(run, x, parameters, leaves, state, grads, self._pool)
        torch.cuda.empty_cache()
        self._taken += torch.cuda.memory_reserved(x.device) - before
        with kept(state, x.device):
            _, graph_ms, found = timed(captured.replay_both, x.device)
        said += f", and {graph_ms:.1f} ms recorded"
        departure = departure_of(found, expected)
        if departure > LARGEST_DEPARTURE:
            return None, f"what is recorded computes something else, relative difference {departure:.1e}"
        if self._mode == Switch.AUTO and graph_ms > CLEARLY * eager_ms:
            return None, said
        free = torch.cuda.mem_get_info(x.device)[0]
        if self._mode == Switch.AUTO and free < self._taken:  # the last batch of an epoch has another shape
            step = _gib(self._taken)
            return None, f"{said}; a step that is not recorded takes {step}, and {_gib(free)} are free beside it"
        return captured, said


def _gib(size: float) -> str:
    return f"{size / 2**30:.1f} GiB"
