"""How a network computes where nothing is trained: for each shape its layout, and whether it is recorded, as measured.

The first calls of a shape are computed as they come: a picture or two are not worth a measurement. Then algorithms are
measured for what was seen, and both layouts, recorded and not, for the network as a whole; one line says what is taken.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import Any, Final, NamedTuple

import torch

from ..utils.switch import Switch
from .captured import Run
from .recorded_forward import RecordedForward
from .recorder import CLEARLY, LARGEST_DEPARTURE, MOST_SHAPES, HostEffects, Recorder, recordable, shape_text, why_not
from .signature import InferenceSignature
from .tree import flattened
from .trial import departure_of, timed

LAYOUTS: Final = {"nchw": torch.contiguous_format, "channels_last": torch.channels_last}
# Calls of a shape before it is decided: where layouts and graphs are compared, and where it is recorded in any case.
CALLS_BEFORE_MEASURING: Final = 25
CALLS_BEFORE_RECORDING: Final = 2


class _Way(NamedTuple):
    """A way to compute a shape: its layout, and the recorded pass, where there is one."""

    layout: str
    recorded: RecordedForward | None


class InferenceNetworks:
    """The networks of a process that are computed so.

    Args:
        graph: `auto` records where that is faster, `on` whatever can be recorded.
        layout: One of `LAYOUTS`, or `auto`.
        tune: Measures the algorithms of what was seen.
        say: Called with each decision.
    """

    def __init__(
        self,
        graph: Switch,
        layout: str,
        tune: Callable[[], object],
        say: Callable[[str], object],
    ) -> None:
        self.graph, self.layouts = graph, list(LAYOUTS) if layout == "auto" else [layout]
        self.tune, self.say = tune, say
        self._networks: weakref.WeakKeyDictionary[torch.nn.Module, _Network] = weakref.WeakKeyDictionary()

    def __call__(self, model: torch.nn.Module, run: Run, x: torch.Tensor) -> Any:
        """Return what a model's forward pass `run` returns for an input."""
        if not recordable(x.device) or x.dim() != 4 or torch.cuda.is_current_stream_capturing():
            return run(x)
        network = self._networks.get(model)
        if network is None:
            network = self._networks[model] = _Network(self)
        return network(model, run, x)

    @property
    def recorded(self) -> int:
        """How many passes are recorded."""
        return sum(network.recorded for network in self._networks.values())

    def forget(self) -> None:
        """Let go of every graph and its memory."""
        self._networks.clear()


class _Network(Recorder):
    """The ways of one model, by shape; before one is decided the calls so far, and None for a shape that has none."""

    setting, over, signature_of = "predict.graph", "inference is computed as it is", InferenceSignature

    def __init__(self, owner: InferenceNetworks) -> None:
        super().__init__(owner.say)
        self._owner = owner
        self._has_failed = False

    def is_recorded(self, decision: Any) -> bool:
        return isinstance(decision, _Way) and decision.recorded is not None

    def __call__(self, model: torch.nn.Module, run: Run, x: torch.Tensor) -> Any:
        if not self.is_ready(model):
            return run(x)
        key = x.shape, x.dtype, x.device
        known = self._shapes.get(key, 0 if len(self._shapes) < MOST_SHAPES else None)
        if isinstance(known, int):
            self._forget_if_changed()  # other shapes were recorded with what is not the model's any more
            known = self._shapes[key] = self._next(model, run, x, known)
        if not isinstance(known, _Way):
            return self._as_it_is(run, x)
        if known.recorded is None:
            return self._as_it_is(partial(_in_layout, run, LAYOUTS[known.layout]), x)
        result = known.recorded(x)
        # While the device computes: whether anybody has changed an attribute of a module since.
        return run(x) if self._forget_if_changed() else result

    def _forget_if_changed(self) -> bool:
        """Forget what is recorded where modules are set otherwise than then, and return whether that was so."""
        changed = self._pool is not None and (self._signature is None or not self._signature.is_same)
        if changed:
            self.forget()
        return changed

    def _as_it_is(self, run: Run, x: torch.Tensor) -> Any:
        """Compute a pass that is not recorded; what it changes in modules, such as anchors of a shape, is its own."""
        self._forget_if_changed()
        return self.settled(run, x)

    def forget(self) -> None:
        """Let go of every graph; shapes are decided again."""
        super().forget()
        self._shapes = {key: known if isinstance(known, int) else 0 for key, known in self._shapes.items()}

    def _next(self, model: torch.nn.Module, run: Run, x: torch.Tensor, calls: int) -> _Way | int | None:
        """Count a call, or decide how the shape is computed from now on."""
        if calls < (CALLS_BEFORE_RECORDING if self._owner.graph == Switch.ON else CALLS_BEFORE_MEASURING):
            return calls + 1
        outcome = self.attempt(model, x.device, lambda: self._decided(model, run, x))
        torch.cuda.empty_cache()
        self._has_failed |= isinstance(outcome, str)
        way, why = (None, f"could not be measured: {outcome}") if isinstance(outcome, str) else outcome
        self._say(f"inference of {shape_text(x.shape)} {why}")
        return way

    def _decided(self, model: torch.nn.Module, run: Run, x: torch.Tensor) -> tuple[_Way | None, str]:
        layouts = self._owner.layouts
        for name in layouts:
            run(x.detach().clone(memory_format=LAYOUTS[name]))  # so that all problems have been seen
        self._owner.tune()
        effects = HostEffects(model)
        expected = flattened(run(x))[0]
        effects.settle()
        times: dict[_Way, float] = {}
        computed: dict[str, list[torch.Tensor]] = {}
        for name in layouts:
            # As a call would have it: the input comes as it is.
            computed[name], milliseconds = _timed(partial(_in_layout, run, LAYOUTS[name]), x)
            if _typical_departure(computed[name], expected) <= LARGEST_DEPARTURE:
                times[_Way(name, None)] = milliseconds
        eager = min(times, key=times.__getitem__, default=None)
        if eager is None:
            return None, "departs from itself: it is computed as it is"
        said = f"takes {times[eager]:.2f} ms in {eager.layout}"
        reason = "rocm.predict.graph=off" if self._owner.graph == Switch.OFF else why_not(x.device) or effects.reason()
        if reason is None and self._has_failed:
            reason = "an earlier pass could not be"
        if reason is not None:
            return eager, f"{said}, not recorded: {reason}"
        for name in layouts:
            held = InferenceSignature(model).tensors
            recorded = RecordedForward(run, x, LAYOUTS[name], held, self.pool_on(x.device))
            found, milliseconds = _timed(recorded, x)
            if departure_of(found, computed[name]) <= LARGEST_DEPARTURE:
                times[_Way(name, recorded)] = milliseconds
        self._signature = InferenceSignature(model)  # the model as it is now, which is what was recorded
        best = min(filter(self.is_recorded, times), key=times.__getitem__, default=None)
        if best is None:
            return eager, f"{said}, not recorded: what is recorded computes something else"
        said += f", {times[best]:.2f} ms recorded in {best.layout}"
        worth = self._owner.graph == Switch.ON or times[best] < CLEARLY * times[eager]
        return (best, said) if worth else (eager, f"{said}: it is not recorded")


def _in_layout(run: Run, layout: torch.memory_format, x: torch.Tensor) -> Any:
    return run(x.contiguous(memory_format=layout))


def _timed(run: Run, x: torch.Tensor) -> tuple[list[torch.Tensor], float]:
    """Return what a pass returns, and the milliseconds that it takes."""
    _, milliseconds, found = timed(lambda: flattened(run(x))[0], x.device)
    return found, milliseconds


def _typical_departure(found: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> float:
    """Return how far most outputs are off: the best of several boxes may come in another order after a rounding."""
    return median(departure_of([ours], [right]) for ours, right in zip(found, expected, strict=True))
