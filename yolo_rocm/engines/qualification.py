"""Qualification: what has to be shown once before the first use.

A kernel that is compiled on the spot runs a small problem on each device. What was not measured on a problem, and so
not compared either, runs it once at its own size: libraries too are wrong on some cards, beyond what is small.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any, Final

import torch

from ..utils.log_lines import log
from .device_state import STATE
from .devices import is_there, on
from .faults import in_one_line, raise_if_lost
from .kernel_errors import Spills
from .measure import as_in_the_seam
from .names import Pass
from .operator import A, Operator, P, Problem
from .quarantine import quarantine_kernel
from .triton.available import interpreted
from .tuning import gives

# A kernel that works errs by a few roundings; one that does not is wrong altogether.
ROUNDINGS: Final = 64
_lock = threading.RLock()
_seen: set[tuple[str, str, str, torch.dtype]] = STATE.container(set())
_compared: set[tuple[str, str, Problem, str]] = STATE.container(set())  # (operator, algorithm, problem, pass)


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
    key = (operator.name, problem.device, tested.kernel, problem.dtype)
    with _lock:
        if key not in _seen:
            why = _wrong(operator, tested, operator.small(problem, tested.kernel))
            if why is not None:
                quarantine_kernel(*key, why)
            _seen.add(key)
    if which is None or algorithm.not_supported_reasons(problem):
        return
    try:
        algorithm.prepare(problem, which)
    except Spills:
        pass  # slow, not wrong
    except Exception as error:  # a compiler may raise anything
        raise_if_lost(error, problem, operator.name, algorithm.name, which)
        why = f"{which} fails with {in_one_line(error)}"
        quarantine_kernel(operator.name, problem.device, algorithm.name, problem.dtype, why)


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
    waiting = {
        which: algorithm
        for which, algorithm in chosen.items()
        if (operator.name, algorithm.name, problem, which) not in _compared
        and not (interpreted() and algorithm.tested_by().kernel is not None)
    }
    if not waiting or not is_there(problem.device) or operator.reference(problem).not_supported_reasons(problem):
        return []
    _compared.update((operator.name, algorithm.name, problem, which) for which, algorithm in waiting.items())
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
        log(
            "kernel.uncompared",
            "%s, %s: nothing is compared, %s",
            problem,
            which,
            in_one_line(error),
            level=logging.DEBUG,
        )
    return wrong


def _wrong(operator: Operator[P, A], algorithm: A, problem: P) -> str | None:
    operands = operator.operands(problem)
    for which in operator.passes:
        try:
            result = operator.run(algorithm, problem, which, operands).double().cpu()
        except Exception as error:  # a compiler may raise anything
            raise_if_lost(error, problem, operator.name, algorithm.name, which)
            return f"{which} fails with {in_one_line(error)}"
        distance = operator.distance(problem, which, result, operator.in_fp64(problem, which, operands, "cpu"))
        if not distance <= ROUNDINGS * torch.finfo(problem.dtype).eps:
            return f"{which} is wrong, its relative error is {distance:.1e}"
    return None
