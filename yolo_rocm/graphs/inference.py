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
from .pool import GraphPool
from .recorded_forward import RecordedForward
from .recorder import CLEARLY, LARGEST_DEPARTURE, MOST_SHAPES, HostEffects, Recorder, recordable, shape_text, why_not
from .signature import InferenceSignature
from .tree import flattened
from .trial import departure_of, timed

LAYOUTS: Final = {"nchw": torch.contiguous_format, "channels_last": torch.channels_last}
# Calls of a shape before it is decided: where algorithms have yet to be measured, and where they are known.
CALLS_BEFORE_MEASURING: Final = 25
CALLS_BEFORE_RECORDING: Final = 2


class Wanted(NamedTuple):
    """What a user wants.

    Attributes:
        graph: `auto` records where that is faster, `on` whatever can be recorded.
        layout: One of `LAYOUTS`, or `auto`.
    """

    graph: Switch = Switch.AUTO
    layout: str = "auto"


class _Way(NamedTuple):
    """A way to compute a shape: its layout, and the recorded pass, where there is one."""

    layout: str
    recorded: RecordedForward | None


class InferenceNetworks:
    """The networks of a process that are computed so.

    Args:
        wanted: What the user wants.
        unmeasured: Returns how many problems have yet to be measured.
        tune: Measures them.
        say: Called with each decision.
    """

    def __init__(
        self,
        wanted: Wanted,
        unmeasured: Callable[[], int],
        tune: Callable[[], object],
        say: Callable[[str], object],
    ) -> None:
        self.wanted, self.unmeasured, self.tune, self.say = wanted, unmeasured, tune, say
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
    """The ways of one model."""

    def __init__(self, owner: InferenceNetworks) -> None:
        super().__init__("predict.graph", InferenceSignature)
        self._owner = owner
        self._shapes: dict[Any, _Way | int | None] = {}  # the way; before that, the calls so far; None has none
        self._records = True

    @property
    def recorded(self) -> int:
        return sum(isinstance(way, _Way) and way.recorded is not None for way in self._shapes.values())

    def __call__(self, model: torch.nn.Module, run: Run, x: torch.Tensor) -> Any:
        if not self.is_ready(model):
            return run(x)
        key = x.shape, x.dtype, x.device
        known = self._shapes.get(key, 0 if len(self._shapes) < MOST_SHAPES else None)
        if isinstance(known, int):
            if self._pool is not None and not self._is_same:
                self.forget()  # other shapes were recorded with what is not the model's any more
            known = self._shapes[key] = self._next(model, run, x, known)
        if not isinstance(known, _Way):
            return self._settled(run, x)
        if known.recorded is None:
            return self._settled(run, x.contiguous(memory_format=LAYOUTS[known.layout]))
        result = known.recorded(x)
        # While the device computes: whether anybody has changed an attribute of a module since.
        if not self._is_same:
            self.forget()
            return run(x)
        return result

    @property
    def _is_same(self) -> bool:
        return self._signature is not None and self._signature.is_same

    def _settled(self, run: Run, x: torch.Tensor) -> Any:
        """Compute a pass as it is; what it changes in modules, such as anchors of a shape, is its own."""
        if self._pool is None:  # nothing is recorded that could depend on it
            return run(x)
        if not self._is_same:
            self.forget()
        result = run(x)
        if self._signature is not None:
            self._signature.settle()
        return result

    def forget(self) -> None:
        """Let go of every graph; shapes are decided again."""
        super().forget()
        self._shapes = {key: known if isinstance(known, int) else 0 for key, known in self._shapes.items()}

    def end(self, why: str) -> None:
        """Record nothing more of this model, and say why."""
        super().end(why)
        self._owner.say(f"inference is computed as it is: {why}")

    def _next(self, model: torch.nn.Module, run: Run, x: torch.Tensor, calls: int) -> _Way | int | None:
        """Count a call, or decide how the shape is computed from now on."""
        waiting = calls < CALLS_BEFORE_RECORDING or (
            calls < CALLS_BEFORE_MEASURING and self._owner.unmeasured() > 0 and self._owner.wanted.graph != Switch.ON
        )
        if waiting:
            return calls + 1
        way, why, succeeded = self.attempt(
            model,
            x.device,
            lambda: self._decided(model, run, x),
            lambda way: way is not None and way.recorded is not None,
        )
        if not succeeded:
            self._records = False
            why = f"could not be measured: {why}"
        self._owner.say(f"inference of {shape_text(x.shape)} {why}")
        return way

    def _decided(self, model: torch.nn.Module, run: Run, x: torch.Tensor) -> tuple[_Way | None, str]:
        wanted, device = self._owner.wanted, x.device
        layouts = [wanted.layout] if wanted.layout != "auto" else list(LAYOUTS)
        inputs = {name: x.detach().clone(memory_format=LAYOUTS[name]) for name in layouts}
        for each in inputs.values():
            run(each)  # so that all problems have been seen
        self._owner.tune()
        effects = HostEffects(model)
        expected = _tensors(run, x)
        effects.settle()
        times: dict[_Way, float] = {}
        computed: dict[str, Sequence[torch.Tensor]] = {}
        for name, layout in ((name, LAYOUTS[name]) for name in inputs):
            # As a call would have it: the input comes as it is.
            computed[name], milliseconds = _timed(partial(_in_layout, run, layout), x)
            if _typical_departure(computed[name], expected) <= LARGEST_DEPARTURE:
                times[_Way(name, None)] = milliseconds
        eager = min(times, key=times.__getitem__, default=None)
        if eager is None:
            return None, "departs from itself: it is computed as it is"
        said = f"takes {times[eager]:.2f} ms in {eager.layout}"
        reason = why_not(device) if wanted.graph != Switch.OFF else "rocm.predict.graph=off"
        reason = reason or effects.reason()
        if reason is not None or not self._records:
            return eager, f"{said}, not recorded: {reason or 'an earlier pass could not be'}"
        self._pool = self._pool or GraphPool(device)
        for name in inputs:
            way = _Way(name, RecordedForward(run, x, LAYOUTS[name], InferenceSignature(model).tensors, self._pool))
            found, milliseconds = _timed(way.recorded, x)
            if departure_of((list(found), []), (list(computed[name]), [])) <= LARGEST_DEPARTURE:
                times[way] = milliseconds
        self._signature = InferenceSignature(model)  # the model as it is now, which is what was recorded
        recorded = [way for way in times if way.recorded is not None]
        if not recorded:
            return eager, f"{said}, not recorded: what is recorded computes something else"
        best = min(recorded, key=times.__getitem__)
        said += f", {times[best]:.2f} ms recorded in {best.layout}"
        worth = wanted.graph == Switch.ON or times[best] < CLEARLY * times[eager]
        return (best, said) if worth else (eager, f"{said}: it is not recorded")


def _tensors(run: Run, x: torch.Tensor) -> list[torch.Tensor]:
    return flattened(run(x))[0]


def _in_layout(run: Run, layout: torch.memory_format, x: torch.Tensor) -> Any:
    return run(x.contiguous(memory_format=layout))


def _timed(run: Run | None, x: torch.Tensor) -> tuple[list[torch.Tensor], float]:
    """Return what a pass returns, and the milliseconds that it takes."""
    assert run is not None
    _, milliseconds, (found, _) = timed(lambda: (_tensors(run, x), []), x.device)
    return found, milliseconds


def _typical_departure(found: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> float:
    """Return how far most outputs are off: the best of several boxes may come in another order after a rounding."""
    return median(departure_of(([ours], []), ([right], [])) for ours, right in zip(found, expected, strict=True))
