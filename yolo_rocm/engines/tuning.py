"""Time the candidates of every problem once on the real device."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import torch

from ..utils.log_lines import log
from . import faults
from .kernel_errors import Spills
from .measure import MOST_RATIO, as_in_the_seam, timed
from .names import Pass
from .operator import A, BaseAlgorithm, Operator, P, Tensors
from .triton.launch import prepare_all

# A candidate that needs this many times the best so far is not timed a second time.
_HOPELESS: Final = 3.0
_MOST_ERROR = MOST_RATIO  # of a direct sum's, where an algorithm trades digits for speed
_RESULTS: Final = 2  # that a pass holds at once: as a product gives it, and as it is laid out
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
    expected, failure = _expected(operator, problem, which, operands, budget) if worth else (None, "")
    device = torch.device(problem.device)
    for algorithm in worth:
        best = min((t.cost for t in timings), default=0.0)
        compiled = algorithm.tested_by().kernel is not None
        if compiled and failure:  # a library is measured all the same: there may be no other
            faults.dropped(operator.name, algorithm.name, problem, which, failure)
            continue
        try:
            if not exact_enough(operator, algorithm, problem, which):
                why = "it errs more than twice as much as a plain sum"
                faults.dropped(operator.name, algorithm.name, problem, which, why, True)
                continue
            if compiled:
                algorithm.prepare(problem, which)
            # Nothing has shown yet that its numbers are right on this machine for this very shape.
            if expected is not None and not gives(expected, operator, algorithm, problem, which, operands, budget):
                faults.dropped(operator.name, algorithm.name, problem, which, faults.WRONG)
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
            faults.raise_if_lost(error, problem, operator.name, algorithm.name, which)
            usual = isinstance(error, (Spills, torch.cuda.OutOfMemoryError))
            faults.dropped(operator.name, algorithm.name, problem, which, faults.in_one_line(error), usual)
            if device.type == "cuda":
                torch.cuda.empty_cache()
            continue
        timings.append(Timing(algorithm.name, device_ms, host_ms))
    return sorted(timings, key=lambda timing: timing.cost)


def _expected(
    operator: Operator[P, A], problem: P, which: Pass, operands: Tensors, budget: int
) -> tuple[torch.Tensor | None, str]:
    """Return what a pass has to give; None where nothing can say it, and the reason where something fails."""
    reference = operator.reference(problem)
    if reference.not_supported_reasons(problem):
        return None, ""
    try:
        expected = operator.expected(problem, which, operands, budget)
        if torch.device(problem.device).type == "cuda":
            torch.cuda.synchronize(problem.device)  # a fault is the reference's, not a candidate's
    except RuntimeError as error:
        faults.raise_if_lost(error, problem, operator.name, reference.name, which)
        return None, f"{reference.name}, which it is compared with, fails with {faults.in_one_line(error)}"
    return expected, ""


def exact_enough(operator: Operator[P, A], algorithm: A, problem: P, which: Pass) -> bool:
    """Return whether an algorithm that pays speed with digits errs at most twice as much as a direct sum."""
    if algorithm.exact:
        return True
    one = operator.one_sample(problem)
    operands = operator.operands(one)
    exact = operator.in_fp64(one, which, operands, one.device)
    ours, plain = (
        operator.distance(one, which, operator.run(each, one, which, operands), exact)
        for each in (algorithm, operator.reference(one))
    )
    return ours <= _MOST_ERROR * plain


def gives(
    expected: torch.Tensor,
    operator: Operator[P, A],
    algorithm: A,
    problem: P,
    which: Pass,
    operands: Tensors,
    budget: int,
) -> bool:
    """Return whether a pass of an algorithm gives what it has to, but for rounding.

    Memory of a GPU that is free now may hold the same result of another algorithm: what a pass leaves unwritten has to
    differ from it.
    """
    if expected.is_cuda:
        spoiled = [torch.full_like(expected, float("nan")) for _ in range(_RESULTS)]
        del spoiled
    return agrees(operator, problem, which, operator.run(algorithm, problem, which, operands, budget), expected)


def agrees(operator: Operator[P, A], problem: P, which: Pass, result: torch.Tensor, expected: torch.Tensor) -> bool:
    """Return whether two results of the same sum are the same but for rounding."""
    most = 1e-3 if problem.dtype == torch.float32 else 3e-2
    return operator.distance(problem, which, result, expected) <= most


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
            faults.raise_if_lost(error, problem)
            log("tune.failed", "nothing is measured for %s, heuristics decide: %s", problem, faults.in_one_line(error))
            continue
        with as_in_the_seam():
            result = {
                which: time_candidates(operator, problem, which, candidates(problem), operands, budget)
                for which in operator.passes
            }
        del operands
        yield problem, {which: timings for which, timings in result.items() if timings}
