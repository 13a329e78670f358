"""How a kernel earns trust: compared once on a small problem, and at its own size where it was not measured there.

A kernel that is compiled on the spot runs a small problem on each device. What was not measured on a problem, and so
not compared either, runs it once at its own size: libraries too are wrong on some cards, beyond what is small.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

import torch

from ...utils.error_text import typed_line
from ...utils.log_lines import log
from ..devices import on
from ..kernel_errors import Spills
from ..measure import MOST_RATIO, as_in_the_seam
from ..names import Pass
from ..operator import A, Operator, P, Tensors
from ..triton.available import interpreted
from .record import raise_if_lost, record_of

# A kernel that works errs by a few roundings; one that does not is wrong altogether.
ROUNDINGS: Final = 64
_RESULTS: Final = 2  # that a pass holds at once: as a product gives it, and as it is laid out


def check(operator: Operator[P, A], algorithm: A, problem: P, which: Pass | None = None) -> None:
    """Run a small problem of the same data type and layout, once, and compare with fp64 on the CPU.

    A kernel that fails or errs is quarantined: from then on it is among the algorithm's reasons.

    Args:
        operator: The operator.
        algorithm: Whose kernel; nothing is done where it has none of its own.
        problem: What it is about to compute.
        which: A pass of it that has to compile now; an algorithm whose tile does not fit the device is quarantined.

    Raises:
        DeviceLostError: The device does not compute any more afterwards.
    """
    tested: Any = algorithm.tested_by()
    if tested.kernel is None or interpreted():
        return
    record, key = record_of(problem.device), (operator.name, tested.kernel, problem.dtype)
    with record.lock:
        if key not in record.qualified:
            why = small_problem_error(operator, tested, operator.small(problem, tested.kernel))
            if why is not None:
                record.quarantine(*key, why)
            record.qualified.add(key)
    if which is None or algorithm.not_supported_reasons(problem):
        return
    try:
        algorithm.prepare(problem, which)
    except Spills:
        pass  # slow, not wrong
    except Exception as error:  # a compiler may raise anything
        raise_if_lost(error, problem, operator.name, algorithm.name, which)
        record.quarantine(operator.name, algorithm.name, problem.dtype, f"{which} fails with {typed_line(error)}")


def small_problem_error(operator: Operator[P, A], algorithm: A, problem: P) -> str | None:
    """Say in which pass of a problem an algorithm fails or differs from fp64; None where it is right."""
    operands = operator.operands(problem)
    for which in operator.passes:
        try:
            result = operator.run(algorithm, problem, which, operands).double().cpu()
        except Exception as error:  # a compiler may raise anything
            raise_if_lost(error, problem, operator.name, algorithm.name, which)
            return f"{which} fails with {typed_line(error)}"
        distance = operator.distance(problem, which, result, operator.in_fp64(problem, which, operands, "cpu"))
        if not distance <= ROUNDINGS * torch.finfo(problem.dtype).eps:
            return f"{which} is wrong, its relative error is {distance:.1e}"
    return None


def gives_wrong_numbers(operator: Operator[P, A], problem: P, chosen: Mapping[Pass, A], budget: int) -> list[Pass]:
    """Return the passes in which chosen algorithms do not give what the reference gives; each is compared once.

    What fails altogether is not compared: it says so itself when it is used.

    Args:
        operator: The operator.
        problem: The problem.
        chosen: The algorithm of each pass.
        budget: Workspace in bytes.

    Raises:
        DeviceLostError: The device does not compute any more afterwards.
    """
    compared = record_of(problem.device).compared
    waiting = {
        which: algorithm
        for which, algorithm in chosen.items()
        if (operator.name, algorithm.name, problem, which) not in compared
        and not (interpreted() and algorithm.tested_by().kernel is not None)
    }
    on_gpu = torch.device(problem.device).type == "cuda"
    if on_gpu and (not torch.cuda.is_available() or torch.cuda.is_current_stream_capturing()):
        return []  # nothing can be tried now
    if not waiting or operator.reference(problem).not_supported_reasons(problem):
        return []
    compared.update((operator.name, algorithm.name, problem, which) for which, algorithm in waiting.items())
    name: str | None = None
    wrong, which = [], None
    try:
        # A network may be under autocast where it plans, and the reference has to compute in the problem's data type.
        off = torch.autocast(torch.device(problem.device).type, enabled=False)
        with on(problem.device), off, as_in_the_seam():
            operands = operator.operands(problem)
            for which, algorithm in waiting.items():
                expected = operator.expected(problem, which, operands, budget)
                name = algorithm.name
                if not gives(expected, operator, algorithm, problem, which, operands, budget):
                    wrong.append(which)
    except Exception as error:  # a compiler may raise anything
        raise_if_lost(error, problem, operator.name, name, which)
        why = typed_line(error)
        log("kernel.not_compared", "%s, %s: nothing is compared, %s", problem, which, why, level=logging.DEBUG)
    return wrong


def expected_result(
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
        raise_if_lost(error, problem, operator.name, reference.name, which)
        return None, f"{reference.name}, which it is compared with, fails with {typed_line(error)}"
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
    return ours <= MOST_RATIO * plain


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
    result = operator.run(algorithm, problem, which, operands, budget)
    return operator.distance(problem, which, result, expected) <= (1e-3 if problem.dtype == torch.float32 else 3e-2)
