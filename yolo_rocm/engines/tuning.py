"""Time the candidates of every problem once on the real device and keep the winners."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch

from ..conv.algorithms import BY_NAME, Algorithm
from ..conv.algorithms.base import Bound
from ..conv.problem import ConvProblem
from . import chunking, faults
from .measure import as_in_the_seam, relative_error, spent
from .triton.launch import Spills, prepare_all

LOG = logging.getLogger("yolo_rocm")
PASSES = ("forward", "grad_input", "grad_weight")
# A candidate that needs this many times the best so far is not timed a second time.
_HOPELESS = 3.0
_MOST_ERROR = 2.0  # of a direct sum's, where an algorithm trades digits for speed
# Compilers may take this share of the time, in as many threads as there are processors, up to this many.
_COMPILING, _COMPILERS = 0.6, 16


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


@dataclass(frozen=True)
class Operands:
    """Random tensors of a problem: input, weight and gradient of the output."""

    x: torch.Tensor
    weight: torch.Tensor
    grad: torch.Tensor

    @classmethod
    def of(cls, problem: ConvProblem, seed: int = 0) -> Operands:
        """Draw them; zeros would time faster than real data on some devices."""
        device = torch.device(problem.device)
        generator = torch.Generator(device=device).manual_seed(seed)

        def draw(shape: tuple[int, ...], scale: float = 1.0) -> torch.Tensor:
            values = torch.randn(shape, device=device, generator=generator).mul_(scale).to(problem.dtype)
            wanted = problem.channels_last and len(shape) == 4
            return values.contiguous(memory_format=torch.channels_last) if wanted else values

        return cls(draw(problem.input_shape), draw(problem.weight_shape, 0.05), draw(problem.output_shape))


def run_pass(
    algorithm: Algorithm,
    problem: ConvProblem,
    which: str,
    operands: Operands,
    budget: int,
    whole: Bound | None = None,
) -> torch.Tensor:
    """Run one pass of an algorithm as the seam does, splitting included, into the layout the seam returns."""
    x, weight, grad = operands.x, operands.weight, operands.grad
    if which == "forward":
        y = chunking.forward(algorithm, problem, x, weight, None, budget, whole)
    else:
        wanted = (which == "grad_input", which == "grad_weight")
        first, second = chunking.backward(algorithm, problem, grad, x, weight, wanted, budget, whole)
        y = first if which == "grad_input" else second  # type: ignore[assignment]
    if problem.channels_last and y.dim() == 4:
        return y.contiguous(memory_format=torch.channels_last)
    return y.contiguous()


def time_candidates(
    problem: ConvProblem,
    which: str,
    candidates: Iterable[Algorithm],
    operands: Operands,
    budget: int,
    thorough: bool = False,
) -> list[Timing]:
    """Time every candidate for one pass, cheapest first; one that fails or is too inexact is left out, with a line.

    Args:
        problem: The problem.
        which: The pass.
        candidates: Algorithms that serve it.
        operands: Its tensors.
        budget: Workspace in bytes.
        thorough: Time hopeless candidates as carefully as the others, for a benchmark.

    Raises:
        DeviceLostError: A candidate has taken the device with it.
    """
    timings: list[Timing] = []
    reference: torch.Tensor | None = None
    for algorithm in candidates:
        if not algorithm.worth_measuring(problem, which):
            continue
        best = min((t.cost for t in timings), default=0.0)
        running = algorithm
        try:
            if not exact_enough(algorithm, problem, which):
                faults.dropped(algorithm.name, problem, which, "it errs more than twice as much as a plain sum", True)
                continue
            if algorithm.engine == "triton":
                # Compiled on this machine, for this very shape: nobody has seen its numbers before.
                algorithm.prepare(problem, which)
                if reference is None:
                    running = direct = BY_NAME["transposed" if problem.transposed else "unfold"]
                    reference = run_pass(direct, problem, which, operands, budget)
                    _wait_for(operands)
                    running = algorithm
                if not _agrees(run_pass(algorithm, problem, which, operands, budget), reference):
                    LOG.warning("%s is left out for %s, %s: it gives wrong numbers", algorithm.name, problem, which)
                    continue
            whole = algorithm.bound(problem) if algorithm.workspace_bytes(problem) <= budget else None
            taken = spent(
                lambda a=algorithm, w=whole: run_pass(a, problem, which, operands, budget, w),  # type: ignore[misc]
                operands.x.device,
                repeats=7 if thorough else 5,
                give_up=0.0 if thorough else _HOPELESS * best,
            )
        except Exception as error:
            # Out of memory, a GEMM the device lacks, a sick vendor library. A compiler may raise anything.
            if not isinstance(error, RuntimeError) and algorithm.engine != "triton":
                raise
            faults.raise_if_lost(error, problem, running.name, which)
            about = "" if running is algorithm else f"{running.name}, which it is compared with, fails with "
            expected = isinstance(error, (Spills, torch.cuda.OutOfMemoryError))
            faults.dropped(algorithm.name, problem, which, about + faults.in_one_line(error), expected)
            if operands.x.device.type == "cuda":
                torch.cuda.empty_cache()
            continue
        timings.append(Timing(algorithm.name, taken.device_ms, taken.host_ms))
    return sorted(timings, key=lambda timing: timing.cost)


def exact_enough(algorithm: Algorithm, problem: ConvProblem, which: str) -> bool:
    """Tell whether an algorithm that pays speed with digits errs at most twice as much as a direct sum."""
    if algorithm.exact:
        return True
    one = replace(problem, input_shape=(1, *problem.input_shape[1:]))
    operands, direct = Operands.of(one), BY_NAME["unfold"]
    wide = replace(one, dtype=torch.float64)
    doubles = Operands(operands.x.double(), operands.weight.double(), operands.grad.double())
    everything = 1 << 62
    true = run_pass(direct, wide, which, doubles, everything)
    errors = [relative_error(run_pass(a, one, which, operands, everything), true) for a in (algorithm, direct)]
    return errors[0] <= _MOST_ERROR * errors[1]


def _wait_for(operands: Operands) -> None:
    """Let a fault show itself where it belongs."""
    if operands.x.device.type == "cuda":
        torch.cuda.synchronize(operands.x.device)


def _agrees(result: torch.Tensor, reference: torch.Tensor) -> bool:
    """Tell whether two results of the same sum are the same but for rounding."""
    most = 1e-3 if result.dtype == torch.float32 else 3e-2
    distance = torch.linalg.vector_norm((result.float() - reference.float()).flatten())
    return bool(distance <= most * torch.linalg.vector_norm(reference.float().flatten()))


def compile_ahead(
    problems: Iterable[ConvProblem],
    candidates: Callable[[ConvProblem], list[Algorithm]],
    out_of_time: Callable[[], bool] = lambda: False,
) -> None:
    """Let all candidates do beforehand what they can, side by side."""
    jobs: list[Callable[[], None]] = []
    for problem in problems:
        for algorithm in candidates(problem):
            if type(algorithm).prepare is not Algorithm.prepare:
                jobs += [
                    partial(algorithm.prepare, problem, w) for w in PASSES if algorithm.worth_measuring(problem, w)
                ]
    if not jobs:
        return
    prepare_all(jobs, min(_COMPILERS, os.cpu_count() or 1), out_of_time)


def tune(
    problems: Iterable[ConvProblem],
    candidates: Callable[[ConvProblem], list[Algorithm]],
    budget: int,
    limit_s: float,
) -> Iterator[tuple[ConvProblem, dict[str, list[Timing]]]]:
    """Yield the timings of each problem, pass by pass, until the time is up.

    Args:
        problems: What to tune; the largest first, so that a time limit cuts off the least.
        candidates: Algorithms that serve a problem.
        budget: Workspace in bytes.
        limit_s: Seconds after which nothing new is begun.
    """
    started = time.monotonic()
    problems = sorted(problems, key=lambda p: -p.flops)
    compile_ahead(problems, candidates, lambda: time.monotonic() - started > _COMPILING * limit_s)
    for problem in problems:
        if time.monotonic() - started > limit_s:
            return
        try:
            operands = Operands.of(problem)
        except RuntimeError as error:  # no memory left for them
            faults.raise_if_lost(error, problem)
            LOG.warning("nothing is measured for %s, the rules decide: %s", problem, faults.in_one_line(error))
            continue
        with as_in_the_seam():
            result = {which: time_candidates(problem, which, candidates(problem), operands, budget) for which in PASSES}
        del operands
        yield problem, {which: timings for which, timings in result.items() if timings}
