"""Time the candidates of every problem once on the real device."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import torch

from ..utils.error_text import typed_line
from ..utils.log_lines import log
from .kernel_errors import Spills
from .measure import as_in_the_seam, timed
from .names import Pass
from .operator import A, BaseAlgorithm, Operator, P, Tensors
from .triton.launch import prepare_all
from .trust.checks import exact_enough, expected_result, gives
from .trust.record import WRONG, raise_if_lost, record_of

# A candidate that needs this many times the best so far is not timed a second time.
_HOPELESS: Final = 3.0
_COMPILING_SHARE: Final = 0.6  # of the time limit: the rest is for measuring
_MOST_COMPILERS: Final = 16  # threads; no more than there are processors


@dataclass(frozen=True)
class Timing:
    """Time of one candidate for one pass.

    Attributes:
        algorithm: Its name.
        milliseconds: Time of the device.
        host_ms: Time that Python takes for it.
    """

    algorithm: str
    milliseconds: float
    host_ms: float = 0.0

    @property
    def cost(self) -> float:
        """Return what it costs a training: small layers of a fast GPU wait for Python."""
        return max(self.milliseconds, self.host_ms)


def time_candidates(
    operator: Operator[P, A],
    problem: P,
    which: Pass,
    candidates: Iterable[A],
    operands: Tensors,
    budget: int,
    thorough: bool = False,
) -> list[Timing]:
    """Time every candidate for one pass, cheapest first; one that fails or is too inexact is left out, with a line.

    Args:
        operator: The operator.
        problem: The problem.
        which: The pass.
        candidates: Algorithms that support it.
        operands: Its tensors.
        budget: Workspace in bytes.
        thorough: Time hopeless candidates as carefully as the others, for a benchmark.

    Raises:
        DeviceLostError: A candidate has taken the device with it.
    """
    timings: list[Timing] = []
    worth = [algorithm for algorithm in candidates if algorithm.worth_measuring(problem, which)]
    expected, failure = expected_result(operator, problem, which, operands, budget) if worth else (None, "")
    device, record = torch.device(problem.device), record_of(problem.device)
    for algorithm in worth:
        best = min((t.cost for t in timings), default=0.0)
        compiled = algorithm.tested_by().kernel is not None
        if compiled and failure:  # a library is measured all the same: there may be no other
            record.dropped(operator.name, algorithm.name, problem, which, failure)
            continue
        try:
            if not exact_enough(operator, algorithm, problem, which):
                why = "it errs more than twice as much as a plain sum"
                record.dropped(operator.name, algorithm.name, problem, which, why, True)
                continue
            if compiled:
                algorithm.prepare(problem, which)
            # Nothing has shown yet that its numbers are right on this machine for this very shape.
            if expected is not None and not gives(expected, operator, algorithm, problem, which, operands, budget):
                record.dropped(operator.name, algorithm.name, problem, which, WRONG)
                continue
            device_ms, host_ms = timed(
                operator.call(algorithm, problem, which, operands, budget),
                device,
                repeats=7 if thorough else 5,
                give_up=0.0 if thorough else _HOPELESS * best,
                warm=expected is not None,
            )
        except Exception as error:
            # Out of memory, a GEMM the device lacks, a sick vendor library. A compiler may raise anything.
            if not isinstance(error, RuntimeError) and not compiled:
                raise
            raise_if_lost(error, problem, operator.name, algorithm.name, which)
            usual = isinstance(error, (Spills, torch.cuda.OutOfMemoryError))
            record.dropped(operator.name, algorithm.name, problem, which, typed_line(error), usual)
            if device.type == "cuda":
                torch.cuda.empty_cache()
            continue
        timings.append(Timing(algorithm.name, device_ms, host_ms))
    return sorted(timings, key=lambda timing: timing.cost)


def compile_ahead(
    operator: Operator[P, A],
    problems: Iterable[P],
    candidates: Callable[[P], list[A]],
    out_of_time: Callable[[], bool] = lambda: False,
) -> None:
    """Let all candidates do beforehand what they can, in several threads."""
    jobs: list[Callable[[], None]] = []
    for problem in problems:
        for algorithm in candidates(problem):
            if type(algorithm).prepare is not BaseAlgorithm.prepare:
                passes = (which for which in operator.passes if algorithm.worth_measuring(problem, which))
                jobs += [partial(algorithm.prepare, problem, which) for which in passes]
    if jobs:
        prepare_all(jobs, min(_MOST_COMPILERS, os.cpu_count() or 1), out_of_time)


def tune(
    operator: Operator[P, A],
    problems: Iterable[P],
    candidates: Callable[[P], list[A]],
    budget: int,
    limit_s: float,
) -> Iterator[tuple[P, dict[Pass, list[Timing]]]]:
    """Yield the timings of each problem, pass by pass, until the time is up.

    Args:
        operator: The operator.
        problems: What to tune; the largest first, so that a time limit cuts off the least.
        candidates: Algorithms that support a problem.
        budget: Workspace in bytes.
        limit_s: Seconds after which nothing new is begun.
    """
    started = time.monotonic()
    problems = sorted(problems, key=lambda p: -p.flops)
    compile_ahead(operator, problems, candidates, lambda: time.monotonic() - started > _COMPILING_SHARE * limit_s)
    for problem in problems:
        if time.monotonic() - started > limit_s:
            return
        try:
            operands = operator.operands(problem)
        except RuntimeError as error:  # no memory left for them
            raise_if_lost(error, problem)
            log("tune.failed", "nothing is measured for %s, heuristics decide: %s", problem, typed_line(error))
            continue
        with as_in_the_seam():
            result = {
                which: time_candidates(operator, problem, which, candidates(problem), operands, budget)
                for which in operator.passes
            }
        del operands
        yield problem, {which: timings for which, timings in result.items() if timings}
