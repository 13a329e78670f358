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
from .captured import Captured, Pool, Run, kept
from .signature import signature, trained
from .tree import flattened, rebuilt

Mode = Literal["auto", "on"]
OLDEST: Final = (2, 1)  # torch, by the mode of recording that other threads do not disturb
_MOST_SHAPES: Final = 4
_REPEATS: Final = 3
# The host takes this part of the time, or more, to launch what the device computes: the device waits for it.
_HOST_BOUND: Final = 0.7
_CLEARLY: Final = 0.95  # whoever gains less gains nothing
_KEPT_FREE: Final = 1.0  # of what a step takes: the last batch of an epoch has another shape, and is not recorded

_known: weakref.WeakKeyDictionary[torch.nn.Module, NetworkGraphs] = weakref.WeakKeyDictionary()


def of(model: torch.nn.Module) -> NetworkGraphs | None:
    """Return what is recorded of a model; None where nobody has asked for it."""
    return _known.get(model)


def why_not(device: torch.device) -> str | None:
    """Return why nothing can be recorded on a device; None where it can be tried."""
    if device.type != "cuda":
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
        self._signature: list[Any] | None = None
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

    def __call__(self, model: torch.nn.Module, run: Run, x: torch.Tensor) -> Any:
        """Return what the model's forward pass `run` returns, recorded or not."""
        now = signature(model)
        if now is None or x.requires_grad or not x.is_cuda or (self._pool is not None and self._pool.is_busy):
            return run(x)
        if now != self._signature:
            self.forget()
            self._signature = now
        key = x.shape, x.stride(), x.dtype, x.device, _autocast()
        known = self._shapes.get(key, self)
        if known is self:
            known = None if len(self._shapes) >= _MOST_SHAPES else _Seen()
            self._shapes[key] = known
        if isinstance(known, _Seen) and known.used is not None:
            known = self._shapes[key] = self._decided(model, run, x, known.used)
            self._signature = signature(model)
        if isinstance(known, Captured):
            return known(x)
        return run(x) if known is None else known.watched(run(x))

    def _decided(self, model: torch.nn.Module, run: Run, x: torch.Tensor, used: Sequence[bool]) -> Captured | None:
        """Record the passes for a shape, where that is worth it; None leaves them as they are."""
        name = "x".join(str(size) for size in x.shape)
        with on(x.device):
            try:
                captured, why = self._tried(model, run, x, used)
            except (RuntimeError, TypeError) as error:
                if not alive(x.device):
                    raise DeviceLostError(
                        f"the GPU does not respond any more after recording a device graph: {_first_line(error)}. Start "
                        "again with step.graph: off."
                    ) from error
                captured, why = None, f"could not be recorded: {_first_line(error)}"
            if captured is None:
                torch.cuda.empty_cache()
        self._say(f"device graph {'on' if captured else 'off'} for {name}: {why}")
        return captured

    def _tried(
        self, model: torch.nn.Module, run: Run, x: torch.Tensor, used: Sequence[bool]
    ) -> tuple[Captured | None, str]:
        parameters, state = trained(model), list(model.buffers())
        host_ms, eager_ms = _eager(run, x, parameters, state, used)
        said = f"forward and backward take {eager_ms:.1f} ms, the host {host_ms:.1f} ms of it to launch them"
        if self._mode == "auto" and host_ms < _HOST_BOUND * eager_ms:
            return None, said
        torch.cuda.empty_cache()
        before = torch.cuda.memory_reserved(x.device)
        self._pool = self._pool or Pool(x.device)
        captured = Captured(run, x, parameters, state, used, self._pool)
        torch.cuda.empty_cache()
        taken = torch.cuda.memory_reserved(x.device) - before
        with kept(state, x.device):
            _, graph_ms = _timed(captured.replay_both, x.device)
        said += f", and {graph_ms:.1f} ms recorded"
        if self._mode == "auto" and graph_ms > _CLEARLY * eager_ms:
            return None, said
        free = torch.cuda.mem_get_info(x.device)[0]
        if self._mode == "auto" and free < _KEPT_FREE * taken:
            return None, f"{said}; but of {taken / 2**30:.1f} GiB for a step that is not recorded {free / 2**30:.1f} are free"
        return captured, said


class _Seen:
    """A shape that has been seen: which of the network's outputs get a gradient is known after a step.

    Attributes:
        used: Of each output, whether it does; None before.
    """

    used: list[bool] | None = None

    def watched(self, result: Any) -> Any:
        """Return what a network has returned; its gradients are seen."""
        tensors, plan = flattened(result)
        return rebuilt(plan, _Watched.apply(self, *tensors))


class _Watched(torch.autograd.Function):
    """Sees which of its outputs get a gradient."""

    @staticmethod
    def forward(ctx: Any, seen: _Seen, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.seen = seen
        outputs = tuple(each.view_as(each) for each in tensors)
        ctx.mark_non_differentiable(*(o for o, each in zip(outputs, tensors, strict=True) if not each.requires_grad))
        return outputs

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        ctx.seen.used = [grad is not None for grad in grads]
        return None, *grads


def _eager(
    run: Run, x: torch.Tensor, parameters: Sequence[torch.Tensor], state: Sequence[torch.Tensor], used: Sequence[bool]
) -> tuple[float, float]:
    """Return how long host and device take for both passes as they are, in milliseconds."""

    def both() -> None:
        outputs = [each for each, wanted in zip(flattened(run(x))[0], used, strict=True) if wanted]
        with torch.autocast("cuda", enabled=False):
            torch.autograd.grad(outputs, parameters, [torch.zeros_like(each) for each in outputs], allow_unused=True)

    with kept(state, x.device):
        return _timed(both, x.device)


def _timed(function: Callable[[], None], device: torch.device) -> tuple[float, float]:
    """Return the time until a function returns, and until the device is done, in milliseconds: medians."""
    host, whole = [], []
    for _ in range(_REPEATS + 1):
        torch.cuda.synchronize(device)
        began = time.perf_counter()
        function()
        host.append(time.perf_counter() - began)
        torch.cuda.synchronize(device)
        whole.append(time.perf_counter() - began)
    return median(host[1:]) * 1e3, median(whole[1:]) * 1e3


def _autocast() -> Any:
    return torch.is_autocast_enabled() and torch.get_autocast_gpu_dtype()


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
