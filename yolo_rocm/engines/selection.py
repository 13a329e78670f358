"""From the measured times of all convolutions to the choice for each: what counts, and which engines are worth having.

Where the device as a whole needs much longer than Python, Python runs ahead of it and its time costs nothing. Where it
does not, the device waits for Python in every small layer.

An engine that brings next to nothing is left out. A GEMM library holds a workspace in each thread that uses it for as
long as the process lives (32 MiB each on an NVIDIA H200), and every library is one more that may fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from ..conv.algorithms import BY_NAME
from ..conv.problem import ConvProblem
from .tuning import Timing

Timings = Mapping[ConvProblem, Mapping[str, list[Timing]]]
# The share of the time of all convolutions that an engine has to save: about half as much of a training step.
LEAST_GAIN: Final = 0.05
# Python is ahead while it needs less than this share of the device's time: the rest of a step has work for both.
_AHEAD: Final = 0.5


def winners(timings: Timings, least_gain: float = LEAST_GAIN) -> dict[ConvProblem, dict[str, str]]:
    """Return the algorithm for every pass: the cheapest, over the engines that are worth having.

    Args:
        timings: Of every problem and pass.
        least_gain: Share of the whole time that an engine has to save; 0 keeps all.
    """
    cost = _device_alone if _python_is_ahead(timings) else _with_python
    left_out: set[str] = set()
    limit = (1 + least_gain) * _total(timings, cost, left_out)
    while least_gain > 0:
        used = {_engine(best) for rows in _passes(timings) if (best := _best(rows, cost, left_out))}
        without = {engine: _total(timings, cost, left_out | {engine}) for engine in sorted(used)}
        useless = min(without, key=lambda engine: without[engine], default="")
        if not useless or without[useless] > limit:
            break
        left_out.add(useless)
    return _choices(timings, cost, left_out)


def fastest(timings: Timings) -> dict[ConvProblem, dict[str, str]]:
    """Return the algorithm for every pass that takes the device the least time, whatever Python does meanwhile."""
    return _choices(timings, _device_alone, set())


def _choices(
    timings: Timings, cost: Callable[[Timing], float], left_out: set[str]
) -> dict[ConvProblem, dict[str, str]]:
    return {
        problem: {which: best.algorithm for which, rows in passes.items() if (best := _best(rows, cost, left_out))}
        for problem, passes in timings.items()
    }


def _device_alone(timing: Timing) -> float:
    return timing.milliseconds


def _with_python(timing: Timing) -> float:
    return timing.cost


def _python_is_ahead(timings: Timings) -> bool:
    chosen = [best for rows in _passes(timings) if (best := _best(rows, _device_alone, set()))]
    return sum(best.host_ms for best in chosen) < _AHEAD * sum(best.milliseconds for best in chosen)


def _passes(timings: Timings) -> Iterator[list[Timing]]:
    for passes in timings.values():
        yield from passes.values()


def _engine(timing: Timing) -> str:
    return BY_NAME[timing.algorithm].engine


def _best(rows: list[Timing], cost: Callable[[Timing], float], left_out: set[str]) -> Timing | None:
    return min((row for row in rows if _engine(row) not in left_out), key=cost, default=None)


def _total(timings: Timings, cost: Callable[[Timing], float], left_out: set[str]) -> float:
    """Return the cost of all passes; infinite where nothing is left for one of them."""
    chosen = [_best(rows, cost, left_out) for rows in _passes(timings)]
    return sum(float("inf") if best is None else cost(best) for best in chosen)
