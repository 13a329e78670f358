"""Whether a model's passes are recorded: for each shape of its input, by measurement, said in one line."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, Final, Literal

import torch

from ..engines.devices import alive, on
from ..errors import DeviceLostError
from .captured import Captured, Gradient, Passes, Run, gradients, kept
from .leaves import fresh_leaves
from .pool import Pool
from .signature import Signature
from .tree import flattened, rebuilt

DEVICES: Final = ["cuda"]  # types that have device graphs
Mode = Literal["auto", "on"]
OLDEST: Final = (2, 1)  # torch, by the mode of recording that other threads do not disturb
_MOST_SHAPES: Final = 4
_REPEATS: Final = 3
# The host takes this part of the time, or more, to launch what the device computes: the device waits for it.
_HOST_BOUND: Final = 0.7
_CLEARLY: Final = 0.95  # whoever gains less gains nothing
# Of one and the same pass, computed twice: libraries add up in another order, memory that is not the step's is far off.
_LARGEST_DEPARTURE: Final = 2e-2

_known: weakref.WeakKeyDictionary[torch.nn.Module, NetworkGraphs] = weakref.WeakKeyDictionary()


def of(model: torch.nn.Module) -> NetworkGraphs | None:
    """Return what is recorded of a model; None where nobody has asked for it."""
    return _known.get(model)


def why_not(device: torch.device) -> str | None:
    """Return why nothing can be recorded on a device; None where it can be tried."""
    if device.type not in DEVICES:
        return f"{device.type} has no device graphs"
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    return None if version >= OLDEST else f"torch {torch.__version__} is older than {'.'.join(map(str, OLDEST))}"


class NetworkGraphs:
    """The recorded passes of one model.

    Args:
        model: The model; nothing of it is held.
        mode: `auto` measures whether it is worth it; `on` records whatever can be recorded.
        say: Called with each decision.
    """

    def __init__(self, model: torch.nn.Module, mode: Mode, say: Callable[[str], object]) -> None:
        self._mode, self._say = mode, say
        self._shapes: dict[Any, Captured | _Seen | None] = {}
        self._signature: Signature | None = None
        self._pool: Pool | None = None
        _known[model] = self

    @property
    def recorded(self) -> int:
        """How many shapes are recorded."""
        return sum(isinstance(each, Captured) for each in self._shapes.values())

    def forget(self) -> None:
        """Let go of every graph and its memory."""
        self._shapes.clear()
        self._pool = None

    def close(self) -> None:
        """Forget everything, and leave the model to itself from now on."""
        self.forget()
        for model in [model for model, graphs in _known.items() if graphs is self]:
            del _known[model]

    def __call__(self, model: torch.nn.Module, run: Run, x: torch.Tensor) -> Any:
        """Return what the model's forward pass `run` returns, recorded or not."""
        if not self._signature:  # none yet, or the model is another
            self.forget()
            self._signature = Signature(model)
        busy = self._pool is not None and self._pool.is_busy
        if busy or self._signature.is_watched or x.requires_grad or x.device.type not in DEVICES:
            return run(x)
        key = x.shape, x.stride(), x.dtype, x.device, _autocast()
        if key not in self._shapes:
            self._shapes[key] = None if len(self._shapes) >= _MOST_SHAPES else _Seen()
        known = self._shapes[key]
        if isinstance(known, _Seen) and known.grads is not None:
            known = self._shapes[key] = self._decided(model, run, x, known.grads)
        if isinstance(known, Captured):
            return known(run, x)
        return run(x) if known is None else known.watched(run(x))

    def _decided(self, model: torch.nn.Module, run: Run, x: torch.Tensor, grads: list[Gradient]) -> Captured | None:
        """Record the passes for a shape, where that is worth it; None leaves them as they are."""
        with on(x.device):
            try:
                captured, why = self._tried(model, run, x, grads)
            except (RuntimeError, TypeError) as error:
                why = _first_line(error)
                if not alive(str(x.device)):
                    text = f"{x.device} does not answer any more since a device graph was recorded: {why}. "
                    raise DeviceLostError(f"{text}Start again with rocm.step.graph=off.") from error
                captured, why = None, f"could not be recorded: {why}"
            if captured is None and not self.recorded:
                self._pool = None
            torch.cuda.empty_cache()
        self._say(f"device graph {'on' if captured else 'off'} for {'x'.join(map(str, x.shape))}: {why}")
        return captured

    def _tried(
        self, model: torch.nn.Module, run: Run, x: torch.Tensor, grads: list[Gradient]
    ) -> tuple[Captured | None, str]:
        parameters, state = [p for p in model.parameters() if p.requires_grad], list(model.buffers())
        with kept(state, x.device), fresh_leaves(model) as leaves:

            def eager() -> Passes:
                outputs = flattened(run(x))[0]
                return [each.detach() for each in outputs], gradients(outputs, leaves, grads)

            host_ms, eager_ms, expected = _timed(eager, x.device)
            said = f"forward and backward take {eager_ms:.1f} ms, the host {host_ms:.1f} ms of it to launch them"
            if self._mode == "auto" and host_ms < _HOST_BOUND * eager_ms:
                return None, said
            torch.cuda.empty_cache()
            before = torch.cuda.memory_reserved(x.device)
            self._pool = self._pool or Pool(x.device)
        with fresh_leaves(model) as leaves:
            captured = Captured(run, x, parameters, leaves, state, grads, self._pool)
        torch.cuda.empty_cache()
        taken = torch.cuda.memory_reserved(x.device) - before
        with kept(state, x.device):
            _, graph_ms, found = _timed(captured.replay_both, x.device)
        said += f", and {graph_ms:.1f} ms recorded"
        departure = _departure(found, expected)
        if departure > _LARGEST_DEPARTURE:
            return None, f"what is recorded computes something else, apart by {departure:.1e}"
        if self._mode == "auto" and graph_ms > _CLEARLY * eager_ms:
            return None, said
        free = torch.cuda.mem_get_info(x.device)[0]
        if self._mode == "auto" and free < taken:  # the last batch of an epoch has another shape
            return None, f"{said}; a step that is not recorded takes {_gib(taken)}, and {_gib(free)} are free beside it"
        return captured, said


class _Seen:
    """A shape that has been seen.

    Attributes:
        grads: After its first step, the gradients of what the network has returned, None for those without.
    """

    grads: list[Gradient] | None = None

    def watched(self, result: Any) -> Any:
        """Return what a network has returned; its gradients are seen."""
        tensors, plan = flattened(result)
        return rebuilt(plan, _Watched.apply(self, *tensors))  # type: ignore[no-untyped-call]


class _Watched(torch.autograd.Function):
    """Sees the gradients of its outputs."""

    @staticmethod
    def forward(ctx: Any, seen: _Seen, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.seen = seen
        outputs = tuple(each.view_as(each) for each in tensors)
        ctx.mark_non_differentiable(*(o for o, each in zip(outputs, tensors, strict=True) if not each.requires_grad))
        return outputs

    @staticmethod
    def backward(ctx: Any, *grads: Gradient) -> tuple[Gradient, ...]:
        # A loss scale that is still too high makes infinities, by which nothing can be compared.
        ctx.seen.grads = [None if grad is None else torch.nan_to_num(grad.detach(), 0.0, 0.0, 0.0) for grad in grads]
        return None, *grads


def _departure(found: Passes, expected: Passes) -> float:
    """Return how far passes are apart: the largest distance of two tensors, relative to their length as vectors."""
    largest = 0.0
    kinds: list[tuple[Sequence[Gradient], Sequence[Gradient]]] = [(found[0], expected[0]), (found[1], expected[1])]
    for ours, right in kinds:
        pairs = [(a.float(), b.float()) for a, b in zip(ours, right, strict=True) if a is not None and b is not None]
        lengths = torch.stack([b.norm() for _, b in pairs])
        apart = torch.stack([(a - b).norm() for a, b in pairs])
        # A gradient that is all but zero beside the others is what rounding has left of it.
        whole = lengths.clamp_min(float(lengths.max()) * 1e-3 + torch.finfo(torch.float32).tiny)
        largest = max(largest, float((apart / whole).nan_to_num(nan=torch.inf).max()))
    return largest


def _timed(function: Callable[[], Passes], device: torch.device) -> tuple[float, float, Passes]:
    """Return the time until a function returns, until the device is done, in milliseconds: medians; and its result."""
    host, whole = [], []
    for _ in range(_REPEATS + 1):
        result = None  # which is not kept in memory beside the next
        torch.cuda.synchronize(device)
        began = time.perf_counter()
        result = function()
        host.append(time.perf_counter() - began)
        torch.cuda.synchronize(device)
        whole.append(time.perf_counter() - began)
    assert result is not None
    return median(host[1:]) * 1e3, median(whole[1:]) * 1e3, result


def _gib(size: float) -> str:
    return f"{size / 2**30:.1f} GiB"


def _autocast() -> Any:
    if not torch.is_autocast_enabled():
        return None
    # Its old name warns since torch 2.4.
    return getattr(torch, "get_autocast_dtype", lambda device: torch.get_autocast_gpu_dtype())("cuda")


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
