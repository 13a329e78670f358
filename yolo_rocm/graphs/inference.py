"""How a network computes where nothing is trained: for each shape its layout, and whether it is recorded, as measured.

The first calls of a shape are computed as they come: a picture or two are not worth a measurement. Then algorithms are
measured for what was seen, and both layouts, recorded and not, for the network as a whole; one line says what is taken.
"""

from __future__ import annotations

import random
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import Any, Final, Literal, NamedTuple

import torch

from ..engines.devices import alive, on
from ..errors import DeviceLostError
from ..utils.error_text import first_line
from .attributes import Attributes
from .captured import Run
from .network import why_not
from .pool import Pool
from .recorded_forward import RecordedForward
from .state import State
from .tree import flattened
from .trial import departure_of, timed

DEVICES: Final = ["cuda"]  # types that anything is measured on
Mode = Literal["auto", "on", "off"]
LAYOUTS: Final = {"nchw": torch.contiguous_format, "channels_last": torch.channels_last}
_MOST_SHAPES: Final = 4
# Calls of a shape before it is decided: where algorithms have yet to be measured, and where they are known.
CALLS_BEFORE_MEASURING: Final = 25
CALLS_BEFORE_RECORDING: Final = 2
_CLEARLY: Final = 0.95  # a smaller gain does not count
# Of the same pass computed in other ways: half precision rounds, memory that is not the pass's is far off.
_LARGEST_DEPARTURE: Final = 2e-2


class Wanted(NamedTuple):
    """What a user wants.

    Attributes:
        graph: `auto` records where that is faster, `on` whatever can be recorded.
        layout: One of `LAYOUTS`, or `auto`.
    """

    graph: Mode = "auto"
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
        if x.device.type not in DEVICES or x.dim() != 4 or torch.cuda.is_current_stream_capturing():
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


class _Network:
    """The ways of one model."""

    def __init__(self, owner: InferenceNetworks) -> None:
        self._owner = owner
        self._shapes: dict[Any, _Way | int | None] = {}  # the way; before that, the calls so far; None has none
        self._state: State | None = None
        self._pool: Pool | None = None
        self._records = True
        self._is_over = False

    @property
    def recorded(self) -> int:
        return sum(isinstance(way, _Way) and way.recorded is not None for way in self._shapes.values())

    def __call__(self, model: torch.nn.Module, run: Run, x: torch.Tensor) -> Any:
        if self._is_over or not self._is_ready(model):
            return run(x)
        key = x.shape, x.dtype, x.device
        known = self._shapes.get(key, 0 if len(self._shapes) < _MOST_SHAPES else None)
        if isinstance(known, int):
            if self._pool is not None and (self._state is None or not self._state.is_same):
                self._forget()  # other shapes were recorded with what is not the model's any more
            known = self._shapes[key] = self._next(model, run, x, known)
        if not isinstance(known, _Way):
            return self._settled(run, x)
        if known.recorded is None:
            return self._settled(run, x.contiguous(memory_format=LAYOUTS[known.layout]))
        result = known.recorded(x)
        # While the device computes: whether anybody has changed an attribute of a module since.
        if self._state is None or not self._state.is_same:
            self._forget()
            return run(x)
        return result

    def _is_ready(self, model: torch.nn.Module) -> bool:
        """Return whether a call could be replayed; begin anew where the model is another."""
        if self._state is None or not self._state.is_safe:
            self._forget()
            try:
                self._state = State(model)
            except (AttributeError, KeyError) as error:  # modules that are none of Python's, as of TorchScript
                self._is_over = True
                self._owner.say(f"inference is computed as it is: a module has no {error}")
                return False
        return not self._state.is_watched

    def _settled(self, run: Run, x: torch.Tensor) -> Any:
        """Compute a pass as it is; what it changes in modules, such as anchors of a shape, is its own."""
        if self._pool is None:  # nothing is recorded that could depend on it
            return run(x)
        same = self._state is not None and self._state.is_same
        if not same:
            self._forget()
        result = run(x)
        if self._state is not None:
            self._state.settle()
        return result

    def _forget(self) -> None:
        self._shapes = {key: known if isinstance(known, int) else 0 for key, known in self._shapes.items()}
        self._pool, self._state = None, None

    def _next(self, model: torch.nn.Module, run: Run, x: torch.Tensor, calls: int) -> _Way | int | None:
        """Count a call, or decide how the shape is computed from now on."""
        waiting = calls < CALLS_BEFORE_RECORDING or (
            calls < CALLS_BEFORE_MEASURING and self._owner.unmeasured() > 0 and self._owner.wanted.graph != "on"
        )
        if waiting:
            return calls + 1
        with on(x.device):
            way, before = None, Attributes(model)
            try:
                way, why = self._decided(model, run, x)
            except DeviceLostError:
                raise
            except Exception as error:  # as a runtime, a compiler or a model of the user raises it
                why = first_line(error)
                if not alive(str(x.device)):
                    text = f"{x.device} does not answer any more since a forward pass was recorded: {why}. "
                    raise DeviceLostError(f"{text}Start again with rocm.predict.graph=off.") from error
                way, self._records = None, False
                why = f"could not be measured: {why}"
            finally:
                if way is None or way.recorded is None:
                    before.put_back()
            torch.cuda.empty_cache()
        self._owner.say(f"inference of {'x'.join(map(str, x.shape))} {why}")
        return way

    def _decided(self, model: torch.nn.Module, run: Run, x: torch.Tensor) -> tuple[_Way | None, str]:
        wanted, device = self._owner.wanted, x.device
        layouts = [wanted.layout] if wanted.layout != "auto" else list(LAYOUTS)
        inputs = {name: x.detach().clone(memory_format=LAYOUTS[name]) for name in layouts}
        for each in inputs.values():
            run(each)  # so that all problems have been seen
        self._owner.tune()
        drawn = torch.random.get_rng_state(), random.getstate()
        expected = _tensors(run, x)
        settled = Attributes(model)
        draws = random.getstate() != drawn[1] or not torch.equal(torch.random.get_rng_state(), drawn[0])
        times: dict[_Way, float] = {}
        computed: dict[str, Sequence[torch.Tensor]] = {}
        for name, layout in ((name, LAYOUTS[name]) for name in inputs):
            # As a call would have it: the input comes as it is.
            computed[name], milliseconds = _timed(partial(_in_layout, run, layout), x)
            if _typical_departure(computed[name], expected) <= _LARGEST_DEPARTURE:
                times[_Way(name, None)] = milliseconds
        changed = settled.changed()
        eager = min(times, key=times.__getitem__, default=None)
        if eager is None:
            return None, "departs from itself: it is computed as it is"
        said = f"takes {times[eager]:.2f} ms in {eager.layout}"
        reason = why_not(device) if wanted.graph != "off" else "rocm.predict.graph=off"
        if reason is None and draws:
            reason = "the network draws random numbers on the host"
        if reason is None and changed is not None:
            reason = f"each pass changes {changed}"
        if reason is not None or not self._records:
            return eager, f"{said}, not recorded: {reason or 'an earlier pass could not be'}"
        self._pool = self._pool or Pool(device)
        for name in inputs:
            way = _Way(name, RecordedForward(run, x, LAYOUTS[name], State(model).tensors, self._pool))
            found, milliseconds = _timed(way.recorded, x)
            if departure_of((list(found), []), (list(computed[name]), [])) <= _LARGEST_DEPARTURE:
                times[way] = milliseconds
        self._state = State(model)  # the model as it is now, which is what was recorded
        recorded = [way for way in times if way.recorded is not None]
        if not recorded:
            return eager, f"{said}, not recorded: what is recorded computes something else"
        best = min(recorded, key=times.__getitem__)
        said += f", {times[best]:.2f} ms recorded in {best.layout}"
        worth = wanted.graph == "on" or times[best] < _CLEARLY * times[eager]
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
