"""From the measured times of all problems to the choice for each: what counts, and which engines are worth having.

Where the device as a whole needs much longer than Python, Python runs ahead of it and its time costs nothing. Where it
does not, the device waits for Python in every small layer.

An engine that brings next to nothing is left out. A GEMM library holds a workspace in each thread that uses it for as
long as the process lives (32 MiB each on an NVIDIA H200), and every library is one more that may fail.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from .names import Pass
from .tuning import Timing

K = TypeVar("K")
Timings = Mapping[K, Mapping[Pass, list[Timing]]]  # problem -> pass -> timings
# The share of the time of all problems that an engine has to save: about half as much of a training step.
LEAST_GAIN: Final = 0.05
# Python is ahead while it needs less than this share of the device's time: the rest of a step has work for both.
_AHEAD: Final = 0.5


def winners(
    timings: Timings[K], engine_of: Callable[[str], str], least_gain: float = LEAST_GAIN
) -> dict[K, dict[str, str]]:
    """Return the algorithm for every pass: the cheapest, over the engines that are worth having.

    Args:
        timings: Of every problem and pass.
        engine_of: Returns the engine of an algorithm.
        least_gain: Share of the whole time that an engine has to save; 0 keeps all.
    """
    passes = [rows for each in timings.values() for rows in each.values() if rows]
    quickest = [min(rows, key=_device_alone) for rows in passes]
    ahead = sum(best.host_ms for best in quickest) < _AHEAD * sum(best.milliseconds for best in quickest)
    cost = _device_alone if ahead else _with_python
    left_out: set[str] = set()

    def best(rows: list[Timing], without: set[str]) -> Timing | None:
        return min((row for row in rows if engine_of(row.algorithm) not in without), key=cost, default=None)

    def total(without: set[str]) -> float:
        """Return the cost of all passes; infinite where nothing is left for one of them."""
        return sum(float("inf") if (row := best(rows, without)) is None else cost(row) for rows in passes)

    limit = (1 + least_gain) * total(left_out)
    while least_gain > 0:
        used = {engine_of(row.algorithm) for rows in passes if (row := best(rows, left_out))}
        costs = {engine: total(left_out | {engine}) for engine in sorted(used)}
        useless = min(costs, key=lambda engine: costs[engine], default="")
        if not useless or costs[useless] > limit:
            break
        left_out.add(useless)
    return {
        problem: {which: row.algorithm for which, rows in each.items() if (row := best(rows, left_out))}
        for problem, each in timings.items()
    }


def fastest(timings: Timings[K]) -> dict[K, dict[str, str]]:
    """Return the algorithm for every pass that takes the device the least time, whatever Python does meanwhile."""
    return {
        problem: {which: min(rows, key=_device_alone).algorithm for which, rows in each.items() if rows}
        for problem, each in timings.items()
    }


def _device_alone(timing: Timing) -> float:
    return timing.milliseconds


def _with_python(timing: Timing) -> float:
    return timing.cost
