"""`python -m yolo_rocm.bench.predict_model_child SETTINGS ANSWER`: every way of one batch, in turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from statistics import median, quantiles
from typing import Any, Final

import torch

from ..graphs.inference import CALLS_BEFORE_MEASURING
from ..graphs.tree import flattened
from ..graphs.trial import departure_of
from ..session.session import Session
from ..ultralytics_hooks import backends
from ..utils.child_process import answer_parent
from ..utils.error_text import typed_line
from .layers import default_device
from .predict_model import COMPILED, COMPILED_GRAPHS, OURS, OURS_FUSED, OURS_GRAPH, STOCK, TORCHSCRIPT, Latency

_SECTIONS: Final[dict[str, dict[str, str]]] = {
    OURS: {"fuse": "off"},
    OURS_FUSED: {"fuse": "on", "graph": "off"},
    OURS_GRAPH: {"fuse": "on", "graph": "auto"},
}

_MODES: Final = {COMPILED: "default", COMPILED_GRAPHS: "reduce-overhead"}
_WARM_UP: Final = 3


@dataclass
class _Way:
    """A way with its numbers so far."""

    row: Latency
    call: Callable[[torch.Tensor], Any]
    scope: Callable[[], AbstractContextManager[Any]] = nullcontext
    session: Session | None = None

    def once(self, x: torch.Tensor) -> float:
        """Return the milliseconds of one call."""
        _wait(x)
        began = time.perf_counter()
        self.call(x)
        _wait(x)
        return (time.perf_counter() - began) * 1e3


def measure(given: dict[str, Any]) -> Iterator[Latency]:
    """Measure every way and yield their latencies one by one, again after every round.

    Args:
        given: As `predict_model.rows` has it; `batch` is a number and `ways` a list.
    """
    backends.require_backends()
    device = torch.device(given.get("device") or default_device())
    half = bool(given["half"]) and device.type == "cuda"
    x = torch.rand(given["batch"], 3, given["imgsz"], given["imgsz"], generator=torch.Generator().manual_seed(1))
    x = x.to(device)
    torch.manual_seed(0)  # a YAML's weights are drawn
    expected = _predictions(backends.predict_backend(given["model"], device, half=False), x)
    x = x.half() if half else x
    ready: list[_Way] = []
    for name in given["ways"]:
        row = Latency(name, given["batch"])
        try:
            ready.append(_ready(row, given, device, half, x, expected))
        except Exception as error:  # whatever a compiler or a runtime raises: the others are measured all the same
            yield replace(row, error=typed_line(error))
    times: dict[str, list[float]] = {way.row.way: [] for way in ready}
    for _ in range(given["rounds"]):
        for way in ready:
            with torch.inference_mode(), way.scope():
                for _ in range(_WARM_UP):
                    way.once(x)
                times[way.row.way] += [way.once(x) for _ in range(given["calls"])]
        for way in ready:  # after every round: where time runs out, the newest answers stand
            yield _row(way, times)


@contextmanager
def _served(session: Session) -> Iterator[None]:
    with session.active(), session.inference.at_work():
        yield


def _row(way: _Way, times: dict[str, list[float]]) -> Latency:
    """Return what a way has taken so far."""
    own, stock = times[way.row.way], times.get(STOCK)
    return replace(
        way.row,
        median_ms=round(median(own), 4),
        p95_ms=round(quantiles(own, n=20)[-1], 4) if len(own) > 1 else None,
        to_stock=round(median(own) / median(stock), 3) if stock else None,
        said=_said(way.session),
    )


def _ready(
    row: Latency, given: dict[str, Any], device: torch.device, half: bool, x: torch.Tensor, expected: torch.Tensor
) -> _Way:
    """Return a way that is as fast as it gets, compared with what it should compute."""
    torch.manual_seed(0)  # a YAML's weights are drawn
    backend = backends.predict_backend(given["model"], device, half)
    way = _Way(row, backend)
    began = time.perf_counter()
    if row.way in _SECTIONS:
        session = way.session = Session(
            given.get("preset", "auto"), {**given.get("rocm", {}), "predict": _SECTIONS[row.way]}
        )
        way.scope = partial(_served, session)
    elif row.way == TORCHSCRIPT:
        with torch.no_grad():
            way.call = backends.traced(backend, x)
    elif row.way in _MODES:
        way.call = backends.compiled_backend(backend, device, _MODES[row.way])
    with torch.inference_mode(), way.scope():
        for _ in range(CALLS_BEFORE_MEASURING + 2 if x.is_cuda else 1):
            way.call(x)
        departure = departure_of(([_predictions(way.call, x)], []), ([expected], []))
    _wait(x)
    way.row = replace(row, setup_s=round(time.perf_counter() - began, 2), departure=float(f"{departure:.2g}"))
    return way


def _predictions(call: Callable[[torch.Tensor], Any], x: torch.Tensor) -> torch.Tensor:
    """Return the first of what a model returns: its predictions."""
    with torch.inference_mode():
        found = call(x)
    return flattened(found)[0][0].float()


def _said(session: Session | None) -> str:
    """Say what has computed a session's blocks, or its convolutions where they were not fused."""
    if session is None:
        return ""
    fused = session.inference.report
    return session.summary() if fused is None else fused.summary()


def _wait(x: torch.Tensor) -> None:
    if x.is_cuda:
        torch.cuda.synchronize(x.device)


def main(given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Measure every way; the newest rows by way are the answer."""
    rows: dict[str, Any] = {}
    for row in measure(given):
        rows[row.way] = asdict(row)
        yield rows


if __name__ == "__main__":
    answer_parent(main)
