"""Whether a model's passes are recorded: for each shape of its input, by measurement, said in one line."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch

from ..engines.autocast import autocast_dtype
from ..utils.switch import Switch
from .attributes import tensors_of
from .captured import Captured, Gradient, Passes, Run, gradients, kept, trained
from .recorder import CLEARLY, LARGEST_DEPARTURE, MOST_SHAPES, HostEffects, Recorder, recordable, shape_text
from .seen import Seen
from .signature import TrainingSignature
from .tree import flattened
from .trial import departure_of, timed

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

    setting, over, signature_of = "step.graph", "device graph off", TrainingSignature

    def __init__(self, model: torch.nn.Module, mode: Switch, say: Callable[[str], object]) -> None:
        super().__init__(say)
        self._mode = mode
        self._times: Counter[Any] = Counter()
        self._calls = 0
        self._taken = 0  # bytes of the pool
        _known[model] = self

    def is_recorded(self, decision: Captured | Seen | None) -> bool:
        """Return whether a decision about a shape is a recorded pass."""
        return isinstance(decision, Captured)

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
        key = x.shape, x.stride(), x.dtype, x.device, autocast_dtype(x.device.type)
        self._calls += 1
        self._forget_rare()
        known = self._seen(key)
        if isinstance(known, Seen):
            known.call = self._calls
            if known.grads is not None:
                known = self._shapes[key] = self._decided(key, model, run, x, known.grads)
                if self._signature is not None:
                    self._signature.settle()
        if isinstance(known, Captured):
            return known(partial(self.settled, run), x)
        result = self.settled(run, x)
        if known is not None:
            try:
                return known.watched(result)
            except TypeError as error:
                self.end(str(error))
        return result

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

    def _decided(
        self, key: Any, model: torch.nn.Module, run: Run, x: torch.Tensor, grads: list[Gradient]
    ) -> Captured | Seen | None:
        """Record the passes for a shape, where that is worth it; None leaves them as they are."""
        outcome = self.attempt(model, x.device, lambda: self._tried(model, run, x, grads))
        torch.cuda.empty_cache()
        if isinstance(outcome, str):  # the generator of random numbers is not the one that earlier graphs know
            self.end(f"{shape_text(x.shape)} could not be recorded: {outcome}")
            return None
        decision, why = outcome
        if decision is None:
            self._let_go_of_pool()
            torch.cuda.empty_cache()
        if not isinstance(decision, Seen):
            self._times[key] += decision is not None
            self._say(f"device graph {'on' if decision else 'off'} for {shape_text(x.shape)}: {why}")
        return decision  # type: ignore[no-any-return]

    def _tried(
        self, model: torch.nn.Module, run: Run, x: torch.Tensor, grads: list[Gradient]
    ) -> tuple[Captured | Seen | None, str]:
        parameters = trained(model)
        plain = tensors_of(module.__dict__ for module in model.modules())
        state = [*model.buffers(), *(each for each in plain if each.is_leaf and not each.is_inference())]

        def eager() -> Passes:
            torch.clear_autocast_cache()  # each step casts its weights
            outputs = flattened(run(x))[0]
            return [each.detach() for each in outputs], gradients(outputs, parameters, grads)

        with kept(state, x.device):
            effects = HostEffects(model)
            if not _is_finite(eager()):  # GradScaler begins with a scale that is too high
                return Seen(self._calls), "nothing can be compared yet"
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
        captured = Captured(run, x, model, state, grads, self.pool_on(x.device))
        torch.cuda.empty_cache()
        self._taken += torch.cuda.memory_reserved(x.device) - before
        with kept(state, x.device):
            _, graph_ms, found = timed(captured.replay_both, x.device)
        said += f", and {graph_ms:.1f} ms recorded"
        departure = max(departure_of(found[0], expected[0]), departure_of(found[1], expected[1]))
        if departure > LARGEST_DEPARTURE:
            return None, f"what is recorded computes something else, relative difference {departure:.1e}"
        if self._mode == Switch.AUTO and graph_ms > CLEARLY * eager_ms:
            return None, said
        free = torch.cuda.mem_get_info(x.device)[0]
        if self._mode == Switch.AUTO and free < self._taken:  # the last batch of an epoch has another shape
            step = _gib(self._taken)
            return None, f"{said}; a step that is not recorded takes {step}, and {_gib(free)} are free beside it"
        return captured, said


def _is_finite(passes: Passes) -> bool:
    return all(bool(each.isfinite().all()) for part in passes for each in part if each is not None)


def _gib(size: float) -> str:
    return f"{size / 2**30:.1f} GiB"
